"""What a flow asks its driver to do, as plain values. Besides these, a flow yields an Invocation."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from libcni.protocol.invocation import Invocation
from libcni.store.locks import LockRequest
from libcni.store.record import Identity, Record

__all__ = [
    "AllRecords",
    "AwaitOrphan",
    "Begin",
    "Complete",
    "Find",
    "Flow",
    "Forget",
    "Lock",
    "Lookup",
    "NamespaceOf",
    "Pause",
    "Recall",
    "Remember",
    "SetAside",
    "Siblings",
    "StartCleanup",
    "Step",
    "Sweep",
]


@dataclass(frozen=True, slots=True)
class Find:
    """Find the executables of plugin types; answer: their paths, in order, "" for a missing one if that is allowed."""

    plugins: tuple[str, ...]
    missing_allowed: bool = False


@dataclass(frozen=True, slots=True)
class Lock:
    """Let go of what is held, and take these locks; they are held until the flow ends or locks anew.

    ``beside``: keep what the last Lock without it took. ``patience``: seconds to wait at most, or None.
    """

    request: LockRequest
    beside: bool = False
    patience: float | None = None


@dataclass(frozen=True, slots=True)
class AwaitOrphan:
    """Wait, bounded, for a plugin that outlived its runtime; answer: whether none is left."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Let time pass; answer: whether there was the time."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StartCleanup:
    """Give what follows the clean-up's own time, and no longer the verb's."""


@dataclass(frozen=True, slots=True)
class NamespaceOf:
    """Look at a network namespace's path; answer: its (device, inode), or None where nothing is there."""

    netns: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """Look for the record of an identity; answer: the record, which may be corrupt, or None."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class Siblings:
    """Look for the records of one (container, interface) on whatever network; answer: a list."""

    container_id: str
    ifname: str


@dataclass(frozen=True, slots=True)
class AllRecords:
    """List all records, or those of one container; answer: a list with the corrupt ones in it."""

    container_id: str | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Write a pending record before the first plugin runs; answer: the record with path, time, boot and namespace."""

    record: Record


@dataclass(frozen=True, slots=True)
class Complete:
    """Write the record of an ADD that has ended well."""

    record: Record


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove a record."""

    record: Record


@dataclass(frozen=True, slots=True)
class SetAside:
    """Move a corrupt record out of the way; answer: its new path."""

    record: Record


@dataclass(frozen=True, slots=True)
class Recall:
    """Ask for what was remembered of an executable; answer: that, or None if the file is another one by now."""

    executable: str


@dataclass(frozen=True, slots=True)
class Remember:
    """Keep in mind what an executable said, as long as its file stays the same."""

    executable: str
    said: Any


@dataclass(frozen=True, slots=True)
class Sweep:
    """Remove temporary files that writers of records left when they were killed."""


Step = (
    Invocation
    | Find
    | Lock
    | AwaitOrphan
    | Pause
    | StartCleanup
    | NamespaceOf
    | Lookup
    | Siblings
    | AllRecords
    | Begin
    | Complete
    | Forget
    | SetAside
    | Sweep
    | Recall
    | Remember
)

_Answer = TypeVar("_Answer")
Flow = Generator[Step, Any, _Answer]
"""A verb: yields steps, is sent their answers or thrown their CNIErrors, and returns the verb's answer."""
