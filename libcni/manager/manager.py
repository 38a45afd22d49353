"""NetworkManager: attach containers to all of their networks, blocking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Unpack

from libcni.client import CNIConfig
from libcni.errors import CNIError
from libcni.executor.process import run_to_end
from libcni.manager.container import Container
from libcni.manager.manager_base import ManagerBase, add_problems
from libcni.manager.operation import locked
from libcni.options import DEFAULT, AddOptions, Timeout

if TYPE_CHECKING:
    from libcni.manager.container_result import ContainerResult
    from libcni.manager.gc import Live
    from libcni.manager.report import Report
    from libcni.manager.status import ManagerStatus

__all__ = ["NetworkManager"]


class NetworkManager(ManagerBase[CNIConfig]):
    """Set up, check and tear down containers on many networks, blocking; safe to share between threads.

    Operations on one container run one after another, even in several processes that share the records. Operations on
    different containers run in parallel.

    Every method takes ``timeout`` in seconds, which must be greater than 0. None means no limit. Without the argument,
    the client's timeout applies.

    Examples:
        >>> manager = NetworkManager(cni)
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> list(result.interfaces)
        ['eth0']
        >>> manager.tear_down("c1").of("detached")[0].network
        'dbnet'
    """

    _client_class = CNIConfig

    def set_up(
        self, container: Container, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> ContainerResult:
        """Attach a container to its networks one after another. If a network fails, detach the container from all.

        Args:
            container: the container and its networks.
            timeout: seconds for everything except the roll-back. Without the argument, the client's timeout applies to
                each network and to each wait.
            options: the options of ``add_network_list``, for example ``on_existing``.

        Raises:
            NetworkNotFoundError: a network is unknown; nothing was run.
            InvalidIdentifierError: a name breaks the rules; nothing was run.
            ConfigError: the container has no namespace and the manager makes none; nothing was run.
            TypeError, ValueError: an option is unknown or has a bad value; nothing was run.
            LockTimeoutError: another operation held the container's lock, or a GC held the lock of a network;
                nothing was run.
            CNIError: as for ``add_network_list``; the errors of the roll-back are in ``rollback_errors``. The records
                of what it could not detach stay: tear the container down before a set-up with other networks.
            NamespaceError: the namespace could not be made, or this manager did not make the existing one.
        """
        return run_to_end(self._set_up(container, timeout, options))

    def tear_down(self, container: str | Container, *, timeout: Timeout = DEFAULT) -> Report:
        """Detach all attachments of a container, the latest first. Go on after errors.

        The namespace is removed if a manager's set-up made it.

        Args:
            container: a container's ID: the recorded attachments are detached; without any, the report has the item
                ``not-recorded``. Or a Container: its networks without a record are detached too, with the present
                configuration (default networks only if no record has their interface). Its ``netns`` completes
                records of Go libcni that name no namespace.
            timeout: seconds for each network, and for the wait for the container's lock.

        Raises:
            CNIErrorGroup: all errors; ``report`` tells what was detached. Call again to retry.
            LockTimeoutError: another operation held the container's lock.
        """
        return run_to_end(self._tear_down(container, timeout))

    def check(self, container_id: str, *, timeout: Timeout = DEFAULT) -> Report:
        """Check all attachments of a container.

        The report marks those whose version has no CHECK (``unsupported``), and those whose CHECK failed because of a
        known fault of the plugin (``known-fault``).

        ``timeout``: seconds for each network, and for the wait for the container's lock.

        Raises:
            NotAttachedError: the container has no record.
            CNIErrorGroup: all errors, unreadable records included; ``report`` has every check.
            LockTimeoutError: another operation held the container's lock.
        """
        return run_to_end(self._check(container_id, timeout))

    def container(self, container_id: str) -> ContainerResult | None:
        """Return the recorded result of a container's set-up; None if nothing is attached.

        Raises:
            RecordError: the records cannot be listed, or a result cannot be read.
        """
        return self._container(container_id)

    def status(self, *, timeout: Timeout = DEFAULT) -> ManagerStatus:
        """Ask all networks in parallel whether they can serve ADD. Problems are in the report, not raised.

        ``timeout``: seconds for everything.
        """
        return run_to_end(self._status(timeout))

    def gc(self, live: Live, *, dry_run: bool = False, include_go: bool = False, timeout: Timeout = DEFAULT) -> Report:
        """Run GC once for each network, including networks that are only in records.

        Only attachments of the client's own owner are detached, with ``include_go`` also those of Go libcni. Only
        namespaces that a set-up made are removed.
        Containers are detached in parallel, while set-ups go on. Set-ups on a network wait while one of its plugins
        runs GC.

        Args:
            live: the live containers: Containers, container IDs, attachments, or (container ID, interface name) pairs;
                [] for none. Or a function that returns them: it is called several times, each time while no set-up of
                the network or container runs. An iterator without elements is refused: it may have been read before.
            dry_run: run nothing, only report.
            include_go: as for ``gc_network_list``.
            timeout: seconds for each network, and for all waits together.

        Raises:
            CNIErrorGroup: all errors; ``report`` tells what was detached and removed.
            TypeError: ``live`` is None or an empty iterator, or holds an object of another type. No live
                container was detached.
        """
        return run_to_end(self._gc(live, timeout, dry_run=dry_run, include_go=include_go))

    def recover(self, live: Live, *, include_go: bool = False, timeout: Timeout = DEFAULT) -> Report:
        """Run GC when the program starts. Errors are only reported: one stale record must not stop the start.

        Parameters as for ``gc``. The next GC repeats what failed.

        Raises:
            TypeError: as for ``gc``.
        """
        return run_to_end(self._recover(live, timeout, include_go=include_go))

    @contextmanager
    def attached(
        self, container: Container, *, timeout: Timeout = DEFAULT, **options: Unpack[AddOptions]
    ) -> Iterator[ContainerResult]:
        """Set up a container for the block, and tear it down at the end, even if the block raises.

        Parameters and errors are those of ``set_up``; ``timeout`` also applies to the tear-down. If the block raises
        and then the tear-down fails, the errors of the tear-down are notes of the block's exception.

        Raises:
            CNIErrorGroup: the tear-down failed; the attachments that it could not detach stay recorded.
        """
        result = self.set_up(container, timeout=timeout, **options)
        try:
            yield result
        except BaseException as error:
            try:
                self.tear_down(container.id, timeout=timeout)
            except CNIError as problem:
                add_problems(error, problem)
            raise
        self.tear_down(container.id, timeout=timeout)

    def locked(self, container_id: str, *, timeout: Timeout = DEFAULT) -> AbstractContextManager[None]:
        """Lock a container for several operations of this thread, so that no other operation of a manager works on it.

        ``timeout``: seconds to wait for the container's lock.

        Raises:
            LockTimeoutError: another operation held the container's lock.
            RecordError: the lock file cannot be used, for example on a read-only disk.
        """
        return locked(self.cni, container_id, timeout)
