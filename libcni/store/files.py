"""Files of records: read whole or not at all, and written under another name before they get theirs."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from contextlib import suppress

__all__ = ["Directory", "left_over", "read_file", "remove", "write_draft"]

_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_serial = itertools.count()


class Directory:
    """A directory that is open as long as the context lasts; its descriptor is what ``with`` gives.

    ``create``: make it, and what is missing above it, for this user alone.
    """

    __slots__ = ("_create", "_descriptor", "_path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self._path = path
        self._create = create
        self._descriptor = -1

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, _DIR_FLAGS)
        except FileNotFoundError:
            if not self._create:
                raise
            _make_directory(self._path)
            self._descriptor = os.open(self._path, _DIR_FLAGS)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def write_draft(directory: int, data: bytes, *, durable: bool) -> str:
    """Write a file under a name of its own and return that. With ``durable`` its bytes are on the disk then."""
    name = f"{os.getpid()}-{time.monotonic_ns()}-{next(_serial)}"
    descriptor = os.open(name, _WRITE_FLAGS, 0o600, dir_fd=directory)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if durable:
                os.fsync(descriptor)  # the name comes after the bytes: a 0-byte record is the field's oldest bug
        finally:
            os.close(descriptor)
    except BaseException:
        remove(name, directory)
        raise
    return name


def remove(name: str, directory: int) -> None:
    """Remove a file; one that has gone already is no error."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def left_over(directory: int, older_than: float) -> list[str]:
    """Return the names of the drafts that writers have left, not written to for ``older_than`` seconds.

    A draft whose writer lives is not among them, unless ``older_than`` is 0: then the caller knows that none writes.
    """
    return [name for name in sorted(os.listdir(directory)) if _is_left_over(name, directory, older_than)]


def _is_left_over(name: str, directory: int, older_than: float) -> bool:
    try:
        age = time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return False
    return older_than <= 0 or (age > older_than and not os.path.exists(f"/proc/{name.partition('-')[0]}"))


def _make_directory(path: str) -> None:
    """Make a directory and what is missing above it, for this user alone."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent and parent != path:
            _make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def read_file(name: str, directory: int) -> bytes | None:
    """Return what is in a file, or None where it is something else, such as a symbolic link."""
    try:
        descriptor = os.open(name, _READ_FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            return None
        raise
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        data = os.read(descriptor, status.st_size + 1)
        while len(data) > status.st_size and (more := os.read(descriptor, 1 << 20)):  # it grows
            data += more
        return data
    finally:
        os.close(descriptor)
