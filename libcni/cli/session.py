"""The common options of one run of the command line, and the clients made from them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal

from libcni._dataclass import dataclass
from libcni.cli.options import COMMON, DIRECTORIES, OWNER
from libcni.cli.parser import refusal
from libcni.cli.render import Block, print_block, print_data, with_short_ids
from libcni.errors import printable

if TYPE_CHECKING:
    from libcni import CNIConfig, Hint, Invocation
    from libcni.cli.commands import Command
    from libcni.observe import Observer


def _forward(_: Invocation, text: str) -> None:
    """Print the stderr of a plugin that succeeded."""
    sys.stderr.write(printable(text))


@dataclass(frozen=True, slots=True)
class Session:
    """The common options, and the name of the running command; "" for none."""

    conf_dir: str
    path: str
    cache_dir: str
    owner: str
    timeout: float
    output: Literal["text", "json"]
    verbose: bool
    command: str = ""

    def client(self, **settings: Any) -> CNIConfig:
        """Return a blocking client with the common options and ``settings``; it passes plugins' stderr on."""
        import libcni

        observer: Observer | None = None
        if self.verbose:
            from libcni.cli.call_printer import CallPrinter

            observer = CallPrinter()
        elif sys.stderr.isatty():
            from libcni.cli.progress import Progress

            observer = Progress(self.cache_dir)
        # "No limit" is 0 on the command line, and None in the library, which refuses 0.
        limit = self.timeout or None
        return libcni.CNIConfig(
            self.path, self.cache_dir, conf_dir=self.conf_dir, owner=self.owner, timeout=limit, stderr=_forward,
            observer=observer, **settings,
        )  # fmt: skip

    def hint_command(self, hint: Hint) -> str:
        """Return the command of a hint, with the options that the user's environment does not set; "" if none."""
        client = {"conf_dir": self.conf_dir, "path": self.path, "cache_dir": self.cache_dir, "owner": self.owner}
        presets = [option.preset for option in (*DIRECTORIES, OWNER)]
        command = hint.shell_command(client, dict(zip(client, presets, strict=True)))
        # A command that its own parser refuses leads nowhere.
        return command if command and not refusal(command) else ""

    def option_of(self, argument: str) -> str:
        """Return the option for an argument of the library, with another command's name if this one lacks it."""
        from libcni.cli.commands import COMMANDS

        option = f"--{argument.replace('_', '-')}"

        def has_option(command: Command) -> bool:
            return any(option in known.flags for known in (*command.load()[1], *COMMON))

        # This command first: the others need not be imported then. del is the one that users know.
        order = sorted(COMMANDS, key=lambda command: (command.name != self.command, command.name != "del"))
        having = next(filter(has_option, order), None)
        return option if having is None or self.command in {"", having.name} else f"libcni {having.name} {option}"

    def show(self, data: Any, *blocks: Block) -> None:
        """Print the blocks, or the data if ``--output`` is json."""
        self.show_text(*blocks)
        if self.output == "json":
            print_data(data)

    def show_text(self, *blocks: Block) -> None:
        """Print the blocks if ``--output`` is text."""
        if self.output == "text":
            for block in blocks:
                print_block(with_short_ids(block))
