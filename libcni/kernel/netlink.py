"""A small rtnetlink client: the links, addresses and routes of a network namespace.

``read_network`` reads all of them. ``change_link``, ``add_address`` and ``add_route`` change one. ``open_netlink``
opens a socket in a namespace, and ``Conversation`` sends other requests over it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import libcni.kernel.system as system
from libcni._dataclass import dataclass, field
from libcni.kernel.link_settings import FILTERS_VLANS, settings_of
from libcni.kernel.namespace import cookie_of, netlink_socket, open_namespace
from libcni.kernel.netlink_messages import (
    INT,
    NLM_F_REQUEST,
    NLMSG_ERROR,
    Exchange,
    attribute,
    attributes_in,
    each_attribute,
    error_in,
    parsed,
    text_in,
)

_RTM_NEWLINK, _RTM_DELLINK, _RTM_GETLINK, _RTM_SETLINK = 16, 17, 18, 19
_IFLA_PROTINFO, _BRPORT_MODE = 12 | 0x8000, 4
_RTM_NEWADDR, _RTM_DELADDR, _RTM_GETADDR = 20, 21, 22
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_RTM_NEWNEIGH, _RTM_GETNEIGH = 28, 30
_RTM_NEWRULE, _RTM_GETRULE = 32, 34
_FRA_DST, _FRA_SRC, _FRA_IIFNAME, _FRA_PRIORITY, _FRA_FWMARK, _FRA_TABLE, _FRA_FWMASK = 1, 2, 3, 6, 10, 15, 16
_FRA_KNOWN = {_FRA_DST, _FRA_SRC, _FRA_IIFNAME, _FRA_PRIORITY, _FRA_FWMARK, 14, _FRA_TABLE, _FRA_FWMASK, 19, 21}
"""Also FRA_SUPPRESS_PREFIXLEN (if it suppresses nothing), FRA_PAD and FRA_PROTOCOL. The others are conditions."""
_FIB_RULE_INVERT = 2
_RTM_NEWNSID, _RTM_GETNSID, _NETNSA_NSID, _NETNSA_FD = 88, 90, 1, 3
_NLM_F_CHANGE, _NLM_F_ADD = 0x5, 0x605  # with an answer; _NLM_F_ADD fails if the object exists
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_INFO_KIND = 1, 3, 10, 18, 1
_IFLA_MTU, _IFLA_LINK, _IFLA_LINK_NETNSID = 4, 5, 37
_IFLA_INFO_DATA, _IFLA_INFO_SLAVE_KIND, _IFLA_INFO_SLAVE_DATA, _IFLA_EXT_MASK = 2, 4, 5, 29
_IFLA_AF_SPEC, _BRIDGE_VLAN_INFO, _PVID = 26, 2, 2
_WITH_VLANS, _WITHOUT_STATISTICS = 2, 8
_NDA_DST, _NDA_LLADDR = 1, 2
_NUD_NOARP, _NUD_PERMANENT, _NTF_SELF = 0x40, 0x80, 2
_NUD_LEARNED = 0x02 | 0x04 | 0x08 | 0x10  # the states REACHABLE, STALE, DELAY and PROBE
_NUD_UNRESOLVED = 0x01 | 0x20  # the states INCOMPLETE and FAILED
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _IFA_FLAGS = 1, 2, 4, 8
_NO_PREFIX_ROUTE = 0x200
_RTA_DST, _RTA_SRC, _RTA_IIF, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_TABLE = 1, 2, 3, 4, 5, 6, 15
_RTA_MARK = 16
_WITH_TABLE_AND_MATCH = 0x1000 | 0x2000  # RTM_F_LOOKUP_TABLE, RTM_F_FIB_MATCH
_ROUTE_TYPES = {1: "", 2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 6: "blackhole", 7: "unreachable",
                8: "prohibit", 9: "throw", 10: "nat"}  # fmt: skip
_IFF_UP, _IFF_LOWER_UP = 1, 0x10000
_RT_TABLE_LOCAL = 255
MAIN_TABLE, _RTPROT_BOOT, _RT_SCOPE_LINK, _RTN_UNICAST = 254, 3, 253, 1
_DROPPING_TYPES = {6, 7, 8}  # the types blackhole, unreachable and prohibit
_IP_FAMILIES: dict[int, int] = {socket.AF_INET: 32, socket.AF_INET6: 128}
_LINK = struct.Struct("=BxHiLL")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_NEIGHBOUR = struct.Struct("=BxxxiHBB")
_RULE = struct.Struct("=BBBBBxxBI")
_VLAN = struct.Struct("=HH")

DROPS_PACKETS = -1
"""The interface index of routes that drop the packets."""


@dataclass(slots=True)
class Link:
    """A network interface.

    Attributes:
        name: its name.
        index: its index.
        master: the index of the bridge that it belongs to, or 0.
        mac: its hardware address, "" if it has none.
        kind: its driver, such as ``veth``, "" if the kernel does not report it.
        is_up: whether it is administratively up.
        addresses: its IP addresses with prefix length, such as ``10.1.0.2/24``.
        peer_namespace: this namespace's ID (nsid) of the other namespace with its peer or parent; None: its peer or
            parent is in no other namespace.
        peer: the index of its peer or parent, in the namespace of the peer or parent; 0 if it has none.
        mtu: its MTU in bytes.
        settings: its settings that can stop packets and that a new interface does not have, such as ``arp off``: see
            ``settings_of``.
        has_carrier: whether something is connected to it, if it is up.
        pvid: the VLAN of its packets without a tag, if it belongs to a bridge that filters VLANs; 0 for none.
    """

    name: str
    index: int
    master: int = 0
    mac: str = ""
    kind: str = ""
    is_up: bool = False
    addresses: list[str] = field(default_factory=list)
    peer_namespace: int | None = None
    peer: int = 0
    mtu: int = 0
    settings: tuple[str, ...] = ()
    pvid: int = 0
    has_carrier: bool = True

    def has_address(self, address: str) -> bool:
        """Return whether the interface has an IP address; ``address`` may have a prefix length, which is ignored."""
        return address.partition("/")[0] in (own.partition("/")[0] for own in self.addresses)


@dataclass(frozen=True, slots=True)
class IPRoute:
    """A route of the kernel to other nodes, not of the table ``local``.

    Attributes:
        destination: the network, such as ``0.0.0.0/0`` for the default route.
        gateway: the gateway's address, or "".
        ifindex: the index of the interface, 0 for several, or DROPS_PACKETS if the packets are dropped.
        table: the number of its table; 254 is the main table.
        metric: of several routes to a network, the route with the lowest metric is used.
    """

    destination: str
    gateway: str
    ifindex: int
    table: int = MAIN_TABLE
    metric: int = 0


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry in a table of neighbours (ARP, NDP).

    Attributes:
        address: the IP address.
        mac: the hardware address to which the packets for the IP address are sent; "" if none is there.
        ifindex: the index of the interface.
        is_learned: whether the kernel made it. It never changes an entry that somebody has made by hand.
    """

    address: str
    mac: str
    ifindex: int
    is_learned: bool = False


