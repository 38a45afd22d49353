"""Files of records: read whole or not at all, and written under a temporary name before they get their own."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from contextlib import suppress

__all__ = [
    "FILE_MODE", "MAX_RECORD_BYTES", "Directory", "UnusableFileError", "keep_mode", "make_directory", "read_file",
    "remove", "stale_drafts", "sync_directory", "write_draft",
]  # fmt: skip

FILE_MODE = 0o600
MAX_RECORD_BYTES = 64 << 20

_DIR_MODE = 0o700
_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1 << 20
_NOT_SYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
_serial = itertools.count()


class UnusableFileError(Exception):
    """A file that cannot be a record, whatever is in it: not a regular file, or too large. Its text says which."""


class Directory:
    """A directory that is open as long as the context lasts; ``with`` gives its descriptor.

    ``create``: make it, and what is missing above it, for this user alone. ``durable``: sync what was made.
    """

    __slots__ = ("_create", "_descriptor", "_durable", "_path")

    def __init__(self, path: str, *, create: bool = False, durable: bool = False) -> None:
        self._path = path
        self._create = create
        self._durable = durable
        self._descriptor = -1

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, _DIR_FLAGS)
        except FileNotFoundError:
            if not self._create:
                raise
            make_directory(self._path, durable=self._durable)
            self._descriptor = os.open(self._path, _DIR_FLAGS)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def make_directory(path: str, *, durable: bool) -> None:
    """Make a directory and what is missing above it, for this user alone, whatever the umask is.

    With ``durable``, it and all above it are on the disk when this returns: a power cut that takes a directory away
    takes the records in it. Those above may be new, too: the locks have made the cache directory, and synced nothing.
    """
    _make_missing(path)
    above = os.path.dirname(path)
    device = os.stat(path).st_dev
    while durable and above != path and os.stat(above or ".").st_dev == device:
        try:
            with Directory(above or ".") as directory:
                sync_directory(directory)
        except PermissionError:  # not ours, so we have not made anything in it
            return
        path, above = above, os.path.dirname(above)


def _make_missing(path: str) -> None:
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        _make_missing(parent)
    with suppress(FileExistsError):
        os.mkdir(path, _DIR_MODE)
        os.chmod(path, _DIR_MODE)


def sync_directory(directory: int) -> None:
    """Put a directory's entries on the disk. A file system that cannot do so for directories is no error."""
    try:
        os.fsync(directory)
    except OSError as error:
        if error.errno not in _NOT_SYNCABLE:
            raise


def keep_mode(descriptor: int) -> None:
    """Let this user read and write the file; an unusual umask takes these rights from a file that is made."""
    mode = os.fstat(descriptor).st_mode
    # not chmod by name: another program could have put another file there
    if mode & FILE_MODE != FILE_MODE:
        os.fchmod(descriptor, stat.S_IMODE(mode) | FILE_MODE)


def write_draft(directory: int, data: bytes, *, durable: bool) -> str:
    """Write a file under a temporary name and return the name. With ``durable`` its bytes are on the disk then."""
    name = f"{os.getpid()}-{time.monotonic_ns()}-{next(_serial)}"
    descriptor = os.open(name, _WRITE_FLAGS, FILE_MODE, dir_fd=directory)
    try:
        try:
            keep_mode(descriptor)
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)  # the name comes after the bytes, so that a power cut leaves no 0-byte record
        finally:
            os.close(descriptor)
    except BaseException as error:
        try:
            remove(name, directory)
        except OSError as problem:
            error.add_note(f"the temporary file {name} stays: {problem.strerror or problem}")
        raise
    return name


def remove(name: str, directory: int) -> None:
    """Remove a file; one that has gone already is no error."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def stale_drafts(directory: int, older_than: float) -> list[str]:
    """Return the names of the drafts that killed writers have left, not written to for ``older_than`` seconds.

    A draft whose writer lives is not among them, unless ``older_than`` is 0: then the caller knows that nobody writes.
    Only files are drafts: a directory is somebody else's.
    """
    return [name for name in sorted(os.listdir(directory)) if _is_stale_draft(name, directory, older_than)]


def _is_stale_draft(name: str, directory: int, older_than: float) -> bool:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(status.st_mode):
        return False
    age = time.time() - status.st_mtime
    return older_than <= 0 or (age > older_than and not os.path.exists(f"/proc/{name.partition('-')[0]}"))


def read_file(name: str, directory: int) -> bytes:
    """Return the bytes of a regular file of at most MAX_RECORD_BYTES.

    Raises:
        UnusableFileError: it is something else, such as a symbolic link, or larger.
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(name, _READ_FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise UnusableFileError("it is not a regular file") from None
        raise
    try:
        # after the opening, which O_NONBLOCK keeps from waiting for a FIFO's writer: between a look at the name and
        # the opening, another program could replace the file
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnusableFileError("it is not a regular file")
        # the size first: a sparse file of 8 TiB takes no room on the disk, and all of the memory
        if status.st_size > MAX_RECORD_BYTES:
            raise UnusableFileError(f"it has {status.st_size} bytes, and a record has at most {MAX_RECORD_BYTES}")
        data = os.read(descriptor, status.st_size + 1)
        while len(data) > status.st_size and (more := os.read(descriptor, _CHUNK)):  # another program appends to it
            data += more
            if len(data) > MAX_RECORD_BYTES:
                raise UnusableFileError(f"it has more than {MAX_RECORD_BYTES} bytes")
        return data
    finally:
        os.close(descriptor)
