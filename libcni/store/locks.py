"""One verb at a time per container, and GC apart from the rest: byte ranges of one file, ``<cache_dir>/locks``.

Open-file-description locks belong to a descriptor. So they work between threads as between processes, the kernel
releases them when their holder dies, and no lock file is ever left over. The order is always network, then container.
Where the file system has none, one filelock takes the place of them all, and one verb runs at a time.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import secrets
import struct
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libcni.errors import LockTimeoutError, RecordError

if TYPE_CHECKING:
    from filelock import FileLock

__all__ = ["TOKEN_VARIABLE", "LockRequest", "LockSet"]

TOKEN_VARIABLE = "LIBCNI_LOCK"  # noqa: S105 - the name of a variable
"""Tells a plugin that uses this library, with the same records, what its caller holds already."""

_REGION = 1 << 50
_CONTAINER, _NETWORK, _TURNSTILE, _ADDING, _NONCE, _OTHER = (region * _REGION for region in range(6))
_FLOCK = "hhqqi0q"
_ABOVE_STDIO = 3
_FIRST_DELAY, _LAST_DELAY = 0.0005, 0.02
_BUSY = {errno.EAGAIN, errno.EACCES}
_NO_RANGE_LOCKS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


@dataclass(frozen=True, slots=True)
class LockRequest:
    """What a verb needs to hold.

    Attributes:
        networks: the names of networks, shared between verbs of different containers.
        container_id: the container, always exclusive; "" for none.
        exclusive: whether the networks are for this verb alone (GC).
        all_containers: every container at once, for what must not stand beside any ADD or DEL.
    """

    networks: tuple[str, ...] = ()
    container_id: str = ""
    exclusive: bool = False
    all_containers: bool = False

    @property
    def what(self) -> str:
        """The request in words."""
        if self.all_containers:
            return "all containers"
        parts = [f"network {name}" for name in self.networks]
        return ", ".join([*parts, f"container {self.container_id}"] if self.container_id else parts)


class LockSet:
    """The locks of one verb, on their way or taken.

    ``try_acquire`` acquires the free locks and returns whether all are held; ``retry_delays`` says how long to sleep.
    ``close`` lets everything go. ``token`` goes to plugins in LIBCNI_LOCK.

    ``plugin_descriptor`` gives a descriptor for a plugin to inherit. As long as a plugin has it, ``has_running_plugin``
    is true for the next verb of this container. There is one for ADD and one for the other verbs, because an ADD may
    start a daemon that keeps its descriptor for ever.
    """

    def __init__(self, cache_dir: str, request: LockRequest, token: str = "") -> None:
        self.path: str = f"{cache_dir}/locks"
        self.request = request
        self._cache_dir = cache_dir
        self._pid = os.getpid()
        self._in_flight: dict[int, io.FileIO] = {}
        self._whole: FileLock | None = None
        self._file = _open(self.path, cache_dir)
        _holds.add(self)
        try:
            self._prepare(token)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        """Let everything go: an exception out of a signal handler can come before ``close``."""
        if hasattr(self, "_file"):
            self.close()

    def _prepare(self, token: str) -> None:
        request = self.request
        identity = _identity(self._file)
        networks = {_offset(_NETWORK, name) for name in request.networks}
        container = _offset(_CONTAINER, request.container_id) if request.container_id else -1
        held = self._held_by_caller(identity, token)
        self._todo = [
            *(step for network in sorted(networks - held) for step in _network_steps(network, request)),
            *([(fcntl.F_WRLCK, container, 1)] if container >= 0 and container not in held else []),
            *([(fcntl.F_WRLCK, _CONTAINER, _REGION)] if request.all_containers else []),
        ]
        self._is_outermost = container >= 0 and container not in held
        offsets = ",".join(str(offset) for offset in sorted(networks | {container} | held) if offset >= 0)
        nonce = _NONCE + secrets.randbits(48)
        # a byte that only this verb has locked, so that a token outlives nothing
        self.token: str = f"{identity}:{nonce}:{offsets}"
        if self._lock(fcntl.F_WRLCK, nonce, 1) is None:
            self._fall_back(is_nested=token.startswith(f"{identity}:"))

    def _fall_back(self, *, is_nested: bool) -> None:
        """Take one lock for all. A caller that holds it cannot be told from another verb that does."""
        from filelock import FileLock

        lock = FileLock(f"{self.path}.whole", mode=0o600, thread_local=False)
        held_by_caller = is_nested and not _try_lock(lock)
        lock.release()
        self._whole = None if held_by_caller else lock
        self._todo = []
        self._is_outermost = False

    def try_acquire(self) -> bool:
        """Take the locks that are free, in order; return whether all are taken."""
        if self._whole is not None:
            return _try_lock(self._whole)
        while self._todo:
            if not self._lock(*self._todo[0]):
                return False
            del self._todo[0]
        return True

    def retry_delays(self, deadline: float) -> Iterator[float]:
        """Take the locks; yield seconds to sleep until all are taken. ``deadline``: as ``time.monotonic`` counts.

        Raises:
            LockTimeoutError: not all were free by then.
        """
        started = time.monotonic()
        delay = _FIRST_DELAY
        while not self.try_acquire():
            now = time.monotonic()
            if now >= deadline:
                raise self.timeout(now - started)
            yield delay
            delay = min(2 * delay, _LAST_DELAY)

    def is_current(self) -> bool:
        """Return whether the locks are still those of the file at ``path``: it may be removed while one waits."""
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except OSError:
            return False
        return f"{there.st_dev}:{there.st_ino}" == _identity(self._file)

    def plugin_descriptor(self, verb: str) -> int:
        """Return the descriptor for a plugin of ``verb`` to inherit; -1 where the caller's caller has one."""
        if not self._is_outermost:
            return -1
        region = _region_of(verb)
        if region not in self._in_flight:
            # a descriptor of its own: a plugin's daemon may keep it, and must not keep the container's lock
            file = self._in_flight[region] = _open(self.path, self._cache_dir)
            fcntl.fcntl(file, _SETLK, _flock(fcntl.F_RDLCK, _offset(region, self.request.container_id)))
        return self._in_flight[region].fileno()

    def close_plugin_descriptor(self, verb: str) -> None:
        """Close this process's copy of the descriptor, so that ``has_running_plugin`` sees what the plugins hold."""
        file = self._in_flight.pop(_region_of(verb), None)
        if file is not None:
            file.close()

    def has_running_plugin(self, verb: str) -> bool:
        """Return whether a plugin of an earlier verb of this container still runs: of ADD, or of any other verb."""
        if not self._is_outermost:
            return False
        region = _region_of(verb)
        own = self._in_flight.get(region, self._file)
        return _is_locked(own.fileno(), _offset(region, self.request.container_id))

    def close(self) -> None:
        """Let all locks go."""
        if self._whole is not None:
            self._whole.release()
        if not self._file.closed and self._pid == os.getpid():
            _holds.discard(self)
            # not left to the closing: a process that was forked meanwhile may have the descriptor, too
            with suppress(OSError):
                fcntl.fcntl(self._file, _SETLK, _flock(fcntl.F_UNLCK, 0, 0))
        self.drop()

    def drop(self) -> None:
        """Close the descriptors. Where another process has them, too, as after a fork, the locks stay with that one."""
        self._file.close()
        for file in self._in_flight.values():
            file.close()

    def timeout(self, seconds: float) -> LockTimeoutError:
        """Return the error for a wait that took too long."""
        what = self.request.what
        return LockTimeoutError(
            f"{what}: another verb held the lock for {seconds:.1f} s ({self.path})",
            what=what, path=self.path, seconds=seconds,
        )  # fmt: skip

    def _lock(self, kind: int, offset: int, length: int) -> bool | None:
        """Return whether bytes could be locked; None where there are no such locks."""
        try:
            fcntl.fcntl(self._file, _SETLK, _flock(kind, offset, length))
        except OSError as error:
            if error.errno in _BUSY:
                return False
            if error.errno in _NO_RANGE_LOCKS:
                return None
            raise RecordError(f"{self.path}: cannot be locked: {error}", path=self.path, errno=error.errno) from error
        return True

    def _held_by_caller(self, identity: str, token: str) -> set[int]:
        """Return the offsets that the verb holds which runs the plugin that we are; none if that verb has ended."""
        try:
            file, nonce, offsets = token.rsplit(":", 2)
            if file == identity and _is_locked(self._file.fileno(), int(nonce)):
                return {int(offset) for offset in offsets.split(",")}
        except (ValueError, OverflowError, struct.error, OSError):
            pass
        return set()


