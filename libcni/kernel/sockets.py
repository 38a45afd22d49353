"""The sockets of this network namespace that wait for clients, and the processes that have them."""

from __future__ import annotations

import ipaddress
import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import NamedTuple

_MOST_LINES = 65536
_SECONDS = 0.25
"""The time to search for the process of a socket among all processes."""
_MOST_BYTES = 65536
_LISTENING = {"tcp": "0A", "udp": "07"}
"""The states of a socket that waits for clients: TCP_LISTEN; for UDP TCP_CLOSE, that of a socket without a peer."""
_LOCAL, _STATE, _INODE, _FIELDS = 1, 3, 9, 10
"""The indexes of fields of /proc/net/tcp, and how many there are at least."""


class Socket(NamedTuple):
    """A socket that waits for clients: its port, its address ("" for all addresses) and its inode."""

    number: int
    address: str
    inode: str


def waiting_sockets(protocol: str, numbers: Collection[int]) -> Iterator[Socket]:
    """Yield the sockets of a protocol, IPv4 and IPv6, that wait for clients at these ports; none if that is unknown."""
    wanted = {f"{number:04X}" for number in numbers}
    for name in (protocol, f"{protocol}6") if protocol in _LISTENING else ():
        with suppress(OSError), open(f"/proc/thread-self/net/{name}", encoding="ascii", errors="replace") as file:
            next(file, "")
            for _, line in zip(range(_MOST_LINES), file, strict=False):
                words = line.split(maxsplit=_FIELDS)
                is_waiting = len(words) >= _FIELDS and words[_STATE] == _LISTENING[protocol]
                if protocol == "tcp" and not is_waiting:
                    break  # the kernel lists the waiting ones first, and there may be a million connections
                address, _, number = words[_LOCAL].partition(":") if is_waiting else ("", "", "")
                if number in wanted:
                    yield Socket(int(number, 16), _address(address), words[_INODE])


def _address(text: str) -> str:
    """Return the address in the kernel's words of four bytes, "" for all addresses."""
    words = (bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8))
    address = ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))
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
