"""Netlink answers for tests: those of a kernel, and what a container sends to make a reader fail."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator, Sequence

from libcni.kernel import netlink
from libcni.kernel.netlink_messages import HEADER, NLMSG_DONE, NLMSG_ERROR, attribute

Reads = dict[str, Callable[[netlink.Conversation], object]]

READS: Reads = {
    "links": netlink.Conversation.links,
    "addresses": netlink.Conversation.addresses,
    "routes": lambda kernel: kernel.dump(
        netlink._RTM_GETROUTE, netlink._RTM_NEWROUTE, bytes(netlink._ROUTE.size), netlink._route
    ),
    "vlans": netlink.Conversation.vlans,
    "neighbours": netlink.Conversation.neighbours,
    "routing rules": netlink.Conversation.routing_rules,
    "ways": lambda kernel: kernel.ways([netlink.RouteQuestion("10.1.0.1")]),
    "link": lambda kernel: kernel.link("one0"),
    "number": lambda kernel: kernel.number_of(0),
    "change": lambda kernel: kernel.ask(netlink._RTM_NEWLINK, netlink._NLM_F_CHANGE, b""),
}
"""All reads of a conversation."""


class Kernel:
    """A netlink socket that answers each request with the next datagrams, each from a sender.

    The answers carry the request's number if ``numbered``. When none is left, it times out.
    """

    def __init__(self, *datagrams: bytes, senders: Sequence[int] = (), numbered: bool = True) -> None:
        self.datagrams, self.senders, self._numbered = list(datagrams), list(senders), numbered
        self.serials: list[int] = []

    def connect(self, address: object) -> None:
        assert address == (0, 0)

    def settimeout(self, seconds: float) -> None:
        assert seconds >= 0

    def send(self, request: bytes) -> None:
        self.serials.append(HEADER.unpack_from(request)[3])

    def recvfrom_into(self, buffer: bytearray) -> tuple[int, tuple[int, int]]:
        if not self.datagrams:
            raise TimeoutError
        data = self.datagrams.pop(0)[: len(buffer)]
        if self._numbered:
            data = _numbered(data, self.serials[-1])
        buffer[: len(data)] = data
        return len(data), (self.senders.pop(0) if self.senders else 0, 0)


def _numbered(data: bytes, serial: int) -> bytes:
    """Give the request's number to all messages that have the number 1, as far as their lengths lead."""
    at, numbered = 0, bytearray(data)
    while at + 16 <= len(data):
        if struct.unpack_from("=L", data, at + 8)[0] == 1:
            struct.pack_into("=L", numbered, at + 8, serial)
        at += max(16, (struct.unpack_from("=L", data, at)[0] + 3) & ~3)
    return bytes(numbered)


def message(kind: int, body: bytes = b"", *, flags: int = 2, serial: int = 1) -> bytes:
    """Return a message, aligned."""
    whole = HEADER.pack(16 + len(body), kind, flags, serial, 0) + body
    return whole.ljust((len(whole) + 3) & ~3, b"\0")


DONE = message(NLMSG_DONE, bytes(4))


def error(number: int) -> bytes:
    """Return the kernel's answer that a request failed; 0: that it succeeded."""
    return message(NLMSG_ERROR, struct.pack("=i", -number) + bytes(16))


def link(index: int = 2, name: str = "eth0") -> bytes:
    """Return the message of an interface."""
    body = netlink._LINK.pack(0, 1, index, 1, 0)
    body += attribute(netlink._IFLA_IFNAME, name.encode() + b"\0") + attribute(netlink._IFLA_ADDRESS, b"\x02" * 6)
    body += attribute(netlink._IFLA_LINKINFO, attribute(netlink._IFLA_INFO_KIND, b"veth\0"))
    body += attribute(netlink._IFLA_LINK, struct.pack("=I", 7)) + attribute(netlink._IFLA_LINK_NETNSID, bytes(4))
    return message(netlink._RTM_NEWLINK, body + attribute(netlink._IFLA_MASTER, struct.pack("=I", 3)))


def address(text: str = "10.1.0.2") -> bytes:
    """Return the message of an IPv4 address."""
    packed = socket.inet_aton(text)
    body = netlink._ADDRESS.pack(socket.AF_INET, 24, 0, 0, 2)
    return message(netlink._RTM_NEWADDR, body + attribute(netlink._IFA_LOCAL, packed) + attribute(1, packed))


def neighbour(text: str = "10.1.0.1") -> bytes:
    head = netlink._NEIGHBOUR.pack(socket.AF_INET, 2, netlink._NUD_PERMANENT, 0, 0)
    return message(netlink._RTM_NEWNEIGH, head + attribute(netlink._NDA_DST, socket.inet_aton(text)))


def route() -> bytes:
    """Return the message of a route."""
    body = netlink._ROUTE.pack(socket.AF_INET, 24, 0, 0, netlink.MAIN_TABLE, 3, 0, netlink._RTN_UNICAST, 0)
    for kind, value in (
        (netlink._RTA_DST, bytes(4)),
        (netlink._RTA_GATEWAY, bytes(4)),
        (netlink._RTA_OIF, struct.pack("=I", 2)),
        (netlink._RTA_PRIORITY, struct.pack("=I", 100)),
    ):
        body += attribute(kind, value)
    return message(netlink._RTM_NEWROUTE, body)


def number() -> bytes:
    """Return the message of a namespace's number."""
    return message(netlink._RTM_NEWNSID, bytes(4) + attribute(netlink._NETNSA_NSID, struct.pack("=i", 5)))


GOOD: dict[str, list[bytes]] = {
    "links": [link() + link(3, "net1"), DONE],
    "addresses": [address() + address("10.1.0.3"), DONE],
    "routes": [route() + route(), DONE],
    "vlans": [link() + link(3), DONE],
    "neighbours": [neighbour() + neighbour("10.1.0.9"), DONE],
    "routing rules": [message(netlink._RTM_NEWRULE, netlink._RULE.pack(2, 0, 0, 0, 100, 1, 0)), DONE],
    "ways": [route()],
    "link": [link()],
    "number": [number()],
    "change": [error(0)],
}
"""The datagrams that answer each read well."""


def near(chance: random.Random, datagrams: list[bytes]) -> Iterator[bytes]:
    """Yield datagrams near to good ones: bytes and lengths changed, parts dropped, doubled or exchanged."""
    every = [one for answers in GOOD.values() for one in answers]
    for data in datagrams:
        changed = bytearray(data)
        for _ in range(chance.randrange(3)):
            at = chance.randrange(len(changed)) if changed else 0
            kind = chance.randrange(7)
            if kind == 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            elif kind == 1:  # a length, or another word
                at -= at % 2
                changed[at : at + 2] = struct.pack("=H", chance.choice([0, 1, 3, 4, 15, 16, 17, 255, 65535]))
            elif kind == 2:
                del changed[at:]
            elif kind == 3:
                del changed[at : at + chance.randrange(1, 9)]
            elif kind == 4:
                changed[at:at] = changed[: chance.randrange(len(changed) + 1)]
            elif kind == 5:
                changed += bytes(chance.randrange(70))
            else:
                changed[at:at] = chance.choice(every)
        yield bytes(changed)
        if not chance.randrange(8):
            yield chance.choice(every)
