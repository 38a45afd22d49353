"""Put a cache directory in order: what no verb does by itself, because nobody may stand beside it."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachment_of
from libcni.store.locks import LockRequest, LockSet
from libcni.store.record import CORRUPT
from libcni.store.records import RecordStore

__all__ = ["RepairReport", "repair_records"]


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did, or would do.

    Attributes:
        corrupt: the records that cannot be read, each with its ``problem`` and the ``path`` that it had.
        moved_to: where they are now, in the same order; "" for one that could not be moved; () on a dry run.
        temporary: files that writers of records left when they were killed; removed.
    """

    corrupt: tuple[Attachment, ...] = ()
    moved_to: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()


def repair_records(
    cache_dir: str | os.PathLike[str], *, dry_run: bool = False, timeout: float | None = 30.0
) -> RepairReport:
    """Move corrupt records to ``<cache_dir>/corrupt`` and remove temporary files that were left over.

    It waits until no verb of any container runs. What a corrupt record stood for is unknown: detach the container with
    its network's configuration first, if it is known.

    Args:
        cache_dir: where the records are.
        dry_run: change nothing, only report.
        timeout: seconds to wait for the verbs that run; None: no limit.

    Raises:
        LockTimeoutError: verbs ran all the time.
        RecordError: the directory cannot be read or written.
    """
    directory = os.path.abspath(os.fspath(cache_dir))
    store = RecordStore(directory)
    if dry_run:
        return RepairReport(corrupt=_corrupt(store), temporary=tuple(store.sweep(older_than=0, dry_run=True)))
    if not os.path.isdir(directory):
        return RepairReport()
    hold = LockSet(directory, LockRequest(all_containers=True))
    try:
        for delay in hold.retry_delays(math.inf if timeout is None else time.monotonic() + timeout):
            time.sleep(delay)
        corrupt = _corrupt(store)
        moved = tuple(_set_aside(store, attachment) for attachment in corrupt)
        return RepairReport(corrupt, moved, tuple(store.sweep(older_than=0)))
    finally:
        hold.close()


def _corrupt(store: RecordStore) -> tuple[Attachment, ...]:
    return tuple(attachment_of(record) for record in store.records() if record.state == CORRUPT)


def _set_aside(store: RecordStore, attachment: Attachment) -> str:
    try:
        return store.set_aside(attachment.record)
    except RecordError:
        return ""