class RouteQuestion(NamedTuple):
    """Packets for which the kernel is asked for the route.

    Attributes:
        target: the IP address that they are sent to.
        source: the IP address that they are sent from, or "".
        arrives_on: the index of the interface on which they arrive; 0: they are sent in this namespace.
        mark: the mark that rules of iptables or nft give them (fwmark), or 0.
    """

    target: str
    source: str = ""
    arrives_on: int = 0
    mark: int = 0


class RouteAnswer(NamedTuple):
    """The kernel's choice for some packets: an error, or the route that they take.

    Attributes:
        error: the errno, or 0.
        kind: the type of the route, such as ``local``; "" for a route to other nodes.
        destination: the network of the route.
        table: the number of the table with the route.
        ifindex: the index of the interface; 0 for several.
        gateway: the gateway's address, or "".
        protocol: the number of the program that made the route: 2 for the kernel.
    """

    error: int = 0
    kind: str = ""
    destination: str = ""
    table: int = MAIN_TABLE
    ifindex: int = 0
    gateway: str = ""
    protocol: int = 0


class RoutingRule(NamedTuple):
    """A rule that chooses the routing table for packets, by their source, destination, interface and mark.

    Attributes:
        version: the version of IP.
        priority: the rule with the lowest priority comes first; the main table has 32766.
        source: the network of the packets' source, "" for all.
        interface: the interface on which they arrive, "" for all.
        table: the number of the table; 0 for none.
        drops: whether the rule drops the packets.
        destination: the network of the packets' destination, "" for all.
        is_whole: whether nothing else decides: no port, no user.
        mark: their mark and its mask, None for all.
        is_negated: whether it is for all packets but these.
    """

    version: int
    priority: int
    source: str
    interface: str
    table: int
    drops: bool
    destination: str = ""
    is_whole: bool = True
    mark: tuple[int, int] | None = None
    is_negated: bool = False


