"""AsyncNetworkManager: all networks of a container at once, on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from libcni.aio import AsyncCNIConfig, to_the_end
from libcni.errors import CNIError
from libcni.manager.container import Container
from libcni.manager.container_result import ContainerResult
from libcni.manager.gc import Live
from libcni.manager.manager import NetworkManager
from libcni.manager.manager_base import ManagerBase, add_problems
from libcni.manager.operation import block_operation
from libcni.manager.report import Report
from libcni.manager.status import ManagerStatus
from libcni.options import DEFAULT, AddOptions, Timeout
from libcni.verbs.client_base import documented_like

__all__ = ["AsyncNetworkManager"]


@documented_like(NetworkManager)
class AsyncNetworkManager(ManagerBase[AsyncCNIConfig]):
    """Set up, check and tear down containers on many networks, on asyncio.

    The methods of NetworkManager that run plugins or read records are coroutines here. Their parameters, units and
    errors are the same.

    If a set-up is cancelled, its attachments so far stay recorded, for a tear-down or GC. With
    ``on_cancel="rollback"`` they are detached first.

    Examples:
        >>> import asyncio
        >>> async def set_up():
        ...     cni = libcni.AsyncCNIConfig("/opt/cni/bin", "cache", executor=executor.on_asyncio)
        ...     manager = AsyncNetworkManager(cni, networks=[net])
        ...     return await manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> list(asyncio.run(set_up()).interfaces)
        ['eth0']
    """

    _client_class = AsyncCNIConfig

    async def set_up(
        self, container: Container, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> ContainerResult:
        """Attach a container to its networks; see ``NetworkManager.set_up``."""
        return await self._set_up(container, timeout, options)

    async def tear_down(self, container: str | Container, *, timeout: Timeout = DEFAULT) -> Report:
        """Detach all attachments of a container; see ``NetworkManager.tear_down``."""
        return await self._tear_down(container, timeout)

    async def check(self, container_id: str, *, timeout: Timeout = DEFAULT) -> Report:
        """Check all attachments of a container; see ``NetworkManager.check``."""
        return await self._check(container_id, timeout)

    async def container(self, container_id: str) -> ContainerResult | None:
        """Return the recorded result of a container; see ``NetworkManager.container``."""
        return await asyncio.to_thread(self._container, container_id)

    async def status(self, *, timeout: Timeout = DEFAULT) -> ManagerStatus:
        """Ask networks whether they can serve ADD; see ``NetworkManager.status``."""
        return await self._status(timeout)

    async def gc(
        self, live: Live, *, dry_run: bool = False, include_go: bool = False, timeout: Timeout = DEFAULT
    ) -> Report:
        """Clean up all networks; see ``NetworkManager.gc``. ``live`` may be a coroutine function."""
        return await self._gc(live, timeout, dry_run=dry_run, include_go=include_go)

    async def recover(self, live: Live, *, include_go: bool = False, timeout: Timeout = DEFAULT) -> Report:
        """Run GC when the program starts, with errors in the report; see ``NetworkManager.recover``."""
        return await self._recover(live, timeout, include_go=include_go)

    @asynccontextmanager
    async def attached(
        self, container: Container, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> AsyncIterator[ContainerResult]:
        """Set up a container for the block, and tear it down at the end; see ``NetworkManager.attached``."""
        result = await self.set_up(container, timeout=timeout, **options)
        try:
            yield result
        except GeneratorExit:
            raise  # the event loop has ended, so nothing can be awaited
        except BaseException as error:
            try:
                # Go on even if the task is cancelled again: otherwise the container would stay attached.
                await to_the_end(asyncio.ensure_future(self.tear_down(container.id, timeout=timeout)))
            except CNIError as problem:
                add_problems(error, problem)
            raise
        await self.tear_down(container.id, timeout=timeout)

    @asynccontextmanager
    async def locked(self, container_id: str, *, timeout: Timeout = DEFAULT) -> AsyncIterator[None]:
        """Hold a container for several operations of this task; see ``NetworkManager.locked``."""
        with block_operation(self.cni, container_id, timeout) as operation:
            await operation.lock_container(container_id)
            with operation.block(container_id):
                yield
