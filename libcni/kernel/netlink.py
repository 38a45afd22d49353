"""A small rtnetlink client: the links, addresses and routes of a network namespace.

``read_network`` reads all of them. ``change_link``, ``add_address`` and ``add_route`` change one. ``open_netlink``
opens a socket in a namespace, for other requests.
"""

from __future__ import annotations

import _socket
import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from libcni.kernel.namespace import netlink_socket, open_namespace

_NLM_F_REQUEST, _NLM_F_REQUEST_DUMP = 0x1, 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_RTM_NEWADDR, _RTM_GETADDR = 20, 22
_RTM_NEWROUTE, _RTM_GETROUTE = 24, 26
_RTM_GETNSID, _NETNSA_NSID, _NETNSA_FD = 90, 1, 3
_NLM_F_CHANGE, _NLM_F_ADD = 0x5, 0x605  # with an answer; _NLM_F_ADD fails if the object exists
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_LINKINFO, _IFLA_INFO_KIND = 1, 3, 10, 18, 1
_IFLA_LINK_NETNSID = 37
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_TABLE = 1, 4, 5, 6, 15
_IFF_UP = 1
_SO_NETNS_COOKIE = 71
_RT_TABLE_LOCAL = 255
MAIN_TABLE, _RTPROT_BOOT, _RT_SCOPE_LINK, _RTN_UNICAST = 254, 3, 253, 1
_DROPPING_TYPES = {6, 7, 8}  # the types blackhole, unreachable and prohibit
_IP_FAMILIES = {socket.AF_INET: 32, socket.AF_INET6: 128}
_HEADER = struct.Struct("=LHHLL")
_LINK = struct.Struct("=BxHiLL")
_ADDRESS = struct.Struct("=BBBBI")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_SECONDS = 5.0

DROPS_PACKETS = -1
"""The number of the interface of a route that drops the packets."""


@dataclass(slots=True)
class Link:
    """A network interface.

    Attributes:
        name: its name.
        index: its number.
        master: the number of the bridge that it belongs to, or 0.
        mac: its hardware address, "" if it has none.
        kind: its driver, such as ``veth``, "" if the kernel does not report it.
        is_up: whether it is administratively up.
        addresses: its IP addresses with prefix length, such as ``10.1.0.2/24``.
        peer_namespace: the number, in this namespace, of the other namespace that its peer or master is in; None: its
            peer or master is in no other namespace.
    """

    name: str
    index: int
    master: int = 0
    mac: str = ""
    kind: str = ""
    is_up: bool = False
    addresses: list[str] = field(default_factory=list)
    peer_namespace: int | None = None

    def has_address(self, address: str) -> bool:
        """Return whether the interface has an IP address; ``address`` may have a prefix length, which is ignored."""
        return address.partition("/")[0] in (own.partition("/")[0] for own in self.addresses)


@dataclass(frozen=True, slots=True)
class IPRoute:
    """A route of the kernel to other nodes, not of the table ``local``.

    Attributes:
        destination: the network, such as ``0.0.0.0/0`` for the default route.
        gateway: the gateway's address, or "".
        ifindex: the number of the interface, 0 for several, or DROPS_PACKETS if the packets are dropped.
        table: the number of its table; 254 is the main table.
        metric: of several routes to a network, the route with the lowest metric is used.
    """

    destination: str
    gateway: str
    ifindex: int
    table: int = MAIN_TABLE
    metric: int = 0


@dataclass(frozen=True, slots=True)
class Network:
    """The interfaces of a network namespace by name, its routes, and its cookie.

    Attributes:
        links: the interfaces.
        routes: the routes.
        cookie: the kernel's number of the namespace, which is unique until a reboot; 0 before Linux 5.14.
        reader: the number that this namespace uses for the namespace of the program that read it; None if no link
            connects the two.
    """

    links: dict[str, Link]
    routes: tuple[IPRoute, ...]
    cookie: int = 0
    reader: int | None = None


def read_network(netns: str | None = None) -> Network:
    """Read the links, addresses and routes of the network namespace at a path; None: of this thread's namespace.

    Raises OSError if the path is no network namespace, or if this user may not enter it.
    """
    with open_netlink(netns) as connection:
        links = _links_with_addresses(connection)
        routes = tuple(_read_routes(connection))
        return Network(links, routes, _cookie(connection), _number_of_own_namespace(connection))


