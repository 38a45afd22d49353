"""The common part of NetworkManager and AsyncNetworkManager: settings, configuration, and each operation."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from libcni.client import CNIConfig
from libcni.config.identifiers import check_container_id
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, CNIErrorGroup, ConfigError
from libcni.manager.container import Container, PlannedAttachment, plan_attachments, request_of
from libcni.manager.iterables import read_once
from libcni.manager.networks import LOOPBACK, NetworkSet, load, log_changes
from libcni.manager.operation import ManagerOperation
from libcni.observe.observer import Operation
from libcni.options import AddOptions, DelPolicy, Timeout, check_type

# Each operation is loaded with its first call: a hook starts with every container, and runs one of them.
if TYPE_CHECKING:
    from libcni.aio import AsyncCNIConfig
    from libcni.manager.container_result import ContainerResult
    from libcni.manager.gc import Live
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
        loopback: bool = False,
        policy: DelPolicy | None = None,
        namespaces: str | os.PathLike[str] | None = None,
    ) -> None:
        """Store the settings and read the configurations. Run nothing.

        Args:
            cni: the client that runs the verbs of single networks: a CNIConfig, for AsyncNetworkManager an
                AsyncCNIConfig. Its ``conf_dir`` has the configurations.
            networks: configurations given in code; they come before those of the directory.
            default: the name of the network of containers that request none; None: the first network.
            loopback: whether to attach ``lo`` of every container first, with the plugin ``loopback``.
            policy: the policy for DEL. In addition, CNI_NETNS is empty if the namespace no longer exists.
            namespaces: the directory in which the manager makes a namespace for each container without one, for example
                ``/run/netns``, which ``ip netns`` shows; None: ``set_up`` refuses such containers.

        Raises:
            TypeError: ``cni`` is a client of the other kind, or another argument has a wrong type.
        """
        if not isinstance(cni, self._client_class):
            raise TypeError(
                f"{type(self).__name__} needs {self._client_class.__name__}, not {type(cni).__name__}: "
                "NetworkManager runs a CNIConfig, AsyncNetworkManager an AsyncCNIConfig"
            )
        if default is not None:
            check_type("default", default, str)
        self.cni = cni
        self.default: Final[str | None] = default
        self.policy: Final[DelPolicy] = DelPolicy() if policy is None else policy
        check_type("policy", self.policy, DelPolicy)
        self.loopback: Final[NetworkConfigList | None] = LOOPBACK if loopback else None
        self._directory = os.path.abspath(cni.conf_dir)
        self._in_code = read_once("networks", networks)
        # Several threads may reload. Readers need no lock: they read one reference.
        self._reload_lock = threading.Lock()
        self._configuration = NetworkSet()
        self.reload()
        self._namespaces = None
        if namespaces is not None:
            from libcni.manager.namespaces import ContainerNamespaces

            self._namespaces = ContainerNamespaces(namespaces, cni.cache_dir, cni.owner)

    @property
    def configuration(self) -> NetworkSet:
        """The networks in force, and the problems of unusable files."""
        return self._configuration

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The networks in force, in order, without loopback."""
        return self._configuration.networks

    def network(self, name: str | None = None) -> NetworkConfigList:
        """Return a network; None: the default network. If it is unknown, reload the directory once and look again.

        Raises:
            NetworkNotFoundError: no network has this name; the text says why.
        """
        name = self.default if name is None else name
        return self._configuration.find(name) or self.reload().network(name)

    def reload(self) -> NetworkSet:
        """Read all configurations again, and return the networks in force.

        If a network's file exists but is unusable, its last good configuration stays in force. The same holds for all
        networks if the directory no longer exists.
        """
        with self._reload_lock:
            old = self._configuration
            new = load(self._directory, self._in_code, self.loopback, old)
            self._configuration = new
        log_changes(old, new)
        return new

    def plan(self, container: Container) -> tuple[PlannedAttachment, ...]:
        """Return the attachments that a set-up would make, each with its configuration and parameters, in order.

        Compare them with the records to find missing attachments and changes.

        Raises:
            NetworkNotFoundError: a network is unknown.
            InvalidIdentifierError: a name breaks the rules.
        """
        check_type("container", container, Container)
        networks = [self.network()] if container.networks is None else container.networks
        requests = [request_of(network) for network in networks]
        nets = [self.network(net) if isinstance(net := request.network, str) else net for request in requests]
        return tuple(plan_attachments(container, list(zip(requests, nets, strict=True)), self.loopback))

    async def _set_up(self, container: Container, timeout: Timeout, options: AddOptions) -> ContainerResult:
        from libcni.manager.set_up import SetUp

        check_type("container", container, Container)
        operation = ManagerOperation(self.cni, Operation("SET-UP", container_id=container.id), timeout)
        with operation.node, operation:
            # Check all names and networks before anything is made.
            planned = await operation.node.on_disk(lambda: self.plan(container))
            # "" is not None: a plugin would get it as CNI_NETNS.
            if container.netns == "" or (container.netns is None and self._namespaces is None):
                raise ConfigError(
                    f"container {container.id}: it has no network namespace",
                    hint='give netns, or create the manager with namespaces="/run/netns"',
                )
            return await SetUp(operation, container, planned, self._namespaces, self.policy, options).run()

    async def _tear_down(self, container_id: str, timeout: Timeout) -> Report:
        from libcni.manager.tear_down import TearDown

        check_container_id(container_id)
        operation = ManagerOperation(self.cni, Operation("TEAR-DOWN", container_id=container_id), timeout)
        with operation.node, operation:
            current = self._configuration
            return await TearDown(operation, container_id, current, self.policy, self._namespaces).run()

    async def _check(self, container_id: str, timeout: Timeout) -> Report:
        from libcni.manager.check import check

        check_container_id(container_id)
        with ManagerOperation(self.cni, Operation("CHECK", container_id=container_id), timeout) as operation:
            return await check(operation, container_id, self._configuration)

    async def _status(self, timeout: Timeout) -> ManagerStatus:
        from libcni.manager.status import status

        with ManagerOperation(self.cni, Operation("STATUS"), timeout) as operation:
            return await status(operation, self._configuration, self.default)

    async def _gc(self, live: Live, timeout: Timeout, *, dry_run: bool, include_go: bool) -> Report:
        from libcni.manager.gc import GC

        with ManagerOperation(self.cni, Operation("GC"), timeout) as operation:
            current = self._configuration
            return await GC(operation, current, live, self.policy, self._namespaces, dry_run, include_go).run()

    def _container(self, container_id: str) -> ContainerResult | None:
        from libcni.manager.container_result import recorded_result

        return recorded_result(container_id, self.cni.get_cached_attachments(container_id))


def add_problems(error: BaseException, problem: CNIError) -> None:
    """Add the errors of a tear-down as notes to the exception that ended the block."""
    problems = problem.exceptions if isinstance(problem, CNIErrorGroup) else (problem,)
    for cause in problems:
        error.add_note(f"when the container was torn down: {cause}")