class BridgeEntry(NamedTuple):
    """An entry in a bridge's forwarding table (FDB).

    Attributes:
        mac: the hardware address.
        port: the index of the port over which the bridge sends the packets for it.
        is_learned: whether the bridge learned it. It never changes a static entry, which somebody made.
    """

    mac: str
    port: int
    is_learned: bool = False


@dataclass(frozen=True, slots=True)
class Network:
    """The interfaces of a network namespace by name, its routes, and its cookie.

    Attributes:
        links: the interfaces.
        routes: the routes.
        cookie: the kernel's number of the namespace, which is unique until a reboot; 0 before Linux 5.14.
        reader: this namespace's ID (nsid) of the reader's namespace, that of the program that read it; None if no
            link connects the two.
        neighbours: the permanent entries in its tables of neighbours.
        bridge_entries: the entries in the tables of its bridges; empty for other namespaces than the reader's own.
        routing_rules: its routing rules, in their order.
        learned: the entries in its tables of neighbours that the kernel has made.
    """

    links: dict[str, Link]
    routes: tuple[IPRoute, ...]
    cookie: int = 0
    reader: int | None = None
    neighbours: tuple[Neighbour, ...] = ()
    bridge_entries: tuple[BridgeEntry, ...] = ()
    routing_rules: tuple[RoutingRule, ...] = ()
    learned: tuple[Neighbour, ...] = ()


def read_network(netns: str | None = None) -> Network:
    """Read the links, addresses and routes of the network namespace at a path; None: of this thread's namespace.

    Raises OSError if the path is no network namespace, if this user may not enter it, if the answers are malformed or
    too large, or if they are not complete after ``SECONDS``.
    """
    with open_netlink(netns) as connection:
        return network_of(Conversation(connection, is_own=netns is None))


def network_of(kernel: Conversation) -> Network:
    """Return the links, addresses and routes of a conversation's namespace. Raises OSError."""
    links = _links_with_addresses(kernel)
    if any(FILTERS_VLANS in link.settings for link in links.values()):
        pvids = dict(kernel.vlans())
        for link in links.values():
            link.pvid = pvids.get(link.index, 0)
    routes = kernel.dump(_RTM_GETROUTE, _RTM_NEWROUTE, bytes(_ROUTE.size), _route)
    neighbours = kernel.neighbours()
    return Network(
        links, tuple(routes), cookie_of(kernel.socket), _number_of_own_namespace(kernel),
        tuple(one for one in neighbours if not one.is_learned),
        tuple(kernel.bridge_entries() if kernel.is_own else ()), tuple(kernel.routing_rules()),
        tuple(one for one in neighbours if one.is_learned),
    )  # fmt: skip


def change_link(netns: str | None, ifindex: int, *, master: int | None = None) -> None:
    """Set an interface up, or join it to a bridge. Raises OSError."""
    flags, attributes = (_IFF_UP, b"") if master is None else (0, attribute(_IFLA_MASTER, struct.pack("=I", master)))
    _change(netns, _RTM_NEWLINK, _NLM_F_CHANGE, _LINK.pack(socket.AF_UNSPEC, 0, ifindex, flags, flags) + attributes)


def set_hairpin(netns: str | None, ifindex: int) -> None:
    """Switch on hairpin mode for a bridge port, so that the bridge sends packets back to it. Raises OSError."""
    mode = attribute(_IFLA_PROTINFO, attribute(_BRPORT_MODE, b"\1"))
    _change(netns, _RTM_SETLINK, _NLM_F_CHANGE, _LINK.pack(socket.AF_BRIDGE, 0, ifindex, 0, 0) + mode)


