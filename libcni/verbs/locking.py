"""The turn, deadline and locks of a verb. A verb waits for other verbs, and for plugins whose runtime was killed."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import libcni.kernel.system as system
from libcni.errors import RecordError
from libcni.observe.observer import Observer, Operation
from libcni.store.locks import TOKEN_VARIABLE, LockRequest, LockSet
from libcni.store.model import UNFINISHED, Record
from libcni.store.records import RecordStore
from libcni.verbs.settings import ClientState, Settings
from libcni.verbs.turns import Turn, Turns

logger: logging.Logger = logging.getLogger("libcni")

_T = TypeVar("_T")

_ORPHAN_SECONDS = 30.0
"""Seconds to wait, at most, for a plugin whose runtime was killed."""

# Seconds. A killed runtime cannot send an event, so only polling finds the end of its plugin.
_FIRST_POLL, _ORPHAN_POLL = 0.001, 0.02

# No network's name contains a slash.
_HOST_PORTS_LOCK = "//host-ports/"

_REOPENINGS = 3
"""The number of attempts to lock the file while other programs remove it."""


class LockingRun:
    """The part of a ``VerbRun`` that has the verb's turn, its deadline and its locks.

    Attributes:
        settings: the client's settings.
        records: the attachments on disk.
    """

    def __init__(self, client: ClientState, timeout: float | None, operation: Operation, *, needs_turn: bool) -> None:
        self._client = client
        self.settings: Settings = client.settings
        self.records: RecordStore = client.records
        self._turns: Turns = client.turns
        self._operation = operation
        self._observer: Observer | None = client.settings.observer
        self._turn = Turn(client.turns, operation.container_id) if needs_turn else None
        self._seconds = timeout
        # Monotonic time: a change of the system's clock must neither kill a plugin nor let it run for ever.
        self._deadline = system.monotonic() + (math.inf if timeout is None else timeout)
        self._before_cleanup = (self._seconds, self._deadline)
        self._locks: list[LockSet] = []

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        raise NotImplementedError

    async def wait_for_turn(self) -> None:
        """Wait until fewer operations of the client run than its limit allows, and none of the same container.

        Do not wait if this verb is part of an operation, which has a turn.

        Raises:
            LockTimeoutError: other operations ran until the deadline.
        """
        raise NotImplementedError

    async def take_turn(self) -> None:
        """Wait for the verb's turn in its client, and report the wait to the observer; raises LockTimeoutError."""
        with self._waiting():
            await self.wait_for_turn()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = system.monotonic()
        try:
            yield
        finally:
            if self._observer is not None:
                self._notify(self._observer.after_wait, system.monotonic() - began)

    def _notify(self, method: Callable[..., _T], *args: object) -> _T | None:
        try:
            return method(self._operation, *args)
        except Exception:  # a broken observer is no reason to lose an attachment, nor to stop a DEL half-way
            logger.exception("an observer failed")
            return None

    def release(self) -> None:
        """Release the locks, and let the next operation of the client begin."""
        while self._locks:
            self._locks.pop().close()
        if self._turn is not None:
            self._turns.leave(self._turn)

    def seconds_left(self) -> float | None:
        """Return the seconds to the deadline; None: no deadline."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - system.monotonic())

    def start_cleanup(self) -> None:
        """Use the clean-up timeout from here on, instead of the rest of the verb's timeout."""
        self._seconds = timeout = self.settings.cleanup_timeout
        self._deadline = system.monotonic() + (math.inf if timeout is None else timeout)

    def seconds_without_cleanup(self) -> float:
        """Return the seconds that are left of the verb's own timeout; infinite if the verb has no timeout."""
        return self._before_cleanup[1] - system.monotonic()

    def end_cleanup(self) -> None:
        """Use the verb's own timeout again."""
        self._seconds, self._deadline = self._before_cleanup

    async def lock(
        self, networks: Sequence[str], container_id: str = "", *, exclusive: bool = False, seconds: float = math.inf
    ) -> None:
        """Release the locks that this verb holds, then acquire the given ones, networks before the container.

        Then wait, for a limited time, for a plugin of this container whose runtime was killed: it could change the
        container's network at the same time as this verb.

        Args:
            networks: the networks' names.
            container_id: the container, always exclusive; "" for none.
            exclusive: whether to lock the networks exclusively, for GC.
            seconds: how long to wait for the locks, at most.

        Raises:
            LockTimeoutError: other verbs held the locks for ``seconds``, or until the deadline.
            RecordError: the lock file cannot be used.
        """
        while self._locks:
            self._locks.pop().close()
        request = LockRequest(tuple(networks), container_id, exclusive)
        # If this program is a plugin, its caller holds locks. The token proves that, so this verb does not wait for its
        # own caller.
        deadline = min(self._deadline, system.monotonic() + seconds)
        with self._waiting():
            await self._acquire(request, os.environ.get(TOKEN_VARIABLE, ""), deadline)

    async def lock_all(
        self, network: str, container_id: str, find: Callable[[], _T], networks_of: Callable[[_T], Iterable[str]]
    ) -> _T:
        """Acquire a container's lock and those of all networks in the value of ``find``, and return that value.

        Network locks come before the container's lock, so this releases all locks, adds the other networks and starts
        again, until ``find`` needs no further network. Raises as ``lock`` does.
        """
        networks = {network}
        while True:
            await self.lock(sorted(networks), container_id)
            value = find()
            needed = networks.union(networks_of(value))
            if needed == networks:
                return value
            networks = needed

    async def lock_host_ports(self, numbers: Iterable[object]) -> LockSet:
        """Acquire the locks under which host ports are compared and recorded. The caller closes the LockSet.

        Each port number has its own lock, so that ADDs with different ports do not wait for each other.
        """
        names = tuple(f"{_HOST_PORTS_LOCK}{number}" for number in numbers)
        locks = LockSet(self.settings.cache_dir, LockRequest(names, exclusive=True))
        try:
            for delay in locks.retry_delays(self._deadline):
                await self.sleep(delay)
        except BaseException:
            # Not left to the garbage collector: the error's traceback may keep the object, and the locks, for long.
            locks.close()
            raise
        return locks

    async def lock_container(self, container_id: str, seconds: float) -> None:
        """Acquire a container's lock in addition to those of ``lock``. Release the lock of an earlier call.

        Raises:
            LockTimeoutError: another verb held the lock for ``seconds``, or until the deadline.
            RecordError: the lock file cannot be used.
        """
        while len(self._locks) > 1:
            self._locks.pop().close()
        deadline = min(self._deadline, system.monotonic() + seconds)
        with self._waiting():
            await self._acquire(LockRequest((), container_id), self._locks[0].token, deadline)

    async def _acquire(self, request: LockRequest, token: str, deadline: float) -> None:
        for _ in range(_REOPENINGS):
            locks = LockSet(self.settings.cache_dir, request, token)
            self._locks.append(locks)
            for delay in locks.retry_delays(deadline):
                await self.sleep(delay)
            if locks.is_current():
                await self._wait_for_orphan(locks)
                return
            # Another program removed the file while this verb waited. Later verbs lock the new file, as this verb must.
            self._locks.pop().close()
        raise RecordError(
            f"{locks.path}: another program removes the lock file again and again",
            path=locks.path,
            hint="find the program that removes this file, and stop that program",
        )

    async def _wait_for_orphan(self, locks: LockSet) -> None:
        """Wait, for a limited time, for a plugin of the container whose runtime was killed."""
        now = system.monotonic()
        # Half of the remaining time: the verb needs the rest for its own plugins.
        deadline = now + min(_ORPHAN_SECONDS, (self._deadline - now) / 2)
        while locks.has_running_plugin():
            # An ADD may start a daemon that keeps the inherited descriptor open. So an open descriptor counts only if a
            # record says that a verb of this container did not complete.
            try:
                records = self.records.records(locks.request.container_id)
            except RecordError:
                return
            if all(record.state not in UNFINISHED for record in records):
                return
            if system.monotonic() >= deadline:
                text = "%s: a plugin of an earlier verb is still running (%s); this verb no longer waits for it"
                logger.warning(text, locks.request.what, locks.path)
                return
            await self.sleep(_ORPHAN_POLL)

    def is_of_caller(self, record: Record) -> bool:
        """Return whether the verb that works on this record started this process, as a plugin."""
        return any(locks.is_held_by_caller(record.network, record.container_id) for locks in self._locks)

    async def plugins_have_ended(self, seconds: float) -> bool:
        """Wait until no process of this verb's plugins runs; return False if ``seconds`` have passed.

        Raises:
            RecordError: the lock file cannot be examined.
        """
        deadline, delay = min(self._deadline, system.monotonic() + seconds), _FIRST_POLL
        while self.has_running_plugin():
            if system.monotonic() >= deadline:
                return False
            await self.sleep(delay)
            delay = min(2 * delay, _ORPHAN_POLL)
        return True

    def has_running_plugin(self) -> bool:
        """Return whether a process still has the descriptor that this verb's plugins inherit. Raises RecordError.

        That process may belong to another verb's plugin: between its fork and the start of its program it has all
        descriptors of this program. So believe it only after some milliseconds: see ``plugins_have_ended``.
        """
        return bool(self._locks) and self._locks[-1].has_running_plugin()
