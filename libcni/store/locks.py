"""Locks: one verb at a time per container, and GC excludes ADD and DEL. Each lock is a byte of ``<cache_dir>/locks``.

Plugins inherit another file, ``<cache_dir>/locks.plugins``: a plugin may leave a daemon, and whoever has a
descriptor of a file can lock its bytes. A locked byte of this second file only says that a plugin of a container may
still run.

Open-file-description locks belong to an open file, not to a process. The kernel releases them when their holder dies,
so no stale lock can remain. The order is always network, then container. If the file system has no such locks, one
filelock replaces them all, and one verb runs at a time.

``LockFile`` locks single bytes, and a verb's ``LockSet`` acquires them in order.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import logging
import math
import os
import struct
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import libcni.kernel.system as system
from libcni._dataclass import dataclass
from libcni.errors import LockTimeoutError, RecordError
from libcni.store.files import FILE_MODE, keep_mode, make_directory, record_error

try:  # the C module behind hashlib; hashlib itself loads OpenSSL, which takes longer than the whole lock
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

if TYPE_CHECKING:
    from filelock import FileLock

logger: logging.Logger = logging.getLogger("libcni")

TOKEN_VARIABLE = "LIBCNI_LOCK"  # noqa: S105 - the name of a variable
"""The variable that tells a plugin which locks its caller holds, if the plugin uses this library itself."""

# The file has no content. Each region of byte offsets is a kind of lock; a name's hash is the offset within it. The
# ranges are part of the format: other versions of this library lock the same bytes.
_REGION = 1 << 50
CONTAINER, NETWORK, ENTRANCE, PLUGIN, NONCE = (region * _REGION for region in range(5))
NONCE_BITS = 48
ALL_CONTAINERS = -1
"""An offset that stands for all bytes of the containers' region."""

_FLOCK = struct.Struct("hhqqi0q")
_ABOVE_STDIO = 3
_PROBLEM = "the lock file cannot be locked"
_BUSY = {errno.EAGAIN, errno.EACCES}

# F_OFD_*: the numbers are the same on every Linux. Python has the names only if its build machine had them.
_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)
_FIRST_DELAY, _LAST_DELAY = 0.0005, 0.02
_LOCKS_BETWEEN_LOOKS = 64
"""How many locks a verb acquires before it reads the clock again."""

_NO_RANGE_LOCKS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


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
    """Return a name's offset in a region of the lock file. Names with one hash share a lock: slow but safe."""
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