def add_address(netns: str | None, ifindex: int, address: str, *, brings_route: bool = True) -> None:
    """Add an IP address with its prefix length to an interface. Raises OSError; FileExistsError if it exists.

    Args:
        netns: the path of the interface's namespace; None: this thread's.
        ifindex: the interface's index.
        address: the address.
        brings_route: whether the kernel makes the route to the address's network.
    """
    flags = b"" if brings_route else attribute(_IFA_FLAGS, struct.pack("=I", _NO_PREFIX_ROUTE))
    _change(netns, _RTM_NEWADDR, _NLM_F_ADD, _address_body(ifindex, address) + flags)


def remove_address(netns: str | None, ifindex: int, address: str) -> None:
    """Remove an IP address with its prefix length from an interface. Raises OSError."""
    _change(netns, _RTM_DELADDR, _NLM_F_CHANGE, _address_body(ifindex, address))


def _address_body(ifindex: int, address: str) -> bytes:
    added = ipaddress.ip_interface(address)
    family = socket.AF_INET6 if added.version == 6 else socket.AF_INET  # noqa: PLR2004 - the version of IP
    body = _ADDRESS.pack(family, added.network.prefixlen, 0, 0, ifindex)
    body += attribute(_IFA_LOCAL, added.packed) + attribute(_IFA_ADDRESS, added.packed)
    if family == socket.AF_INET:
        body += attribute(_IFA_BROADCAST, added.network.broadcast_address.packed)
    return body


def add_route(netns: str | None, ifindex: int, destination: str, gateway: str = "") -> None:
    """Add a route to a network over an interface. Raises OSError; FileExistsError if such a route exists."""
    network = ipaddress.ip_network(destination)
    family, scope = (socket.AF_INET6, 0) if network.version == 6 else (socket.AF_INET, 0 if gateway else _RT_SCOPE_LINK)  # noqa: PLR2004 - the version of IP
    body = _ROUTE.pack(family, network.prefixlen, 0, 0, MAIN_TABLE, _RTPROT_BOOT, scope, _RTN_UNICAST, 0)
    body += attribute(_RTA_DST, network.network_address.packed) + attribute(_RTA_OIF, struct.pack("=I", ifindex))
    if gateway:
        body += attribute(_RTA_GATEWAY, ipaddress.ip_address(gateway).packed)
    _change(netns, _RTM_NEWROUTE, _NLM_F_ADD, body)


def links(netns: str | None = None) -> dict[str, Link]:
    """Return the interfaces of a namespace by name; ``netns`` and the errors are as for ``read_network``."""
    with open_netlink(netns) as connection:
        return _links_with_addresses(Conversation(connection, is_own=netns is None))


def links_named(names: Collection[str]) -> dict[str, Link]:
    """Return the interfaces of this thread's namespace that have one of these names. Raises OSError."""
    with open_netlink() as connection:
        kernel = Conversation(connection, is_own=True)
        found = {link.index: link for link in map(kernel.link, sorted(names)) if link is not None}
        for index, address in kernel.addresses():
            if index in found:
                found[index].addresses.append(address)
    return {link.name: link for link in found.values()}


def open_netlink(netns: str | None = None) -> socket.socket:
    """Return a netlink socket in the network namespace at a path; None: in this thread's. Raises OSError."""
    if netns is None:
        return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    with system.Closing(open_namespace(netns)) as descriptor:
        socket_fd = netlink_socket(descriptor)
    if socket_fd < 0:
        raise OSError(errno.EINVAL, "it is no network namespace, or this user may not enter it", netns)
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0, socket_fd)


