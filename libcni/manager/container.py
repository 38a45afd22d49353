"""What a container asks for: its networks, with names for the interfaces, and what goes to their plugins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from libcni.config.capabilities import CapabilityArgs
from libcni.config.cni_args import check_args
from libcni.config.identifiers import check_ifname
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import InvalidIdentifierError

__all__ = ["Attach", "Container", "NetworkRequest", "resolve"]

Capabilities = Mapping[str, Any] | CapabilityArgs
ArgsGiven = Iterable[tuple[str, str]] | Mapping[str, str]
_LOOPBACK_IFNAME = "lo"


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """One network of a container.

    Attributes:
        network: its name, or a configuration of its own that need not be in any file.
        ifname: the interface's name; None: the next free of eth0, eth1, ...
        args: as in RuntimeConf, for this network alone; they win over the container's, as do the next two.
        capability_args: likewise. One that the network takes no notice of is refused or reported, as the ADD's options
            say.
        network_args: likewise.
    """

    network: str | NetworkConfigList
    ifname: str | None = None
    args: ArgsGiven = ()
    capability_args: Capabilities | None = None
    network_args: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, text: str) -> NetworkRequest:
        """Read ``name`` or ``name@ifname``."""
        name, at, ifname = text.partition("@")
        return cls(name, ifname if at else None)


@dataclass(frozen=True, slots=True)
class Container:
    """A container and the networks that it asks for.

    Attributes:
        id: the container's ID.
        netns: the path of its network namespace; None: the manager makes one, if it was given Namespaces.
        networks: in the order of their set-up: names, ``name@ifname``, or NetworkRequests. None: the default networks.
        args: as in RuntimeConf, for every network.
        capability_args: likewise; each network gets what its plugins declare.
        network_args: likewise, for every network.
        loopback: whether to attach ``lo`` first; None: as the manager was made with.
    """

    id: str
    netns: str | None = None
    networks: Sequence[str | NetworkRequest] | None = None
    args: ArgsGiven = ()
    capability_args: Capabilities | None = None
    network_args: Mapping[str, Any] | None = None
    loopback: bool | None = None

    @property
    def requests(self) -> list[NetworkRequest] | None:
        """``networks``, each as a NetworkRequest; None: the default networks."""
        if self.networks is None:
            return None
        return [NetworkRequest.parse(one) if isinstance(one, str) else one for one in self.networks]


@dataclass(frozen=True, slots=True)
class Attach:
    """One attachment to make: a network and the parameters."""

    net: NetworkConfigList
    rt: RuntimeConf


def resolve(
    container: Container,
    wanted: Sequence[tuple[NetworkRequest, NetworkConfigList]],
    *,
    prefix: str,
    loopback: NetworkConfigList | None,
) -> list[Attach]:
    """Return the attachments of a container in order, checked before any is made.

    Raises:
        InvalidIdentifierError: a name that breaks the rules, or an interface name that is wanted twice.
    """
    names = assign_names([request.ifname for request, _ in wanted], prefix)
    attaches = [
        Attach(net, _parameters(container, request, net, ifname))
        for (request, net), ifname in zip(wanted, names, strict=True)
    ]
    if loopback is not None:
        attaches.insert(0, Attach(loopback, RuntimeConf(container.id, container.netns, _LOOPBACK_IFNAME)))
    _refuse_duplicates([attach.rt.ifname for attach in attaches])
    return attaches


def assign_names(given: Sequence[str | None], prefix: str) -> list[str]:
    """Return ``given`` with each None replaced by the lowest of prefix0, prefix1, ... that nobody has."""
    taken = {name for name in given if name is not None}
    free = (name for number in range(len(given) + len(taken) + 1) if (name := f"{prefix}{number}") not in taken)
    return [check_ifname(next(free) if name is None else name) for name in given]


def _refuse_duplicates(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InvalidIdentifierError("interface name", name, "two networks of one container cannot both have it")


def _parameters(container: Container, request: NetworkRequest, net: NetworkConfigList, ifname: str) -> RuntimeConf:
    shared = as_mapping(container.capability_args)
    unused = net.unused_capabilities(shared)
    capabilities = {name: value for name, value in shared.items() if name not in unused}
    return RuntimeConf(
        container.id,
        container.netns,
        ifname,
        args={**dict(check_args(container.args)), **dict(check_args(request.args))},
        capability_args={**capabilities, **as_mapping(request.capability_args)},
        network_args=merged(container.network_args or {}, request.network_args or {}),
    )


def unused_by_all(container: Container, nets: Iterable[NetworkConfigList]) -> tuple[str, ...]:
    """Return the names of the container's capability arguments that none of its networks takes."""
    unused = [set(net.unused_capabilities(as_mapping(container.capability_args))) for net in nets]
    return tuple(name for name in as_mapping(container.capability_args) if all(name in one for one in unused))


def as_mapping(given: Capabilities | None) -> Mapping[str, Any]:
    """Return capability arguments as a mapping."""
    return given.to_args() if isinstance(given, CapabilityArgs) else given or {}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``over`` put over it, objects within objects alike."""
    both = dict(base)
    for key, value in over.items():
        old = both.get(key)
        both[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both
