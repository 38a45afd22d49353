"""CNI as a hook of OCI runtimes: runc, crun, youki, and the programs that build on them.

``libcni oci-hook`` is this package's ``main``. The names are resolved on first use: a hook runs at every start and end
of a container, and needs few of these modules each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.oci.annotations import Wanted, read_wanted
    from libcni.oci.command import main
    from libcni.oci.hook import Hook
    from libcni.oci.pins import OWNER, Pin, Pins
    from libcni.oci.runtimes import RUNTIMES, Ended, collect, container_ids, find_ended
    from libcni.oci.state import ContainerState, read_state

_MODULES = {
    "annotations": "Wanted read_wanted",
    "command": "main",
    "hook": "Hook",
    "pins": "OWNER Pin Pins",
    "runtimes": "RUNTIMES Ended collect container_ids find_ended",
    "state": "ContainerState read_state",
}

__all__ = [
    "OWNER", "RUNTIMES", "ContainerState", "Ended", "Hook", "Pin", "Pins", "Wanted", "collect", "container_ids",
    "find_ended", "main", "read_state", "read_wanted",
]  # fmt: skip

if not TYPE_CHECKING:  # checkers read the imports above, and so find misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