# F_OFD_*; Linux numbers them alike everywhere, and Python only has the names where its own build had
_GETLK = getattr(fcntl, "F_OFD_GETLK", 36)
_SETLK = getattr(fcntl, "F_OFD_SETLK", 37)

_holds: weakref.WeakSet[LockSet] = weakref.WeakSet()


def _drop_all() -> None:
    for hold in list(_holds):
        hold.drop()
    _holds.clear()


# a forked child that lives on would keep the locks of its parent's verbs, also past its parent's death
os.register_at_fork(after_in_child=_drop_all)


def _network_steps(network: int, request: LockRequest) -> list[tuple[int, int, int]]:
    """Return the steps to a network's lock, through a turnstile: GC waits there with the door closed behind it."""
    kind = fcntl.F_WRLCK if request.exclusive else fcntl.F_RDLCK
    turnstile = network - _NETWORK + _TURNSTILE
    return [(kind, turnstile, 1), (kind, network, 1), (fcntl.F_UNLCK, turnstile, 1)]


def _region_of(verb: str) -> int:
    return _ADDING if verb == "ADD" else _OTHER


def _offset(region: int, name: str) -> int:
    return region + int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest(), "big")


def _flock(kind: int, offset: int, length: int = 1) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, offset, length, 0)


def _is_locked(descriptor: int, offset: int) -> bool:
    answer: Any = fcntl.fcntl(descriptor, _GETLK, _flock(fcntl.F_WRLCK, offset))
    return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


def _identity(file: io.FileIO) -> str:
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}"


def _try_lock(lock: FileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        path = os.fspath(lock.lock_file)
        raise RecordError(f"{path}: cannot be locked: {error}", path=path, errno=error.errno) from error
    return True


def _open(path: str, cache_dir: str) -> io.FileIO:
    try:
        try:
            return _open_file(path)
        except FileNotFoundError:
            os.makedirs(cache_dir, 0o700, exist_ok=True)
            return _open_file(path)
    except OSError as error:
        raise RecordError(f"{path}: cannot be opened: {error.strerror}", path=path, errno=error.errno) from error


class _LockFile(io.FileIO):
    """Close itself, silently: whatever a signal handler raises, no lock stays behind in a lost descriptor."""

    def __del__(self) -> None:
        self.close()


def _open_file(path: str) -> io.FileIO:
    return _LockFile(path, "r+", opener=_opener)


def _opener(path: str, _flags: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if descriptor >= _ABOVE_STDIO:
        return descriptor
    try:  # the host has closed its stdio; a plugin's would take this place
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STDIO)
    finally:
        os.close(descriptor)