class Conversation(Exchange):
    """Requests to the kernel about one network namespace, over a netlink socket in it."""

    def links(self) -> list[Link]:
        """Return the interfaces, without their IP addresses. Raises OSError."""
        mask = attribute(_IFLA_EXT_MASK, struct.pack("=I", _WITHOUT_STATISTICS))
        return self.dump(_RTM_GETLINK, _RTM_NEWLINK, bytes(_LINK.size) + mask, _link)

    def vlans(self) -> list[tuple[int, int]]:
        """Return (interface index, VLAN of untagged packets) for each bridge and bridge port. Raises OSError."""
        body = _LINK.pack(socket.AF_BRIDGE, 0, 0, 0, 0) + attribute(_IFLA_EXT_MASK, struct.pack("=I", _WITH_VLANS))
        return self.dump(_RTM_GETLINK, _RTM_NEWLINK, body, _vlan)

    def bridge_entries(self) -> list[BridgeEntry]:
        """Return the entries in the tables of bridges, without the bridges' own addresses. Raises OSError."""
        body = _NEIGHBOUR.pack(socket.AF_BRIDGE, 0, 0, 0, 0)
        return self.dump(_RTM_GETNEIGH, _RTM_NEWNEIGH, body, _bridge_entry)

    def routing_rules(self) -> list[RoutingRule]:
        """Return the routing rules of both versions of IP, each in their order. Raises OSError."""
        return self.dump(_RTM_GETRULE, _RTM_NEWRULE, bytes(_RULE.size), _routing_rule)

    def ways(self, questions: Sequence[RouteQuestion]) -> list[RouteAnswer]:
        """Return the routes that the kernel chooses for packets, as ``ip route get`` does. Nothing is sent.

        Raises OSError.
        """
        return [
            RouteAnswer(error_in(message)) if kind == NLMSG_ERROR else parsed(_way, message)
            for kind, message in self.ask_all(_RTM_GETROUTE, [_way_body(question) for question in questions])
        ]

    def neighbours(self) -> list[Neighbour]:
        """Return the entries in the neighbour tables (ARP, NDP) that have a hardware address. Raises OSError."""
        return self.dump(_RTM_GETNEIGH, _RTM_NEWNEIGH, bytes(_NEIGHBOUR.size), _neighbour)

    def unresolved(self) -> set[str]:
        """Return the IP addresses of neighbours that do not answer ARP or neighbour discovery. Raises OSError."""
        return set(self.dump(_RTM_GETNEIGH, _RTM_NEWNEIGH, bytes(_NEIGHBOUR.size), _unresolved))

    def addresses(self) -> list[tuple[int, str]]:
        """Return the IP addresses, each with the index of its interface. Raises OSError."""
        return self.dump(_RTM_GETADDR, _RTM_NEWADDR, bytes(_ADDRESS.size), _address)

    def link(self, name: str) -> Link | None:
        """Return the interface with a name, or None if there is none. Raises OSError."""
        body = _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attribute(_IFLA_IFNAME, os.fsencode(name) + b"\0")
        try:
            kind, answer = self.ask(_RTM_GETLINK, NLM_F_REQUEST, body)
        except OSError as error:
            if error.errno in {errno.ENODEV, errno.ERANGE}:  # ERANGE: no interface can have so long a name
                return None
            raise
        return parsed(_link, answer) if kind == _RTM_NEWLINK else None

    def remove_link(self, index: int) -> None:
        """Remove the interface with an index. Raises OSError."""
        self.ask(_RTM_DELLINK, _NLM_F_CHANGE, _LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0))

    def number_of(self, descriptor: int) -> int | None:
        """Return the ID (nsid) that this namespace has for another, open one; None if it has none. Raises OSError."""
        body = bytes(4) + attribute(_NETNSA_FD, struct.pack("=I", descriptor))
        kind, answer = self.ask(_RTM_GETNSID, NLM_F_REQUEST, body)
        return parsed(_namespace_number, answer) if kind == _RTM_NEWNSID else None


def _links_with_addresses(kernel: Conversation) -> dict[str, Link]:
    by_index = {link.index: link for link in kernel.links()}
    for index, address in kernel.addresses():
        # An interface can be created between the two lists, so an address may have no interface here.
        if index in by_index:
            by_index[index].addresses.append(address)
    return {link.name: link for link in by_index.values()}


