"""NetworkManager: a container's networks as one thing, blocking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from libcni.client import CNIConfig
from libcni.manager import drive
from libcni.manager.container import Container
from libcni.manager.container_result import ContainerResult
from libcni.manager.reports import CheckReport, GCSummary, ManagerStatus, TearDown
from libcni.manager.shared import ManagerBase
from libcni.manager.steps import Plan
from libcni.manager.sweeps import Live
from libcni.verbs.reports import DelPolicy

__all__ = ["NetworkManager"]

_T = TypeVar("_T")


class NetworkManager(ManagerBase[CNIConfig]):
    """Set up, check and tear down containers on many networks, blocking; safe to share between threads.

    One thing at a time is done to a container, whoever asks, in whatever process with the same records; different
    containers go in parallel.
    """

    def set_up(self, container: Container, *, timeout: float | None = None, **options: Any) -> ContainerResult:
        """Attach a container to its networks, one after the other; if one fails, detach it from all again.

        Args:
            container: the container and its networks.
            timeout: seconds for all of it but the roll-back; None: each network has the client's time.
            options: those of ``add_network_list``, such as ``on_existing``.

        Raises:
            NetworkNotFoundError: nothing was run.
            InvalidIdentifierError: likewise.
            CNIError: as ``add_network_list``; what went wrong in the roll-back is in ``rollback_errors``.
            NamespaceError: the namespace could not be made.
        """
        return self._run(self._set_up(container, timeout, options))

    def tear_down(
        self,
        container: Container | str,
        *,
        ifnames: Iterable[str] | None = None,
        policy: DelPolicy | None = None,
        timeout: float | None = None,
    ) -> TearDown:
        """Detach a container from all that is recorded of it, the last attached first, on over errors.

        A container that is not attached is no error.

        Args:
            container: its ID; or a Container, whose networks are then detached also where there is no record.
            ifnames: only these interfaces.
            policy: how DEL is done; None: as the manager was made with.
            timeout: seconds for each network, and for the wait for the container; None: the client's.

        Raises:
            CNIErrorGroup: what went wrong; its ``report`` says what was done. Call again to try again.
        """
        return self._run(self._tear_down(container, ifnames, policy, timeout))

    def check(self, container_id: str, *, timeout: float | None = None) -> CheckReport:
        """Check all attachments of a container; those whose version has no CHECK are reported as such.

        ``timeout``: seconds for each network; None: the client's.

        Raises:
            CNIErrorGroup: what is wrong; its ``report`` has every check.
        """
        return self._run(self._check(container_id, timeout))

    def status(self, *, timeout: float | None = None) -> ManagerStatus:
        """Ask all networks whether they can serve ADD; the reason is in the answer, nothing is raised.

        ``timeout``: seconds for each network; None: the client's.
        """
        return self._run(self._status(timeout))

    def gc(self, live: Live, *, dry_run: bool = False, timeout: float | None = None) -> GCSummary:
        """Clean up all networks, with one call each, also those that only records know any more.

        Args:
            live: the IDs of the containers that live; or single attachments, or (container ID, interface name) pairs.
                Or a function that returns them: it is called when no container is being set up.
            dry_run: run nothing, only report.
            timeout: seconds for each network; None: the client's.

        Raises:
            CNIErrorGroup: what went wrong; its ``report`` says what was cleaned.
            TypeError: ``live`` is None.
        """
        return self._run(self._gc(live, dry_run=dry_run, timeout=timeout))

    def _run(self, plan: Plan[_T]) -> _T:
        return drive.run(plan, self.cni, self._events.tell)
