"""host-local's directory and address ranges in a network's configuration, and in those of its delegates."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import Any

from libcni._dataclass import dataclass
from libcni.config.delegates import SUBNET_FILE, delegated
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.schema import WrongValueError, an_object, check_keys, list_of, nullable
from libcni.errors import short_repr
from libcni.kernel.regular_file import UnusableFileError, read_regular

_DATA_DIR = "/var/lib/cni/networks"
_SUBNETS = ("FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET")
_OWN = re.compile(r"lock|last_reserved_ip(\.\d+)?|\.libcni-\d+")
_MAX_BYTES = 1 << 16
"""The size of the largest file to read, in bytes: more than a reservation needs, or the variables of flannel."""
_RANGES = {"ranges": nullable(list_of(list_of(an_object)))}
_CIDR = re.compile(r"[^%/]+/\d+")
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
        if network in {"", name}:
            with suppress(WrongValueError):  # host-local refuses them all, and no container has their addresses
                yield from ranges_of(ipam)


def ranges_of(ipam: Mapping[str, Any]) -> list[list[AddressRange]]:
    """Return the range sets in a configuration of host-local; raises WrongValueError if host-local refuses them.

    As LoadIPAMConfig in config.go, without the version check.
    """
    keys = of_any_case(ipam)
    found: list[tuple[tuple[int | str, ...], list[AddressRange]]] = []
    if "subnet" in keys:  # it comes before the others
        found.append(((), [_range(keys)]))
    for number, parts in enumerate(check_keys(keys, _RANGES).get("ranges") or ()):
        found.append((("ranges", number), _range_set(parts, ("ranges", number))))
    for index, (path, one) in enumerate(found):
        for _, other in found[:index]:
            _refuse_overlaps(one, other, path)
    return [ranges for _, ranges in found]


def _range_set(parts: list[dict[str, Any]], path: tuple[int | str, ...]) -> list[AddressRange]:
    ranges: list[AddressRange] = []
    if not parts:
        raise WrongValueError("it has no range", path)
    for number, part in enumerate(parts):
        try:
            one = _range(of_any_case(part))
        except WrongValueError as error:
            raise WrongValueError(error.problem, (*path, number, *error.path)) from None
        if ranges and one.start.version != ranges[0].start.version:
            raise WrongValueError("the ranges of one set must all be IPv4, or all IPv6", (*path, number))
        _refuse_overlaps([one], ranges, (*path, number))
        ranges.append(one)
    return ranges


def _refuse_overlaps(ranges: list[AddressRange], others: list[AddressRange], path: tuple[int | str, ...]) -> None:
    for one, other in product(ranges, others):
        if one.start in other or other.start in one:
            both = f"from {one.start} to {one.end}, and another range those from {other.start} to {other.end}"
            raise WrongValueError(f"it has the addresses {both}: ranges must not overlap", path)


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
    with suppress(OSError, ValueError):  # a path with a NUL, and a file with other words than subnets
        for line in _read(path).splitlines():
            name, _, subnet = line.strip().partition("=")
            if name in _SUBNETS and subnet:  # the daemon writes the address of the bridge, and the plugin its network
                ranges.append([{"subnet": str(ipaddress.ip_interface(subnet).network)}])
    return ranges


def _range(keys: Mapping[str, Any]) -> AddressRange:
    """Return a range as Canonicalize in range.go reads it; ``keys``: in small letters."""
    subnet = network_in(_value(keys, "subnet", ""), ("subnet",))
    if subnet.prefixlen > subnet.max_prefixlen - 2:
        raise WrongValueError(
            f"{subnet} has no address for a container: host-local needs /{subnet.max_prefixlen - 2} or more",
            ("subnet",),
        )
    last = subnet[-2] if subnet.version == 4 else subnet[-1]  # noqa: PLR2004 - IPv6 has no broadcast address
    start, end, gateway = (
        address_in(text, (key,)) if (text := _value(keys, key.lower(), "")) != "" else default
        for key, default in (("rangeStart", subnet[1]), ("rangeEnd", last), ("gateway", subnet[1]))
    )
    for key, address in (("rangeStart", start), ("rangeEnd", end)):
        if address not in subnet:
            raise WrongValueError(f"{address} is not in the subnet {subnet}", (key,))
    if int(start) > int(end):
        raise WrongValueError(f"{start} comes after the last address, {end}", ("rangeStart",))
    return AddressRange(start, end, gateway, subnet.prefixlen)


def network_in(value: object, path: tuple[int | str, ...]) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Return a subnet as Go's net.ParseCIDR reads it; raises WrongValueError for other text, and for a host's bits."""
    words = f"it must be a network such as 10.1.0.0/16, not {short_repr(value)}"
    if not isinstance(value, str) or not _CIDR.fullmatch(value):  # Python also reads a netmask, and a zone
        raise WrongValueError(words, path)
    try:
        own, subnet = ipaddress.ip_interface(value).ip, ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise WrongValueError(words, path) from None
    if own != subnet.network_address:
        raise WrongValueError(f"{value} is the address of a host; its network is {subnet}", path)
    return subnet


def address_in(value: object, path: tuple[int | str, ...]) -> IPAddress:
    """Return an address as Go's net.ParseIP reads it; raises WrongValueError for other text."""
    with suppress(ValueError):
        if isinstance(value, str) and "%" not in value:
            return ipaddress.ip_address(value)
    raise WrongValueError(f"it must be an address such as 10.1.0.7, not {short_repr(value)}", path)


def of_any_case(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with its keys in small letters: Go's decoder ignores their case."""
    return {key.lower(): value for key, value in document.items()}


def _value(keys: Mapping[str, Any], key: str, default: object) -> Any:
    """Return the value of a key; null is no value, as in Go."""
    value = keys.get(key)
    return default if value is None else value
