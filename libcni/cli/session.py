"""The common options of one run of the command line, and the clients made from them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from libcni.cli.render import Block, print_block, print_data

if TYPE_CHECKING:
    from libcni import AsyncCNIConfig, CNIConfig, Observer

__all__ = ["Output", "Session"]

Output = Literal["text", "json", "yaml", "openmetrics"]


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

    def async_client(self) -> AsyncCNIConfig:
        """Return an asyncio client with the same settings."""
        import libcni

        # No progress line: a batch has a progress bar.
        observer = self._observer() if self.verbose else None
        return libcni.AsyncCNIConfig(self.path, self.cache_dir, observer=observer, **self._options())

    def _observer(self) -> Observer | None:
        if self.verbose:
            from libcni.cli.call_printer import CallPrinter

            return CallPrinter()
        if sys.stderr.isatty():
            from libcni.cli.progress import Progress

            return Progress(self.cache_dir)
        return None

    def _options(self) -> dict[str, Any]:
        return {
            "conf_dir": self.conf_dir,
            "owner": self.owner,
            "timeout": self.timeout or None,
            "stderr": sys.stderr,
        }

    def show(self, data: Any, *blocks: Block) -> None:
        """Print the blocks, or the data if ``--output`` is json or yaml."""
        if self.output == "text":
            for block in blocks:
                print_block(block)
        else:
            print_data(data, self.output)
