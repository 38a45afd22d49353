"""The common options of one run of the command line, and the clients made from them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from libcni import printable
from libcni.cli.render import Block, print_block, print_data

if TYPE_CHECKING:
    from libcni import CNIConfig, Invocation
    from libcni.observe import Observer

DEFAULTS = {
    "conf_dir": "/etc/cni/net.d",
    "path": os.pathsep.join(("/opt/cni/bin", "/usr/lib/cni")),
    "cache_dir": "/var/lib/cni",
}
"""The directories that are used if neither an option nor a variable names others."""

_COMMAND = re.compile(
    r"\blibcni (add|attachments|check|del|diff|doctor|forget|gc|networks|reload|repair|show|status)\b( --check| --yes)?"
)

Output = Literal["text", "json", "yaml", "openmetrics"]


def _forward(_: Invocation, text: str) -> None:
    """Print the stderr of a plugin that succeeded."""
    sys.stderr.write(printable(text))


@dataclass(frozen=True, slots=True)
class Session:
    """The common options."""

    conf_dir: str
    path: str
    cache_dir: str
    owner: str
    timeout: float
    output: Output
    verbose: bool

    def client(self) -> CNIConfig:
        """Return a blocking client. The plugins' stderr goes to this program's stderr."""
        import libcni

        return libcni.CNIConfig(self.path, self.cache_dir, observer=self._observer(), **self._options())

    def _observer(self) -> Observer | None:
        if self.verbose:
            from libcni.cli.call_printer import CallPrinter

            return CallPrinter()
        if sys.stderr.isatty():
            from libcni.cli.progress import progress_of

            return progress_of(self.cache_dir)
        return None

    def working(self, command: str) -> AbstractContextManager[None]:
        """Show on a terminal, after a second, that a command works through the records. Print nothing meanwhile."""
        if self.verbose or not sys.stderr.isatty():
            return nullcontext()
        from libcni.cli.progress import progress_of

        return progress_of(self.cache_dir).working(command)

    def _options(self) -> dict[str, Any]:
        # 0 means no limit on the command line. The library refuses 0, and takes None for it.
        return {"conf_dir": self.conf_dir, "owner": self.owner, "timeout": self.timeout or None, "stderr": _forward}

    def command(self, text: str) -> str:
        """Return a text whose libcni commands have those common options that the caller's environment does not set."""
        directories = self._directory_options()

        def with_options(found: re.Match[str]) -> str:
            # Without its owner, repair would detach the attachments that have none.
            is_of_owner = found[1] == "repair" and self.owner != os.environ.get("LIBCNI_OWNER", "")
            options = [*directories, *(["--owner", self.owner] if is_of_owner else [])]
            return f"{found[0]} {shlex.join(options)}" if options else found[0]

        return _COMMAND.sub(with_options, text)

    def _directory_options(self) -> list[str]:
        """Return the directories that only options have set, as options."""
        defaults = (
            ("--conf-dir", self.conf_dir, os.environ.get("NETCONFPATH") or DEFAULTS["conf_dir"]),
            ("--path", self.path, os.environ.get("CNI_PATH") or DEFAULTS["path"]),
            ("--cache-dir", self.cache_dir, os.environ.get("LIBCNI_CACHE_DIR") or DEFAULTS["cache_dir"]),
        )
        return [word for option, value, default in defaults if value != default for word in (option, value)]

    def show(self, data: Any, *blocks: Block) -> None:
        """Print the blocks, or the data if ``--output`` is json or yaml."""
        self.show_text(*blocks)
        if self.output != "text":
            print_data(data, "json" if self.output == "json" else "yaml")

    def show_text(self, *blocks: Block) -> None:
        """Print the blocks if ``--output`` is text."""
        if self.output == "text":
            for block in blocks:
                print_block(block)
