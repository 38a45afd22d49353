"""Repair a cache directory: unreadable records, and the temporary files of killed writers."""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

import libcni.kernel.system as system
from libcni.config.timeouts import check_timeout
from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachment_of
from libcni.store.files import Directory, is_draft, record_error
from libcni.store.locks import LockRequest, LockSet
from libcni.store.model import Unreadable
from libcni.store.records import RecordStore

__all__ = ["RepairReport", "repair_records"]

_OLD = 3600.0
"""A temporary file whose last write is older (in seconds) was left by a killed writer."""


@dataclass(frozen=True, slots=True)
class RepairReport:
    """The outcome of a repair, or of a dry run.

    Attributes:
        corrupt: the unreadable records, each with its ``problem`` and its old ``path``.
        moved_to: their new paths in the same order; "" if a record could not be moved; () on a dry run.
        temporary: the removed temporary files of killed writers; those that are younger than an hour stay.
        left: files that repair did not change, each as "path: reason".

    Examples:
        >>> repair_records("cache", dry_run=True).corrupt
        ()
    """

    corrupt: tuple[Attachment, ...] = ()
    moved_to: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def repair_records(
    cache_dir: str | os.PathLike[str], *, dry_run: bool = False, timeout: float | None = 30.0
) -> RepairReport:
    """Move corrupt records to ``<cache_dir>/corrupt`` and remove the temporary files that killed writers left.

    Repair waits until no verb of any container runs; a dry run does not wait. A corrupt record does not name its
    attachment: if you know the container, detach it with its network's configuration first.

    Args:
        cache_dir: the directory of the records.
        dry_run: change nothing, only report.
        timeout: seconds to wait for the verbs that run; None: no limit.

    Raises:
        LockTimeoutError: verbs ran until the timeout.
        RecordError: the directory cannot be read or written.
        TypeError: ``timeout`` is not a number.
        ValueError: ``timeout`` is 0, negative or NaN.
    """
    timeout = check_timeout(timeout)
    store = RecordStore(os.path.abspath(os.fspath(cache_dir)))
    left: list[str] = []
    if dry_run:
        corrupt = tuple(_corrupt(store, left))
        return RepairReport(corrupt, (), tuple(remove_drafts(store, left, dry_run=True)), tuple(left))
    if not system.isdir(store.cache_dir):  # acquiring the locks would create the directory
        return RepairReport()
    locks = LockSet(store.cache_dir, LockRequest(all_containers=True))
    try:
        for delay in locks.retry_delays(math.inf if timeout is None else system.monotonic() + timeout):
            system.sleep(delay)
        corrupt = tuple(_corrupt(store, left))
        moved = tuple(_set_aside(store, attachment) for attachment in corrupt)
        return RepairReport(corrupt, moved, tuple(remove_drafts(store, left, dry_run=False)), tuple(left))
    finally:
        locks.close()


def _corrupt(store: RecordStore, left: list[str]) -> Iterator[Attachment]:
    """Yield the corrupt records to move; add the others to ``left``, each with its reason."""
    for name in sorted(store.stamps()):
        try:
            record = store.read(name)
        except RecordError as error:  # an error of the disk does not make a record corrupt
            left.append(error.text)
            continue
        if isinstance(record, Unreadable):
            yield attachment_of(record, store)


def _is_old(name: str, directory: int) -> bool:
    """Return whether a regular file was last written more than an hour ago."""
    try:
        status = system.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(status.st_mode) and system.time() - status.st_mtime >= _OLD


def _set_aside(store: RecordStore, attachment: Attachment) -> str:
    try:
        return store.set_aside(attachment.record)
    except RecordError:  # an error must not stop the move of the other records
        return ""


def remove_drafts(store: RecordStore, left: list[str], *, dry_run: bool) -> Iterator[str]:
    """Remove the temporary files of killed writers, and yield their paths.

    Add those that cannot be removed to ``left``, each with its reason.

    No lock is needed: a file whose last write is an hour ago has no living writer.
    """
    try:
        with Directory(store.drafts) as directory:
            for name in sorted(system.listdir(directory)):
                if is_draft(name) and _is_old(name, directory):
                    try:
                        if not dry_run:
                            system.unlink(name, dir_fd=directory)
                    except OSError as error:
                        left.append(f"{store.drafts}/{name}: it cannot be removed: {error.strerror or error}")
                    else:
                        yield f"{store.drafts}/{name}"
    except FileNotFoundError:
        return
    except OSError as error:
        raise record_error("the drafts of records cannot be removed", store.drafts, error) from error