@dataclass(frozen=True, slots=True)
class LockRequest:
    """The locks that a verb needs.

    Attributes:
        networks: the names of networks, locked shared: verbs of different containers can hold them at the same time.
        container_id: the container, which is always locked exclusively; "" for none.
        exclusive: lock the networks exclusively, for GC.
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

    ``plugin_descriptor`` returns a descriptor for a plugin to inherit. Call it just before the plugin's start. While a
    plugin has it, ``has_running_plugin`` is true for the next verb of this container.

    Raises:
        RecordError: the lock file cannot be opened or locked. It is no error if another verb holds a lock.
    """

    def __init__(self, cache_dir: str, request: LockRequest, token: str = "") -> None:
        self.path: str = f"{cache_dir}/locks"
        self.plugins_path: str = f"{cache_dir}/locks.plugins"
        self.request = request
        self._cache_dir = cache_dir
        self._inherited: LockFile | None = None
        self._whole: FileLock | None = None
        self._file = LockFile(self.path, cache_dir)
        try:
            # Waiting for a lock that this plugin's caller holds would never end.
            self._held_by_caller: set[int] = self._locks_of(token) if token else set()
            networks = {NETWORK + offset_of(name) for name in request.networks}
            containers = {CONTAINER + offset_of(request.container_id)} if request.container_id else set()
            self._is_outermost = not containers <= self._held_by_caller
            steps = self._steps(networks - self._held_by_caller, containers - self._held_by_caller)
            self._todo = deque(steps)
            # The token names a random byte that only this verb locks, so the token is invalid after the verb's end.
            nonce = NONCE + int.from_bytes(system.urandom(NONCE_BITS // 8), "big")
            offsets = ",".join(map(str, sorted(networks | containers | self._held_by_caller)))
            self.token: str = f"{self._file.identity}:{nonce}:{offsets}"
            try:
                self._file.lock(fcntl.F_WRLCK, nonce)
            except RecordError as error:
                if error.errno not in _NO_RANGE_LOCKS:
                    raise
                self._fall_back(is_nested=token.startswith(f"{self._file.identity}:"))
        except RecordError:
            self.close()
            raise

    def __del__(self) -> None:
        """Release all locks: an exception from a signal handler can prevent the call of ``close``."""
        if hasattr(self, "_file") and self._file.descriptor >= 0:
            self.close()

    def _steps(self, networks: set[int], containers: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the steps to acquire the locks: fcntl's kind of lock, and the byte."""
        kind = fcntl.F_WRLCK if self.request.exclusive else fcntl.F_RDLCK
        # Network before container, networks in sorted order: with different orders two verbs could deadlock.
        for network in sorted(networks):
            # A waiting GC keeps the entrance locked, which blocks new shared lockers. Otherwise a busy network would
            # never be free for GC.
            entrance = network - NETWORK + ENTRANCE
            yield from ((kind, entrance), (kind, network), (fcntl.F_UNLCK, entrance))
        for container in [*containers, *([ALL_CONTAINERS] if self.request.all_containers else [])]:
            yield fcntl.F_WRLCK, container

    def _fall_back(self, *, is_nested: bool) -> None:
        """Use one filelock for everything. It cannot show whether its holder is this plugin's caller."""
        from filelock import FileLock

        # A manager holds its own locks while its verbs acquire theirs. With one shared file it would wait for itself.
        kind = "".join(self.request.networks[:1]).rpartition("/")[0].replace("/", "-")
        lock = FileLock(f"{self.path}.whole{kind}", mode=0o600, thread_local=False)
        # A plugin that waited for its caller's lock would wait for ever. If the token names this file and the lock is
        # taken, assume that the caller holds it.
        held_by_caller = is_nested and not _try_lock(lock)
        _release(lock)
        self._whole = None if held_by_caller else lock
        self._todo.clear()
        self._is_outermost = False

    def try_acquire(self, deadline: float = math.inf) -> bool:
        """Acquire the locks that are free, in order; return whether all are held.

        Stop at the deadline: the kernel searches its list of the file's locks for each lock, so thousands take seconds.

        Raises:
            RecordError: the system refuses to lock, for a reason other than that the lock is held.
        """
        if self._whole is not None:
            return _try_lock(self._whole)
        taken = 0
        while self._todo:
            # Few free locks are taken even after the deadline.
            if taken and not taken % _LOCKS_BETWEEN_LOOKS and system.monotonic() >= deadline:
                return False
            if not self._file.lock(*self._todo[0]):
                return False
            self._todo.popleft()
            taken += 1
        return True

    def retry_delays(self, deadline: float) -> Iterator[float]:
        """Acquire the locks; yield the seconds to sleep before each retry. ``deadline``: a time of ``time.monotonic``.

        Raises:
            LockTimeoutError: another verb held a lock until the deadline.
            RecordError: the system refuses to lock.
        """
        started = system.monotonic()
        delay = _FIRST_DELAY
        # Polling, because a blocking F_OFD_SETLKW has no timeout, cannot be cancelled, and would block an event loop.
        while not self.try_acquire(deadline):
            now = system.monotonic()
            if now >= deadline:
                what, seconds = self.request.what, now - started
                problem = f"{what}: another verb held the lock for {seconds:.1f} s ({self.path})"
                raise LockTimeoutError(problem, what=what, path=self.path, seconds=seconds)
            yield max(min(delay, deadline - now), _FIRST_DELAY)
            delay = min(2 * delay, _LAST_DELAY)

    def is_held_by_caller(self, network: str, container_id: str) -> bool:
        """Return whether this process is a plugin, and the verb that runs it holds these two locks."""
        return {NETWORK + offset_of(network), CONTAINER + offset_of(container_id)} <= self._held_by_caller

    def is_current(self) -> bool:
        """Return whether the locked file is still at ``path``: another program may remove it while a verb waits."""
        return self._file.is_current()

    def plugin_descriptor(self, verb: str) -> int:
        """Return the lock descriptor that a plugin of ``verb`` inherits; open it if necessary.

        Return -1 if an outer verb holds the container's lock, if this object is closed, or if a verb other than ADD
        cannot open it.

        Raises:
            RecordError: the lock file cannot be opened or locked for an ADD.
        """
        if not self._is_outermost or self._file.descriptor < 0:
            return -1
        if self._inherited is None:
            try:
                self._inherited = self._open_inherited()
            except RecordError as error:
                # Every other verb only cleans up or reads, so a full descriptor table must not stop it.
                if verb == "ADD":  # without it, the next verb would not wait for this plugin
                    raise
                logger.warning(
                    "%s goes on, but the container's next verb will not wait for these plugins: %s", verb, error
                )
                return -1
        return self._inherited.descriptor

    def _open_inherited(self) -> LockFile:
        # Never the file of the locks: a plugin's daemon may keep the descriptor. Even a read-only one can lock bytes,
        # and the verbs of all containers would time out.
        file = LockFile(self.plugins_path, self._cache_dir, os.O_RDONLY)
        try:
            file.lock(fcntl.F_RDLCK, PLUGIN + offset_of(self.request.container_id))
        except RecordError:
            file.close()
            raise
        return file

    def close_plugin_descriptor(self) -> None:
        """Close this process's copy of the plugins' descriptor. A plugin that has started keeps its own copy."""
        if self._inherited is not None:
            self._inherited.close()
            self._inherited = None

    def has_running_plugin(self) -> bool:
        """Return whether a plugin of the container still runs, started by a killed runtime or by this verb.

        Return False if this verb's caller holds the container's lock, because the caller's plugin is this process.

        Raises:
            RecordError: the lock file cannot be examined.
        """
        if self._whole is not None or not self._is_outermost:
            return False
        self.close_plugin_descriptor()  # otherwise this verb's own copy counts as a plugin
        # A file of its own for this question: a lock of the same open file would not count.
        file = LockFile(self.plugins_path, self._cache_dir, os.O_RDONLY)
        try:
            return file.is_locked(PLUGIN + offset_of(self.request.container_id))
        finally:
            file.close()

    def close(self) -> None:
        """Release all locks. Never raise: that would hide the verb's own result or error."""
        if self._whole is not None:
            _release(self._whole)
        self._file.release()
        self.close_plugin_descriptor()

    def _locks_of(self, token: str) -> set[int]:
        """Return the offsets that this plugin's caller holds; an empty set if the caller's verb has ended."""
        try:
            file, nonce, texts = token.rsplit(":", 2)
            offset, offsets = int(nonce), {int(text) for text in texts.split(",")}
        except ValueError:
            return set()
        # Only a random byte proves that the caller is a running verb. Otherwise anyone who sets the variable could name
        # any locked container, and this process would run without that container's lock.
        if file != self._file.identity or not NONCE <= offset < NONCE + (1 << NONCE_BITS):
            return set()
        try:
            return {held for held in offsets if 0 <= held < ENTRANCE} if self._file.is_locked(offset) else set()
        except RecordError as error:
            if error.errno in _NO_RANGE_LOCKS:
                return set()
            raise


def _try_lock(lock: FileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        raise record_error(_PROBLEM, os.fspath(lock.lock_file), error) from error
    return True


def _release(lock: FileLock) -> None:
    with suppress(OSError):
        lock.release()
