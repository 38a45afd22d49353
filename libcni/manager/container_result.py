"""The result of a container's set-up: one view of all its attachments' results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from libcni.manager.attachments import in_order
from libcni.protocol.result import DNS, Interface, IPConfig, Result, Route
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

__all__ = ["AttachmentResult", "ContainerResult", "InterfaceResult", "ResolvConf"]

Preference = Literal["ipv4", "ipv6", "both", "listed"]


@dataclass(frozen=True, slots=True)
class InterfaceResult:
    """One interface.

    Attributes:
        name: the interface's name.
        network: the network that it belongs to.
        sandbox: the path of its namespace in the plugin's result; "" for an interface on the host.
        addresses: its addresses, each as in the result.
        mac: its hardware address in the plugin's result, or None.
        mtu: its MTU in bytes, or None.
        pci_id: the device's PCI address, or None.
        socket_path: the socket of a vhost-user interface, or None.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> [one.address for one in result.interfaces["eth0"].addresses]
        ['10.1.0.5/16']
    """

    name: str
    network: str
    sandbox: str = ""
    addresses: tuple[IPConfig, ...] = ()
    mac: str | None = None
    mtu: int | None = None
    pci_id: str | None = None
    socket_path: str | None = None


@dataclass(frozen=True, slots=True)
class AttachmentResult:
    """The result of one attachment.

    Attributes:
        network: its network's name.
        ifname: the interface name given to ADD.
        result: the result of ADD.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> [(one.network, one.ifname) for one in result.attachments]
        [('dbnet', 'eth0')]
    """

    network: str
    ifname: str
    result: Result

    @property
    def interfaces(self) -> tuple[InterfaceResult, ...]:
        """The interfaces in the result's order; if the plugin lists none, one with the name ``ifname``."""
        result = self.result
        listed = self._listed
        own = self._own_index
        addresses: list[list[IPConfig]] = [[] for _ in listed]
        for ip in result.ips:
            # Plugins of before 0.3.0 have no index, and some print a wrong one. Such an address belongs to the
            # container.
            index = ip.interface if ip.interface is not None and 0 <= ip.interface < len(listed) else own
            addresses[index].append(ip)
        return tuple(
            InterfaceResult(
                interface.name,
                self.network,
                interface.sandbox or "",
                tuple(own_addresses),
                interface.mac,
                interface.mtu,
                interface.pci_id,
                interface.socket_path,
            )
            for interface, own_addresses in zip(listed, addresses, strict=True)
        )

    @property
    def _listed(self) -> Sequence[Interface]:
        return self.result.interfaces or [Interface(name=self.ifname)]

    @property
    def _own_index(self) -> int:
        """The index of the container's interface."""
        listed = self._listed
        # From the surest sign to the weakest: plugins may omit the sandbox, or rename the interface.
        best = [index for index, interface in enumerate(listed) if interface.name == self.ifname and interface.sandbox]
        best += [index for index, interface in enumerate(listed) if interface.name == self.ifname]
        best += [index for index, interface in enumerate(listed) if interface.sandbox]
        return (best or [0])[0]

    @property
    def own(self) -> InterfaceResult:
        """The container's own interface."""
        return self.interfaces[self._own_index]


@dataclass(frozen=True, slots=True)
class ResolvConf:
    """The contents of a container's resolv.conf.

    Attributes:
        nameservers: addresses, the first preferred.
        search: domains to search for short names, the first preferred.
        options: resolver options, such as ``ndots:2``.

    Examples:
        >>> print(ResolvConf(("10.1.0.1",), ("example.org",)).text(), end="")
        nameserver 10.1.0.1
        search example.org
    """

    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the file's text, "" if it has no line."""
        lines = [f"nameserver {server}" for server in self.nameservers]
        lines += [f"search {' '.join(self.search)}"] if self.search else []
        lines += [f"options {' '.join(self.options)}"] if self.options else []
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class ContainerResult:
    """All attachments of a container.

    Attributes:
        container_id: the container.
        netns: the path of the namespace that the plugins received.
        attachments: the attachments in the order of their set-up, loopback included.
        unused_capabilities: the capability arguments that no plugin declares: of the container on any of its networks,
            of a NetworkRequest on its own. A warning in the log names them too.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> list(result.interfaces), [one.address for one in result.addresses]
        (['eth0'], ['10.1.0.5/16'])
    """

    container_id: str
    netns: str
    attachments: tuple[AttachmentResult, ...] = ()
    unused_capabilities: tuple[str, ...] = ()

    @property
    def interfaces(self) -> dict[str, InterfaceResult]:
        """The container's interfaces by name, without those on the host."""
        results: dict[str, InterfaceResult] = {}
        for attachment in self.attachments:
            results.setdefault(attachment.own.name, attachment.own)
            for interface in attachment.interfaces:
                if interface.sandbox:
                    results.setdefault(interface.name, interface)
        return results

    @property
    def routes(self) -> tuple[Route, ...]:
        """All routes, in the order of the networks."""
        return tuple(route for attachment in self.attachments for route in attachment.result.routes)

    @property
    def dns(self) -> tuple[DNS, ...]:
        """The DNS settings of each network that has any."""
        return tuple(attachment.result.dns for attachment in self.attachments if attachment.result.dns != DNS())

    @property
    def resolv_conf(self) -> ResolvConf:
        """The merged DNS settings of all networks, in their order; a network's domain precedes its search list."""
        search = [name for dns in self.dns for name in (dns.domain, *dns.search) if name]
        return ResolvConf(
            tuple(dict.fromkeys(server for dns in self.dns for server in dns.nameservers)),
            tuple(dict.fromkeys(search)),
            tuple(dict.fromkeys(option for dns in self.dns for option in dns.options)),
        )

    @property
    def addresses(self) -> tuple[IPConfig, ...]:
        """All addresses of the container except loopback's, in the order of the networks."""
        return tuple(
            address
            for interface in self.interfaces.values()
            if interface.name != "lo"
            for address in interface.addresses
        )

    def primary(self, prefer: Preference = "ipv4") -> tuple[IPv4Address | IPv6Address, ...]:
        """Return the primary address, from the first network that has addresses, as a tuple; () if there is none.

        Args:
            prefer: ``ipv4``, ``ipv6``: that network's first address of the family, or else of the other family;
                ``listed``: that network's first address; ``both``: the first IPv4 and the first IPv6 address of all
                networks.
        """
        if prefer == "both":
            return tuple(addresses[0] for version in (4, 6) if (addresses := _of_family(self.addresses, version)))
        rows = [
            attachment.own.addresses
            for attachment in self.attachments
            if attachment.own.name != "lo" and attachment.own.addresses
        ]
        first = rows[0] if rows else ()
        wanted = _of_family(first, {"ipv4": 4, "ipv6": 6}.get(prefer, 0)) or [address.ip.ip for address in first]
        return tuple(wanted[:1])


def _of_family(addresses: Iterable[IPConfig], version: int) -> list[IPv4Address | IPv6Address]:
    return [address.ip.ip for address in addresses if address.ip.version == version]


def recorded_result(container_id: str, attachments: Sequence[Attachment]) -> ContainerResult | None:
    """Return a container's result from its records; None if nothing is attached."""
    ready = [
        attachment
        for attachment in in_order(attachments)
        if attachment.state in LIVING | {"gone"} and attachment.record.result is not None
    ]
    results = (
        AttachmentResult(attachment.network, attachment.ifname, result)
        for attachment in ready
        if (result := attachment.result)
    )
    return ContainerResult(container_id, ready[0].netns, tuple(results)) if ready else None
