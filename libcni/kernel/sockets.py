"""The sockets of this network namespace that wait for clients, and the processes that have them."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import ipaddress
import os
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

_SECONDS = 0.25
"""The time to search for the process of a socket among all processes."""
_KERNEL_SECONDS = 1.0
_MOST_BYTES = 65536
_MOST_MESSAGES = 1024
_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE, _ERROR = 4, 20, 0x301, 3, 2
_HEADER, _REQUEST = struct.Struct("=IHHII"), struct.Struct("=BBBxI48x")
_ANSWER = struct.Struct("=B3x2s2x16s16x12x16xI")
"""inet_diag_msg (linux/inet_diag.h): the family, the port in network byte order, the address and the inode."""
_PROTOCOLS = {"tcp": (6, 10), "udp": (17, 7)}
"""The number of the protocol, and the state of a socket that waits: TCP_LISTEN; for UDP TCP_CLOSE, without a peer."""


class Socket(NamedTuple):
    """A socket that waits for clients: its port, its address ("" for all addresses) and its inode."""

    number: int
    address: str
    inode: str


def waiting_sockets(protocol: str, numbers: Collection[int]) -> Iterator[Socket]:
    """Yield the sockets of a protocol, IPv4 and IPv6, that wait for clients at these ports; none if that is unknown.

    The kernel is asked for these alone: /proc/net/tcp takes 10 ms, because it looks at each place for a connection.
    """
    for family in (_socket.AF_INET, _socket.AF_INET6) if protocol in _PROTOCOLS else ():
        with suppress(OSError, struct.error):
            for found_family, port, address, inode in _dump(family, *_PROTOCOLS[protocol]):
                number = int.from_bytes(port, "big")
                if number in numbers:
                    yield Socket(number, _address(address[: 4 if found_family == _socket.AF_INET else 16]), str(inode))


def _dump(family: int, protocol: int, state: int) -> Iterator[tuple[int, bytes, bytes, int]]:
    """Yield (family, port, address, inode) of the sockets in a state. Raises OSError."""
    connection = _socket.socket(_socket.AF_NETLINK, _socket.SOCK_RAW | _socket.SOCK_CLOEXEC, _SOCK_DIAG)
    try:
        connection.settimeout(_KERNEL_SECONDS)
        request = _REQUEST.pack(family, protocol, 0, 1 << state)
        connection.sendto(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request, (0, 0))
        for _ in range(_MOST_MESSAGES):
            data, sender = connection.recvfrom(_MOST_BYTES)
            start = 0
            while sender[0] == 0 and len(data) - start >= _HEADER.size:
                size, kind, *_ = _HEADER.unpack_from(data, start)
                if kind in {_DONE, _ERROR} or not _HEADER.size <= size <= len(data) - start:
                    return
                yield _ANSWER.unpack_from(data, start + _HEADER.size)
                start += (size + 3) & ~3
    finally:
        connection.close()


def _address(data: bytes) -> str:
    """Return the text of an address, "" for all addresses."""
    address = ipaddress.ip_address(data)
    mapped = getattr(address, "ipv4_mapped", None)
    # A socket for all IPv6 addresses usually gets the clients of IPv4, too.
    return "" if address.is_unspecified else str(mapped or address)


def process_of(inode: str) -> tuple[str, tuple[str, ...]]:
    """Return the number and the command line of a process that has a socket; ("", ()) if none is found in time."""
    deadline, wanted = time.monotonic() + _SECONDS, f"socket:[{inode}]"
    with suppress(OSError):
        for process in filter(str.isdecimal, os.listdir("/proc")):
            if time.monotonic() > deadline:
                break
            with suppress(OSError):
                if _has(f"/proc/{process}/fd", wanted):
                    with open(f"/proc/{process}/cmdline", "rb") as file:
                        text = file.read(_MOST_BYTES).decode(errors="backslashreplace")
                    return process, tuple(text.rstrip("\0").split("\0"))
    return "", ()


def _has(directory: str, wanted: str) -> bool:
    for number in os.listdir(directory):
        with suppress(OSError):  # the descriptor was closed meanwhile
            if os.readlink(f"{directory}/{number}") == wanted:
                return True
    return False