def _link(body: bytes) -> Link:
    _, _, index, flags, _ = _LINK.unpack_from(body)
    attributes = attributes_in(body[_LINK.size :])
    info = attributes_in(attributes.get(_IFLA_LINKINFO, b""))
    kind = text_in(info.get(_IFLA_INFO_KIND, b""))
    bridge = info.get(_IFLA_INFO_DATA, b"") if kind == "bridge" else b""
    port = info.get(_IFLA_INFO_SLAVE_DATA, b"") if info.get(_IFLA_INFO_SLAVE_KIND) == b"bridge\0" else b""
    return Link(
        name=text_in(attributes.get(_IFLA_IFNAME, b"")),
        index=index,
        master=_number(attributes.get(_IFLA_MASTER)),
        mac=attributes.get(_IFLA_ADDRESS, b"").hex(":"),
        kind=kind,
        is_up=bool(flags & _IFF_UP),
        has_carrier=bool(flags & _IFF_LOWER_UP),
        peer_namespace=_signed(attributes.get(_IFLA_LINK_NETNSID)),
        peer=_number(attributes.get(_IFLA_LINK)),
        mtu=_number(attributes.get(_IFLA_MTU)),
        settings=settings_of(flags, attributes, attributes_in(bridge), attributes_in(port), attributes_in),
    )


def _vlan(body: bytes) -> tuple[int, int]:
    _, _, index, _, _ = _LINK.unpack_from(body)
    inside = attributes_in(body[_LINK.size :]).get(_IFLA_AF_SPEC, b"")
    own = 0
    for kind, value in each_attribute(inside):  # the port has one attribute for each of its VLANs
        if kind == _BRIDGE_VLAN_INFO:
            flags, vlan = _VLAN.unpack(value)
            own = vlan if flags & _PVID else own
    return index, own


def _neighbour(body: bytes) -> Neighbour | None:
    family, index, state, _, _ = _NEIGHBOUR.unpack_from(body)
    if family not in _IP_FAMILIES or not state & (_NUD_PERMANENT | _NUD_LEARNED):
        return None
    attributes = attributes_in(body[_NEIGHBOUR.size :])
    address = socket.inet_ntop(family, attributes.get(_NDA_DST, b""))
    return Neighbour(address, attributes.get(_NDA_LLADDR, b"").hex(":"), index, not state & _NUD_PERMANENT)


def _unresolved(body: bytes) -> str | None:
    family, _, state, _, _ = _NEIGHBOUR.unpack_from(body)
    if family not in _IP_FAMILIES or not state & _NUD_UNRESOLVED:
        return None
    return socket.inet_ntop(family, attributes_in(body[_NEIGHBOUR.size :]).get(_NDA_DST, b""))


def _routing_rule(body: bytes) -> RoutingRule | None:
    family, length, source_length, _, table, action, flags = _RULE.unpack_from(body)
    attributes = attributes_in(body[_RULE.size :])
    if family not in _IP_FAMILIES:
        return None
    source, destination = attributes.get(_FRA_SRC), attributes.get(_FRA_DST)
    return RoutingRule(
        version=6 if family == socket.AF_INET6 else 4,
        priority=_number(attributes.get(_FRA_PRIORITY)),
        source=_network(family, source, source_length) if source else "",
        interface=text_in(attributes.get(_FRA_IIFNAME, b"")),
        table=_number(attributes.get(_FRA_TABLE)) or table,
        drops=action in _DROPPING_TYPES,
        destination=_network(family, destination, length) if destination else "",
        is_whole=not attributes.keys() - _FRA_KNOWN,
        mark=(_number(attributes.get(_FRA_FWMARK)), _number(attributes[_FRA_FWMASK]))
        if _FRA_FWMASK in attributes
        else None,
        is_negated=bool(flags & _FIB_RULE_INVERT),
    )


def _bridge_entry(body: bytes) -> BridgeEntry | None:
    _, port, state, flags, _ = _NEIGHBOUR.unpack_from(body)
    # A permanent entry is the bridge's own, or that of its port; those with this flag are of other devices.
    if flags & _NTF_SELF or state & (_NUD_NOARP | _NUD_PERMANENT) == _NUD_PERMANENT:
        return None
    mac = attributes_in(body[_NEIGHBOUR.size :]).get(_NDA_LLADDR, b"").hex(":")
    return BridgeEntry(mac, port, not state & _NUD_NOARP)


