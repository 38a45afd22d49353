"""Attachment records on disk: Go libcni's own cache directory.

A record is ``<cache_dir>/results/<network>-<container>-<interface>``. The file's name only tells where to look: the
identity inside decides. A name that is too long, or taken by another identity, gets a hash.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from libcni.errors import RecordError
from libcni.store.files import (
    Directory,
    UnusableFileError,
    read_file,
    remove,
    stale_drafts,
    sync_directory,
    write_draft,
)
from libcni.store.names import names_of_interface
from libcni.store.record import (
    CORRUPT,
    DETACHING,
    LEGACY,
    PENDING,
    READY,
    STALE_BOOT,
    Identity,
    Record,
    boot_id,
    decode,
    encode,
    encode_with,
)

__all__ = ["RecordStore"]

logger: logging.Logger = logging.getLogger("libcni")

_NAME_BYTES = 255
_CLAIMS = 10
_HOUR = 3600.0
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


class RecordStore:
    """The records of one cache directory.

    Each method reads or changes the disk; nothing is remembered between calls, so the directory may be removed and made
    again at any time. A method raises RecordError if the system refuses.

    ``durable``: a record is on the disk, with its name, when ``begin`` returns.
    """

    def __init__(self, cache_dir: str, *, durable: bool = True) -> None:
        self.cache_dir = cache_dir
        self.durable = durable
        self.results: str = f"{cache_dir}/results"
        self.drafts: str = f"{cache_dir}/tmp"  # noqa: S108 - not the system's

    def find(self, identity: Identity) -> Record | None:
        """Return the record of an identity, in state corrupt if only an unreadable file has its name; None: no file."""
        corrupt: Record | None = None
        for name in _names(identity):
            record = self.read(name)
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
        found = list(self.iter_records(container_id))
        return sorted(found, key=lambda record: os.fsencode(record.path))

    def iter_records(self, container_id: str | None = None) -> Iterator[Record]:
        """Read the records one by one, in the directory's order: a million of them need no memory for a million.

        A record that appears or disappears meanwhile may be given or not. A file that the system does not let us read
        comes in state corrupt, so that it does not hide the others.
        """
        boot_id()  # once, before the first record: a boot ID that cannot be read makes no record corrupt
        part = f"-{container_id}-" if container_id else ""
        for name, directory in self._scan(part):
            try:
                record = self._read(name, directory)
            except RecordError as error:
                record = Record(state=CORRUPT, path=f"{self.results}/{name}", problem=str(error))
            if record and (container_id is None or record.container_id in {container_id, ""}):
                yield record

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        """Return the records of one (container, interface) on whatever network; not the corrupt ones."""
        wanted = (container_id, ifname)
        try:
            with Directory(self.results) as directory:
                names = names_of_interface(directory, container_id, ifname)
                found = [self._read(name, directory) for name in names]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("cannot be listed", self.results, error) from error
        records = [record for record in found if record and (record.container_id, record.ifname) == wanted]
        return sorted(records, key=lambda record: os.fsencode(record.path))

    def iter_names(self) -> Iterator[str]:
        """Return the names of all files, in the directory's order."""
        for name, _ in self._scan(""):
            yield name

    def _scan(self, part: str) -> Iterator[tuple[str, int]]:
        """Give each file name with ``part`` in it, and each name that is a hash; and the directory's descriptor."""
        try:
            with Directory(self.results) as directory, os.scandir(directory) as entries:
                for entry in entries:
                    if part in entry.name or entry.name[0] == "~":
                        yield entry.name, directory
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._error("cannot be listed", self.results, error) from error

    def begin(self, record: Record) -> Record:
        """Write a record that is not there yet, claim its name, and return it with its path.

        A record of the same identity is replaced, at ``record.path`` if that is given; a corrupt file in the way is
        moved aside. If the store is durable, the record and its name are on the disk when this returns: plugins may
        run then.
        """
        if record.path:
            # synced as well: Go does not sync the names of its records, and one may be what is replaced
            self._replace(record.path, encode(record), sync=self.durable)
            return record
        with self._draft(encode(record)) as (draft, source):
            path = self._claim(source, draft, record.identity)
        return replace(record, path=path)

    def _claim(self, source: int, draft: str, identity: Identity) -> str:
        """Give a draft its name and return its path."""
        for name in _names(identity):
            path = f"{self.results}/{name}"
            try:
                with Directory(self.results, create=True, durable=self.durable) as directory:
                    if self._claim_name(source, draft, directory, name, identity):
                        self._sync_name(name, directory)
                        return path
            except OSError as error:
                raise self._error("cannot be written", path, error) from error
        raise RecordError("the record's name and its hashed name are both taken", path=self.results)

    def _sync_name(self, name: str, directory: int) -> None:
        # without this a power cut while the first plugin runs leaves its effects and no record of them
        if not self.durable:
            return
        try:
            sync_directory(directory)
        except OSError:
            with suppress(OSError):
                remove(name, directory)
            raise

    def _claim_name(self, source: int, draft: str, directory: int, name: str, identity: Identity) -> bool:
        """Give a draft this name; return whether it could be done, or the name is another identity's."""
        for _ in range(_CLAIMS):
            # link, not rename: it fails if the name is taken, and two verbs cannot both believe that they claimed it
            if _link(draft, name, source, directory):
                return True
            there = self._read(name, directory)
            if there is None:
                continue
            if there.state == CORRUPT:
                self.set_aside(there)
                continue
            if there.identity == identity or there.state == LEGACY:
                # the container's lock is held, so no other verb writes this identity
                os.rename(draft, name, src_dir_fd=source, dst_dir_fd=directory)
                return True
            return False
        path = f"{self.results}/{name}"
        raise RecordError(f"{path}: cannot be written: others keep changing it", path=path)

    def complete(self, record: Record) -> None:
        """Replace the file of a record that has begun with what the record says now.

        The directory is not synced: if a power cut undoes this, the record that began is there, which is safe.
        """
        self._replace(record.path, encode(record))

    def _replace(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Replace a record's file as a whole. ``sync``: put its name on the disk, too."""
        try:
            with (
                self._draft(data) as (draft, source),
                Directory(self.results, create=True, durable=self.durable) as directory,
            ):
                os.rename(draft, path.rpartition("/")[2], src_dir_fd=source, dst_dir_fd=directory)
                if sync:
                    sync_directory(directory)
        except OSError as error:
            raise self._error("cannot be written", path, error) from error

    def mark_detaching(self, record: Record) -> Record:
        """Rewrite the file of a record with state ``detaching`` and return the record as it is now.

        DEL calls it before its first plugin. A disk that is full or read-only must not stop a DEL: then it logs a
        warning and returns the record unchanged. A record of an earlier boot stays ``stale-boot``.
        """
        if record.state not in {PENDING, READY, STALE_BOOT} or not record.path:
            return record
        try:
            # synced like every record: after a power cut the old state would do, and a torn file would not
            self._replace(record.path, encode_with(record, state=DETACHING))
        except RecordError as error:
            logger.warning("DEL goes on, and the record does not say that it has begun: %s", error)
            return record
        return record if record.state == STALE_BOOT else replace(record, state=DETACHING)

    def take_over(self, record: Record, owner: str) -> Record:
        """Rewrite the owner of a record and return the record as it is now.

        Raises:
            RecordError: the file cannot be written, or the record is corrupt or legacy and can have no owner.
        """
        if record.state in {CORRUPT, LEGACY}:
            text = f"{record.path}: cannot be taken over: a record in state {record.state} has no owner"
            raise RecordError(text, path=record.path, hint="detach the attachment, or forget the record")
        self._replace(record.path, encode_with(record, owner=owner))
        return replace(record, owner=owner)

    def ensure_writable(self, record: Record) -> None:
        """Prove that a record of this size can be written now: write and sync it under a temporary name, remove it.

        ``on_existing="replace"`` calls it before it detaches the existing attachment.

        Raises:
            RecordError: it cannot be written, for instance because the disk is full.
        """
        try:
            with self._draft(encode(record)), Directory(self.results, create=True, durable=self.durable):
                pass
        except OSError as error:
            raise self._error("cannot be written", self.results, error) from error

    @contextmanager
    def _draft(self, data: bytes) -> Iterator[tuple[str, int]]:
        """Write a file under a temporary name; give the name and its directory. That name goes in the end."""
        try:
            with Directory(self.drafts, create=True, durable=self.durable) as directory:
                draft = write_draft(directory, data, durable=self.durable)
                try:
                    yield draft, directory
                finally:
                    self._remove_draft(draft, directory)
        except OSError as error:
            raise self._error("cannot be written", self.drafts, error) from error

    def _remove_draft(self, draft: str, directory: int) -> None:
        """Remove a draft's name. The record is written by then, or another error says why not, so only warn."""
        try:
            remove(draft, directory)
        except OSError as error:
            problem = error.strerror or error
            logger.warning("%s/%s: the temporary file cannot be removed: %s", self.drafts, draft, problem)

    def forget(self, record: Record) -> None:
        """Remove the file of a record in any state; one that has gone already is no error.

        A directory in a record's place may hold something: it is moved to ``<cache_dir>/corrupt``.
        """
        try:
            with Directory(self.results) as directory:
                os.unlink(record.path.rpartition("/")[2], dir_fd=directory)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            self.set_aside(record)
        except OSError as error:
            raise self._error("cannot be removed", record.path, error) from error

    def set_aside(self, record: Record) -> str:
        """Move the file of a corrupt record to ``<cache_dir>/corrupt/`` and return its new path."""
        name = record.path.rpartition("/")[2]
        aside = f"{self.cache_dir}/corrupt"
        target = f"{os.fsdecode(os.fsencode(name)[:200])}.{time.time_ns()}"
        try:
            with (
                Directory(self.results) as source,
                Directory(aside, create=True, durable=self.durable) as directory,
            ):
                os.rename(name, target, src_dir_fd=source, dst_dir_fd=directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._error("cannot be moved aside", record.path, error) from error
        return f"{aside}/{target}"

    def sweep(self, *, older_than: float = _HOUR, dry_run: bool = False) -> list[str]:
        """Remove the drafts that killed writers have left in ``tmp``; return the paths.

        A draft that cannot be removed is not among them; a warning is logged. ``older_than``: seconds since the last
        write. A draft whose writer lives is left alone, unless it is 0: then the caller knows that nobody writes.
        """
        try:
            with Directory(self.drafts) as directory:
                stale = stale_drafts(directory, older_than)
                gone = stale if dry_run else [name for name in stale if self._sweep_one(name, directory)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._error("cannot be swept", self.drafts, error) from error
        return [f"{self.drafts}/{name}" for name in gone]

    def _sweep_one(self, name: str, directory: int) -> bool:
        try:
            remove(name, directory)
        except OSError as error:
            problem = error.strerror or error
            logger.warning("%s/%s: the temporary file cannot be removed: %s", self.drafts, name, problem)
            return False
        return True

    def read(self, name: str) -> Record | None:
        """Return the record in the file of this name, in state corrupt if the file holds none; None: no file.

        Raises:
            RecordError: the system does not let us read it.
        """
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
        except UnusableFileError as error:
            return Record(state=CORRUPT, path=path, problem=str(error))
        except OSError as error:
            raise self._error("cannot be read", path, error) from error
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


def _names(identity: Identity) -> Iterator[str]:
    """Yield the file names that a record may have, the first choice first."""
    name = "-".join(identity)
    is_short = len(os.fsencode(name)) <= _NAME_BYTES
    if is_short:
        yield name
    import hashlib  # loads OpenSSL, and few records need it

    # no network's name contains ~, and no interface's name is as long as a hash: no plain name looks like a hashed one
    mark = hashlib.sha256("/".join(identity).encode()).hexdigest()[:32]
    hashed = f"{name}~{mark}"
    yield hashed if is_short and len(os.fsencode(hashed)) <= _NAME_BYTES else f"~{mark}"
