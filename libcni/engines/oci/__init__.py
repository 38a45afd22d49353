"""CNI as a hook of OCI runtimes: runc, crun, youki, and the programs that build on them.

``libcni oci-hook`` is this package's ``main``. The names are resolved on first use: a hook runs at every start and end
of a container, and needs few of these modules each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.engines.oci.ended_containers import RUNTIMES, Ended, collect, find_ended
    from libcni.engines.oci.hook_command import main
    from libcni.engines.oci.pins import OWNER, Pin

_MODULES = {
    "hook_command": "main",
    "pins": "OWNER Pin",
    "ended_containers": "RUNTIMES Ended collect find_ended",
}

__all__ = ["OWNER", "RUNTIMES", "Ended", "Pin", "collect", "find_ended", "main"]

if not TYPE_CHECKING:  # type checkers read the imports above, and report misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
