"""Attachment records on disk: Go libcni's own cache directory.

A record is ``<cache_dir>/results/<network>-<container>-<interface>``. The name only helps to find the file.
The identity inside decides. A name that is too long, or that a record of another identity has, gets a hash.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import libcni.kernel.system as system
from libcni.errors import RecordError
from libcni.kernel.regular_file import UnusableFileError, read_with_status
from libcni.store.boot import boot_id
from libcni.store.files import (
    MAX_RECORD_BYTES,
    Directory,
    draft,
    is_draft,
    is_strangers,
    open_file,
    record_error,
    remove,
    sync_directory,
)
from libcni.store.journal import Journal
from libcni.store.model import BEGUN, Identity, Record, Stamp, Unreadable, unreadable
from libcni.store.record_format import decode, encode, index_of_result
from libcni.store.record_index import RecordIndex, stamp_of

try:  # a C module behind hashlib; hashlib itself loads OpenSSL, which takes 2 ms, and the first ADD needs this
    from _sha2 import sha256  # type: ignore[import-not-found]  # from Python 3.12 on
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256

logger: logging.Logger = logging.getLogger("libcni")

_NAME_BYTES = 255
_CLAIMS = 10
_OLD_SECONDS = 3600.0
_HASH = re.compile(r"~[0-9a-f]{32}\Z")
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


class RecordStore:
    """The records of one cache directory.

    Each method reads or changes the disk, so the directory may be removed and created again at any time. A method
    raises RecordError if a system call fails.

    Attributes:
        durable: whether the record and its name are synced to the disk before ``begin`` returns.
        index: finds the files that mention an address, a namespace or a host port.
    """

    def __init__(self, cache_dir: str, *, durable: bool = True) -> None:
        self.cache_dir = cache_dir
        self.durable = durable
        self.results: str = f"{cache_dir}/results"
        self.drafts: str = f"{cache_dir}/tmp"  # noqa: S108 - not the system's
        self.aside: str = f"{cache_dir}/corrupt"
        self.index: RecordIndex = RecordIndex(self.results)

    def find(self, identity: Identity) -> Record | None:
        """Return the record of an identity, or None. If its file cannot be read, the record is Unreadable."""
        damaged: Record | None = None
        for name in names_of(identity):
            record = self.read(name)
            if isinstance(record, Unreadable):
                damaged = damaged or record
            elif record is not None and record.identity == identity:
                return record
        return damaged

    def records(self, container_id: str | None = None) -> list[Record]:
        """Return all records, or those of one container, sorted by file name, corrupt ones included."""
        return sorted(self.iter_records(container_id), key=lambda record: os.fsencode(record.path))

    def iter_records(self, container_id: str | None = None) -> Iterator[Record]:
        """Read the records one by one in the directory's order, so that only one at a time is in memory.

        Records that appear or disappear during the iteration may be missing. A file that cannot be read becomes a
        record in state corrupt, so that it does not hide the others.
        """
        # Raise here if the boot ID cannot be read. Inside the loop this would make each record corrupt.
        boot_id()
        part = f"-{container_id}-" if container_id else ""
        for name, directory in self._scan(part):
            try:
                record = self._read(name, directory)
            except RecordError as error:
                path = f"{self.results}/{name}"
                record = unreadable(path, error.text.removeprefix(f"{path}: "))
            if record and (container_id is None or record.container_id in {container_id, ""}):
                yield record

    def candidates(self, *identities: Identity) -> list[Record]:
        """Return the records of these identities that exist, and the unreadable files that may belong to the others."""
        try:
            with Directory(self.results) as directory:
                read = [self._read(name, directory) for identity in identities for name in names_of(identity)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise record_error("the records cannot be read", self.results, error) from error
        return [one for one in read if one and (isinstance(one, Unreadable) or one.identity in identities)]

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        """Return the records of one (container, interface) on any network, and corrupt records that may name it."""
        # The network is unknown, so search for the end of the file name.
        read = [self._read(name, directory) for name, directory in self._scan(f"-{container_id}-{ifname}")]
        wanted = (container_id, ifname)
        records = [
            record
            for record in read
            if isinstance(record, Unreadable) or (record and (record.container_id, record.ifname) == wanted)
        ]
        return sorted(records, key=lambda record: os.fsencode(record.path))

    def _scan(self, part: str) -> Iterator[tuple[str, int]]:
        """Yield (file name, directory descriptor) of each name that contains ``part`` or is a hash."""
        try:
            with Directory(self.results) as directory:
                for name in self.index.names_with(part, directory):
                    yield name, directory
        except FileNotFoundError:
            return
        except OSError as error:
            raise record_error("the records cannot be listed", self.results, error) from error

    def begin(self, record: Record, event: str = "") -> Journal:
        """Write a new file for a record, and return its journal.

        If ``record.path`` is "", choose a file name: replace a record of the same identity, and move an unreadable file
        of that name to ``<cache_dir>/corrupt``. Otherwise the new file replaces the file at that path in one step,
        so the attachment always has a record. If the store is durable, the bytes and the name are synced to the disk.

        Args:
            record: the record.
            event: the reason for rewriting an existing record, which is copied into the new file; "" for a new record.
        """
        data = encode(record, event)
        with self._draft(data, record.path or self.results) as (temporary, descriptor, drafts, directory):
            if record.path:
                name = _name_of(record)
                system.rename(temporary, name, src_dir_fd=drafts, dst_dir_fd=directory)
            else:
                name = self._claim(temporary, drafts, directory, record.identity)
            if self.durable:
                # Otherwise a power cut while the first plugin runs can leave its effects without a record.
                sync_directory(directory)
            with suppress(OSError):  # repair removes it later
                remove(temporary, drafts)
            opened_again = _open_again(name, directory, descriptor)
        if opened_again >= 0:
            system.close(descriptor)
            descriptor = opened_again
        end = len(data) - 1
        has_event = bool(event) or record.state != BEGUN  # the copy of the state, see ``encode``
        begun = record.with_fields(path=f"{self.results}/{name}", end=end, serial=int(has_event))
        return Journal(begun, descriptor, size=len(data), result_at=index_of_result(record.last_result, end))

    @contextmanager
    def _draft(self, data: bytes, path: str) -> Iterator[tuple[str, int, int, int]]:
        """Write a file under a temporary name, like ``files.draft``; yield also the drafts' and the records' directory.

        Raises:
            RecordError: a system call failed, in the block, too.
        """
        try:
            with (
                Directory(self.drafts, create=True, durable=self.durable) as drafts,
                Directory(self.results, create=True, durable=self.durable) as directory,
                draft(drafts, data, durable=self.durable) as (temporary, descriptor),
            ):
                yield temporary, descriptor, drafts, directory
        except OSError as error:
            raise record_error("the record cannot be written", path, error) from error

    def _claim(self, temporary: str, drafts: int, directory: int, identity: Identity) -> str:
        """Give a draft the first possible name that no record of another attachment has; return that name."""
        for name in names_of(identity):
            if self._take(name, temporary, drafts, directory, identity):
                return name
        problem = f"both possible names of the record's file in {self.results} belong to other attachments"
        raise RecordError(problem, path=self.results, hint="detach one of those containers")

    def _take(self, name: str, temporary: str, drafts: int, directory: int, identity: Identity) -> bool:
        """Give a draft a name; return False if the record of another attachment has the name."""
        for _ in range(_CLAIMS):
            # link(2) fails if the name exists; rename(2) would replace it. So two verbs cannot both take one name.
            if _link(temporary, name, drafts, directory):
                return True
            existing = self._read(name, directory)
            if isinstance(existing, Unreadable):
                self.set_aside(existing)
            elif existing is not None:
                if existing.identity != identity:
                    return False
                # The caller holds the container's lock, so no other verb writes this identity.
                system.rename(temporary, name, src_dir_fd=drafts, dst_dir_fd=directory)
                return True
        path = f"{self.results}/{name}"
        problem = f"{path}: the record cannot be written, because other programs change the file again and again"
        raise RecordError(problem, path=path)

    def rewrite(self, record: Record, event: str) -> None:
        """Replace a record's file in one step. Raises RecordError."""
        self.begin(record, event).close()

    def open(self, record: Record) -> Journal:
        """Open a record's file to append events; return its journal.

        Raises:
            RecordError: the file has changed since it was read, or cannot be opened for writing.
        """
        try:
            with Directory(self.results) as directory:
                descriptor = open_file(_name_of(record), directory, writable=True)
                try:
                    stamp = stamp_of(system.fstat(descriptor))
                    if stamp != record.stamp:
                        # Go rewrites files in place, so the closing brace may be at another index now.
                        record = self._read_again(record, directory, stamp)
                except BaseException:
                    system.close(descriptor)
                    raise
        except UnusableFileError as error:
            raise RecordError(f"{record.path}: the record cannot be used: {error}", path=record.path) from error
        except OSError as error:
            raise record_error("the record cannot be written", record.path, error) from error
        return Journal(record, descriptor, size=stamp[1])

    def _read_again(self, record: Record, directory: int, stamp: Stamp) -> Record:
        current = self._read(_name_of(record), directory)
        if current is None or (current.stamp, current.identity) != (stamp, record.identity):
            raise RecordError(f"{record.path}: another program rewrote the record meanwhile", path=record.path)
        return current

    def mark_detaching(self, record: Record) -> Record:
        """Write that a DEL of the record has begun, and return the new record.

        DEL calls this before its first plugin. If the write fails, log a warning and return the record unchanged: a
        full disk must not stop a DEL.
        """
        try:
            with self.open(record) as journal:
                journal.write("detach")
                return journal.record
        except RecordError as error:
            logger.warning("DEL goes on, but its record %s cannot be marked as detaching: %s", record.path, error)
            return record

    def ensure_writable(self, record: Record) -> None:
        """Check that a record of this size can be written: write it under a temporary name and remove it.

        ``on_existing="replace"`` calls this before it detaches the existing attachment.

        Raises:
            RecordError: it cannot be written, for example because the disk is full.
        """
        with self._draft(encode(record), self.results) as (temporary, descriptor, drafts, _):
            remove(temporary, drafts)
        system.close(descriptor)

    def forget(self, record: Record) -> None:
        """Remove the file of a record in any state, if it exists and does not hold another attachment's record now.

        If there is a directory instead of a file, it may hold data, so it is moved to ``<cache_dir>/corrupt``.
        """
        try:
            with Directory(self.results) as directory:
                if not self._is_anothers(record, directory):
                    system.unlink(_name_of(record), dir_fd=directory)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            self.set_aside(record)
        except OSError as error:
            raise record_error("the record cannot be removed", record.path, error) from error

    def set_aside(self, record: Record) -> str:
        """Move the file of a corrupt record to ``<cache_dir>/corrupt/`` and return its new path.

        Return "" and leave the file if it holds the record of another attachment now, or does not exist.
        """
        name = _name_of(record)
        # Cut bytes, not characters: a name has at most 255 bytes, and the appended time needs some of them.
        target = f"{os.fsdecode(os.fsencode(name)[:200])}.{system.time_ns()}"
        try:
            with (
                Directory(self.results) as source,
                Directory(self.aside, create=True, durable=self.durable) as directory,
            ):
                if self._is_anothers(record, source):
                    return ""
                system.rename(name, target, src_dir_fd=source, dst_dir_fd=directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise record_error(f"the record cannot be moved to {self.aside}", record.path, error) from error
        return f"{self.aside}/{target}"

    def _is_anothers(self, record: Record, directory: int) -> bool:
        """Return whether the file of a record holds the record of another attachment now; log a warning if it does.

        A name can stand for two attachments, such as ("a-b", "c") and ("a", "b-c"). Go truncates the file that it finds
        under the name, and writes it anew. Raises FileNotFoundError if the file does not exist.
        """
        name = _name_of(record)
        # The usual case, without decoding the file: nobody has changed its size.
        if system.stat(name, dir_fd=directory, follow_symlinks=False).st_size == record.end + 1:
            return False
        current = self._read(name, directory)
        if current is None or isinstance(current, Unreadable) or current.identity == record.identity:
            return False
        logger.warning(
            "%s: not removed: the file now holds the record of container %s", current.path, current.container_id
        )
        return True

    def names_set_aside(self) -> list[str]:
        """Return the names of the files in ``<cache_dir>/corrupt``: record names with the time of the move.

        Raises:
            RecordError: the directory cannot be listed.
        """
        try:
            return sorted(system.listdir(self.aside))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise record_error("the directory cannot be listed", self.aside, error) from error

    def remove_old_drafts(self) -> None:
        """Remove the temporary files that killed writers left, and log each; log a warning if that fails.

        No lock is needed: a file whose last write is an hour ago has no living writer.
        """
        try:
            with Directory(self.drafts) as directory:
                # Other programs may keep files here, too.
                for name in filter(is_draft, sorted(system.listdir(directory))):
                    self._remove_if_old(name, directory)
        except FileNotFoundError:
            return
        except OSError as error:
            problem = record_error("the temporary files of killed writers cannot be removed", self.drafts, error)
            logger.warning("%s", problem)

    def _remove_if_old(self, name: str, directory: int) -> None:
        path = f"{self.drafts}/{name}"
        try:
            status = system.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and system.time() - status.st_mtime >= _OLD_SECONDS:
                system.unlink(name, dir_fd=directory)
                logger.info("%s: removed; its writer was killed more than an hour ago", path)
        except FileNotFoundError:  # another repair or its writer has removed the file meanwhile
            return
        except OSError as error:  # it must not stop the removal of the other files
            logger.warning("%s", record_error("this temporary file of a killed writer cannot be removed", path, error))

    def read(self, name: str) -> Record | None:
        """Return the record in the file of this name, or None; Unreadable if the file is not a record.

        Raises:
            RecordError: the file cannot be read.
        """
        try:
            with Directory(self.results) as directory:
                return self._read(name, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise record_error("the record cannot be read", f"{self.results}/{name}", error) from error

    def _read(self, name: str, directory: int) -> Record | None:
        path = f"{self.results}/{name}"
        try:
            status, data = read_with_status(open_file(name, directory), MAX_RECORD_BYTES)
            is_trusted = not is_strangers(status, directory)
        except FileNotFoundError:
            return None
        except UnusableFileError as error:
            return unreadable(path, str(error))
        except OSError as error:
            raise record_error("the record cannot be read", path, error) from error
        if not is_trusted:
            # Otherwise root would run plugins with a configuration that this user wrote.
            return unreadable(path, f"it belongs to user {status.st_uid}, in a directory that others may write to")
        return decode(data, path, stamp_of(status))


def without_hash(name: str) -> str:
    """Return a record's file name without its hash; "" if it is only a hash. Interface names may have a ~, too."""
    return _HASH.sub("", name)


def _name_of(record: Record) -> str:
    return record.path.rpartition("/")[2]


def _link(temporary: str, name: str, source: int, directory: int) -> bool:
    """Give a file a name; return False if the name exists already."""
    try:
        system.link(temporary, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # This file system has no hard links, so test the name and rename. The caller holds its container's lock: only
        # a verb of another identity with the same file name could interfere.
        try:
            system.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            system.rename(temporary, name, src_dir_fd=source, dst_dir_fd=directory)
            return True
        return False
    return True


def _open_again(name: str, directory: int, descriptor: int) -> int:
    """Open the file of a descriptor under its own name; return the new descriptor, or -1.

    The kernel tells those who watch the directory of a write only if the file was opened there. So too many open files,
    for example, are an error: other processes would not learn of the attachment's addresses.
    """
    try:
        again = open_file(name, directory, writable=True)
    except (FileNotFoundError, UnusableFileError):  # another program has removed or replaced the file
        return -1
    if system.fstat(again).st_ino == system.fstat(descriptor).st_ino:
        return again
    system.close(again)  # another program has replaced the file
    return -1


def names_of(identity: Identity) -> Iterator[str]:
    """Yield the file names that a record may have, the first choice first."""
    name = "-".join(identity)
    is_short = len(os.fsencode(name)) <= _NAME_BYTES
    if is_short:
        yield name
    # No network name contains "~", and no interface name is as long as a hash: no plain name looks like a hashed one.
    mark = sha256("/".join(identity).encode()).hexdigest()[:32]
    hashed = f"{name}~{mark}"
    yield hashed if is_short and len(os.fsencode(hashed)) <= _NAME_BYTES else f"~{mark}"
