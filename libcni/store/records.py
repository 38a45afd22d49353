"""Attachment records on disk: the cache, in Go libcni's own places.

A record is ``<cache_dir>/results/<network>-<container>-<interface>``. The file's name is only a place to look: the
identity inside decides. A name that is too long, or taken by another identity, gets a hash.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from libcni.errors import RecordError
from libcni.store.files import Directory, left_over, read_file, remove, write_draft
from libcni.store.record import (
    CORRUPT,
    DETACHING,
    LEGACY,
    PENDING,
    READY,
    STALE_BOOT,
    Identity,
    Record,
    decode,
    encode,
)

__all__ = ["RecordStore"]

logger: logging.Logger = logging.getLogger("libcni")

_NAME_BYTES = 255
_CLAIMS = 10
_HOUR = 3600.0
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


class RecordStore:
    """The records of one cache directory.

    Each method is one look or one change; nothing is remembered between calls, so that the directory may be removed
    and made again at any time. What cannot be done raises RecordError.
    """

    def __init__(self, cache_dir: str, *, durable: bool = True) -> None:
        self.cache_dir = cache_dir
        self.durable = durable
        self.results: str = f"{cache_dir}/results"
        self._drafts = f"{cache_dir}/tmp"  # noqa: S108 - not the system's

    def find(self, identity: Identity) -> Record | None:
        """Return the record of an identity; a corrupt file under its name comes back as such; None: there is none."""
        corrupt: Record | None = None
        for name in _names(identity):
            record = self._read_there(name)
            if record is None:
                continue
            if record.state == LEGACY:
                network, container_id, ifname = identity
                return replace(record, network=network, container_id=container_id, ifname=ifname)
            if record.identity == identity:
                return record
            if record.state == CORRUPT:
                corrupt = corrupt or record
        return corrupt

    def records(self, container_id: str | None = None) -> list[Record]:
        """Return all records, or those of one container, by file name; corrupt ones included, nothing changed."""
        return self._matching(f"-{container_id}-" if container_id else "", container_id, self._read_or_tell)

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        """Return the records of one (container, interface) on whatever network; not the corrupt ones."""
        wanted = (container_id, ifname)
        found = self._matching(f"-{container_id}-{ifname}", container_id, self._read)
        return [record for record in found if (record.container_id, record.ifname) == wanted]

    def _matching(self, part: str, container_id: str | None, read: Callable[[str, int], Record | None]) -> list[Record]:
        try:
            with Directory(self.results) as directory:
                names = [name for name in os.listdir(directory) if part in name or name[0] == "~"]
                names.sort(key=None if "".join(names).isascii() else os.fsencode)
                found = [read(name, directory) for name in names]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("cannot be listed", self.results, error) from error
        return [one for one in found if one and (container_id is None or one.container_id in {container_id, ""})]

    def _read_or_tell(self, name: str, directory: int) -> Record | None:
        """Read a record; one that the system does not let us read must not hide the others."""
        try:
            return self._read(name, directory)
        except RecordError as error:
            return Record(state=CORRUPT, path=f"{self.results}/{name}", problem=str(error))

    def begin(self, record: Record) -> Record:
        """Write a record that is not there yet, claim its name, and return it with its path.

        A record of the same identity is replaced, at ``record.path`` if that is given; a corrupt file in the way is
        set aside.
        """
        if record.path:
            self.complete(record)
            return record
        try:
            with self._draft(record) as (draft, source):
                path = self._claim(source, draft, record.identity)
        except OSError as error:
            raise self._error("cannot be written", self._drafts, error) from error
        return replace(record, path=path)

    def _claim(self, source: int, draft: str, identity: Identity) -> str:
        """Give a draft its name and return its path."""
        for name in _names(identity):
            path = f"{self.results}/{name}"
            try:
                with Directory(self.results, create=True) as directory:
                    if self._claim_name(source, draft, directory, name, identity):
                        return path
            except OSError as error:
                raise self._error("cannot be written", path, error) from error
        raise RecordError("the record's name and its hashed name are both taken", path=self.results)

    def _claim_name(self, source: int, draft: str, directory: int, name: str, identity: Identity) -> bool:
        """Give a draft this name; return whether it could be done, or the name is another identity's."""
        for _ in range(_CLAIMS):
            if _link(draft, name, source, directory):
                return True
            there = self._read(name, directory)
            if there is None:
                continue
            if there.state == CORRUPT:
                self.set_aside(there)
                continue
            if there.identity == identity or there.state == LEGACY:
                os.rename(draft, name, src_dir_fd=source, dst_dir_fd=directory)
                return True
            return False
        path = f"{self.results}/{name}"
        raise RecordError(f"{path}: cannot be written: others keep changing it", path=path)

    def complete(self, record: Record) -> None:
        """Replace the file of a record that has begun with what the record says now."""
        name = record.path.rpartition("/")[2]
        try:
            with self._draft(record) as (draft, source), Directory(self.results, create=True) as directory:
                os.rename(draft, name, src_dir_fd=source, dst_dir_fd=directory)
        except OSError as error:
            raise self._error("cannot be written", record.path, error) from error

    def mark_detaching(self, record: Record) -> Record:
        """Rewrite the file of a record with state ``detaching`` and return the record as it is now.

        DEL calls it before its first plugin. A disk that is full or read-only must not stop a DEL: then it logs a
        warning and returns the record unchanged. A record of an earlier boot stays ``stale-boot``.
        """
        if record.state not in {PENDING, READY, STALE_BOOT} or not record.path:
            return record
        detaching = replace(record, state=DETACHING)
        try:
            self.complete(detaching)
        except RecordError as error:
            logger.warning("DEL goes on, and the record does not say that it has begun: %s", error)
            return record
        return record if record.state == STALE_BOOT else detaching

    def ensure_writable(self, record: Record) -> None:
        """Prove that a record of this size can be written now: write and sync it under a temporary name, remove it.

        ``on_existing="replace"`` calls it before it detaches the existing attachment.

        Raises:
            RecordError: it cannot be written, for instance because the disk is full.
        """
        try:
            with self._draft(record), Directory(self.results, create=True):
                pass
        except OSError as error:
            raise self._error("cannot be written", self._drafts, error) from error

    @contextmanager
    def _draft(self, record: Record) -> Iterator[tuple[str, int]]:
        """Write a record under a name of its own; give the name and its directory. That name goes in the end."""
        with Directory(self._drafts, create=True) as directory:
            draft = write_draft(directory, encode(record), durable=self.durable)
            try:
                yield draft, directory
            finally:
                remove(draft, directory)

    def forget(self, record: Record) -> None:
        """Remove the file of a record; one that has gone already is no error."""
        try:
            with Directory(self.results) as directory:
                os.unlink(record.path.rpartition("/")[2], dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("cannot be removed", record.path, error) from error

    def set_aside(self, record: Record) -> str:
        """Move the file of a corrupt record to ``<cache_dir>/corrupt/`` and return its new path."""
        name = record.path.rpartition("/")[2]
        aside = f"{self.cache_dir}/corrupt"
        target = f"{name[:200]}.{time.time_ns()}"
        try:
            with Directory(self.results) as source, Directory(aside, create=True) as directory:
                os.rename(name, target, src_dir_fd=source, dst_dir_fd=directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._error("cannot be moved aside", record.path, error) from error
        return f"{aside}/{target}"

    def sweep(self, *, older_than: float = _HOUR, dry_run: bool = False) -> list[str]:
        """Remove what writers that were killed have left in ``tmp``; return the paths.

        ``older_than``: seconds since the last write. A file whose writer lives is left alone, unless it is 0: then the
        caller knows that there is no writer.
        """
        path = self._drafts
        try:
            with Directory(path) as directory:
                stale = left_over(directory, older_than)
                for name in () if dry_run else stale:
                    remove(name, directory)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("cannot be swept", path, error) from error
        return [f"{path}/{name}" for name in stale]

    def _read_there(self, name: str) -> Record | None:
        try:
            with Directory(self.results) as directory:
                return self._read(name, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", f"{self.results}/{name}", error) from error

    def _read(self, name: str, directory: int) -> Record | None:
        path = f"{self.results}/{name}"
        try:
            data = read_file(name, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("cannot be read", path, error) from error
        if data is None:
            return Record(state=CORRUPT, path=path, problem="it is not a regular file")
        return decode(data, path)

    def _error(self, problem: str, path: str, error: OSError) -> RecordError:
        text = error.strerror or str(error)
        return RecordError(f"{path}: {problem}: {text}", path=path, errno=error.errno)


def _link(draft: str, name: str, source: int, directory: int) -> bool:
    """Give a file a name that nothing has yet; return whether the name was free."""
    try:
        os.link(draft, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # this file system has no hard links: look first, and rename; only other identities' verbs could come between
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(draft, name, src_dir_fd=source, dst_dir_fd=directory)
            return True
        return False
    return True


def _names(identity: Identity) -> list[str]:
    """Return the file names that a record may have, the first choice first."""
    name = "-".join(identity)
    # ~ starts no network's name and stands in none, so a hashed name is never another identity's plain one
    mark = hashlib.sha256("/".join(identity).encode()).hexdigest()[:32]
    if len(os.fsencode(name)) > _NAME_BYTES:
        return [f"~{mark}"]
    hashed = f"{name}~{mark}"
    return [name, hashed if len(os.fsencode(hashed)) <= _NAME_BYTES else f"~{mark}"]
