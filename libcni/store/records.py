"""Attachment records on disk: Go libcni's own cache directory.

A record is ``<cache_dir>/results/<network>-<container>-<interface>``. The name only helps to find the file.
The identity inside decides. A name that is too long, or that a record of another identity has, gets a hash.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import libcni._system as system
from libcni._regular_file import UnusableFileError
from libcni.config import jsontext
from libcni.config.jsontext import JSONTextError, dumps
from libcni.errors import RecordError
from libcni.store.files import (
    Directory,
    overwrite_after,
    read_file,
    record_error,
    remove,
    replace_file,
    sync_directory,
    write_draft,
)
from libcni.store.record import (
    CORRUPT,
    DETACHING,
    DETACHING_MARK,
    LEGACY,
    Identity,
    Record,
    boot_id,
    decode,
    encode,
)

logger: logging.Logger = logging.getLogger("libcni")

_NAME_BYTES = 255
_CLAIMS = 10
_PARTIAL_START = b'{"created":'
_SETTLED_NS = 100_000_000
_HASH = re.compile(r"~[0-9a-f]{32}\Z")
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EINVAL}


Version = tuple[int, ...] | None
"""Changes with each write of a file. None: it was written so recently that a further write may have the same time."""


class RecordStore:
    """The records of one cache directory.

    Each method reads or changes the disk. No state is kept between calls, so the directory may be removed and made
    again at any time. A method raises RecordError if the system refuses.

    ``durable``: sync the record and its name to the disk before ``begin`` returns.
    """

    def __init__(self, cache_dir: str, *, durable: bool = True) -> None:
        self.cache_dir = cache_dir
        self.durable = durable
        self.results: str = f"{cache_dir}/results"
        self.drafts: str = f"{cache_dir}/tmp"  # noqa: S108 - not the system's
        self.partials: str = f"{cache_dir}/partial"
        self.aside: str = f"{cache_dir}/corrupt"

    def find(self, identity: Identity) -> Record | None:
        """Return the record of an identity, or None. If its file is unreadable, the record has state corrupt."""
        corrupt: Record | None = None
        for name in _names(identity):
            record = self.read(name)
            if record is None:
                continue
            if record.state == LEGACY:
                network, container_id, ifname = identity
                return record.with_fields(network=network, container_id=container_id, ifname=ifname)
            if record.identity == identity:
                return record
            if record.state == CORRUPT:
                corrupt = corrupt or record
        return corrupt

    def records(self, container_id: str | None = None) -> list[Record]:
        """Return all records, or those of one container, sorted by file name, corrupt ones included."""
        found = list(self.iter_records(container_id))
        return sorted(found, key=lambda record: os.fsencode(record.path))

    def iter_records(self, container_id: str | None = None) -> Iterator[Record]:
        """Read the records one by one in the directory's order, so that only one at a time is in memory.

        Records that appear or disappear during the iteration may be missing. A file that the system refuses to read
        gives a record in state corrupt, so that it does not hide the others.
        """
        # Raise here if the boot ID cannot be read. Inside the loop this would make each record corrupt.
        boot_id()
        part = f"-{container_id}-" if container_id else ""
        for name, directory in self._scan(part):
            try:
                record = self._read(name, directory)
            except RecordError as error:
                path = f"{self.results}/{name}"
                record = Record(state=CORRUPT, path=path, problem=error.text.removeprefix(f"{path}: "))
            if record and (container_id is None or record.container_id in {container_id, ""}):
                yield record

    def of_interface(self, container_id: str, ifname: str) -> list[Record]:
        """Return the records of one (container, interface) on any network, and corrupt ones that may be of it."""
        # Only the end of a name is known: the record may be of another network.
        read = [self._read(name, directory) for name, directory in self._scan(f"-{container_id}-{ifname}")]
        wanted = (container_id, ifname)
        found = [one for one in read if one and ((one.container_id, one.ifname) == wanted or one.state == CORRUPT)]
        return sorted(found, key=lambda record: os.fsencode(record.path))

    def iter_names(self) -> Iterator[str]:
        """Return the names of all files, in the directory's order."""
        for name, _ in self._scan(""):
            yield name

    def iter_versions(self) -> Iterator[tuple[str, Version]]:
        """Return the names of all files, each with the version of the record and its partial result."""
        partials = dict(self._versions(self.partials))
        for name, version in self._versions(self.results):
            partial = partials.get(name, ())
            yield name, None if version is None or partial is None else version + partial

    def _versions(self, folder: str) -> Iterator[tuple[str, Version]]:
        settled = system.time_ns() - _SETTLED_NS
        for name, directory in self._scan("", folder):
            try:
                status = system.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:  # it no longer exists, or cannot be read either
                continue
            is_settled = status.st_ctime_ns < settled
            yield name, (status.st_ino, status.st_size, status.st_ctime_ns) if is_settled else None

    def _scan(self, part: str, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield (file name, directory descriptor) of each name in a folder that contains ``part`` or is a hash."""
        folder = folder or self.results
        try:
            with Directory(folder) as directory, system.scandir(directory) as entries:
                for entry in entries:
                    if part in entry.name or entry.name[0] == "~":
                        yield entry.name, directory
        except FileNotFoundError:
            return
        except OSError as error:
            raise record_error("cannot be listed", folder, error) from error

    def begin(self, record: Record) -> Record:
        """Write a new record, claim its name, and return it with its path.

        This replaces a record of the same identity, at ``record.path`` if that is set, and moves a corrupt file of the
        same name aside. If the store is durable, the record and its name are on the disk when this returns.
        """
        if record.path:
            # Sync here, too: the replaced record may be Go's, and Go does not sync the names of its records.
            self.rewrite(record, sync=self.durable)
            return record
        with self._draft(encode(record)) as (draft, source):
            path = self._claim(source, draft, record.identity)
        return record.with_fields(path=path)

    def _claim(self, source: int, draft: str, identity: Identity) -> str:
        """Give a draft its name and return its path."""
        for name in _names(identity):
            path = f"{self.results}/{name}"
            try:
                with Directory(self.results, create=True, durable=self.durable) as directory:
                    if self._claim_name(source, draft, directory, name, identity):
                        if self.durable:
                            # Otherwise a power cut while the first plugin runs can leave its effects without a record.
                            sync_directory(directory)
                        return path
            except OSError as error:
                raise record_error("cannot be written", path, error) from error
        raise RecordError("both possible names of the record's file belong to other attachments", path=self.results)

    def _claim_name(self, source: int, draft: str, directory: int, name: str, identity: Identity) -> bool:
        """Give a draft this name; return False if a record of another identity has the name."""
        for _ in range(_CLAIMS):
            # link(2) fails if the name exists; rename(2) would replace it. So two verbs cannot both claim one name.
            if _link(draft, name, source, directory):
                return True
            there = self._read(name, directory)
            if there is None:
                continue
            if there.state == CORRUPT:
                self.set_aside(there)
                continue
            if there.identity == identity or there.state == LEGACY:
                # The caller holds the container's lock, so no other verb writes this identity.
                system.rename(draft, name, src_dir_fd=source, dst_dir_fd=directory)
                return True
            return False
        path = f"{self.results}/{name}"
        raise RecordError(f"{path}: cannot be written: other programs keep changing it", path=path)

    def complete(self, record: Record) -> None:
        """Replace the file of a pending record with the completed record.

        The directory is not synced. If a power cut undoes the rename, the pending record is left, which is safe.
        """
        self.rewrite(record)
        self._remove_partial(record)

    def keep_partial(self, record: Record) -> None:
        """Keep the place and the result of the plugins that have run so far, until ``complete`` or ``forget``.

        They have a file of their own, which is not synced: a power cut may leave a file of 0 bytes, and a record of
        0 bytes would be worse than none. After a power cut the namespace does not exist any more.
        """
        known = f'"ifindex":{dumps(record.ifindex)},"mac":{dumps(record.mac)},"result":{record.result or "null"}'
        data = f"{_PARTIAL_START.decode()}{dumps(record.created)},{known}}}"
        name = _name_of(record)
        try:
            with Directory(self.partials, create=True) as directory:
                replace_file(name, data.encode(), directory, directory, durable=False)
        except OSError as error:
            raise record_error("cannot be written", f"{self.partials}/{name}", error) from error

    def with_partial(self, record: Record) -> Record:
        """Return the record, that of an unfinished ADD with what ``keep_partial`` kept for it."""
        if record.result is not None:
            return record
        try:
            with Directory(self.partials) as directory:
                text = jsontext.decode_utf8(read_file(_name_of(record), directory))
            kept = {member.key: member for member in jsontext.members(text)}
            # The file of an earlier ADD of the same name may have stayed after a kill.
            if kept["created"].value != record.created:
                return record
            result = kept["result"].text if kept["result"].value is not None else None
            # 0.2.0 kept no place.
            place = {key: kept[key].value for key in ("ifindex", "mac") if key in kept}
            return record.with_fields(result=result, **place)
        except FileNotFoundError:
            return record
        except (OSError, UnusableFileError, JSONTextError, KeyError) as error:
            logger.warning("%s/%s: the intermediate result cannot be read: %s", self.partials, _name_of(record), error)
            return record

    def _remove_partial(self, record: Record) -> None:
        try:
            with Directory(self.partials) as directory:
                remove(_name_of(record), directory)
        except FileNotFoundError:
            pass
        except OSError as error:  # the verb has done its work, so this must not fail it
            path = f"{self.partials}/{_name_of(record)}"
            logger.warning("%s: the intermediate result cannot be removed: %s", path, error.strerror or error)

    def rewrite(self, record: Record, *, sync: bool = False) -> None:
        """Replace a record's file atomically. ``sync``: sync its name, too. Raises RecordError."""
        try:
            with (
                Directory(self.drafts, create=True, durable=self.durable) as source,
                Directory(self.results, create=True, durable=self.durable) as directory,
            ):
                replace_file(_name_of(record), encode(record), source, directory, durable=self.durable)
                if sync:
                    sync_directory(directory)
        except OSError as error:
            raise record_error("cannot be written", record.path, error) from error

    def mark_detaching(self, record: Record) -> Record:
        """Write to the file of a ready record that its DEL has begun, and return the new record.

        DEL calls this before its first plugin. If the disk is read-only, this logs a warning and returns the record
        unchanged, because that must not stop a DEL.
        """
        marked = record.with_fields(state=DETACHING)
        try:
            # A kill of this program must not lose the mark. A power cut may: after it the record is of an earlier boot.
            # So it needs no sync. A single byte is never half written.
            with Directory(self.results) as directory:
                is_marked = overwrite_after(DETACHING_MARK.encode(), b"1", _name_of(record), directory)
            if not is_marked:  # Go's records, and those of earlier versions
                self.rewrite(marked)
        except (OSError, RecordError) as error:
            logger.warning("DEL goes on, but the record %s is not marked as detaching: %s", record.path, error)
            return record
        return marked

    def ensure_writable(self, record: Record) -> None:
        """Check that a record of this size can be written: write it under a temporary name and remove it.

        ``on_existing="replace"`` calls this before it detaches the existing attachment.

        Raises:
            RecordError: it cannot be written, for example because the disk is full.
        """
        try:
            with self._draft(encode(record)), Directory(self.results, create=True, durable=self.durable):
                pass
        except OSError as error:
            raise record_error("cannot be written", self.results, error) from error

    @contextmanager
    def _draft(self, data: bytes) -> Iterator[tuple[str, int]]:
        """Write a file under a temporary name; yield (name, directory descriptor). Remove the name at the end."""
        try:
            with Directory(self.drafts, create=True, durable=self.durable) as directory:
                draft = write_draft(directory, data, durable=self.durable)
                try:
                    yield draft, directory
                finally:
                    with suppress(OSError):  # repair removes it later
                        remove(draft, directory)
        except OSError as error:
            raise record_error("cannot be written", self.drafts, error) from error

    def forget(self, record: Record) -> None:
        """Remove the file of a record in any state, if it exists.

        If there is a directory instead of a file, it may hold data, so it is moved to ``<cache_dir>/corrupt``.
        """
        try:
            with Directory(self.results) as directory:
                system.unlink(_name_of(record), dir_fd=directory)
        except FileNotFoundError:
            pass
        except IsADirectoryError:
            self.set_aside(record)
        except OSError as error:
            raise record_error("cannot be removed", record.path, error) from error
        self._remove_partial(record)  # after the record: a DEL that is repeated after a kill needs it

    def set_aside(self, record: Record) -> str:
        """Move the file of a corrupt record to ``<cache_dir>/corrupt/`` and return its new path."""
        name = _name_of(record)
        # Bytes, not characters: the limit of 255 for a name is in bytes, and the time needs some of them.
        target = f"{os.fsdecode(os.fsencode(name)[:200])}.{system.time_ns()}"
        try:
            with (
                Directory(self.results) as source,
                Directory(self.aside, create=True, durable=self.durable) as directory,
            ):
                system.rename(name, target, src_dir_fd=source, dst_dir_fd=directory)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise record_error("cannot be moved aside", record.path, error) from error
        return f"{self.aside}/{target}"

    def names_set_aside(self) -> list[str]:
        """Return the names of the files in ``<cache_dir>/corrupt``: those of records, with the time after them.

        Raises:
            RecordError: the directory cannot be listed.
        """
        try:
            return sorted(system.listdir(self.aside))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise record_error("cannot be listed", self.aside, error) from error

    def read(self, name: str) -> Record | None:
        """Return the record in the file of this name, or None. If it is not a record, it has state corrupt.

        Raises:
            RecordError: the system refuses to read the file.
        """
        try:
            with Directory(self.results) as directory:
                return self._read(name, directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise record_error("cannot be read", f"{self.results}/{name}", error) from error

    def _read(self, name: str, directory: int) -> Record | None:
        path = f"{self.results}/{name}"
        try:
            data = read_file(name, directory)
        except FileNotFoundError:
            return None
        except UnusableFileError as error:
            return Record(state=CORRUPT, path=path, problem=str(error))
        except OSError as error:
            raise record_error("cannot be read", path, error) from error
        return decode(data, path)


def without_hash(name: str) -> str:
    """Return a record's file name without its hash; "" if it is only a hash. An interface's name may contain a ~."""
    return _HASH.sub("", name)


def _name_of(record: Record) -> str:
    return record.path.rpartition("/")[2]


def _link(draft: str, name: str, source: int, directory: int) -> bool:
    """Give a file a name; return False if the name exists already."""
    try:
        system.link(draft, name, src_dir_fd=source, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        # This file system has no hard links, so test the name and rename. The caller holds its container's lock: only a
        # verb of another identity with the same name could come in between.
        try:
            system.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            system.rename(draft, name, src_dir_fd=source, dst_dir_fd=directory)
            return True
        return False
    return True


def _names(identity: Identity) -> Iterator[str]:
    """Yield the file names that a record may have, the first choice first."""
    name = "-".join(identity)
    is_short = len(os.fsencode(name)) <= _NAME_BYTES
    if is_short:
        yield name
    import hashlib  # it loads OpenSSL, and few records need it

    # No network's name contains "~", and no interface's name is as long as a hash. So no plain name looks like a hashed
    # one.
    mark = hashlib.sha256("/".join(identity).encode()).hexdigest()[:32]
    hashed = f"{name}~{mark}"
    yield hashed if is_short and len(os.fsencode(hashed)) <= _NAME_BYTES else f"~{mark}"
