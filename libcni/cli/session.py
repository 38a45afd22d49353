"""What one run of the command line was told by its common options, and the client made of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from libcni.cli.render import Block, print_block, print_data

if TYPE_CHECKING:
    from libcni import AsyncCNIConfig, CNIConfig

__all__ = ["Output", "Session"]

Output = Literal["text", "json", "yaml"]


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
        """Return the client; what plugins print on stderr goes to ours."""
        import libcni

        return libcni.CNIConfig(self.path, self.cache_dir, **self._options())

    def async_client(self) -> AsyncCNIConfig:
        """Return the same for asyncio."""
        import libcni

        return libcni.AsyncCNIConfig(self.path, self.cache_dir, **self._options())

    def _options(self) -> dict[str, Any]:
        from libcni.cli.narrate import Narrator

        observer = Narrator() if self.verbose else None
        timeout = self.timeout or None
        return {"conf_dir": self.conf_dir, "timeout": timeout, "stderr": sys.stderr, "observer": observer}

    def show(self, data: Any, *blocks: Block) -> None:
        """Print an answer: as data where that is asked for, else the blocks."""
        if self.output == "text":
            for block in blocks:
                print_block(block)
        else:
            print_data(data, self.output)
