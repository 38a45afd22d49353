"""The lock file of this process, and the table of the verbs that hold its bytes.

All verbs of a process share one descriptor of the file, because the start of a plugin takes time for each descriptor
of the file and each lock on it. Locks of one open file do not exclude each other, so a table records which verb of the
process holds which byte.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import os
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from libcni.store.files import FILE_MODE, keep_mode, make_directory, record_error

try:  # the C module behind hashlib; hashlib itself loads OpenSSL, which takes longer than the whole lock
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

# The file has no content. Each region of byte offsets is a kind of lock; a name's hash is the offset within it. The
# ranges are part of the format: other versions of this library lock the same bytes.
_REGION = 1 << 50
CONTAINER, NETWORK, ENTRANCE, ADDING, NONCE, OTHER = (region * _REGION for region in range(6))
NONCE_BITS = 48
ALL_CONTAINERS = -1
"""In place of an offset: all bytes of the containers' region."""

_FLOCK = struct.Struct("hhqqi0q")
_ABOVE_STDIO = 3
_SILENT = 0.5
"""Seconds after which a waiting verb that does not ask loses its position in the queue."""

_BUSY = {errno.EAGAIN, errno.EACCES}

# F_OFD_*: the numbers are the same on every Linux. Python has the names only if they existed where it was built.
_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)


