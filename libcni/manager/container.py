"""A container's request: its networks, the names of its interfaces, and the arguments of the plugins."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from libcni._dataclass import dataclass
from libcni.config.cni_args import check_args
from libcni.config.conventions import OF_ONE_INTERFACE, check_capability_args
from libcni.config.identifiers import check_loopback, validate_interface_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf, as_mapping
from libcni.errors import ConfigError, InvalidIdentifierError
from libcni.manager.iterables import read_once
from libcni.options import check_type

if TYPE_CHECKING:  # pydantic, for the few who give capability arguments as models
    from libcni.config.capability_args import CapabilityArgs

__all__ = ["Container", "NetworkRequest", "PlannedAttachment", "pod_args"]

Capabilities: TypeAlias = "Mapping[str, Any] | CapabilityArgs"
ArgsGiven = Iterable[tuple[str, str]] | Mapping[str, str]
_LOOPBACK_IFNAME = "lo"
NO_NETWORK: Final = "none"


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """One network of a container.

    Attributes:
        network: the network's name, or a configuration, which need not be in a file.
        ifname: the interface's name; None: the first free name of eth0, eth1, ...
        args: as in RuntimeConf, for this network alone; they take precedence over the container's.
        capability_args: as in RuntimeConf, for this network alone; they take precedence over the container's. ADD's
            ``strict`` refuses arguments that the network does not declare.
        network_args: members for ``args`` of the network's configuration, as in RuntimeConf.

    Raises:
        InvalidIdentifierError: ``args`` are not pairs, or CNI_ARGS cannot hold a key or value.

    Examples:
        >>> NetworkRequest("front", ifname="eth0", args={"K8S_POD_NAME": "web"}).ifname
        'eth0'
    """

    network: str | NetworkConfigList
    ifname: str | None = None
    args: ArgsGiven = ()
    capability_args: Capabilities | None = None
    network_args: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", check_args(self.args))


@dataclass(frozen=True, slots=True)
class Container:
    """A container and its requested networks.

    Attributes:
        id: the container's ID.
        netns: the path of its network namespace; None: the manager makes one (it needs ``namespaces`` for that).
        networks: in the order of their set-up: names, ``name@ifname``, configurations, or NetworkRequests. None: the
            default networks. The word "none": no network.
        args: as in RuntimeConf, for every network.
        capability_args: each network receives those that its plugins declare. Only the first network that declares an
            address, a hardware address or a device receives it.

    Raises:
        TypeError: ``networks`` is a string other than "none".
        ConfigError: ``networks`` is empty: it may be a forgotten option, or an iterator that was read before.
        InvalidIdentifierError: ``args`` are not pairs, or CNI_ARGS cannot hold a key or value.

    Examples:
        >>> Container("c1", "/run/netns/c1", ["front", NetworkRequest("back", ifname="net1")]).id
        'c1'
    """

    id: str
    netns: str | os.PathLike[str] | None = None
    networks: Iterable[str | NetworkConfigList | NetworkRequest] | Literal["none"] | None = None
    args: ArgsGiven = ()
    capability_args: Capabilities | None = None

    def __post_init__(self) -> None:
        # Each network gets the same arguments, and a tear-down needs the networks again. So both are read only here.
        object.__setattr__(self, "args", check_args(self.args))
        if self.networks is not None and self.networks != NO_NETWORK:
            networks = read_once("networks", self.networks)
            if not networks:
                hint = f'give networks=None for the default networks, or networks="{NO_NETWORK}" for none'
                raise ConfigError(f"container {self.id}: the list of its networks is empty", hint=hint)
            object.__setattr__(self, "networks", networks)


def request_of(network: str | NetworkConfigList | NetworkRequest) -> NetworkRequest:
    """Return one of a container's networks as a NetworkRequest."""
    if isinstance(network, str):
        name, at, ifname = network.partition("@")
        return NetworkRequest(name, ifname if at else None)
    if isinstance(network, NetworkConfigList):
        return NetworkRequest(network)
    check_type("a network of a Container", network, NetworkRequest)
    return network


