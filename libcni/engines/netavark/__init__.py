"""CNI networks for podman 5 and later: a network driver of netavark (its plugin-API.md, version 1.0.0).

``libcni netavark-plugin`` is this package's ``main``. netavark runs a driver at every start and end of a container, so
the names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.engines.netavark.driver_command import main
    from libcni.engines.netavark.podman_request import OWNER

_MODULES = {"driver_command": "main", "podman_request": "OWNER"}

__all__ = ["OWNER", "main"]

if not TYPE_CHECKING:  # type checkers read the imports above, and report misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
