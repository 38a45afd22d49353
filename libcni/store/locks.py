"""Locks: one verb at a time per container, and GC excludes ADD and DEL. They are bytes of ``<cache_dir>/locks``.

Open-file-description locks belong to an open file, not to a process. The kernel releases them when their holder dies,
so no stale lock can remain. The order is always network, then container. If the file system has no such locks, one
filelock replaces them all, and one verb runs at a time.

All verbs of a process share one descriptor of the file, because the start of a plugin takes time for each descriptor
of the file and each lock on it. Locks of one open file do not exclude each other, so a table records which verb of the
process holds which byte.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import io
import itertools
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libcni.errors import LockTimeoutError, RecordError
from libcni.store.files import FILE_MODE, keep_mode, make_directory

try:  # the C module behind hashlib; hashlib itself loads OpenSSL, which takes longer than the whole lock
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = ["TOKEN_VARIABLE", "LockRequest", "LockSet"]

TOKEN_VARIABLE = "LIBCNI_LOCK"  # noqa: S105 - the name of a variable
"""The variable that tells a plugin which locks its caller holds, if the plugin uses this library itself."""

# The file has no content. Each region of byte offsets is a kind of lock; a name's hash is the offset within it. The
# ranges are part of the format: other versions of this library lock the same bytes.
_REGION = 1 << 50
_CONTAINER, _NETWORK, _ENTRANCE, _ADDING, _NONCE, _OTHER = (region * _REGION for region in range(6))
_NONCE_BITS = 48
_REGIONS = {"ADD": _ADDING}  # every other verb: _OTHER
_FLOCK = struct.Struct("hhqqi0q")
_ABOVE_STDIO = 3
_FIRST_DELAY, _LAST_DELAY = 0.0005, 0.02
_DELAY_PER_WAITER, _LAST_IN_LINE = 0.001, 0.2
_SILENT = 0.5
_FEW_VERBS = 32
_BUSY = {errno.EAGAIN, errno.EACCES}
_NO_RANGE_LOCKS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}

# F_OFD_*: the numbers are the same on every Linux. Python has the names only if they existed where it was built.
_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The locks that a verb needs.

    Attributes:
        networks: the names of networks; verbs of different containers share these locks.
        container_id: the container, always exclusive; "" for none.
        exclusive: whether this verb (GC) does not share the networks.
        all_containers: lock every container at once, to exclude every ADD and DEL.
    """

    networks: tuple[str, ...] = ()
    container_id: str = ""
    exclusive: bool = False
    all_containers: bool = False

    @property
    def what(self) -> str:
        """The request as text for errors."""
        if self.all_containers:
            return "all containers"
        parts = [f"network {name}" for name in self.networks]
        return ", ".join([*parts, f"container {self.container_id}"] if self.container_id else parts)


