"""One running operation of a manager: its turn, its locks, and the verbs that are part of it."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

import libcni.kernel.system as system
from libcni.client import CNIConfig
from libcni.config.identifiers import validate_container_id
from libcni.errors import LockTimeoutError, RecordError, name_client
from libcni.executor.process import run_to_end
from libcni.observe.observer import Operation
from libcni.options import DEFAULT, Timeout
from libcni.store.attachments import Attachment, attachments_of
from libcni.store.locks import LockRequest, LockSet
from libcni.verbs.client_base import run_of
from libcni.verbs.verb_run import VerbRun

if TYPE_CHECKING:  # blocking callers do not load asyncio
    from libcni.aio import AsyncCNIConfig

logger: logging.Logger = logging.getLogger("libcni")

# No network's name contains a slash, so these never collide with the lock of a verb.
_CONTAINER_LOCK = "//manager/container/"
_NETWORK_LOCK = "//manager/network/"
_SHORTEST = 0.001


class _Block:
    """A block of ``locked``: it holds a container for the operations that begin in it.

    A task, thread or forked child that was started in the block has a copy of the block's context, and may outlive the
    block. So an operation checks the block, not the context. The lock is released when the block and the last operation
    that began in it have ended, so no other manager works on the container meanwhile.
    """

    def __init__(self, cni: CNIConfig | AsyncCNIConfig, container_id: str, release: Callable[[], None]) -> None:
        self.key = (cni.cache_dir, container_id)
        self._release = release
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._users = 1
        self._has_ended = False

    def join(self) -> bool:
        """Add an operation to the block, unless the block has ended. The operation calls ``leave`` at its end."""
        if self._process != os.getpid():  # first: in a child, the lock may be held by a thread of the parent
            return False
        with self._lock:
            self._users += not self._has_ended
            return not self._has_ended

    def end(self) -> None:
        """End the block: no further operation can join it."""
        with self._lock:
            self._has_ended = True
        self.leave()

    def leave(self) -> None:
        """Release the container's lock if the block and all of its operations have ended."""
        with self._lock:
            self._users -= 1
            is_last = self._users == 0
        if is_last:
            self._release()


_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("libcni_locked", default=())
"""The blocks of ``locked`` around the current code, and the blocks around the creation of its thread or task."""


class ManagerOperation:
    """One running operation of a manager. A context manager that releases its turn and all locks at its end.

    A turn is one of the client's ``max_verbs`` places. The order is always: container, networks, turn. So an operation
    that has its turn waits for no other operation of this client.

    Attributes:
        cni: the client.
        run: for the waits and the disk work of the operation itself. As a context manager, it reports the operation to
            the client's observer.
        timeout: the time limit that the caller gave, for each verb.
    """

    def __init__(self, cni: CNIConfig | AsyncCNIConfig, operation: Operation, timeout: Timeout) -> None:
        self.cni = cni
        self.run: VerbRun = run_of(cni, operation, timeout)
        self.timeout: Timeout = timeout
        self._cleanup = ExitStack()
        left = self.run.seconds_left()
        self._waits_left = math.inf if left is None else left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        name_client(error, self.run.settings.client)  # the commands in its hint are those of this client's directories
        self.run.release()
        self.release_locks()

    def seconds_left(self) -> float | None:
        """Return the seconds to the operation's deadline, but at least 1 ms: the client refuses 0. None: no limit."""
        left = self.run.seconds_left()
        return None if left is None else max(_SHORTEST, left)

    def part(self, operation: Operation, timeout: Timeout = DEFAULT) -> VerbRun:
        """Return a run for a verb of this operation, with a timeout of its own: the verb needs no further turn."""
        return run_of(self.cni, operation, timeout, part_of=self.run)

    async def attachments(self, container_id: str | None = None) -> list[Attachment]:
        """Return the recorded attachments; see ``CNIConfig.get_cached_attachments``."""
        records = self.run.records
        return await self.run.on_disk(lambda: attachments_of(records.records(container_id), records))

    async def lock_container(self, container_id: str) -> None:
        """Acquire a container's lock until the operation ends, unless the caller holds it; raises LockTimeoutError."""
        for block in _blocks.get():
            if block.key == (self.cni.cache_dir, container_id) and block.join():
                self._cleanup.callback(block.leave)
                return
        request = LockRequest((f"{_CONTAINER_LOCK}{container_id}",), exclusive=True)
        await self._lock(request, f"container {container_id}", "another operation of a manager held its lock")

    async def lock_if_possible(self, container_id: str) -> None:
        """Acquire a container's lock for a CHECK or DEL; a full or read-only disk must not stop these."""
        try:
            await self.lock_container(container_id)
        except RecordError as error:
            logger.warning("container %s: going on without the container's lock: %s", container_id, error)

    @contextmanager
    def block(self, container_id: str) -> Iterator[None]:
        """Let other operations of this thread or task use this operation's lock of the container during the block."""
        block = _Block(self.cni, container_id, self._cleanup.pop_all().close)
        _blocks.set((*_blocks.get(), block))
        try:
            yield
        finally:
            _blocks.set(tuple(outer for outer in _blocks.get() if outer is not block))
            block.end()

    async def lock_networks(self, names: Iterable[str], *, container_id: str) -> None:
        """Acquire a set-up's network locks, shared with other set-ups, so that no GC runs; raises LockTimeoutError."""
        request = LockRequest(tuple(f"{_NETWORK_LOCK}{name}" for name in names))
        await self._lock(request, f"container {container_id}", "a GC of a manager held the lock of one of its networks")

    async def lock_network_for_gc(self, name: str) -> None:
        """Acquire a network's lock exclusively for GC, so that no set-up uses it; raises LockTimeoutError."""
        request = LockRequest((f"{_NETWORK_LOCK}{name}",), exclusive=True)
        await self._lock(request, f"network {name}", "set-ups of containers held its lock")

    def release_locks(self) -> None:
        """Release all locks before the operation ends."""
        self._cleanup.close()

    async def _lock(self, request: LockRequest, what: str, holder: str) -> None:
        locks = LockSet(self.cni.cache_dir, request)
        # Before the wait: an interrupted wait may already hold some of the locks, and must release them.
        self._cleanup.callback(locks.close)
        started = system.monotonic()
        try:
            # All waits of an operation together take no longer than its time limit: a set-up that hangs holds the locks
            # of all its networks, and GC must not wait the whole time for each of them.
            for delay in locks.retry_delays(started + self._waits_left):
                await self.run.sleep(delay)
        except LockTimeoutError as error:
            message = f"{what}: {holder} for {error.seconds:.1f} s ({error.path})"
            raise LockTimeoutError(message, what=what, path=error.path, seconds=error.seconds) from None
        finally:
            self._waits_left = max(0.0, self._waits_left - (system.monotonic() - started))


def block_operation(cni: CNIConfig | AsyncCNIConfig, container_id: str, timeout: Timeout) -> ManagerOperation:
    """Return the operation that acquires the lock for a block of ``locked``."""
    return ManagerOperation(cni, Operation("TEAR-DOWN", container_id=validate_container_id(container_id)), timeout)


@contextmanager
def locked(cni: CNIConfig, container_id: str, timeout: Timeout) -> Iterator[None]:
    """Lock a container for several operations of this thread; see ``NetworkManager.locked``."""
    with block_operation(cni, container_id, timeout) as operation:
        run_to_end(operation.lock_container(container_id))
        with operation.block(container_id):
            yield
