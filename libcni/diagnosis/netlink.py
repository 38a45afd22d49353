"""Interfaces and addresses of a network namespace, read from the kernel through rtnetlink."""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from libcni._namespace import enter_namespace, open_namespace

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

_T = TypeVar("_T")


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
    # A socket stays in the namespace in which it was made, so no other call has to enter it.
    with _open_socket() if netns is None else call_in_namespace(netns, _open_socket) as connection:
        # The kernel answers at once. The limit is for a kernel that never ends the list.
        connection.settimeout(_SECONDS)
        found = {link.index: link for link in _read_links(connection)}
        for index, address in _read_addresses(connection):
            # An interface can be made between the two lists, so an address may have no interface here.
            if index in found:
                found[index].addresses.append(address)
    return {link.name: link for link in found.values()}


def call_in_namespace(netns: str, function: Callable[[], _T]) -> _T:
    """Call a function in a thread that is in the network namespace at a path, and ends there.

    Raises OSError if the path is no network namespace, or if this user may not enter it; and any error of the function.
    """
    answers: list[_T] = []
    problems: list[Exception] = []

    def enter_and_call() -> None:
        try:
            descriptor = open_namespace(netns)
            try:
                enter_namespace(descriptor)
            except OSError as error:
                raise OSError(error.errno, os.strerror(error.errno or 0), netns) from error
            finally:
                os.close(descriptor)
            answers.append(function())
        except Exception as error:  # noqa: BLE001 - raised below, in the thread that asked
            problems.append(error)

    # Not in the caller's thread: it may run a plugin next, and nothing else may run in the wrong namespace.
    thread = threading.Thread(target=enter_and_call, name="libcni-namespace", daemon=True)
    thread.start()
    thread.join()
    for problem in problems:
        raise problem
    return answers[0]


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
