"""The result of a container's set-up: one view of all its attachments' results."""

from __future__ import annotations

from collections.abc import Sequence

from libcni._dataclass import dataclass
from libcni.protocol.result import DNS, Interface, IPConfig, Result
from libcni.store.attachments import Attachment, in_order
from libcni.store.model import LIVING

__all__ = ["AttachmentResult", "ContainerResult", "InterfaceResult"]


@dataclass(frozen=True, slots=True)
class InterfaceResult:
    """One interface and its addresses.

    Attributes:
        network: the network that it belongs to.
        interface: the interface in the plugin's result: ``name``, ``mac``, ``sandbox`` and others.
        addresses: its addresses, each as in the result.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> eth0 = result.interfaces["eth0"]
        >>> eth0.network, eth0.interface.name, [address.address for address in eth0.addresses]
        ('dbnet', 'eth0', ['10.1.0.5/16'])
    """

    network: str
    interface: Interface
    addresses: tuple[IPConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class AttachmentResult:
    """The result of one attachment.

    Attributes:
        network: its network's name.
        ifname: the interface name given to ADD.
        result: the result of ADD.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> [(attachment.network, attachment.ifname) for attachment in result.attachments]
        [('dbnet', 'eth0')]
    """

    network: str
    ifname: str
    result: Result

    @property
    def interfaces(self) -> tuple[InterfaceResult, ...]:
        """The interfaces in the result's order; if the plugin lists none, an interface with the name ``ifname``."""
        listed, own = self._listed, self._own_index
        addresses: list[list[IPConfig]] = [[] for _ in listed]
        for ip in self.result.ips:
            # Plugins of before 0.3.0 have no index, and some plugins print a wrong index. Such an address belongs to
            # the container.
            index = ip.interface if ip.interface is not None and 0 <= ip.interface < len(listed) else own
            addresses[index].append(ip)
        return tuple(
            InterfaceResult(self.network, interface, tuple(own_addresses))
            for interface, own_addresses in zip(listed, addresses, strict=True)
        )

    @property
    def _listed(self) -> Sequence[Interface]:
        return self.result.interfaces or [Interface(name=self.ifname)]

    @property
    def _own_index(self) -> int:
        """The index of the container's interface."""
        # From the surest sign to the weakest: plugins may omit the sandbox, or rename the interface.
        signs = [(interface.name == self.ifname, bool(interface.sandbox)) for interface in self._listed]
        return signs.index(max(signs))

    @property
    def own(self) -> InterfaceResult:
        """The container's own interface."""
        return self.interfaces[self._own_index]


@dataclass(frozen=True, slots=True)
class ContainerResult:
    """All attachments of a container.

    Attributes:
        container_id: the container.
        netns: the path of the namespace that the plugins received.
        attachments: the attachments in the order of their set-up, loopback included.
        unused_capabilities: the container's capability arguments that none of its networks declares, and those of a
            NetworkRequest that its own network does not declare. A warning in the log names them too.

    Examples:
        >>> result = manager.set_up(Container("c1", "/run/netns/c1", ["dbnet"]))
        >>> list(result.interfaces), [address.address for address in result.addresses]
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
            own = attachment.own
            for interface in (own, *(other for other in attachment.interfaces if other.interface.sandbox)):
                results.setdefault(interface.interface.name, interface)
        return results

    @property
    def addresses(self) -> tuple[IPConfig, ...]:
        """All addresses of the container except loopback's, in the order of the networks."""
        interfaces = self.interfaces.items()
        return tuple(address for name, interface in interfaces if name != "lo" for address in interface.addresses)

    @property
    def dns(self) -> DNS:
        """The DNS settings of all networks together, in their order; a network's domain begins its search list."""
        each = [attachment.result.dns for attachment in self.attachments]
        return DNS(
            nameservers=tuple(dict.fromkeys(server for dns in each for server in dns.nameservers)),
            search=tuple(dict.fromkeys(name for dns in each for name in (dns.domain, *dns.search) if name)),
            options=tuple(dict.fromkeys(option for dns in each for option in dns.options)),
        )

    @property
    def resolv_conf(self) -> str:
        """The text of the container's resolv.conf, "" without DNS settings."""
        dns = self.dns
        lines = [f"nameserver {server}\n" for server in dns.nameservers]
        lines += [f"search {' '.join(dns.search)}\n"] if dns.search else []
        lines += [f"options {' '.join(dns.options)}\n"] if dns.options else []
        return "".join(lines)


def recorded_result(container_id: str, attachments: Sequence[Attachment]) -> ContainerResult | None:
    """Return a container's result from its records; None if nothing is attached."""
    netns, results = "", []
    for attachment in in_order(attachments):
        if attachment.state in LIVING | {"gone"} and (result := attachment.result) is not None:
            netns = netns or attachment.netns
            results.append(AttachmentResult(attachment.network, attachment.ifname, result))
    return ContainerResult(container_id, netns, tuple(results)) if results else None