class LockSet:
    """The locks of one verb, held or being acquired.

    ``try_acquire`` acquires the free locks and returns whether all are held; ``retry_delays`` yields the delays.
    ``close`` releases everything. Plugins receive ``token`` in LIBCNI_LOCK.

    ``plugin_descriptor`` returns a descriptor for a plugin to inherit. While a plugin has it, ``has_running_plugin`` is
    true for the next verb of this container. There is one for ADD and one for the other verbs, because an ADD may start
    a daemon that keeps its descriptor for ever.

    Raises:
        RecordError: the lock file cannot be opened or locked. A lock that another verb holds is not an error here.
    """

    def __init__(self, cache_dir: str, request: LockRequest, token: str = "") -> None:
        self.path: str = f"{cache_dir}/locks"
        self.request = request
        self._serial = next(_serials)
        self._cache_dir = cache_dir
        self._descriptors: dict[int, io.FileIO] = {}
        self._whole: FileLock | None = None
        self._file = _shared_file(self.path, cache_dir, self._serial)
        _lock_sets.add(self)
        try:
            self._prepare(token)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        """Release everything: an exception from a signal handler can prevent the call of ``close``."""
        if hasattr(self, "_file"):
            self.close()

    def _prepare(self, token: str) -> None:
        request = self.request
        networks = {_NETWORK + _hash(name) for name in request.networks}
        container = _CONTAINER + _hash(request.container_id) if request.container_id else -1
        self._held_by_caller = held = self._locks_of(token)
        self._is_outermost = container >= 0 and container not in held
        # Network before container, networks in sorted order: with different orders two verbs could deadlock.
        self._todo = [
            *[step for network in sorted(networks - held) for step in _network_steps(network, request)],
            *([(fcntl.F_WRLCK, container)] if self._is_outermost else []),
            *([(fcntl.F_WRLCK, _ALL_CONTAINERS)] if request.all_containers else []),
        ]
        offsets = ",".join([str(offset) for offset in sorted(networks | {container} | held) if offset >= 0])
        nonce = _NONCE + int.from_bytes(os.urandom(_NONCE_BITS // 8), "big")
        # The token names a random byte that only this verb locks. So the token is worthless after the verb's end.
        self.token: str = f"{self._file.identity}:{nonce}:{offsets}"
        try:
            self._file.lock(fcntl.F_WRLCK, nonce, self._serial)
        except OSError as error:
            if error.errno not in _NO_RANGE_LOCKS:
                raise self._refused(error) from error
            self._fall_back(is_nested=token.startswith(f"{self._file.identity}:"))

    def _fall_back(self, *, is_nested: bool) -> None:
        """Use one filelock for everything. It does not tell whether its holder is this plugin's caller."""
        from filelock import FileLock

        lock = FileLock(f"{self.path}.whole", mode=0o600, thread_local=False)
        # A plugin that waited for its caller's lock would wait for ever. If the token names this file and the lock is
        # taken, assume that the caller holds it.
        held_by_caller = is_nested and not _try_lock(lock)
        _release(lock)
        self._whole = None if held_by_caller else lock
        self._todo = []
        self._is_outermost = False

    def try_acquire(self) -> bool:
        """Acquire the locks that are free, in order; return whether all are held.

        Raises:
            RecordError: the system refuses to lock, for a reason other than that the lock is held.
        """
        if self._whole is not None:
            return _try_lock(self._whole)
        try:
            while self._todo:
                if not self._file.lock(*self._todo[0], self._serial):
                    return False
                del self._todo[0]
        except OSError as error:
            raise self._refused(error) from error
        return True

    def retry_delays(self, deadline: float) -> Iterator[float]:
        """Acquire the locks; yield the seconds to sleep before each retry. ``deadline``: a time of ``time.monotonic``.

        Verbs of one process that wait for the same container acquire its lock in the order of their arrival.

        Raises:
            LockTimeoutError: another verb held a lock until the deadline.
            RecordError: the system refuses to lock.
        """
        started = time.monotonic()
        delay = _FIRST_DELAY
        try:
            # Polling, because a blocking F_OFD_SETLKW has no timeout, cannot be cancelled, and would block an event
            # loop.
            while not self.try_acquire():
                now = time.monotonic()
                if now >= deadline:
                    raise self.timeout(now - started)
                ahead = self._file.wait_in_line(self._todo, self._serial)
                # The next one in line polls often, so that the container is not idle between two verbs.
                pause = delay if ahead < 0 else min(_DELAY_PER_WAITER * (ahead + 1), _LAST_IN_LINE)
                yield max(min(pause, deadline - now), _FIRST_DELAY)
                delay = min(2 * delay, _LAST_DELAY)
        finally:
            self._file.leave_line(self._serial)

    def is_held_by_caller(self, network: str, container_id: str) -> bool:
        """Return whether this process is a plugin, and the verb that runs it holds both locks."""
        return {_NETWORK + _hash(network), _CONTAINER + _hash(container_id)} <= self._held_by_caller

    def is_current(self) -> bool:
        """Return whether the locked file is still the one at ``path``: it may be removed while a verb waits."""
        try:
            status = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return f"{status.st_dev}:{status.st_ino}" == self._file.identity

    def plugin_descriptor(self, verb: str) -> int:
        """Return the descriptor that a plugin of ``verb`` inherits; -1 if the container's lock is an outer verb's.

        It is read-only, so a plugin or its daemon cannot lock other ranges with it.

        Raises:
            RecordError: the lock file cannot be opened or locked.
        """
        if not self._is_outermost:
            return -1
        region = _REGIONS.get(verb, _OTHER)
        if region not in self._descriptors:
            # A separate open file: a plugin's daemon may keep the descriptor, and must not keep the container's lock.
            file = _open(self.path, self._cache_dir, os.O_RDONLY)
            offset = region + _hash(self.request.container_id)
            try:
                fcntl.fcntl(file, _SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, offset, 1, 0))
            except OSError as error:
                file.close()
                raise self._refused(error) from error
            self._descriptors[region] = file
        return self._descriptors[region].fileno()

    def close_plugin_descriptor(self, verb: str = "") -> None:
        """Close this process's copy of the descriptor for ``verb``, or of both if ``verb`` is "".

        A plugin that has started keeps its own copy.
        """
        for region in (_ADDING, _OTHER) if not verb else (_REGIONS.get(verb, _OTHER),):
            file = self._descriptors.pop(region, None)
            if file is not None:
                file.close()

    def plugins_started(self) -> None:
        """Close this process's copies of plugin descriptors if many verbs run. Call it after a plugin has started.

        The start of each plugin takes time for each copy. With few verbs, the verb's next plugin inherits the same
        copy, which saves opening the file again.
        """
        if len(_lock_sets) > _FEW_VERBS:
            self.close_plugin_descriptor()

    def has_running_plugin(self, verb: str = "", container_id: str = "") -> bool:
        """Return whether a plugin of ``verb`` still runs for a container: one of a killed runtime, or of this verb.

        ``verb``: "ADD"; any other verb means all verbs except ADD; "" means all. ``container_id``: "" means the
        container of this lock set. If this verb's caller holds the container's lock, the answer is False, because the
        caller's plugin is this process.

        Raises:
            RecordError: the lock file cannot be examined.
        """
        if self._whole is not None or not (self._is_outermost or container_id):
            return False
        container_id = container_id or self.request.container_id
        if _CONTAINER + _hash(container_id) in self._held_by_caller:
            return False
        regions = (_ADDING, _OTHER) if not verb else (_REGIONS.get(verb, _OTHER),)
        if container_id == self.request.container_id:
            self.close_plugin_descriptor(verb)  # otherwise this verb's own copy counts as a plugin
        try:
            return any(self._file.is_locked(region + _hash(container_id)) for region in regions)
        except OSError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Release all locks. Never raise: that would hide the verb's own result or error."""
        if self._whole is not None:
            _release(self._whole)
        # Locks before plugin descriptors: the next verb must see a plugin that still runs, and wait for it.
        self._file.release_all(self._serial)
        self.close_plugin_descriptor()
        _lock_sets.discard(self)

    def timeout(self, seconds: float) -> LockTimeoutError:
        """Return the error for a wait that took too long."""
        what = self.request.what
        return LockTimeoutError(
            f"{what}: another verb held the lock for {seconds:.1f} s ({self.path})",
            what=what, path=self.path, seconds=seconds,
        )  # fmt: skip

    def _refused(self, error: OSError) -> RecordError:
        text = f"{self.path}: cannot be locked: {error.strerror or error}"
        return RecordError(text, path=self.path, errno=error.errno)

    def _locks_of(self, token: str) -> set[int]:
        """Return the offsets that this plugin's caller holds; none if the caller's verb has ended."""
        try:
            file, nonce, texts = token.rsplit(":", 2)
            offset, offsets = int(nonce), {int(text) for text in texts.split(",")}
        except ValueError:
            return set()
        # Only a random byte proves that the caller is a running verb. Otherwise anyone who sets the variable could name
        # any locked container, and this process would run without that container's lock.
        if file != self._file.identity or not _NONCE <= offset < _NONCE + (1 << _NONCE_BITS):
            return set()
        try:
            return {one for one in offsets if 0 <= one < _ENTRANCE} if self._file.is_locked(offset) else set()
        except OSError as error:
            if error.errno in _NO_RANGE_LOCKS:
                return set()
            raise self._refused(error) from error


_ALL_CONTAINERS = -1
_serials = itertools.count(1)


class _SharedFile:
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
                self._forget(offset, holder)
                if isinstance(error, OSError) and error.errno in _BUSY:
                    return False
                raise
            return True

    def _is_held_by_others(self, kind: int, offset: int, holder: int) -> bool:
        if self._writers.get(offset, holder) != holder:
            return True
        if kind == fcntl.F_WRLCK and self._readers.get(offset, set()) - {holder}:
            return True
        if offset == _ALL_CONTAINERS:
            return any(0 <= other < _NETWORK and owner != holder for other, owner in self._writers.items())
        if offset < _NETWORK:
            return self._writers.get(_ALL_CONTAINERS, holder) != holder or self._ahead(offset, holder) > 0
        return False

    def _fcntl(self, kind: int, offset: int) -> None:
        start, length = (_CONTAINER, _REGION) if offset == _ALL_CONTAINERS else (offset, 1)
        fcntl.fcntl(self._file, _SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))

    def _forget(self, offset: int, holder: int) -> bool:
        """Remove a holder from the table; return whether no lock set of this process holds the byte now."""
        self._offsets[holder].discard(offset)
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
            offset = todo[0][1] if todo else _NETWORK
            if not 0 <= offset < _NETWORK:
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
            # The last user: one call unlocks all, instead of one for each byte.
            if len(self._offsets) == 1:
                with suppress(OSError):
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
        self._offsets.clear()
        for path in [path for path, one in _files.items() if one is self]:
            del _files[path]
        self._file.close()


