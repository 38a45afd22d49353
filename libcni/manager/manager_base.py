"""The common part of NetworkManager and AsyncNetworkManager: settings, configuration, and each operation."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from libcni.client import CNIConfig
from libcni.config.identifiers import check_container_id
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, CNIErrorGroup, ConfigError, NetworkNotFoundError
from libcni.manager.container import Container, NetworkRequest, PlannedAttachment, assign_names, plan_attachments
from libcni.manager.networks import (
    LOOPBACK,
    Default,
    NetworkSet,
    Sources,
    check_default,
    choose_default,
    load,
    log_changes,
)
from libcni.manager.operation import ManagerOperation
from libcni.manager.options import merge_policies, read_once
from libcni.observe.observer import Operation
from libcni.options import AddOptions, DelPolicy, OnCancel, Timeout
from libcni.verbs.arguments import check_word

# Each operation is loaded with its first call: a hook starts with every container, and runs one of them.
if TYPE_CHECKING:
    from libcni.aio import AsyncCNIConfig
    from libcni.manager.container_result import ContainerResult
    from libcni.manager.gc import Live
    from libcni.manager.namespaces import Namespaces
    from libcni.manager.report import Report
    from libcni.manager.status import ManagerStatus
    from libcni.manager.watch import Watch

ClientT = TypeVar("ClientT", bound="CNIConfig | AsyncCNIConfig")


class ManagerBase(Generic[ClientT]):
    """The settings of a manager, and the methods that do not wait.

    Attributes:
        cni: the client that runs the verbs of single networks.
        default: the networks of a container that requests none: a name, names, or a number.
        prefix: the beginning of generated interface names.
        policy: the policy for DEL.
        loopback: the network that every container gets as ``lo``, or None.
        on_cancel: what happens to the attachments of a cancelled or interrupted set-up: ``keep`` or ``rollback``.
    """

    _client_class: type[ClientT]

    def __init__(  # noqa: PLR0913 - the settings of a manager
        self,
        cni: ClientT,
        *,
        conf_dirs: Iterable[str | os.PathLike[str]] | None = None,
        networks: Iterable[NetworkConfigList] = (),
        default: Default = 1,
        loopback: bool | NetworkConfigList = False,
        prefix: str = "eth",
        policy: DelPolicy | None = None,
        namespaces: Namespaces | None = None,
        on_cancel: OnCancel = "keep",
    ) -> None:
        """Store the settings and read the configurations. Run nothing.

        Args:
            cni: the client that runs the verbs of single networks: a CNIConfig, for AsyncNetworkManager an
                AsyncCNIConfig.
            conf_dirs: the directories with configurations. If two have a network of the same name, the first directory
                wins. None: the client's directory.
            networks: configurations given in code; they come before those of the directories.
            default: the networks of a container that requests none: a name, names, or a number of networks in order.
            loopback: whether to attach ``lo`` of every container first, with the plugin ``loopback`` or with the
                network given here.
            prefix: the beginning of generated interface names.
            policy: the policy for DEL. In addition, CNI_NETNS is empty if the namespace no longer exists.
            namespaces: makes and removes the namespaces of containers without one; None: ``set_up`` refuses such
                containers.
            on_cancel: what happens to the attachments of a cancelled or interrupted set-up. ``keep``: they stay
                recorded, for a tear-down or GC. ``rollback``: they are detached first.

        Raises:
            TypeError: ``cni`` is a client of the other kind, or ``conf_dirs`` a string.
            ValueError: ``default`` means no network, or another value is unknown.
            InvalidIdentifierError: ``prefix`` cannot begin an interface's name.
        """
        if not isinstance(cni, self._client_class):
            raise TypeError(
                f"{type(self).__name__} needs {self._client_class.__name__}, not {type(cni).__name__}: "
                "NetworkManager runs a CNIConfig, AsyncNetworkManager an AsyncCNIConfig"
            )
        directories = (cni.conf_dir,) if conf_dirs is None else read_once("conf_dirs", conf_dirs)
        self.default: Final[Default] = check_default(default)
        check_word("on_cancel", on_cancel, OnCancel)
        # Fail here and not at the first set-up.
        assign_names([None], prefix)  # raises InvalidIdentifierError
        self.cni = cni
        self.prefix: Final[str] = prefix
        self.policy: Final[DelPolicy] = merge_policies(DelPolicy(), policy)
        self.on_cancel: Final[OnCancel] = on_cancel
        self._loopback = LOOPBACK if isinstance(loopback, bool) else loopback
        self.loopback: Final[NetworkConfigList | None] = None if loopback is False else self._loopback
        paths = tuple(os.path.abspath(os.fspath(directory)) for directory in directories)
        self._sources = Sources(paths, read_once("networks", networks), self.loopback)
        # Reloads run in the watch's thread and in callers' threads. Readers need no lock: they read one reference.
        self._reload_lock = threading.Lock()
        self._configuration = NetworkSet()
        self.reload()
        self._namespaces = None
        if namespaces is not None:
            from libcni.manager.namespace_records import ContainerNamespaces

            self._namespaces = ContainerNamespaces(namespaces, cni.cache_dir, cni.owner)

    def __repr__(self) -> str:
        """Return the client, the directories and the networks in force."""
        networks = [net.name for net in self.networks]
        return f"{type(self).__name__}({self.cni!r}, conf_dirs={list(self._sources.directories)}, networks={networks})"

    @property
    def configuration(self) -> NetworkSet:
        """The networks in force, and the problems of unusable files."""
        return self._configuration

    @property
    def networks(self) -> tuple[NetworkConfigList, ...]:
        """The networks in force, in order, without loopback."""
        return self._configuration.networks

    def network(self, name: str) -> NetworkConfigList:
        """Return a network. If the name is unknown, reload the directories once and look again.

        Raises:
            NetworkNotFoundError: there is no network of that name.
        """
        return self._configuration.find(name) or self.reload().network(name)

    def default_networks(self) -> tuple[NetworkConfigList, ...]:
        """Return the networks of a container that requests none.

        Raises:
            NetworkNotFoundError: a network is missing, or there are too few; the text tells why.
        """
        try:
            return self._defaults()
        except NetworkNotFoundError:
            self.reload()
            return self._defaults()

    def _defaults(self) -> tuple[NetworkConfigList, ...]:
        return choose_default(self._configuration, self.default)

    def reload(self, *, keep: bool = True) -> NetworkSet:
        """Read all configurations again, and return the networks in force.

        If a network's file exists but is unusable, its last good configuration stays in force. The same holds for all
        networks of a directory that no longer exists. ``keep=False`` removes these networks.
        """
        with self._reload_lock:
            old = self._configuration
            new = load(self._sources, old if keep else NetworkSet(), self.cni.find_plugin)
            self._configuration = new
        log_changes(old, new)
        return new

    def watch(self, interval: float = 1.0) -> Watch:
        """Reload whenever a configuration or a plugin changes, until the returned Watch is closed.

        ``interval``: seconds between two polls of the directories.
        """
        from libcni.manager.watch import Watch

        return Watch(self.reload, interval)

    def plan(self, container: Container) -> tuple[PlannedAttachment, ...]:
        """Return the attachments that a set-up would make, each with its configuration and parameters, in order.

        Compare them with the records to find missing attachments and changes.

        Raises:
            NetworkNotFoundError: a network is unknown.
            InvalidIdentifierError: a name breaks the rules.
        """
        return tuple(self._plan(container))

    def _plan(self, container: Container, unknown: list[tuple[str, CNIError]] | None = None) -> list[PlannedAttachment]:
        """Return the attachments of a container on known networks, in order.

        ``unknown`` receives the name and the error of each unknown network; None: raise the first of these errors.
        """
        _check_container(container)
        wanted: list[tuple[NetworkRequest, NetworkConfigList | None]] = []
        requests = container.requests
        try:
            if requests is None:
                requests = [NetworkRequest(net) for net in self.default_networks()]
        except NetworkNotFoundError as error:
            if unknown is None:
                raise
            unknown.append((error.network or "", error))
            return []
        for request in requests:
            requested = request.network
            try:
                wanted.append((request, self.network(requested) if isinstance(requested, str) else requested))
            except NetworkNotFoundError as error:
                if unknown is None:
                    raise
                # The request keeps its place: a tear-down must compute the same interface names as the set-up.
                wanted.append((request, None))
                unknown.append((error.network or "", error))
        use_loopback = self.loopback is not None if container.loopback is None else container.loopback
        loopback = self._loopback if use_loopback else None
        return plan_attachments(container, wanted, prefix=self.prefix, loopback=loopback)

    async def _set_up(self, container: Container, timeout: Timeout, options: AddOptions) -> ContainerResult:
        from libcni.manager.set_up import SetUp

        _check_container(container)
        operation = ManagerOperation(self.cni, Operation("SET-UP", container_id=container.id), timeout)
        with operation.node, operation:
            # Check all names and networks before anything is made.
            planned = await operation.node.on_disk(lambda: self._plan(container))
            # "" is not None: a plugin would get it as CNI_NETNS.
            if container.netns == "" or (container.netns is None and self._namespaces is None):
                raise ConfigError(
                    f"container {container.id}: it has no network namespace",
                    hint="give netns, or create the manager with namespaces=Namespaces()",
                )
            chosen: AddOptions = {"on_cancel": self.on_cancel, **options}
            return await SetUp(operation, container, planned, self._namespaces, self.policy, chosen).run()

    async def _tear_down(
        self, container: Container | str, timeout: Timeout, ifnames: Iterable[str] | None, policy: DelPolicy | None
    ) -> Report:
        from libcni.manager.tear_down import TearDown

        wanted = None if ifnames is None else frozenset(read_once("ifnames", ifnames))
        container = Container(container, networks=(), loopback=False) if isinstance(container, str) else container
        _check_container(container)
        unknown: list[tuple[str, CNIError]] = []
        operation = ManagerOperation(self.cni, Operation("TEAR-DOWN", container_id=container.id), timeout)
        with operation.node, operation:
            planned = await operation.node.on_disk(lambda: self._plan(container, unknown))
            tear_down = TearDown(
                operation=operation,
                container_id=container.id,
                networks=self._configuration,
                policy=merge_policies(self.policy, policy),
                namespaces=self._namespaces,
                unrecorded=planned,
                unknown=unknown,
                ifnames=wanted,
            )
            return await tear_down.run()

    async def _check(self, container_id: str, timeout: Timeout) -> Report:
        from libcni.manager.check import check

        check_container_id(container_id)
        with ManagerOperation(self.cni, Operation("CHECK", container_id=container_id), timeout) as operation:
            return await check(operation, container_id, self._configuration)

    async def _status(self, networks: Iterable[str] | None, timeout: Timeout) -> ManagerStatus:
        from libcni.manager.status import status

        names = None if networks is None else read_once("networks", networks)
        default_names, reason = set(), ""
        try:
            default_names = {net.name for net in self._defaults()}
        except NetworkNotFoundError as error:
            reason = str(error)
        with ManagerOperation(self.cni, Operation("STATUS"), timeout) as operation:
            return await status(operation, self._configuration, names, default_names, reason)

    async def _gc(self, live: Live, timeout: Timeout, *, dry_run: bool, include_go: bool) -> Report:
        from libcni.manager.gc import GC, read_live_once

        def pairs(container: Container) -> list[tuple[str, str]]:
            return [(planned.rt.container_id, planned.rt.ifname) for planned in self._plan(container, unknown=[])]

        live = live if callable(live) else read_live_once(live)
        with ManagerOperation(self.cni, Operation("GC"), timeout) as operation:
            current = self._configuration
            return await GC(operation, current, live, pairs, self.policy, self._namespaces, dry_run, include_go).run()

    def _container(self, container_id: str) -> ContainerResult | None:
        from libcni.manager.container_result import recorded_result

        return recorded_result(container_id, self.cni.get_cached_attachments(container_id))


def _check_container(container: Container) -> None:
    # tear_down and check take an ID as well, so an ID is a likely mistake.
    if not isinstance(container, Container):
        raise TypeError(f"a Container is needed, such as Container({container!r}, netns), not {container!r}")


def add_problems(error: BaseException, problem: CNIError) -> None:
    """Add the errors of a tear-down as notes to the exception that ended the block."""
    problems = problem.exceptions if isinstance(problem, CNIErrorGroup) else (problem,)
    for cause in problems:
        error.add_note(f"when the container was torn down: {cause}")
