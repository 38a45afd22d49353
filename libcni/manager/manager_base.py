"""The common part of NetworkManager and AsyncNetworkManager: settings, configuration, and each operation."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from libcni._dataclass import replace
from libcni.client import CNIConfig
from libcni.config.identifiers import validate_container_id, validate_interface_name
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, CNIErrorGroup, ConfigError, NetworkNotFoundError
from libcni.manager.container import (
    NO_NETWORK,
    Container,
    NetworkRequest,
    PlannedAttachment,
    check_values,
    interface_names,
    plan_attachments,
    request_of,
)
from libcni.manager.iterables import read_once
from libcni.manager.networks import LOOPBACK, NetworkSet, Stamp, load, log_changes, stamp_of
from libcni.manager.operation import ManagerOperation
from libcni.observe.observer import Operation
from libcni.options import AddOptions, DelPolicy, Timeout, check_options, check_type

# Each operation is loaded with its first call: a hook starts with every container, and runs one of them.
if TYPE_CHECKING:
    from libcni.aio import AsyncCNIConfig
    from libcni.manager.container_result import ContainerResult
    from libcni.manager.gc import Live
    from libcni.manager.namespaces import NamespaceMaker
    from libcni.manager.report import Report
    from libcni.manager.status import ManagerStatus

ClientT = TypeVar("ClientT", bound="CNIConfig | AsyncCNIConfig")


class ManagerBase(Generic[ClientT]):
    """The settings of a manager, and the methods that do not wait.

    Attributes:
        cni: the client that runs the verbs of single networks.
        default: the name of the network of containers that request none; None: the first network.
        policy: the policy for DEL.
        loopback: the network that every container gets as ``lo``, or None.
    """

    _client_class: type[ClientT]

    def __init__(  # noqa: PLR0913 - the settings of a manager
        self,
        cni: ClientT,
        *,
        networks: Iterable[NetworkConfigList] = (),
        default: str | None = None,
        default_count: int | None = 1,
        default_needs_plugins: bool = False,
        interface_prefix: str = "eth",
        loopback: bool = False,
        policy: DelPolicy | None = None,
        namespaces: str | os.PathLike[str] | None = None,
        namespace_maker: NamespaceMaker | None = None,
    ) -> None:
        """Store the settings and read the configurations. Run nothing.

        Args:
            cni: the client that runs the verbs of single networks: a CNIConfig, for AsyncNetworkManager an
                AsyncCNIConfig. Its ``conf_dir`` has the configurations.
            networks: configurations given in code; they come before those of the directory.
            default: the name of the network of containers that request none; None: the first network.
            default_count: how many networks, in order, a container gets if it requests none; None: all.
            default_needs_plugins: whether networks with a missing plugin are left out of the default networks.
            interface_prefix: the prefix of interface names that no request gives; ``eth`` makes ``eth0``, ``eth1``, ...
            loopback: whether to attach ``lo`` of every container first, with the plugin ``loopback``.
            policy: the policy for DEL. With any policy, CNI_NETNS is empty if the namespace no longer exists.
            namespaces: the directory in which the manager makes a namespace for each container without one, for example
                ``/run/netns``, which ``ip netns`` shows; None: ``set_up`` refuses such containers.
            namespace_maker: makes, identifies and removes these namespaces; None: the kernel. Give your own in tests
                without root.

        Raises:
            TypeError: ``cni`` is a client of the other kind, or another argument has a wrong type.
            ValueError: ``default_count`` is less than 1, or other than 1 although ``default`` names a network.
            InvalidIdentifierError: no interface can have the prefix.
        """
        if not isinstance(cni, self._client_class):
            raise TypeError(
                f"{type(self).__name__} needs {self._client_class.__name__}, not {type(cni).__name__}: "
                "NetworkManager runs a CNIConfig, AsyncNetworkManager an AsyncCNIConfig"
            )
        if default is not None:
            check_type("default", default, str)
        if default_count is not None and default_count < 1:
            raise ValueError(f"default_count must be at least 1, or None for all networks, not {default_count}")
        if default is not None and default_count != 1:
            raise ValueError("default names one network, so default_count cannot be given")
        validate_interface_name(f"{interface_prefix}0")
        self.cni = cni
        self._default_count = default_count
        self._default_needs_plugins = default_needs_plugins
        self._prefix = interface_prefix
        self.default: Final[str | None] = default
        self.policy: Final[DelPolicy] = DelPolicy() if policy is None else policy
        check_type("policy", self.policy, DelPolicy)
        self.loopback: Final[NetworkConfigList | None] = LOOPBACK if loopback else None
        self._directory = os.path.abspath(cni.conf_dir)
        self._in_code = read_once("networks", networks)
        # Several threads may reload. Readers need no lock: they read one reference.
        self._reload_lock = threading.Lock()
        self._configuration = NetworkSet()
        self._stamp: Stamp = None
        self.reload()
        self._namespaces = None
        if namespaces is not None:
            from libcni.manager.namespaces import ContainerNamespaces

            self._namespaces = ContainerNamespaces(namespaces, cni.cache_dir, cni.owner, namespace_maker)

    @property
    def configuration(self) -> NetworkSet:
        """The networks in force, and the problems of unusable files. A changed file counts at once."""
        if self._stamp is None or self._stamp != self._read_stamp(self._configuration):
            return self.reload()
        return self._configuration

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The networks in force, in order, without loopback."""
        return self.configuration.networks

    @property
    def default_networks(self) -> tuple[NetworkConfigList, ...]:
        """The networks of a container that requests none; () if there is no network."""
        if self.default is not None:
            return (self.network(self.default),)
        networks: Iterable[NetworkConfigList] = self.networks
        if self._default_needs_plugins:
            networks = [net for net in networks if self._has_plugins(net)]
        return tuple(networks)[: self._default_count]

    def _has_plugins(self, net: NetworkConfigList) -> bool:
        try:
            for plugin in net.plugins:
                self.cni.find_plugin(plugin.type)
        except CNIError:
            return False
        return True

    def network(self, name: str | None = None) -> NetworkConfigList:
        """Return a network; None: the default network. If it is unknown, reload the directory once and look again.

        Raises:
            NetworkNotFoundError: no network has this name; the text says why.
        """
        if name is None and self.default is None and (defaults := self.default_networks):
            return defaults[0]
        name = self.default if name is None else name
        return self.configuration.find(name) or self.reload().network(name)

    def reload(self) -> NetworkSet:
        """Read all configurations again, and return the networks in force.

        If a network's file exists but is unusable, its last good configuration stays in force. The same holds for all
        networks if the directory no longer exists.
        """
        with self._reload_lock:
            old = self._configuration
            before = self._read_stamp(old)
            new = load(self._directory, self._in_code, self.loopback, old)
            # A file that was written meanwhile must be read by the next question.
            is_settled = before is not None and before == self._read_stamp(old)
            self._configuration, self._stamp = new, self._read_stamp(new) if is_settled else None
        log_changes(old, new)
        return new

    def _read_stamp(self, networks: NetworkSet) -> Stamp:
        return stamp_of(self._directory, [net.name for net in networks.networks])

    def plan(self, container: Container) -> tuple[PlannedAttachment, ...]:
        """Return the attachments that a set-up would make, each with its configuration and parameters, in order.

        Compare them with the records to find missing attachments and changes.

        Raises:
            NetworkNotFoundError: a network is unknown.
            InvalidIdentifierError: a name breaks the rules.
        """
        check_type("container", container, Container)
        wanted = [(request, self._configuration_of(request)) for request in self._requests(container)]
        return tuple(plan_attachments(container, wanted, self.loopback, self._prefix))

    def _requests(self, container: Container) -> list[NetworkRequest]:
        networks: Iterable[str | NetworkConfigList | NetworkRequest]
        if container.networks is None:
            networks = self.default_networks or [self.network()]
        else:
            networks = () if container.networks == NO_NETWORK else container.networks
        return [request_of(network) for network in networks]

    def _configuration_of(self, request: NetworkRequest) -> NetworkConfigList:
        return self.network(request.network) if isinstance(request.network, str) else request.network

    def _plan_unrecorded(
        self, container: Container, recorded: Collection[tuple[str, str]]
    ) -> tuple[tuple[PlannedAttachment, ...], list[CNIError]]:
        """Return what a set-up of a container would attach, and the errors of unknown networks.

        A recorded network need not be known. If the container requests no network, the default may have changed since
        its set-up: an interface that is recorded on any network was not on another one.

        ``recorded``: (network, interface name) of each record.
        """
        errors: list[CNIError] = []
        wanted: list[tuple[NetworkRequest, NetworkConfigList]] = []
        taken = set() if container.networks is not None else {ifname for _, ifname in recorded}
        try:
            requests = self._requests(container)
            for request, ifname in zip(requests, interface_names(requests, self._prefix), strict=True):
                try:
                    if ifname not in taken:
                        wanted.append((replace(request, ifname=ifname), self._configuration_of(request)))
                except NetworkNotFoundError as error:
                    errors += [] if (request.network, ifname) in recorded else [error]
            return tuple(plan_attachments(container, wanted, self.loopback, self._prefix)), errors
        except CNIError as error:
            return (), [*errors, error]

    def _possible_names(self, live: str | Container) -> list[str]:
        """Return the interface names that a live container may have, if no record says them."""
        if isinstance(live, str) or live.networks is None:
            number = 1 if isinstance(live, str) else max(1, len(self.default_networks))
            return [f"{self._prefix}{index}" for index in range(number)]
        return interface_names(self._requests(live), self._prefix)

    async def _set_up(self, container: Container, timeout: Timeout, options: AddOptions) -> ContainerResult:
        from libcni.manager.set_up import SetUp

        check_options("set_up", options, AddOptions)
        check_type("container", container, Container)
        operation = ManagerOperation(self.cni, Operation("SET-UP", container_id=container.id), timeout)
        with operation.run, operation:
            # Check all names, networks and values before anything is made.
            planned = await operation.run.on_disk(lambda: self.plan(container))
            check_values(planned)
            # "" is not None: a plugin would get it as CNI_NETNS.
            if container.netns == "" or (container.netns is None and self._namespaces is None):
                raise ConfigError(
                    f"container {container.id}: it has no network namespace",
                    hint='give netns, or create the manager with namespaces="/run/netns"',
                )
            return await SetUp(operation, container, planned, self._namespaces, self.policy, options).run()

    async def _tear_down(self, container: str | Container, timeout: Timeout) -> Report:
        from libcni.manager.tear_down import TearDown

        container_id = container.id if isinstance(container, Container) else container
        validate_container_id(container_id)
        operation = ManagerOperation(self.cni, Operation("TEAR-DOWN", container_id=container_id), timeout)
        with operation.run, operation:
            known = container if isinstance(container, Container) else None
            current, plan = self.configuration, self._plan_unrecorded
            return await TearDown(operation, container_id, current, self.policy, self._namespaces, known, plan).run()

    async def _recover(self, live: Live, timeout: Timeout, *, include_go: bool) -> Report:
        from libcni.manager.report import Report

        try:
            return await self._gc(live, timeout, dry_run=False, include_go=include_go)
        except CNIErrorGroup as group:
            report = group.report if isinstance(group.report, Report) else Report()
            errors = tuple(error for error in group.exceptions if isinstance(error, CNIError))
        except CNIError as error:
            report, errors = Report(), (error,)
        return replace(report, errors=errors)

    async def _check(self, container_id: str, timeout: Timeout) -> Report:
        from libcni.manager.check import check

        validate_container_id(container_id)
        with ManagerOperation(self.cni, Operation("CHECK", container_id=container_id), timeout) as operation:
            return await check(operation, container_id, self.configuration)

    async def _status(self, timeout: Timeout) -> ManagerStatus:
        from libcni.manager.status import status

        with ManagerOperation(self.cni, Operation("STATUS"), timeout) as operation:
            return await status(operation, self.configuration, self._name_of_default())

    async def _gc(self, live: Live, timeout: Timeout, *, dry_run: bool, include_go: bool) -> Report:
        from libcni.manager.gc import GC

        with ManagerOperation(self.cni, Operation("GC"), timeout) as operation:
            gc = GC(
                operation, self.configuration, live, self._possible_names, self.policy, self._namespaces,
                dry_run, include_go,
            )  # fmt: skip
            return await gc.run()

    def _name_of_default(self) -> str | None:
        """Return the name of the first default network; None: the first network."""
        if self.default is not None or not self._default_needs_plugins:
            return self.default
        return next((net.name for net in self.default_networks), None)

    def _container(self, container_id: str) -> ContainerResult | None:
        from libcni.manager.container_result import recorded_result

        return recorded_result(container_id, self.cni.get_cached_attachments(container_id))


def add_problems(error: BaseException, problem: CNIError) -> None:
    """Add the errors of a tear-down as notes to the exception that ended the block."""
    problems = problem.exceptions if isinstance(problem, CNIErrorGroup) else (problem,)
    for cause in problems:
        error.add_note(f"when the container was torn down: {cause}")
