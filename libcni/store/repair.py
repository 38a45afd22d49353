"""Repair a cache directory. No verb does this itself, because it must exclude all other verbs."""

from __future__ import annotations

import math
import os
import re
import time
from dataclasses import dataclass

from libcni.config.timeouts import check_timeout
from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachment_of
from libcni.store.locks import LockRequest, LockSet, is_locked
from libcni.store.record import CORRUPT, Record
from libcni.store.records import RecordStore

__all__ = ["RepairReport", "repair_records"]

_YOUNG = 10.0
_SECOND_LOOK = 0.5
_OWNER = re.compile(rb'"owner"\s*:\s*"((?:[^"\\]|\\.)*)"')
_LOOKED_AT = 1 << 20


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The outcome of a repair, or of a dry run.

    Attributes:
        corrupt: the unreadable records, each with its ``problem`` and its old ``path``.
        moved_to: their new paths in the same order; "" if a record could not be moved; () on a dry run.
        temporary: the removed temporary files of killed writers. While verbs run, a dry run lists only those that are
            older than 10 seconds.
        left: files that repair did not change, each as "path: reason".
    """

    corrupt: tuple[Attachment, ...] = ()
    moved_to: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def repair_records(
    cache_dir: str | os.PathLike[str],
    owner: str | None = None,
    *,
    dry_run: bool = False,
    timeout: float | None = 30.0,
) -> RepairReport:
    """Move corrupt records to ``<cache_dir>/corrupt`` and remove the temporary files that killed writers left.

    Repair waits until no verb of any container runs; a dry run does not wait. A corrupt record does not name its
    attachment: if you know the container, detach it with its network's configuration first. Go libcni writes its
    records in place, so repair reads a new file that looks corrupt twice, half a second apart.

    Args:
        cache_dir: the directory of the records.
        owner: leave corrupt records that name another owner; None: move all.
        dry_run: change nothing, only report.
        timeout: seconds to wait for the verbs that run; None: no limit.

    Raises:
        LockTimeoutError: verbs ran until the timeout.
        RecordError: the directory cannot be read or written.
        TypeError: ``timeout`` is no number.
        ValueError: ``timeout`` is 0, negative or NaN.
    """
    timeout = check_timeout(timeout)
    directory = os.path.abspath(os.fspath(cache_dir))
    store = RecordStore(directory)
    if dry_run:
        corrupt, left = _corrupt(store, owner)
        drafts, others = _drafts(store, dry_run=True)
        return RepairReport(corrupt, (), drafts, left + others)
    if not os.path.isdir(directory):  # the locks would make it
        return RepairReport()
    locks = LockSet(directory, LockRequest(all_containers=True))
    try:
        for delay in locks.retry_delays(math.inf if timeout is None else time.monotonic() + timeout):
            time.sleep(delay)
        corrupt, left = _corrupt(store, owner)
        moved = tuple(_set_aside(store, attachment) for attachment in corrupt)
        drafts, others = _drafts(store, dry_run=False)
        return RepairReport(corrupt, moved, drafts, left + others)
    finally:
        locks.close()


def _corrupt(store: RecordStore, owner: str | None) -> tuple[tuple[Attachment, ...], tuple[str, ...]]:
    """Return the corrupt records to move, and those to leave, each with its reason."""
    left: list[str] = []
    found: dict[str, Record] = {}
    for name in store.iter_names():
        record = _read_corrupt(store, name, left)
        if record is None:
            continue
        if owner is not None and (other := _owner_in(record.path)) not in {None, owner}:
            left.append(f"{record.path}: it is corrupt, and its owner is {other!r}")
        else:
            found[name] = record
    _look_again(store, found, left)
    return tuple(attachment_of(found[name]) for name in sorted(found)), tuple(sorted(left))


def _read_corrupt(store: RecordStore, name: str, left: list[str]) -> Record | None:
    """Return the record in a file if it is corrupt. An error of the disk does not make a record corrupt."""
    try:
        record = store.read(name)
    except RecordError as error:
        left.append(error.text)
        return None
    return record if record is not None and record.state == CORRUPT else None


def _look_again(store: RecordStore, found: dict[str, Record], left: list[str]) -> None:
    """Read new files again, and remove those from ``found`` that another program is writing."""
    before = {name: _written(record.path) for name, record in found.items()}
    young = [name for name, (modified, _) in before.items() if time.time() - modified < _YOUNG]
    if young:
        time.sleep(_SECOND_LOOK)
    # Go does not take this library's locks, so only a change of the file shows that it is writing.
    for name in young:
        again = _read_corrupt(store, name, left)
        if again is None:
            del found[name]
        elif _written(again.path) != before[name]:
            left.append(f"{again.path}: another program is writing it")
            del found[name]


def _written(path: str) -> tuple[float, int]:
    """Return a file's modification time and size; (0, 0) if it does not exist."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0.0, 0
    return status.st_mtime, status.st_size


def _owner_in(path: str) -> str | None:
    """Return the owner that a damaged file still names, or None."""
    # The file may be anything: a FIFO would block without O_NONBLOCK, and a link may lead to another user's file.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        named = _OWNER.findall(os.read(descriptor, _LOOKED_AT))
    except OSError:  # for example a directory
        return None
    finally:
        os.close(descriptor)
    # Use the last match: an earlier one may be in a configuration or a result.
    return named[-1].decode(errors="replace") if named else None


def _drafts(store: RecordStore, *, dry_run: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Remove the temporary files; return the removed ones, and those that are left, each with its reason."""
    left: list[str] = []
    # 0: the locks exclude all writers.
    swept = _of_killed_writers(store) if dry_run else store.sweep(older_than=0, left=left)
    folders = filter(os.path.isdir, [*_names(store.drafts), *_names(store.partials)])
    left += [f"{path}: it is a directory, which libcni did not make" for path in folders]
    return tuple(swept), tuple(sorted(left))


def _of_killed_writers(store: RecordStore) -> list[str]:
    """Return the temporary files that killed writers left, without excluding the verbs that run."""
    found = store.sweep(older_than=0, dry_run=True)
    if found and _does_a_verb_run(store.cache_dir):
        # Any young file may be the one of a running writer. So may an old one for a moment, after a slow plugin.
        old = store.sweep(older_than=_YOUNG, dry_run=True)
        if old:
            time.sleep(_SECOND_LOOK)
        found = [path for path in found if path in old]
    # A writer removes its file before it releases its lock. So the file of a writer that ended meanwhile has gone.
    return [path for path in found if os.path.lexists(path)]


def _does_a_verb_run(cache_dir: str) -> bool:
    """Return whether a verb of any container runs, or whether that cannot be found out."""
    if not os.path.lexists(f"{cache_dir}/locks"):  # a dry run makes no file
        return False
    try:
        return is_locked(cache_dir, LockRequest(all_containers=True))
    except RecordError:
        return True


def _names(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except FileNotFoundError:
        return []


def _set_aside(store: RecordStore, attachment: Attachment) -> str:
    try:
        return store.set_aside(attachment.record)
    except RecordError:  # it must not stop the move of the other records
        return ""
