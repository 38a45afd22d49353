"""Interfaces and addresses of a network namespace, read from the kernel through rtnetlink."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from libcni.store.namespace import enter_namespace

__all__ = ["Link", "links"]

_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_NEWLINK, _RTM_GETLINK, _RTM_NEWADDR, _RTM_GETADDR = 16, 18, 20, 22
_IFLA_IFNAME, _IFLA_MASTER = 3, 10
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=LHHLL")
_LINK = struct.Struct("=BxHiLL")
_ADDRESS = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_SECONDS = 5.0


@dataclass(slots=True)
class Link:
    """A network interface.

    Attributes:
        name: its name.
        index: its number.
        master: the number of the bridge that it belongs to, or 0.
        addresses: its IP addresses, without prefix length.
    """

    name: str
    index: int
    master: int = 0
    addresses: list[str] = field(default_factory=list)


def links(netns: str | None = None) -> dict[str, Link]:
    """Return the interfaces of the network namespace at a path by name; None: the namespace of this thread.

    Raises OSError if the path is no network namespace, or if this user may not enter it.
    """
    with _socket_in(netns) as connection:
        # The kernel answers at once. The limit is for a kernel that never ends the list.
        connection.settimeout(_SECONDS)
        found = {link.index: link for link in _read_links(connection)}
        for index, address in _read_addresses(connection):
            # An interface can be made between the two lists, so an address may have no interface here.
            if index in found:
                found[index].addresses.append(address)
    return {link.name: link for link in found.values()}


def _socket_in(netns: str | None) -> socket.socket:
    """Open a socket in a namespace. The socket stays in that namespace, so no other call has to enter it."""
    if netns is None:
        return _open_socket()
    opened: list[socket.socket | OSError] = []
    # setns() changes the thread that calls it. This thread must never change: it may run a plugin next.
    thread = threading.Thread(target=_enter_and_open, args=(netns, opened))
    thread.start()
    thread.join()
    if isinstance(opened[0], OSError):
        raise opened[0]
    return opened[0]


def _enter_and_open(netns: str, opened: list[socket.socket | OSError]) -> None:
    # A namespace belongs to a thread. This thread ends at once, so that no other code runs in the wrong namespace.
    try:
        descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            enter_namespace(descriptor)
            opened.append(_open_socket())
        finally:
            os.close(descriptor)
    except OSError as error:
        opened.append(OSError(error.errno, os.strerror(error.errno or 0), netns))


def _open_socket() -> socket.socket:
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)


def _read_links(connection: socket.socket) -> Iterator[Link]:
    for body in _dump(connection, _RTM_GETLINK, _RTM_NEWLINK, bytes(_LINK.size)):
        index = _LINK.unpack_from(body)[2]
        attributes = _attributes(body[_LINK.size :])
        name = attributes.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode(errors="replace")
        yield Link(name, index, int.from_bytes(attributes.get(_IFLA_MASTER, b"\0"), "little"))


def _read_addresses(connection: socket.socket) -> Iterator[tuple[int, str]]:
    for body in _dump(connection, _RTM_GETADDR, _RTM_NEWADDR, bytes(_ADDRESS.size)):
        family, _, _, _, index = _ADDRESS.unpack_from(body)
        attributes = _attributes(body[_ADDRESS.size :])
        # On a point-to-point link IFA_ADDRESS is the peer, so IFA_LOCAL comes first.
        packed = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if packed is not None and family in {socket.AF_INET, socket.AF_INET6}:
            yield index, socket.inet_ntop(family, packed)


def _dump(connection: socket.socket, request: int, wanted: int, body: bytes) -> Iterator[bytes]:
    """Send a dump request and yield the bodies of the answers."""
    connection.send(_HEADER.pack(_HEADER.size + len(body), request, _NLM_F_REQUEST_DUMP, 1, 0) + body)
    while True:
        data = connection.recv(1 << 20)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _NLMSG_DONE:
                return
            # An error is a negative errno. Without this the loop would wait for a DONE that never comes.
            if kind == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", data, _HEADER.size)[0]
                raise OSError(number, os.strerror(number))
            if kind == wanted:
                yield data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]  # messages are aligned to four bytes


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        # A length of 0 would loop for ever.
        if length < _ATTRIBUTE.size:
            break
        found[kind] = data[_ATTRIBUTE.size : length]
        data = data[(length + 3) & ~3 :]
    return found