# Reentrant: the garbage collector may finalise a lock set, which releases its bytes, while this thread holds the lock.
_table_lock = threading.RLock()
_files: dict[str, _SharedFile] = {}
_lock_sets: weakref.WeakSet[LockSet] = weakref.WeakSet()


def _shared_file(path: str, cache_dir: str, user: int) -> _SharedFile:
    """Return this process's open lock file at ``path``; open it if necessary. Raises RecordError."""
    with _table_lock:
        known = _files.get(path)
        if known is None or known.identity != _identity_at(path):
            # Another program removed the file. Verbs keep their locks on the old file; new verbs use the new file.
            file = _open(path, cache_dir, os.O_RDWR)
            try:
                known = _SharedFile(file)
            except OSError as error:
                file.close()
                text = f"{path}: cannot be opened: {error.strerror or error}"
                raise RecordError(text, path=path, errno=error.errno) from error
            _files[path] = known
        known.add_user(user)
        return known


def _identity_at(path: str) -> str:
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def _drop_all() -> None:
    """Close the descriptors of the parent's verbs in a forked child, without unlocking.

    Otherwise a child that goes on running would keep the locks, even after its parent's death. The child shares the
    open file with its parent, so unlocking here would also unlock there.
    """
    global _table_lock  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _table_lock = threading.RLock()
    for lock_set in list(_lock_sets):
        lock_set._file.close()  # noqa: SLF001 - the module's own class
        lock_set.close_plugin_descriptor()
    for file in list(_files.values()):
        file.close()
    _lock_sets.clear()


