"""One running operation of a manager: its verbs, its waits and its locks."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self, TypeVar

import libcni._system as system
from libcni.client import CNIConfig
from libcni.config.identifiers import check_container_id
from libcni.errors import LockTimeoutError
from libcni.observe.protocol import Operation
from libcni.options import Timeout
from libcni.store.attachments import Attachment, attachment_of
from libcni.store.locks import LockRequest, LockSet
from libcni.store.record import PENDING
from libcni.verbs.node import Node, run_to_end

if TYPE_CHECKING:  # asyncio is not for blocking callers to load
    from libcni.aio import AsyncCNIConfig

_T = TypeVar("_T")

# No network's name contains a slash, so these never collide with the lock of a verb.
_CONTAINER_LOCK = "//manager/container/"
_NETWORK_LOCK = "//manager/network/"
_SHORTEST = 0.001

_held: ContextVar[frozenset[tuple[str, str]]] = ContextVar("libcni_held_containers", default=frozenset())
"""The containers (record directory, ID) that this thread or task holds locked around several operations."""


class OperationContext:
    """One running operation of a manager. A context manager that releases all locks at its end.

    Attributes:
        cni: runs the verbs, each with a node of its own.
        node: waits and works for the operation itself. Entered, it reports the operation to the client's observer.
        timeout: the time limit that the caller gave, for each verb.
    """

    def __init__(self, cni: CNIConfig | AsyncCNIConfig, operation: Operation, timeout: Timeout) -> None:
        self.cni = cni
        # Blocking or on asyncio: an operation of the manager waits as a verb of its client does.
        self.node: Node = cni._node(operation, timeout)  # noqa: SLF001 - not for callers
        self.timeout: Timeout = timeout
        self._cleanup = ExitStack()
        left = self.node.seconds_left()
        self._waits_left = math.inf if left is None else left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release_locks()

    def seconds_left(self) -> float | None:
        """Return the seconds to the operation's deadline, but at least 1 ms: the client refuses 0. None: no limit."""
        left = self.node.seconds_left()
        return None if left is None else max(_SHORTEST, left)

    async def call(self, function: Callable[[], _T | Awaitable[_T]]) -> _T:
        """Call a method of the client or a function of the user; in AsyncNetworkManager either may be a coroutine."""
        answer = function()
        return await answer if inspect.isawaitable(answer) else answer

    async def attachments(self, container_id: str | None = None) -> list[Attachment]:
        """Return the recorded attachments; see ``CNIConfig.get_cached_attachments``."""
        records = self.node.records
        return await self.node.on_disk(lambda: [attachment_of(one) for one in records.records(container_id)])

    async def lock_container(self, container_id: str) -> None:
        """Acquire a container's lock until the context ends, unless the caller holds it; raises LockTimeoutError."""
        if (self.cni.cache_dir, container_id) not in _held.get():
            what = f"container {container_id}"
            await self._lock(_of_container(container_id), what, "another operation of a manager held the container")

    @contextmanager
    def held(self, container_id: str) -> Iterator[None]:
        """Tell the operations of this thread or task that it holds a container."""
        token = _held.set(_held.get() | {(self.cni.cache_dir, container_id)})
        try:
            yield
        finally:
            _held.reset(token)

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
            recorded = await self.attachments()
            pending = {one.container_id for one in recorded if one.state == PENDING and one.network == name}
            if not pending:
                raise
            what = ", ".join(f"container {one}" for one in sorted(pending))
            message = f"network {name}: GC waited for {error.seconds:.1f} s for the set-up of {what}"
            raise LockTimeoutError(message, what=what, path=error.path, seconds=error.seconds) from None

    def release_locks(self) -> None:
        """Release all locks before the context ends."""
        self._cleanup.close()

    async def _lock(self, request: LockRequest, what: str, holder: str) -> None:
        locks = LockSet(self.cni.cache_dir, request)
        # Before the wait: an interrupted wait may already hold some of the locks, and they must be released, too.
        self._cleanup.callback(locks.close)
        started = system.monotonic()
        try:
            # All waits of an operation together take no longer than its time limit: a set-up that hangs holds the locks
            # of all its networks, and GC must not wait the whole time for each of them.
            for delay in locks.retry_delays(started + self._waits_left):
                await self.node.sleep(delay)
        except LockTimeoutError as error:
            message = f"{what}: {holder} for {error.seconds:.1f} s ({error.path})"
            raise LockTimeoutError(message, what=what, path=error.path, seconds=error.seconds) from None
        finally:
            self._waits_left = max(0.0, self._waits_left - (system.monotonic() - started))


def lock_context(cni: CNIConfig | AsyncCNIConfig, container_id: str, timeout: Timeout) -> OperationContext:
    """Return the context of operations that a caller makes while it holds a container."""
    return OperationContext(cni, Operation("TEAR-DOWN", container_id=check_container_id(container_id)), timeout)


@contextmanager
def locked(cni: CNIConfig, container_id: str, timeout: Timeout) -> Iterator[None]:
    """Hold a container for several operations of this thread; see ``NetworkManager.locked``."""
    with lock_context(cni, container_id, timeout) as context:
        run_to_end(context.lock_container(container_id))
        with context.held(container_id):
            yield


def _of_container(container_id: str) -> LockRequest:
    return LockRequest((f"{_CONTAINER_LOCK}{container_id}",), exclusive=True)
