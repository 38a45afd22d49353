"""The lock file, and open-file-description locks of its bytes (``F_OFD_SETLK``)."""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import struct
import weakref
from contextlib import suppress
from typing import Any

import libcni.kernel.system as system
from libcni.store.files import FILE_MODE, keep_mode, make_directory, record_error

try:  # the C module behind hashlib; hashlib itself loads OpenSSL, which takes longer than the whole lock
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

# The file has no content. Each region of byte offsets is a kind of lock; a name's hash is the offset within it. The
# ranges are part of the format: other versions of this library lock the same bytes.
_REGION = 1 << 50
CONTAINER, NETWORK, ENTRANCE, PLUGIN, NONCE = (region * _REGION for region in range(5))
NONCE_BITS = 48
ALL_CONTAINERS = -1
"""Used as an offset: all bytes of the containers' region."""

_FLOCK = struct.Struct("hhqqi0q")
_ABOVE_STDIO = 3
_PROBLEM = "the lock file cannot be locked"
_BUSY = {errno.EAGAIN, errno.EACCES}

# F_OFD_*: the numbers are the same on every Linux. Python has the names only if its build machine had them.
_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)


class LockFile:
    """The lock file, opened for a verb or for the plugins of a verb.

    Each verb opens the file itself, because locks of one open file do not exclude each other.

    Attributes:
        descriptor: the open file; -1 after ``close``.
        identity: the device and the inode, as text.

    Raises:
        RecordError: the file cannot be opened.
    """

    def __init__(self, path: str, cache_dir: str, mode: int = os.O_RDWR) -> None:
        self.descriptor: int = -1
        self._path = path
        try:
            self.descriptor = _open(path, cache_dir, mode)
            _open_files.add(self)
            if mode != os.O_RDONLY:
                keep_mode(self.descriptor)
            status = system.fstat(self.descriptor)
        except OSError as error:
            raise record_error("the lock file cannot be opened", path, error) from error
        self.identity: str = f"{status.st_dev}:{status.st_ino}"

    def lock(self, kind: int, offset: int) -> bool:
        """Lock or unlock a byte; return False if another open file holds it. Raises RecordError if that fails."""
        start, length = (CONTAINER, _REGION) if offset == ALL_CONTAINERS else (offset, 1)
        try:
            system.fcntl(self.descriptor, _SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            raise record_error(_PROBLEM, self._path, error) from error
        return True

    def is_locked(self, offset: int) -> bool:
        """Return whether another open file holds a byte. Raises RecordError if that cannot be found out."""
        answer: Any
        try:
            answer = system.fcntl(self.descriptor, _GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
        except OSError as error:
            raise record_error(_PROBLEM, self._path, error) from error
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def is_current(self) -> bool:
        """Return whether this file is still at its path."""
        try:
            status = system.stat(self._path, follow_symlinks=False)
        except OSError:
            return False
        return f"{status.st_dev}:{status.st_ino}" == self.identity

    def release(self) -> None:
        """Unlock everything and close the file. Never raises."""
        # Unlock explicitly: closing does not unlock while a process that was forked meanwhile has the file open too.
        with suppress(OSError, ValueError):
            system.fcntl(self.descriptor, _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
        self.close()

    def close(self) -> None:
        """Close the descriptor. The locks stay as long as another process has the open file. Never raises."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                system.close(descriptor)

    __del__ = close


_open_files: weakref.WeakSet[LockFile] = weakref.WeakSet()


def _close_all() -> None:
    """Close the files of the parent's verbs in a forked child, without unlocking.

    Otherwise a child that keeps running would keep the locks, even after its parent's death. The child shares the open
    files with its parent, so unlocking them would also release the parent's locks.
    """
    for file in list(_open_files):
        file.close()


os.register_at_fork(after_in_child=_close_all)


@functools.lru_cache(maxsize=4096)
def offset_of(name: str) -> int:
    """Return a name's offset within a region. Two names with one hash share a lock, which is slow but safe."""
    return int.from_bytes(blake2b(name.encode(), digest_size=6).digest(), "big")


def _open(path: str, cache_dir: str, mode: int) -> int:
    flags = mode | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = system.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        make_directory(cache_dir, durable=False)
        descriptor = system.open(path, flags, FILE_MODE)
    if descriptor >= _ABOVE_STDIO:
        return descriptor
    # The program has closed its stdin, stdout or stderr. A plugin would get a descriptor with such a number as its own.
    try:
        return system.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STDIO)
    finally:
        system.close(descriptor)
