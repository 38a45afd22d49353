"""The three cases that a verb finds on the disk: the attachment's record, a damaged file, or nothing."""

from __future__ import annotations

from typing import ClassVar, Literal

from libcni._dataclass import dataclass
from libcni.errors import NotAttachedError
from libcni.store.model import Identity, Record, Unreadable
from libcni.verbs.verb_run import VerbRun

Found = Literal["found", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The attachment has a record."""

    record: Record
    found: ClassVar[Found] = "found"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file that cannot be read may be the attachment's record."""

    file: Unreadable
    found: ClassVar[Found] = "unreadable"


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """The attachment has no record."""

    found: ClassVar[Found] = "missing"


Target = Recorded | Damaged | Unrecorded


def find_target(run: VerbRun, identity: Identity) -> Target:
    """Return an attachment's record, a damaged file in its place, or neither; raises RecordError."""
    record = run.records.find(identity)
    if isinstance(record, Unreadable):
        return Damaged(record)
    return Unrecorded() if record is None else Recorded(record)


def not_attached(identity: Identity, problem: str, state: str = "") -> NotAttachedError:
    """Return the error for a verb that needs a completed ADD."""
    network, container_id, ifname = identity
    return NotAttachedError(
        f"container {container_id}, interface {ifname}, network {network}: {problem}",
        container_id=container_id,
        ifname=ifname,
        network=network,
        state=state,
    )