os.register_at_fork(after_in_child=_drop_all)


def _network_steps(network: int, request: LockRequest) -> list[tuple[int, int]]:
    """Return the steps to acquire a network's lock."""
    # A waiting GC keeps the entrance locked, which blocks new shared lockers. Otherwise a busy network would never be
    # free for GC.
    kind = fcntl.F_WRLCK if request.exclusive else fcntl.F_RDLCK
    entrance = network - _NETWORK + _ENTRANCE
    return [(kind, entrance), (kind, network), (fcntl.F_UNLCK, entrance)]


@functools.lru_cache(maxsize=4096)
def _hash(name: str) -> int:
    """Return a name's offset within a region. Two names with one hash share a lock, which is slow but safe."""
    return int.from_bytes(blake2b(name.encode(), digest_size=6).digest(), "big")


def _try_lock(lock: FileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        path = os.fspath(lock.lock_file)
        text = f"{path}: cannot be locked: {error.strerror or error}"
        raise RecordError(text, path=path, errno=error.errno) from error
    return True


def _release(lock: FileLock) -> None:
    with suppress(OSError):
        lock.release()


def _open(path: str, cache_dir: str, mode: int) -> io.FileIO:
    """Open the lock file; raises RecordError."""
    try:
        try:
            return _LockFile(path, "r" if mode == os.O_RDONLY else "r+", opener=_opener(mode))
        except FileNotFoundError:
            make_directory(cache_dir, durable=False)
            return _LockFile(path, "r" if mode == os.O_RDONLY else "r+", opener=_opener(mode))
    except OSError as error:
        text = f"{path}: cannot be opened: {error.strerror or error}"
        raise RecordError(text, path=path, errno=error.errno) from error


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
