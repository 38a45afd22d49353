"""host-local's directory and address ranges in a network's configuration, and in those of its delegates."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from libcni._dataclass import dataclass
from libcni.config.delegates import SUBNET_FILE, delegated
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.kernel.regular_file import UnusableFileError, read_regular

_DATA_DIR = "/var/lib/cni/networks"
_SUBNETS = ("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
_OWN = re.compile(r"lock|last_reserved_ip(\.\d+)?|\.libcni-\d+")
_MAX_BYTES = 1 << 16
"""The size of the largest file to read, in bytes: more than a reservation needs, or the variables of flannel."""
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class AddressRange:
    """A range of addresses of one family (IPv4 or IPv6)."""

    start: IPAddress
    end: IPAddress
    gateway: IPAddress
    prefix: int = 0
    """The prefix length of its subnet."""

    def __contains__(self, address: IPAddress) -> bool:
        # Python refuses to compare addresses of two families.
        return address.version == self.start.version and int(self.start) <= int(address) <= int(self.end)

    @property
    def size(self) -> int:
        """The number of addresses for containers. No container gets the gateway's address."""
        return int(self.end) - int(self.start) + 1 - (self.gateway in self)


@dataclass(frozen=True, slots=True)
class Reservation:
    """An address that host-local has reserved; ``changed``: when its file was written, in seconds since 1970."""

    address: str
    container_id: str
    ifname: str
    path: str
    changed: float

    def is_in(self, ranges: list[AddressRange]) -> bool:
        """Return whether the address is in one of these ranges."""
        return any(ipaddress.ip_address(self.address) in pool for pool in ranges)


def reservation_directories(net: NetworkConfigList | None) -> set[str]:
    """Return the directories in which host-local reserves the addresses of a network."""
    if net is None:
        return set()
    return {os.path.join(str(ipam.get("dataDir") or _DATA_DIR), network) for network, ipam in _host_local(net)}


def range_sets(net: NetworkConfigList | None, network: str = "") -> Iterator[list[AddressRange]]:
    """Yield the range sets of a network. Each address of an attachment comes from a set of its own.

    ``network``: yield only the sets of the plugin or delegate with this network name.
    """
    for name, ipam in _host_local(net):
        if network not in {"", name}:
            continue
        configured = ipam.get("ranges")
        sets = [ranges for ranges in configured if isinstance(ranges, list)] if isinstance(configured, list) else []
        if ipam.get("subnet"):
            sets.append([ipam])
        for ranges in sets:
            # host-local refuses malformed ranges and two families in one set itself, at ADD.
            with suppress(ValueError, LookupError, TypeError, AttributeError):
                pools = [_range(part) for part in ranges]
                if len({address.version for pool in pools for address in (pool.start, pool.end, pool.gateway)}) == 1:
                    yield pools


def reservations_in(directory: str) -> list[Reservation]:
    """Return the reservations in a directory of host-local, by address; raises OSError if they cannot be read."""
    with suppress(FileNotFoundError):
        # The directory also has "lock" and "last_reserved_ip.0".
        paths = [f"{directory}/{name}" for name in sorted(os.listdir(directory)) if _is_address(name)]
        return [found for found in map(reservation_at, paths) if found is not None]
    return []


def junk_in(directory: str) -> list[str]:
    """Return the names of files in a directory of host-local that host-local did not write."""
    with suppress(OSError):
        return sorted(name for name in os.listdir(directory) if not _is_address(name) and not _OWN.fullmatch(name))
    return []


def reservation_at(path: str) -> Reservation | None:
    """Return the reservation in a file, or None if there is none; raises OSError if it cannot be read."""
    try:
        # host-local writes the container ID and, on a second line, the interface.
        container_id, _, ifname = _read(path).strip().partition("\n")
        changed = os.stat(path).st_mtime
    except FileNotFoundError:
        return None
    return Reservation(os.path.basename(path), container_id.strip(), ifname.strip(), path, changed)


def _read(path: str) -> str:
    """Return the text of a small regular file; raises OSError. Anybody may have put a FIFO or a device there."""
    try:
        data = read_regular(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), _MAX_BYTES)
    except UnusableFileError as error:
        raise OSError(errno.EINVAL, f"{os.path.basename(path)}: {error}", path) from error
    return data.decode(errors="replace")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_in_ranges(net: NetworkConfigList | None, address: str) -> bool:
    """Return whether host-local can give an address to a container of a network."""
    parsed = ipaddress.ip_address(address)
    return any(parsed in pool for pools in range_sets(net) for pool in pools)


def _host_local(net: NetworkConfigList | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (network, configuration) of each host-local that the network's plugins run, or their delegates."""
    for document in plugin_documents(net):
        assert net is not None
        for network, ran in delegated(net.name, document):
            ipam = ran.get("ipam")
            if isinstance(ipam, dict) and ipam.get("type") == "host-local":
                subnets = ran.get(SUBNET_FILE)
                yield network, ipam if subnets is None else {**ipam, "ranges": _subnets_of_flannel(subnets)}


def _subnets_of_flannel(path: str) -> list[list[dict[str, str]]]:
    ranges: list[list[dict[str, str]]] = []
    with suppress(OSError, ValueError):  # a path with a NUL
        for line in _read(path).splitlines():
            name, _, subnet = line.strip().partition("=")
            if name in _SUBNETS and subnet:
                ranges.append([{"subnet": subnet}])
    return ranges


def _range(part: Mapping[str, Any]) -> AddressRange:
    subnet = ipaddress.ip_network(str(part["subnet"]), strict=False)
    last = subnet[-2] if subnet.version == 4 else subnet[-1]  # noqa: PLR2004 - IPv6 has no broadcast address
    start, end, gateway = (
        ipaddress.ip_address(str(part.get(key) or default))
        for key, default in (("rangeStart", subnet[1]), ("rangeEnd", last), ("gateway", subnet[1]))
    )
    return AddressRange(start, end, gateway, subnet.prefixlen)
