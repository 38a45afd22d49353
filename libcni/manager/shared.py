"""What NetworkManager and AsyncNetworkManager share: settings, configuration, events, and each operation as a plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from libcni.aio import AsyncCNIConfig
from libcni.client import CNIConfig
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, NetworkNotFoundError
from libcni.manager.configuration import Configuration
from libcni.manager.container import Attach, Container, NetworkRequest, resolve
from libcni.manager.container_result import ContainerResult
from libcni.manager.events import Event, Events, EventStream
from libcni.manager.namespaces import Namespaces
from libcni.manager.networks import LOOPBACK, Default, NetworkSet, Sources
from libcni.manager.reports import CheckReport, GCSummary, ManagerStatus, TearDown
from libcni.manager.setup import SetUp
from libcni.manager.steps import Plan
from libcni.manager.sweeps import Live, check_plan, container_result, gc_plan, status_plan
from libcni.manager.teardown import TearDownOf
from libcni.manager.watch import Watch
from libcni.verbs.reports import DelPolicy, RetryPolicy

__all__ = ["ManagerBase"]

ClientT = TypeVar("ClientT", bound=CNIConfig | AsyncCNIConfig)


class ManagerBase(Generic[ClientT]):
    """Hold the settings of a manager.

    Args:
        cni: the client that runs single networks: a CNIConfig, for AsyncNetworkManager an AsyncCNIConfig.
        conf_dirs: the directories with configurations, the first wins; None: the client's.
        networks: configurations given in code; they come before those of directories.
        default: what a container gets that asks for no networks: a name, names, or how many of the first by order.
        loopback: whether every container gets ``lo`` attached first, by the plugin ``loopback`` or by this network.
        prefix: what the names of interfaces begin with that are not given.
        policy: how DEL is done; by default with an empty CNI_NETNS where the namespace has gone.
        retry: how often to try an ADD again that was answered with code 11; None: not at all.
        namespaces: makes a namespace for containers that come without, and removes it; None: nobody does.
        observer: is told of every event.
    """

    def __init__(  # noqa: PLR0913 - the settings of a manager
        self,
        cni: ClientT,
        *,
        conf_dirs: Sequence[str | os.PathLike[str]] | None = None,
        networks: Iterable[NetworkConfigList] = (),
        default: Default = 1,
        loopback: bool | NetworkConfigList = False,
        prefix: str = "eth",
        policy: DelPolicy | None = None,
        retry: RetryPolicy | None = None,
        namespaces: Namespaces | None = None,
        observer: Callable[[Event], object] | None = None,
    ) -> None:
        self.cni = cni
        self._events = Events()
        if observer is not None:
            self._events.observe(observer)
        directories = [cni.conf_dir] if conf_dirs is None else conf_dirs
        self._loopback = LOOPBACK if isinstance(loopback, bool) else loopback
        self._loopback_for_all = loopback is not False
        in_force = self._loopback if self._loopback_for_all else None
        sources = Sources(tuple(os.path.abspath(os.fspath(one)) for one in directories), tuple(networks), in_force)
        self._configuration = Configuration(sources, default, cni.path, cni.find_plugin, self._events.tell)
        self._prefix = prefix
        self._policy = policy or DelPolicy(empty_gone_netns=True)
        self._retry = retry
        self._namespaces = namespaces

    @property
    def configuration(self) -> NetworkSet:
        """The networks in force, and the problems."""
        return self._configuration.current

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The networks in force, in order, without loopback."""
        return self._configuration.current.networks

    def network(self, name: str) -> NetworkConfigList:
        """Return a network; one that is not known is looked for on disk once.

        Raises:
            NetworkNotFoundError: there is none of that name.
        """
        return self._configuration.network(name)

    def default_networks(self) -> tuple[NetworkConfigList, ...]:
        """Return the networks of a container that asks for none.

        Raises:
            NetworkNotFoundError: there is none, or not enough; the text says why.
        """
        return self._configuration.defaults_or_reload()

    def set_default(self, default: Default) -> None:
        """Change what a container gets that asks for no networks: a name, names, or how many of the first."""
        self._configuration.default = default

    def reload(self, *, keep: bool = True) -> NetworkSet:
        """Read all configurations again, and return the set that is then in force.

        A network whose file is there and cannot be used stays in force as it was, so do all of a directory that has
        gone; ``keep=False`` gives these up.
        """
        return self._configuration.reload(keep=keep)

    def watch(self, interval: float = 5.0, *, polling: bool | None = None) -> Watch:
        """Reload whenever a configuration or plugin directory changes, until the returned Watch is closed.

        Args:
            interval: seconds between two looks; with watchfiles, changes are seen at once, and the looks go on beside.
            polling: only look; None: use watchfiles (extra ``libcni[watch]``) if it is installed.

        Raises:
            ConfigError: ``polling`` is False and watchfiles is not installed.
        """
        return Watch(self._configuration, interval, polling=polling)

    def observe(self, observer: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``observer`` for every event from now on; return what ends that. It is called in any thread."""
        return self._events.observe(observer)

    def events(self, limit: int = 1000) -> EventStream:
        """Return an async iterator over the events from now on; call it where an event loop runs.

        ``limit``: how many events may wait to be read; beyond that the oldest go, and an event says that some did.
        """
        return self._events.stream(limit)

    def preview(self, container: Container) -> tuple[tuple[str, str], ...]:
        """Return what a set-up would attach, as (network, interface name) in order.

        Compare it with the records to see whether a container has what it asks for.

        Raises:
            NetworkNotFoundError: as a set-up does before it runs anything.
            InvalidIdentifierError: likewise.
        """
        return tuple((one.net.name, one.rt.ifname) for one in self._attaches(container))

    def container(self, container_id: str) -> ContainerResult | None:
        """Return what is recorded of a container, as its set-up returned it; None where nothing is attached.

        Raises:
            RecordError: the records cannot be listed, or a result cannot be read.
        """
        return container_result(container_id, self.cni.get_cached_attachments(container_id))

    def _attaches(self, container: Container) -> list[Attach]:
        requests = container.requests
        if requests is None:
            wanted = [(NetworkRequest(net.name), net) for net in self._configuration.defaults_or_reload()]
        else:
            wanted = [(one, self._configured(one.network)) for one in requests]
        use_loopback = self._loopback_for_all if container.loopback is None else container.loopback
        return resolve(container, wanted, prefix=self._prefix, loopback=self._loopback if use_loopback else None)

    def _configured(self, network: str | NetworkConfigList) -> NetworkConfigList:
        return self._configuration.network(network) if isinstance(network, str) else network

    def _attaches_if_known(self, container: Container) -> list[Attach]:
        """Return the attachments of a container; none where a network is not known any more: then records are all."""
        try:
            return self._attaches(container)
        except NetworkNotFoundError:
            return []

    def _set_up(self, container: Container, timeout: float | None, options: dict[str, Any]) -> Plan[ContainerResult]:
        return SetUp(
            container=container,
            attaches=self._attaches(container),
            namespaces=self._namespaces,
            policy=self._policy,
            timeout=timeout,
            options={"retry": self._retry, **options},
        ).plan()

    def _tear_down(
        self, container: Container | str, ifnames: Iterable[str] | None, policy: DelPolicy | None, timeout: float | None
    ) -> Plan[TearDown]:
        return TearDownOf(
            container_id=container if isinstance(container, str) else container.id,
            networks=self._configuration.current,
            policy=policy or self._policy,
            namespaces=self._namespaces,
            unrecorded=() if isinstance(container, str) else self._attaches_if_known(container),
            ifnames=None if ifnames is None else frozenset(ifnames),
            timeout=timeout,
        ).plan()

    def _check(self, container_id: str, timeout: float | None) -> Plan[CheckReport]:
        return check_plan(container_id, self._configuration.current, timeout)

    def _status(self, timeout: float | None) -> Plan[ManagerStatus]:
        defaults: tuple[NetworkConfigList, ...] | CNIError
        try:
            defaults = self._configuration.defaults()
        except NetworkNotFoundError as error:
            defaults = error
        return status_plan(self._configuration.current, defaults, timeout)

    def _gc(self, live: Live, *, dry_run: bool, timeout: float | None) -> Plan[GCSummary]:
        return gc_plan(self._configuration.current, live, dry_run=dry_run, timeout=timeout)
