"""One running operation of a manager: its verbs, its waits and its locks."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from libcni.client import CNIConfig
from libcni.config.timeouts import check_timeout
from libcni.errors import LockTimeoutError
from libcni.manager.events import Event
from libcni.store.attachments import Attachment, attachment_of
from libcni.store.locks import LockRequest, LockSet
from libcni.store.record import PENDING
from libcni.store.records import RecordStore
from libcni.verbs.client_base import DEFAULT, Timeout

if TYPE_CHECKING:  # asyncio is not for blocking callers to load
    from libcni.aio import AsyncCNIConfig

_T = TypeVar("_T")

# No network's name contains a slash, so these never collide with the lock of a verb.
_CONTAINER_LOCK = "//manager/container/"
_NETWORK_LOCK = "//manager/network/"
_SHORTEST = 0.001


class OperationContext(ABC):
    """One running operation of a manager. A context manager that releases all locks at its end.

    The subclass for NetworkManager blocks in every method, so its coroutines never suspend. The subclass for
    AsyncNetworkManager awaits.
    """

    def __init__(self, cni: CNIConfig | AsyncCNIConfig, emit: Callable[[Event], None], timeout: Timeout) -> None:
        self.cni = cni
        self.emit = emit
        self.timeout: Timeout = timeout if timeout is DEFAULT else check_timeout(timeout)
        self._cleanup = ExitStack()
        self._shared_deadline: float | None = None
        self._waits_left: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    @property
    def seconds(self) -> float | None:
        """The seconds that the operation may wait: the given timeout or the client's; None: no limit."""
        return self.timeout if isinstance(self.timeout, float | int | None) else self.cni.timeout

    @abstractmethod
    async def in_thread(self, function: Callable[[], _T]) -> _T:
        """Call a function that may block on the disk or on a program."""

    @abstractmethod
    async def call(self, function: Callable[[], _T | Awaitable[_T]]) -> _T:
        """Call a method of the client or a function of the user; in AsyncNetworkManager either may be a coroutine."""

    @abstractmethod
    async def in_parallel(self, functions: Sequence[Callable[[], Coroutine[Any, Any, _T]]]) -> list[_T]:
        """Run coroutine functions in parallel, and return their answers in order."""

    @abstractmethod
    async def shielded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, even if the caller is cancelled."""

    @abstractmethod
    def sleep(self, seconds: float) -> Awaitable[None]:
        """Sleep for ``seconds``."""

    async def attachments(self, container_id: str | None = None) -> list[Attachment]:
        """Return the recorded attachments; as ``CNIConfig.get_cached_attachments``."""
        store = RecordStore(self.cni.cache_dir)
        return await self.in_thread(lambda: [attachment_of(record) for record in store.records(container_id)])

    async def lock_container(self, container_id: str) -> None:
        """Acquire a container's lock until the context ends; raises LockTimeoutError."""
        request = LockRequest((f"{_CONTAINER_LOCK}{container_id}",), exclusive=True)
        await self._lock(request, f"container {container_id}", "another operation of a manager held the container")

    async def lock_networks(self, names: Iterable[str], *, container_id: str) -> None:
        """Acquire the locks of a set-up's networks, shared with other set-ups, against GC; raises LockTimeoutError."""
        request = LockRequest(tuple(f"{_NETWORK_LOCK}{name}" for name in names))
        await self._lock(request, f"container {container_id}", "the GC of a manager held one of its networks")

    async def lock_network_for_gc(self, name: str) -> None:
        """Acquire a network's lock exclusively for GC, so that no set-up uses the network meanwhile.

        Raises LockTimeoutError, which names the containers whose set-ups used the network for the whole timeout.
        """
        request = LockRequest((f"{_NETWORK_LOCK}{name}",), exclusive=True)
        try:
            await self._lock(request, f"network {name}", "set-ups of containers held the network")
        except LockTimeoutError as error:
            # The kernel does not name the holder of a lock. But a set-up in the middle of an ADD has a pending record.
            pending = [
                one.container_id for one in await self.attachments() if one.state == PENDING and one.network == name
            ]
            if not pending:
                raise
            what = ", ".join(f"container {one}" for one in sorted(set(pending)))
            message = f"network {name}: GC waited for {error.seconds:.1f} s for the set-up of {what}"
            raise LockTimeoutError(message, what=what, path=error.path, seconds=error.seconds) from None

    def release_locks(self) -> None:
        """Release all locks before the context ends."""
        self._cleanup.close()

    def share_deadline(self) -> None:
        """Make all waits from here on end at one deadline, instead of giving each the whole timeout."""
        self._shared_deadline = self.deadline

    def share_waits(self) -> None:
        """Limit the total time of all waits from here on to the timeout. The time between them does not count."""
        self._waits_left = math.inf if self.seconds is None else self.seconds

    @property
    def deadline(self) -> float:
        """The deadline of the next wait, in seconds of ``time.monotonic``; infinity: no limit."""
        if self._shared_deadline is not None:
            return self._shared_deadline
        if self._waits_left is not None:
            return time.monotonic() + self._waits_left
        return math.inf if self.seconds is None else time.monotonic() + self.seconds

    async def _lock(self, request: LockRequest, what: str, holder: str) -> None:
        locks = LockSet(self.cni.cache_dir, request)
        # Before the wait: an interrupted wait may already hold some of the locks, and they must be released, too.
        self._cleanup.callback(locks.close)
        started = time.monotonic()
        try:
            for delay in locks.retry_delays(self.deadline):
                await self.sleep(delay)
        except LockTimeoutError as error:
            message = f"{what}: {holder} for {error.seconds:.1f} s ({error.path})"
            raise LockTimeoutError(message, what=what, path=error.path, seconds=error.seconds) from None
        finally:
            if self._waits_left is not None:
                self._waits_left = max(0.0, self._waits_left - (time.monotonic() - started))


def remaining(deadline: float) -> float | None:
    """Return the seconds until a deadline, but at least 1 ms: the client refuses 0. None: there is no deadline."""
    return None if deadline == math.inf else max(_SHORTEST, deadline - time.monotonic())
