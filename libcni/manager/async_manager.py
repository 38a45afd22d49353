"""AsyncNetworkManager: the same plans on asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from libcni.aio import AsyncCNIConfig
from libcni.manager import drive
from libcni.manager.container import Container
from libcni.manager.container_result import ContainerResult
from libcni.manager.reports import CheckReport, GCSummary, ManagerStatus, TearDown
from libcni.manager.shared import ManagerBase
from libcni.manager.steps import Plan
from libcni.manager.sweeps import Live
from libcni.verbs.reports import DelPolicy

__all__ = ["AsyncNetworkManager"]

_T = TypeVar("_T")


class AsyncNetworkManager(ManagerBase[AsyncCNIConfig]):
    """Set up, check and tear down containers on many networks; the methods are those of NetworkManager, as coroutines.

    Parameters, units (every ``timeout`` is in seconds) and errors are the same.

    Cancelling one leaves what is attached by then in the records, for a tear-down or GC.
    """

    async def set_up(self, container: Container, *, timeout: float | None = None, **options: Any) -> ContainerResult:
        """Attach a container to its networks; as ``NetworkManager.set_up``, errors too."""
        return await self._run(self._set_up(container, timeout, options))

    async def tear_down(
        self,
        container: Container | str,
        *,
        ifnames: Iterable[str] | None = None,
        policy: DelPolicy | None = None,
        timeout: float | None = None,
    ) -> TearDown:
        """Detach a container from all that is recorded of it; as ``NetworkManager.tear_down``, errors too."""
        return await self._run(self._tear_down(container, ifnames, policy, timeout))

    async def check(self, container_id: str, *, timeout: float | None = None) -> CheckReport:
        """Check all attachments of a container; as ``NetworkManager.check``, errors too."""
        return await self._run(self._check(container_id, timeout))

    async def status(self, *, timeout: float | None = None) -> ManagerStatus:
        """Ask all networks whether they can serve ADD; as ``NetworkManager.status``."""
        return await self._run(self._status(timeout))

    async def gc(self, live: Live, *, dry_run: bool = False, timeout: float | None = None) -> GCSummary:
        """Clean up all networks; as ``NetworkManager.gc``, errors too. ``live`` may be a coroutine function."""
        return await self._run(self._gc(live, dry_run=dry_run, timeout=timeout))

    async def _run(self, plan: Plan[_T]) -> _T:
        return await drive.run_async(plan, self.cni, self._events.tell)