class SharedLockFile:
    """This process's open lock file, and the table of the lock sets that hold its bytes or wait for them.

    The table holds serial numbers instead of lock sets, so that a forgotten lock set can be finalised.
    """

    def __init__(self, file: io.FileIO) -> None:
        status = os.fstat(file.fileno())
        self.identity: str = f"{status.st_dev}:{status.st_ino}"
        self._file = file
        self._offsets: dict[int, set[int]] = {}
        self._writers: dict[int, int] = {}
        self._readers: dict[int, set[int]] = {}
        self._lines: dict[int, dict[int, float]] = {}
        self._line_of: dict[int, int] = {}

    def add_user(self, holder: int) -> None:
        """Add a lock set that uses the file. The file stays open until the last one has released everything."""
        self._offsets[holder] = set()

    def lock(self, kind: int, offset: int, holder: int) -> bool:
        """Lock or unlock a byte; return False if another holder has it. Raises OSError if the system refuses."""
        with _table_lock:
            if holder not in self._offsets:
                raise OSError(errno.EBADF, "the locks are closed")
            if kind == fcntl.F_UNLCK:
                self._unlock(offset, holder)
                return True
            # The kernel would grant it, because locks of one open file never exclude each other. So ask the table.
            if self._is_held_by_others(kind, offset, holder):
                return False
            # First the table, then the kernel. A finaliser may run in between and release a shared byte for another
            # holder: it must see that this one uses the byte.
            self._offsets[holder].add(offset)
            if kind == fcntl.F_WRLCK:
                self._writers[offset] = holder
            else:
                self._readers.setdefault(offset, set()).add(holder)
            try:
                self._fcntl(kind, offset)
            except BaseException as error:
                # Also unlock: an exception out of a signal handler may come when the kernel has granted the lock.
                with suppress(OSError):
                    self._unlock(offset, holder)
                self._offsets[holder].discard(offset)
                if isinstance(error, OSError) and error.errno in _BUSY:
                    return False
                raise
            return True

    def _is_held_by_others(self, kind: int, offset: int, holder: int) -> bool:
        if self._writers.get(offset, holder) != holder:
            return True
        if kind == fcntl.F_WRLCK and self._readers.get(offset, set()) - {holder}:
            return True
        if offset == ALL_CONTAINERS:
            return any(0 <= other < NETWORK and owner != holder for other, owner in self._writers.items())
        if offset < NETWORK:
            return self._writers.get(ALL_CONTAINERS, holder) != holder or self._ahead(offset, holder) > 0
        return False

    def _fcntl(self, kind: int, offset: int) -> None:
        start, length = (CONTAINER, _REGION) if offset == ALL_CONTAINERS else (offset, 1)
        fcntl.fcntl(self._file, _SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))

    def _forget(self, offset: int, holder: int) -> bool:
        """Remove a holder from the table; return whether no lock set of this process holds the byte now."""
        if self._writers.get(offset) == holder:
            del self._writers[offset]
        readers = self._readers.get(offset, set())
        readers.discard(holder)
        if not readers:
            self._readers.pop(offset, None)
        return offset not in self._writers and offset not in self._readers

    def _unlock(self, offset: int, holder: int) -> None:
        # Many lock sets of this process may share a byte, but it is one lock in the kernel. Only the last one unlocks.
        if self._forget(offset, holder):
            self._fcntl(fcntl.F_UNLCK, offset)
        # Last: if a signal handler raises before, the finaliser of the lock set unlocks the byte again.
        self._offsets[holder].discard(offset)

    def is_locked(self, offset: int) -> bool:
        """Return whether a verb of this or another process holds a byte. Raises OSError."""
        with _table_lock:
            if offset in self._writers or offset in self._readers:
                return True  # the kernel does not report locks of the same open file
            answer: Any = fcntl.fcntl(self._file, _GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
            return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def wait_in_line(self, todo: list[tuple[int, int]], holder: int) -> int:
        """Enter a container's line or stay in it; return the number ahead, or -1 if this waits for another lock."""
        with _table_lock:
            offset = todo[0][1] if todo else NETWORK
            if not 0 <= offset < NETWORK:
                return -1
            # Replacing a value in a dict keeps its position, so this is the order of arrival.
            self._lines.setdefault(offset, {})[holder] = time.monotonic()
            self._line_of[holder] = offset
            return self._ahead(offset, holder)

    def _ahead(self, offset: int, holder: int) -> int:
        """Return how many lock sets wait longer for a container than this one. Silent ones do not count."""
        line = self._lines.get(offset)
        if not line:
            return 0
        # A thread that waits may be stopped, or its event loop busy. It must not hold up the others in the line.
        oldest = time.monotonic() - _SILENT
        found = 0
        for other, asked in line.items():
            if other == holder:
                break
            found += asked > oldest
        return found

    def leave_line(self, holder: int) -> None:
        """Leave the line."""
        with _table_lock:
            offset = self._line_of.pop(holder, None)
            if offset is not None:
                line = self._lines.get(offset, {})
                line.pop(holder, None)
                if not line:
                    self._lines.pop(offset, None)

    def release_all(self, holder: int) -> None:
        """Unlock all bytes of a lock set; close the file if it was the last user. Never raises."""
        with _table_lock:
            if holder not in self._offsets:
                return
            self.leave_line(holder)
            # The last user: one call unlocks all, instead of one for each byte. If the file is closed, an earlier call
            # was interrupted.
            if len(self._offsets) == 1:
                with suppress(OSError, ValueError):
                    fcntl.fcntl(self._file, _SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
                self.close()
                return
            for offset in list(self._offsets[holder]):
                # Unlock explicitly: closing does not unlock if a process that was forked meanwhile has the file, too.
                with suppress(OSError):
                    self._unlock(offset, holder)
            del self._offsets[holder]
            if not self._offsets:
                self.close()

    def close(self) -> None:
        """Close the descriptor. If a forked process has the open file, too, the locks stay until it closes it."""
        # Before anything else: a signal handler may raise at any step, and then no later verb may use this table.
        for path in [path for path, one in _files.items() if one is self]:
            del _files[path]
        self._file.close()
        # Last: until here the finaliser of the last lock set calls this again.
        self._offsets.clear()


# Reentrant: the garbage collector may finalise a lock set, which releases its bytes, while this thread holds the lock.
_table_lock = threading.RLock()
_files: dict[str, SharedLockFile] = {}


def shared_lock_file(path: str, cache_dir: str, user: int) -> SharedLockFile:
    """Return this process's open lock file at ``path``; open it if necessary. Raises RecordError."""
    with _table_lock:
        known = _files.get(path)
        if known is None or known.identity != identity_at(path):
            # Another program removed the file. Verbs keep their locks on the old file; new verbs use the new file.
            file = _open_lock_file(path, cache_dir, os.O_RDWR)
            try:
                known = SharedLockFile(file)
            except OSError as error:
                file.close()
                raise record_error("cannot be opened", path, error) from error
            _files[path] = known
        known.add_user(user)
        return known


def identity_at(path: str) -> str:
    """Return the identity of the file at a path, "" if there is none."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def drop_all() -> None:
    """Close the files in a forked child, without unlocking: the open files are the parent's, too."""
    global _table_lock  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _table_lock = threading.RLock()
    for file in list(_files.values()):
        file.close()


def open_read_locked(path: str, cache_dir: str, offset: int) -> io.FileIO:
    """Open the lock file for reading, and lock a byte for reading; raises RecordError."""
    file = _open_lock_file(path, cache_dir, os.O_RDONLY)
    try:
        fcntl.fcntl(file, _SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, offset, 1, 0))
    except OSError as error:
        file.close()
        raise record_error("cannot be locked", path, error) from error
    return file


@functools.lru_cache(maxsize=4096)
def offset_of(name: str) -> int:
    """Return a name's offset within a region. Two names with one hash share a lock, which is slow but safe."""
    return int.from_bytes(blake2b(name.encode(), digest_size=6).digest(), "big")


def _open_lock_file(path: str, cache_dir: str, mode: int) -> io.FileIO:
    """Open the lock file; raises RecordError."""
    opened = functools.partial(_LockFile, path, "r" if mode == os.O_RDONLY else "r+", opener=_opener(mode))
    try:
        try:
            return opened()
        except FileNotFoundError:
            make_directory(cache_dir, durable=False)
            return opened()
    except OSError as error:
        raise record_error("cannot be opened", path, error) from error


class _LockFile(io.FileIO):
    """A file that closes silently, also in its finaliser: a signal handler's exception must not leak a locked file."""

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        with suppress(OSError):
            super().close()


def _opener(mode: int) -> Callable[[str, int], int]:
    def open_(path: str, _flags: int) -> int:
        flags = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, mode | flags, FILE_MODE)
        try:
            if mode != os.O_RDONLY:
                keep_mode(descriptor)
            if descriptor >= _ABOVE_STDIO:
                return descriptor
            moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STDIO)
        except BaseException:
            os.close(descriptor)
            raise
        # The program has closed its stdin, stdout or stderr. A descriptor of that number would become a plugin's.
        os.close(descriptor)
        return moved

    return open_
