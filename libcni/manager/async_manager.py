"""AsyncNetworkManager: all networks of a container at once, on asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, Unpack

from libcni.aio import AsyncCNIConfig, to_the_end
from libcni.manager.container import Container
from libcni.manager.container_result import ContainerResult
from libcni.manager.context import OperationContext
from libcni.manager.gc import Live
from libcni.manager.manager_base import ManagerBase
from libcni.manager.reports import ManagerStatus, Report
from libcni.verbs.client_base import DEFAULT, Timeout
from libcni.verbs.reports import AttachOptions, DelPolicy

__all__ = ["AsyncNetworkManager"]

_T = TypeVar("_T")


class AsyncContext(OperationContext):
    """An operation of AsyncNetworkManager on the running event loop."""

    async def in_thread(self, function: Callable[[], _T]) -> _T:
        """Call a function in a thread. A cancelled caller still waits for its end.

        Otherwise the thread could make a namespace or a file after the container's lock has been released.
        """
        # A task of its own: cancelling the caller must not cancel the future that it waits for.
        return await to_the_end(asyncio.ensure_future(asyncio.to_thread(function)))

    async def call(self, function: Callable[[], _T | Awaitable[_T]]) -> _T:
        """Call a function or a coroutine function."""
        # The user's function may be a plain one or a coroutine function; only its answer shows which.
        answer = function()
        return await answer if inspect.isawaitable(answer) else answer

    async def in_parallel(self, functions: Sequence[Callable[[], Coroutine[Any, Any, _T]]]) -> list[_T]:
        """Run coroutine functions as tasks, and return their answers in order."""
        return list(await asyncio.gather(*(function() for function in functions)))

    async def shielded(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end; a further cancellation waits for it."""
        with suppress(asyncio.CancelledError):  # the caller raises the first one
            await to_the_end(asyncio.ensure_future(coroutine))

    async def sleep(self, seconds: float) -> None:
        """Sleep while the event loop goes on."""
        await asyncio.sleep(seconds)


class AsyncNetworkManager(ManagerBase[AsyncCNIConfig]):
    """Set up, check and tear down containers on many networks, on asyncio.

    The methods of NetworkManager that run plugins or read records are coroutines here. Their parameters, units and
    errors are the same.

    If a set-up is cancelled, its attachments so far stay recorded, for a tear-down or GC. With
    ``on_cancel="rollback"`` they are detached first.
    """

    _client_class = AsyncCNIConfig

    async def set_up(
        self, container: Container, *, timeout: Timeout = DEFAULT, **options: Unpack[AttachOptions]
    ) -> ContainerResult:
        """Attach a container to its networks; as ``NetworkManager.set_up``, errors too."""
        return await self._run(timeout, lambda context: self._set_up(context, container, options))

    async def tear_down(
        self,
        container: Container | str,
        *,
        ifnames: Iterable[str] | None = None,
        policy: DelPolicy | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Report:
        """Detach all recorded attachments of a container; as ``NetworkManager.tear_down``, errors too."""
        return await self._run(timeout, lambda context: self._tear_down(context, container, ifnames, policy))

    async def check(self, container_id: str, *, timeout: Timeout = DEFAULT) -> Report:
        """Check all attachments of a container; as ``NetworkManager.check``, errors too."""
        return await self._run(timeout, lambda context: self._check(context, container_id))

    async def container(self, container_id: str, *, timeout: Timeout = DEFAULT) -> ContainerResult | None:
        """Return the recorded result of a container; as ``NetworkManager.container``, errors too."""
        return await self._run(timeout, lambda context: self._container(context, container_id))

    async def status(self, networks: Iterable[str] | None = None, *, timeout: Timeout = DEFAULT) -> ManagerStatus:
        """Ask networks whether they can serve ADD; as ``NetworkManager.status``, errors too."""
        return await self._run(timeout, lambda context: self._status(context, networks))

    async def gc(self, live: Live, *, dry_run: bool = False, timeout: Timeout = DEFAULT) -> Report:
        """Clean up all networks; as ``NetworkManager.gc``, errors too. ``live`` may be a coroutine function."""
        return await self._run(timeout, lambda context: self._gc(context, live, dry_run=dry_run))

    async def _run(self, timeout: Timeout, operation: Callable[[AsyncContext], Coroutine[Any, Any, _T]]) -> _T:
        with AsyncContext(self.cni, self._emit, timeout) as context:
            return await operation(context)