def _address(body: bytes) -> tuple[int, str] | None:
    family, prefix_length, _, _, index = _ADDRESS.unpack_from(body)
    attributes = attributes_in(body[_ADDRESS.size :])
    # On a point-to-point link IFA_ADDRESS is the peer, so IFA_LOCAL comes first.
    packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
    if packed is None or family not in _IP_FAMILIES:
        return None
    return index, _network(family, packed, prefix_length)


def _network(family: int, packed: bytes, prefix_length: int) -> str:
    if prefix_length > _IP_FAMILIES[family]:
        raise ValueError("the prefix is longer than the address")
    return f"{socket.inet_ntop(family, packed)}/{prefix_length}"


def _namespace_number(body: bytes) -> int | None:
    return _signed(attributes_in(body[4:]).get(_NETNSA_NSID))


def _number_of_own_namespace(kernel: Conversation) -> int | None:
    """Return the number of this thread's namespace in the namespace of a conversation, or None if it has none."""
    own = system.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    with system.Closing(own), suppress(PermissionError, FileNotFoundError):
        return kernel.number_of(own)
    return None


def _route(body: bytes) -> IPRoute | None:
    family, prefix_length, _, _, table, _, _, kind, _ = _ROUTE.unpack_from(body)
    attributes = attributes_in(body[_ROUTE.size :])
    table = _number(attributes.get(_RTA_TABLE)) or table
    if family not in _IP_FAMILIES or table == _RT_TABLE_LOCAL or kind not in {_RTN_UNICAST, *_DROPPING_TYPES}:
        return None
    destination = attributes.get(_RTA_DST) or bytes(_IP_FAMILIES[family] // 8)
    gateway = attributes.get(_RTA_GATEWAY)
    return IPRoute(
        destination=_network(family, destination, prefix_length),
        gateway=socket.inet_ntop(family, gateway) if gateway else "",
        ifindex=DROPS_PACKETS if kind in _DROPPING_TYPES else _number(attributes.get(_RTA_OIF)),
        table=table,
        metric=_number(attributes.get(_RTA_PRIORITY)),
    )


def _way_body(question: RouteQuestion) -> bytes:
    family = socket.AF_INET6 if ":" in question.target else socket.AF_INET
    length = _IP_FAMILIES[family]
    ends = [(_RTA_DST, question.target), (_RTA_SRC, question.source)]
    source_length = length if question.source else 0
    body = _ROUTE.pack(family, length, source_length, 0, 0, 0, 0, 0, _WITH_TABLE_AND_MATCH)
    body += b"".join(attribute(kind, socket.inet_pton(family, address)) for kind, address in ends if address)
    numbers = [(_RTA_IIF, question.arrives_on), (_RTA_MARK, question.mark)]
    return body + b"".join(attribute(kind, struct.pack("=I", number)) for kind, number in numbers if number)


def _way(body: bytes) -> RouteAnswer:
    family, prefix_length, _, _, table, protocol, _, kind, _ = _ROUTE.unpack_from(body)
    attributes = attributes_in(body[_ROUTE.size :])
    if family not in _IP_FAMILIES:
        raise ValueError("it is no route of IP packets")
    destination = attributes.get(_RTA_DST) or bytes(_IP_FAMILIES[family] // 8)
    gateway = attributes.get(_RTA_GATEWAY)
    return RouteAnswer(
        0, _ROUTE_TYPES.get(kind, str(kind)), _network(family, destination, prefix_length),
        _number(attributes.get(_RTA_TABLE)) or table, _number(attributes.get(_RTA_OIF)),
        socket.inet_ntop(family, gateway) if gateway else "", protocol,
    )  # fmt: skip


def _change(netns: str | None, request: int, flags: int, body: bytes) -> None:
    with open_netlink(netns) as connection:
        # The answer is an error in any case: 0 for success.
        Conversation(connection, is_own=netns is None).ask(request, flags, body)


def _signed(value: bytes | None) -> int | None:
    """Return the number of a namespace; the kernel writes -1 for no number."""
    number = INT.unpack_from(value)[0] if value else -1
    return number if number >= 0 else None


def _number(value: bytes | None) -> int:
    return struct.unpack_from("=I", value)[0] if value else 0