@dataclass(frozen=True, slots=True)
class PlannedAttachment:
    """One attachment of a container that a set-up would make.

    Attributes:
        net: the network's configuration.
        rt: the attachment's parameters.

    Examples:
        >>> [(planned.net.name, planned.rt.ifname) for planned in manager.plan(Container("c1", "/run/netns/c1"))]
        [('dbnet', 'eth0')]
    """

    net: NetworkConfigList
    rt: RuntimeConf


def pod_args(container_id: str, *, namespace: str, name: str, uid: str) -> tuple[tuple[str, str], ...]:
    """Return the CNI_ARGS that container runtimes pass for a Kubernetes pod.

    Args:
        container_id: the ID of the pod's infrastructure container.
        namespace: the pod's namespace.
        name: the pod's name.
        uid: the pod's UID.

    Examples:
        >>> args = pod_args("c1", namespace="shop", name="web-0", uid="5d1c")
        >>> dict(Container("c1", "/run/netns/c1", args=args).args)["K8S_POD_NAME"]
        'web-0'
    """
    return (
        # Without it Go's plugins refuse keys that they do not know (pkg/types/args.go).
        ("IgnoreUnknown", "1"),
        ("K8S_POD_NAMESPACE", namespace),
        ("K8S_POD_NAME", name),
        ("K8S_POD_INFRA_CONTAINER_ID", container_id),
        ("K8S_POD_UID", uid),
    )


def plan_attachments(
    container: Container,
    wanted: Sequence[tuple[NetworkRequest, NetworkConfigList]],
    loopback: NetworkConfigList | None,
    prefix: str = "eth",
) -> list[PlannedAttachment]:
    """Return the attachments of a container in order, all of them checked.

    Raises InvalidIdentifierError if a name breaks the rules, or if two networks want the same interface name.
    """
    planned = []
    used: set[str] = set()
    for (request, net), ifname in zip(wanted, interface_names([request for request, _ in wanted], prefix), strict=True):
        check_loopback(ifname, [plugin.type for plugin in net.plugins])
        planned.append(PlannedAttachment(net, _parameters(container, request, net, ifname, used)))
    if loopback is not None:
        rt = RuntimeConf(container.id, container.netns, _LOOPBACK_IFNAME)
        planned.insert(0, PlannedAttachment(loopback, rt))
    # Checked here, before the first ADD: the second network would fail after the first one is attached.
    for name, number in Counter(attachment.rt.ifname for attachment in planned).items():
        if number > 1:
            raise InvalidIdentifierError(
                "interface name", name, "two networks of one container must have different interface names"
            )
    return planned


def check_values(planned: Iterable[PlannedAttachment]) -> None:
    """Raise ConfigError for the first wrong value of a capability argument that a plugin would receive."""
    for attachment in planned:
        args = attachment.rt.capability_args or {}
        check_capability_args(args, attachment.net.unused_capabilities(args))


def interface_names(requests: Iterable[NetworkRequest], prefix: str) -> list[str]:
    """Return the interface name of each request. A request without one gets the first free name: eth0, eth1, ...

    Raises InvalidIdentifierError if a name breaks the rules.
    """
    names = [request.ifname for request in requests]
    taken = set(names)
    free = (name for number in itertools.count() if (name := f"{prefix}{number}") not in taken)
    return [next(free) if name is None else validate_interface_name(name) for name in names]


def _parameters(
    container: Container, request: NetworkRequest, net: NetworkConfigList, ifname: str, used: set[str]
) -> RuntimeConf:
    """Return the parameters of one network.

    ``used``: the names in ``OF_ONE_INTERFACE`` that an earlier network has received. This function adds its own names.
    """
    shared = as_mapping(container.capability_args)
    unused = net.unused_capabilities(shared)
    capabilities = {name: value for name, value in shared.items() if name not in unused and name not in used}
    used |= capabilities.keys() & OF_ONE_INTERFACE
    return RuntimeConf(
        container.id,
        container.netns,
        ifname,
        args={**dict(container.args), **dict(request.args)},
        capability_args={**capabilities, **as_mapping(request.capability_args)},
        network_args=request.network_args,
    )


def unused_by_all(container: Container, nets: Iterable[NetworkConfigList]) -> tuple[str, ...]:
    """Return the names of the container's capability arguments that no network declares."""
    unused = [set(net.unused_capabilities(as_mapping(container.capability_args))) for net in nets]
    return tuple(name for name in as_mapping(container.capability_args) if all(name in names for names in unused))
