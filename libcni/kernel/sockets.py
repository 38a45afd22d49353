"""The sockets of this network namespace that wait for clients, and the processes that have them."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Collection, Iterator
from contextlib import nullcontext, suppress
from typing import NamedTuple

from libcni.kernel.namespace import socket_in
from libcni.kernel.netlink_messages import Exchange

_SECONDS = 0.25
"""The time to search for the processes of sockets among all processes."""
_KERNEL_SECONDS = 1.0
_MOST_BYTES = 65536
_SOCK_DIAG, _BY_FAMILY = 4, 20
_REQUEST = struct.Struct("=BBBxIH46x")
"""inet_diag_req_v2: the family, the protocol, the states as bits, and the port in network byte order, or 0 for all."""
_ANSWER = struct.Struct("=B3x2s2x16s16x12x16xI")
"""inet_diag_msg (linux/inet_diag.h): the family, the port in network byte order, the address and the inode."""
_PROTOCOLS = {"tcp": (6, 10), "udp": (17, 7)}
"""For each protocol, its number and the state of a socket that waits: TCP_LISTEN, or for UDP TCP_CLOSE."""


_SCTP = "/proc/thread-self/net/sctp/eps"
_SCTP_LISTENING = "10"


class Socket(NamedTuple):
    """A socket that waits for clients: its port, its address ("" for all addresses) and its inode."""

    number: int
    address: str
    inode: str


def waiting_sockets(protocol: str, numbers: Collection[int], namespace: int | None = None) -> Iterator[Socket]:
    """Yield a protocol's sockets (IPv4 and IPv6) that wait for clients at these ports; none if they cannot be read.

    ``namespace``: the descriptor of another network namespace; then raises OSError if they cannot be read.

    Ask the kernel for these ports alone: to read /proc/net/tcp takes 10 ms, because the kernel walks its whole table.
    """
    if protocol == "sctp":
        yield from (found for found in _endpoints() if found.number in numbers)
    if protocol not in _PROTOCOLS:
        return
    with suppress(OSError) if namespace is None else nullcontext():
        for family, port, address, inode in _dump(*_PROTOCOLS[protocol], numbers, namespace):
            number = int.from_bytes(port, "big")
            if number in numbers:
                own = address[: 4 if family == socket.AF_INET else 16]
                yield Socket(number, _address(ipaddress.ip_address(own)), str(inode))


def _endpoints() -> Iterator[Socket]:
    """Yield the endpoints of SCTP that wait for clients, once for each address."""
    with suppress(OSError, ValueError), open(_SCTP, encoding="ascii") as file:
        for line in file.readlines(_MOST_BYTES)[1:]:
            _, _, _, state, _, port, _, inode, *addresses = line.split()
            if state == _SCTP_LISTENING:
                yield from (Socket(int(port), _address(ipaddress.ip_address(one)), inode) for one in addresses)


def _dump(
    protocol: int, state: int, numbers: Collection[int], namespace: int | None = None
) -> Iterator[tuple[int, bytes, bytes, int]]:
    """Yield (family, port, address, inode) of the sockets in a state at these ports, perhaps with others.

    Raises OSError.
    """
    # The kernel can select those of one port. A host may have hundreds.
    only = next(iter(numbers), 0) if len(numbers) == 1 else 0
    port = socket.htons(only) if only < 1 << 16 else 0
    kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
    descriptor = None
    if namespace is not None and (descriptor := socket_in(namespace, socket.AF_NETLINK, kind, _SOCK_DIAG)) < 0:
        raise OSError(errno.EPROTONOSUPPORT, "the sockets of the namespace cannot be read")
    with socket.socket(socket.AF_NETLINK, kind, _SOCK_DIAG, descriptor) as connection:
        kernel = Exchange(connection, seconds=_KERNEL_SECONDS, is_own=namespace is None)
        for family in (socket.AF_INET, socket.AF_INET6):
            request = _REQUEST.pack(family, protocol, 0, 1 << state, port)
            with suppress(OSError) if namespace is None else nullcontext():  # a kernel without IPv6
                yield from kernel.dump(_BY_FAMILY, _BY_FAMILY, request, _ANSWER.unpack_from)


def _address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return the text of an address, "" for all addresses."""
    mapped = getattr(address, "ipv4_mapped", None)
    # A socket for all IPv6 addresses usually gets the clients of IPv4, too.
    return "" if address.is_unspecified else str(mapped or address)


def processes_of(inodes: Collection[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return, by inode, (PID, words of the command line) of a process that has the socket, if one is found in time.

    For another user's process, return its name in place of the command line.
    """
    if not inodes:
        return {}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    deadline, wanted = time.monotonic() + _SECONDS, {f"socket:[{inode}]": inode for inode in inodes}
    with suppress(OSError):
        for process in filter(str.isdecimal, os.listdir("/proc")):
            if time.monotonic() > deadline or len(found) == len(inodes):
                break
            with suppress(OSError):
                if own := [wanted[link] for link in _links(f"/proc/{process}/fd") if link in wanted]:
                    words = _words_of(process)
                    for inode in own:
                        found.setdefault(inode, (process, words))
    return found


def _words_of(process: str) -> tuple[str, ...]:
    with open(f"/proc/{process}/status", "rb") as file:
        fields = dict(line.partition(b":")[::2] for line in file.read(_MOST_BYTES).split(b"\n"))
    # A user can put his arguments on a file system of his own (FUSE), which never answers.
    is_strangers = int(fields[b"Uid"].split()[1]) not in {0, os.geteuid()}
    with open(f"/proc/{process}/{'comm' if is_strangers else 'cmdline'}", "rb") as file:
        text = file.read(_MOST_BYTES).decode(errors="backslashreplace")
    return (text.rstrip("\n"),) if is_strangers else tuple(text.rstrip("\0").split("\0"))


def _links(directory: str) -> Iterator[str]:
    for number in os.listdir(directory):
        with suppress(OSError):  # the descriptor was closed meanwhile
            yield os.readlink(f"{directory}/{number}")


def is_ancestor(process: str) -> bool:
    """Return whether a process is the parent of this process, or an earlier ancestor."""
    number = str(os.getppid())
    with suppress(OSError, IndexError):
        while number not in {"0", process}:
            with open(f"/proc/{number}/stat", "rb") as file:
                # The name of the program, in parentheses, may have any character.
                number = file.read(_MOST_BYTES).rpartition(b")")[2].split()[1].decode()
    return number == process