def change_link(netns: str | None, ifindex: int, *, master: int | None = None) -> None:
    """Set an interface up, or join it to a bridge. Raises OSError."""
    flags, attributes = (_IFF_UP, b"") if master is None else (0, _attribute(_IFLA_MASTER, struct.pack("=I", master)))
    _change(netns, _RTM_NEWLINK, _NLM_F_CHANGE, _LINK.pack(socket.AF_UNSPEC, 0, ifindex, flags, flags) + attributes)


def add_address(netns: str | None, ifindex: int, address: str) -> None:
    """Add an IP address with its prefix length to an interface. Raises OSError; FileExistsError if it exists."""
    added = ipaddress.ip_interface(address)
    family = socket.AF_INET6 if added.version == 6 else socket.AF_INET  # noqa: PLR2004 - the version of IP
    body = _ADDRESS.pack(family, added.network.prefixlen, 0, 0, ifindex)
    body += _attribute(_IFA_LOCAL, added.packed) + _attribute(_IFA_ADDRESS, added.packed)
    if family == socket.AF_INET:
        body += _attribute(_IFA_BROADCAST, added.network.broadcast_address.packed)
    _change(netns, _RTM_NEWADDR, _NLM_F_ADD, body)


def add_route(netns: str | None, ifindex: int, destination: str, gateway: str = "") -> None:
    """Add a route to a network over an interface. Raises OSError; FileExistsError if such a route exists."""
    network = ipaddress.ip_network(destination)
    family, scope = (socket.AF_INET6, 0) if network.version == 6 else (socket.AF_INET, 0 if gateway else _RT_SCOPE_LINK)  # noqa: PLR2004 - the version of IP
    body = _ROUTE.pack(family, network.prefixlen, 0, 0, MAIN_TABLE, _RTPROT_BOOT, scope, _RTN_UNICAST, 0)
    body += _attribute(_RTA_DST, network.network_address.packed) + _attribute(_RTA_OIF, struct.pack("=I", ifindex))
    if gateway:
        body += _attribute(_RTA_GATEWAY, ipaddress.ip_address(gateway).packed)
    _change(netns, _RTM_NEWROUTE, _NLM_F_ADD, body)


def links(netns: str | None = None) -> dict[str, Link]:
    """Return the interfaces of a namespace by name; ``netns`` and the errors: see ``read_network``."""
    with open_netlink(netns) as connection:
        return _links_with_addresses(connection)


def open_netlink(netns: str | None = None) -> socket.socket:
    """Return a netlink socket in the network namespace at a path; None: in this thread's. Raises OSError."""
    if netns is None:
        connection = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    else:
        descriptor = open_namespace(netns)
        try:
            socket_fd = netlink_socket(descriptor)
        finally:
            os.close(descriptor)
        if socket_fd < 0:
            raise OSError(errno.EINVAL, "it is no network namespace, or this user may not enter it", netns)
        connection = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0, socket_fd)
    # The kernel answers at once. The limit is for a kernel that never ends a list.
    connection.settimeout(_SECONDS)
    return connection


def _cookie(connection: socket.socket) -> int:
    with suppress(OSError):
        return int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)
    return 0


def _links_with_addresses(connection: socket.socket) -> dict[str, Link]:
    by_index = {link.index: link for link in read_links(connection)}
    for index, address in _read_addresses(connection):
        # An interface can be created between the two lists, so an address may have no interface here.
        if index in by_index:
            by_index[index].addresses.append(address)
    return {link.name: link for link in by_index.values()}


def read_links(connection: _socket.socket) -> Iterator[Link]:
    """Read the interfaces of a netlink socket's namespace, without their IP addresses; raises OSError."""
    for body in _dump(connection, _RTM_GETLINK, _RTM_NEWLINK, bytes(_LINK.size)):
        _, _, index, flags, _ = _LINK.unpack_from(body)
        attributes = _attributes(body[_LINK.size :])
        yield Link(
            name=attributes.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode(errors="replace"),
            index=index,
            master=_number(attributes.get(_IFLA_MASTER)),
            mac=attributes.get(_IFLA_ADDRESS, b"").hex(":"),
            kind=_attributes(attributes.get(_IFLA_LINKINFO, b"")).get(_IFLA_INFO_KIND, b"").rstrip(b"\0").decode(),
            is_up=bool(flags & _IFF_UP),
            peer_namespace=_signed(attributes.get(_IFLA_LINK_NETNSID)),
        )


