"""Locks: one verb at a time per container, and GC excludes ADD and DEL. They are bytes of ``<cache_dir>/locks``.

Open-file-description locks belong to an open file, not to a process. The kernel releases them when their holder dies,
so no stale lock can remain. The order is always network, then container. If the file system has no such locks, one
filelock replaces them all, and one verb runs at a time.
"""

from __future__ import annotations

import errno
import fcntl
import io
import itertools
import logging
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libcni.errors import LockTimeoutError, RecordError
from libcni.store.files import record_error
from libcni.store.lock_file import (
    ADDING,
    ALL_CONTAINERS,
    CONTAINER,
    ENTRANCE,
    NETWORK,
    NONCE,
    NONCE_BITS,
    OTHER,
    drop_all,
    identity_at,
    offset_of,
    open_read_locked,
    shared_lock_file,
)

if TYPE_CHECKING:
    from filelock import FileLock

logger: logging.Logger = logging.getLogger("libcni")

TOKEN_VARIABLE = "LIBCNI_LOCK"  # noqa: S105 - the name of a variable
"""The variable that tells a plugin which locks its caller holds, if the plugin uses this library itself."""

_REGIONS = {"ADD": ADDING}  # every other verb: OTHER
_FIRST_DELAY, _LAST_DELAY = 0.0005, 0.02
_DELAY_PER_WAITER, _LAST_IN_LINE = 0.001, 0.2
_FEW_VERBS = 32
_NO_RANGE_LOCKS = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK}


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

    ``plugin_descriptor`` returns a descriptor for a plugin to inherit. Call it just before the plugin's start. While a
    plugin has it, ``has_running_plugin`` is true for the next verb of this container. There is one for ADD and one for
    the other verbs, because an ADD may start a daemon that keeps its descriptor for ever.

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
        self._file = shared_lock_file(self.path, cache_dir, self._serial)
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
        networks = {NETWORK + offset_of(name) for name in request.networks}
        container = CONTAINER + offset_of(request.container_id) if request.container_id else -1
        self._held_by_caller = held = self._locks_of(token) if token else set()
        self._is_outermost = container >= 0 and container not in held
        # Network before container, networks in sorted order: with different orders two verbs could deadlock.
        self._todo = [
            *[step for network in sorted(networks - held) for step in _network_steps(network, request)],
            *([(fcntl.F_WRLCK, container)] if self._is_outermost else []),
            *([(fcntl.F_WRLCK, ALL_CONTAINERS)] if request.all_containers else []),
        ]
        offsets = ",".join([str(offset) for offset in sorted(networks | {container} | held) if offset >= 0])
        nonce = NONCE + int.from_bytes(os.urandom(NONCE_BITS // 8), "big")
        # The token names a random byte that only this verb locks. So the token is worthless after the verb's end.
        self.token: str = f"{self._file.identity}:{nonce}:{offsets}"
        try:
            self._file.lock(fcntl.F_WRLCK, nonce, self._serial)
        except OSError as error:
            if error.errno not in _NO_RANGE_LOCKS:
                raise record_error("cannot be locked", self.path, error) from error
            self._fall_back(is_nested=token.startswith(f"{self._file.identity}:"))

    def _fall_back(self, *, is_nested: bool) -> None:
        """Use one filelock for everything. It does not tell whether its holder is this plugin's caller."""
        from filelock import FileLock

        # A manager holds its own locks while its verbs acquire theirs. With one file for all it would wait for itself.
        kind = "".join(self.request.networks[:1]).rpartition("/")[0].replace("/", "-")
        lock = FileLock(f"{self.path}.whole{kind}", mode=0o600, thread_local=False)
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
            raise record_error("cannot be locked", self.path, error) from error
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
        return {NETWORK + offset_of(network), CONTAINER + offset_of(container_id)} <= self._held_by_caller

    def is_current(self) -> bool:
        """Return whether the locked file is still the one at ``path``: it may be removed while a verb waits."""
        return identity_at(self.path) == self._file.identity

    def plugin_descriptor(self, verb: str) -> int:
        """Return the descriptor that a plugin of ``verb`` inherits; open it if necessary.

        It is read-only, so a plugin or its daemon cannot lock other ranges with it. -1 if the container's lock is an
        outer verb's, if this object is closed, or if a verb other than ADD cannot open it.

        Raises:
            RecordError: the lock file cannot be opened or locked for an ADD.
        """
        if not self._is_outermost or self not in _lock_sets:
            return -1
        region = _REGIONS.get(verb, OTHER)
        if region not in self._descriptors:
            # A separate open file: a plugin's daemon may keep the descriptor, and must not keep the container's lock.
            offset = region + offset_of(self.request.container_id)
            try:
                self._descriptors[region] = open_read_locked(self.path, self._cache_dir, offset)
            except RecordError as error:
                # Every other verb only cleans up or reads, so a full descriptor table must not stop it.
                if verb == "ADD":  # without it, the next verb would not wait for this plugin
                    raise
                logger.warning("%s goes on without a lock: %s", verb, error)
                return -1
        return self._descriptors[region].fileno()

    def close_plugin_descriptor(self, verb: str = "") -> None:
        """Close this process's copy of the descriptor for ``verb``, or of both if ``verb`` is "".

        A plugin that has started keeps its own copy.
        """
        for region in (ADDING, OTHER) if not verb else (_REGIONS.get(verb, OTHER),):
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

    def has_running_plugin(self, verb: str) -> bool:
        """Return whether a plugin of ``verb`` still runs for the container: one of a killed runtime, or of this verb.

        ``verb``: "ADD"; any other verb means all verbs except ADD. False if this verb's caller holds the container's
        lock, because the caller's plugin is this process.

        Raises:
            RecordError: the lock file cannot be examined.
        """
        if self._whole is not None or not self._is_outermost:
            return False
        self.close_plugin_descriptor(verb)  # otherwise this verb's own copy counts as a plugin
        try:
            return self._file.is_locked(_REGIONS.get(verb, OTHER) + offset_of(self.request.container_id))
        except OSError as error:
            raise record_error("cannot be locked", self.path, error) from error

    def close(self) -> None:
        """Release all locks. Never raise: that would hide the verb's own result or error."""
        if self._whole is not None:
            _release(self._whole)
        # Locks first: if a signal handler raises in between, the rest stays until this object is freed. A lock would
        # block the next verb until its deadline. A plugin descriptor only lets it wait for a plugin.
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

    def _locks_of(self, token: str) -> set[int]:
        """Return the offsets that this plugin's caller holds; none if the caller's verb has ended."""
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
            return {one for one in offsets if 0 <= one < ENTRANCE} if self._file.is_locked(offset) else set()
        except OSError as error:
            if error.errno in _NO_RANGE_LOCKS:
                return set()
            raise record_error("cannot be locked", self.path, error) from error


def is_locked(cache_dir: str, request: LockRequest) -> bool:
    """Return whether another verb holds one of these locks; raises RecordError if the lock file cannot be opened."""
    locks = LockSet(cache_dir, request)
    try:
        # The lock is held for some microseconds only. A verb that starts in this moment retries within a millisecond.
        return not locks.try_acquire()
    finally:
        locks.close()


_serials = itertools.count(1)
_lock_sets: weakref.WeakSet[LockSet] = weakref.WeakSet()


def _drop_all() -> None:
    """Close the descriptors of the parent's verbs in a forked child, without unlocking.

    Otherwise a child that goes on running would keep the locks, even after its parent's death. The child shares the
    open file with its parent, so unlocking here would also unlock there.
    """
    drop_all()  # first: it replaces the table's lock, which another thread of the parent may have held
    for lock_set in list(_lock_sets):
        lock_set._file.close()  # noqa: SLF001 - the module's own class
        lock_set.close_plugin_descriptor()
    _lock_sets.clear()


os.register_at_fork(after_in_child=_drop_all)


def _network_steps(network: int, request: LockRequest) -> list[tuple[int, int]]:
    """Return the steps to acquire a network's lock."""
    # A waiting GC keeps the entrance locked, which blocks new shared lockers. Otherwise a busy network would never be
    # free for GC.
    kind = fcntl.F_WRLCK if request.exclusive else fcntl.F_RDLCK
    entrance = network - NETWORK + ENTRANCE
    return [(kind, entrance), (kind, network), (fcntl.F_UNLCK, entrance)]


def _try_lock(lock: FileLock) -> bool:
    from filelock import Timeout

    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    except OSError as error:
        raise record_error("cannot be locked", os.fspath(lock.lock_file), error) from error
    return True


def _release(lock: FileLock) -> None:
    with suppress(OSError):
        lock.release()
