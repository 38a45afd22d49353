"""The common options of one run of the command line, and the clients made from them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from libcni.cli.render import Block, print_block, print_data

if TYPE_CHECKING:
    from libcni import AsyncCNIConfig, CNIConfig

__all__ = ["Output", "Session"]

Output = Literal["text", "json", "yaml", "openmetrics"]


@dataclass(frozen=True, slots=True)
class Session:
    """The common options."""

    conf_dir: str
    path: str
    cache_dir: str
    timeout: float
    output: Output
    verbose: bool

    def client(self) -> CNIConfig:
        """Return a blocking client. The plugins' stderr goes to this program's stderr."""
        import libcni

        return libcni.CNIConfig(self.path, self.cache_dir, **self._options())

    def async_client(self) -> AsyncCNIConfig:
        """Return an asyncio client with the same settings."""
        import libcni

        return libcni.AsyncCNIConfig(self.path, self.cache_dir, **self._options())

    def _options(self) -> dict[str, Any]:
        from libcni.cli.narrate import Narrator

        observer = Narrator() if self.verbose else None
        timeout = self.timeout or None
        return {"conf_dir": self.conf_dir, "timeout": timeout, "stderr": sys.stderr, "observer": observer}

    def show(self, data: Any, *blocks: Block) -> None:
        """Print the blocks, or the data if ``--output`` is json or yaml."""
        if self.output == "text":
            for block in blocks:
                print_block(block)
        else:
            print_data(data, self.output)