def _read_addresses(connection: socket.socket) -> Iterator[tuple[int, str]]:
    for body in _dump(connection, _RTM_GETADDR, _RTM_NEWADDR, bytes(_ADDRESS.size)):
        family, prefix_length, _, _, index = _ADDRESS.unpack_from(body)
        attributes = _attributes(body[_ADDRESS.size :])
        # On a point-to-point link IFA_ADDRESS is the peer, so IFA_LOCAL comes first.
        packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if packed is not None and family in _IP_FAMILIES:
            yield index, f"{socket.inet_ntop(family, packed)}/{prefix_length}"


def _number_of_own_namespace(connection: _socket.socket) -> int | None:
    """Return the number of this thread's namespace in the namespace of a netlink socket, or None if it has none."""
    descriptor = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        body = bytes(4) + _attribute(_NETNSA_FD, struct.pack("=I", descriptor))
        _send(connection, _RTM_GETNSID, _NLM_F_REQUEST, body)
        answer = connection.recv(1 << 16)
    finally:
        os.close(descriptor)
    if _HEADER.unpack_from(answer)[1] == _NLMSG_ERROR:
        return None
    return _signed(_attributes(answer[_HEADER.size + 4 :]).get(_NETNSA_NSID))


def _read_routes(connection: socket.socket) -> Iterator[IPRoute]:
    for body in _dump(connection, _RTM_GETROUTE, _RTM_NEWROUTE, bytes(_ROUTE.size)):
        family, prefix_length, _, _, table, _, _, kind, _ = _ROUTE.unpack_from(body)
        attributes = _attributes(body[_ROUTE.size :])
        table = _number(attributes.get(_RTA_TABLE)) or table
        if family not in _IP_FAMILIES or table == _RT_TABLE_LOCAL or kind not in {_RTN_UNICAST, *_DROPPING_TYPES}:
            continue
        destination = attributes.get(_RTA_DST) or bytes(_IP_FAMILIES[family] // 8)
        gateway = attributes.get(_RTA_GATEWAY)
        yield IPRoute(
            destination=f"{socket.inet_ntop(family, destination)}/{prefix_length}",
            gateway=socket.inet_ntop(family, gateway) if gateway else "",
            ifindex=DROPS_PACKETS if kind in _DROPPING_TYPES else _number(attributes.get(_RTA_OIF)),
            table=table,
            metric=_number(attributes.get(_RTA_PRIORITY)),
        )


def _change(netns: str | None, request: int, flags: int, body: bytes) -> None:
    with open_netlink(netns) as connection:
        _send(connection, request, flags, body)
        _raise_error(connection.recv(1 << 16))  # the answer is an error in any case: 0 for success


def _send(connection: _socket.socket, request: int, flags: int, body: bytes) -> None:
    connection.send(_HEADER.pack(_HEADER.size + len(body), request, flags, 1, 0) + body)


def _raise_error(answer: bytes) -> None:
    number = -struct.unpack_from("=i", answer, _HEADER.size)[0]
    if number:
        raise OSError(number, os.strerror(number))


def _attribute(kind: int, value: bytes) -> bytes:
    return (_ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value).ljust(
        (_ATTRIBUTE.size + len(value) + 3) & ~3, b"\0"
    )


def _signed(value: bytes | None) -> int | None:
    """Return the number of a namespace; the kernel writes -1 for no number."""
    number = struct.unpack_from("=i", value)[0] if value else -1
    return number if number >= 0 else None


def _number(value: bytes | None) -> int:
    return struct.unpack_from("=I", value)[0] if value else 0


def _dump(connection: _socket.socket, request: int, wanted_kind: int, body: bytes) -> Iterator[bytes]:
    """Send a dump request and yield the bodies of the answers."""
    _send(connection, request, _NLM_F_REQUEST_DUMP, body)
    while True:
        data = connection.recv(1 << 20)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:  # after an error comes no DONE, so the loop would wait
                _raise_error(data)
            if kind == wanted_kind:
                yield data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]  # messages are aligned to four bytes


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        # A length of 0 would loop for ever.
        if length < _ATTRIBUTE.size:
            break
        attributes[kind] = data[_ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]
    return attributes
