"""What host-local reads from a network's configuration: its directory and its ranges of addresses."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from libcni.config.network import NetworkConfigList, plugin_documents

_DATA_DIR = "/var/lib/cni/networks"
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class AddressRange:
    """A range of addresses, of one family."""

    start: IPAddress
    end: IPAddress
    gateway: IPAddress

    def __contains__(self, address: IPAddress) -> bool:
        # Python refuses to compare addresses of two families.
        return address.version == self.start.version and int(self.start) <= int(address) <= int(self.end)

    @property
    def size(self) -> int:
        """How many containers it has addresses for: none gets the gateway's."""
        return int(self.end) - int(self.start) + 1 - (self.gateway in self)


def reservation_directories(net: NetworkConfigList | None) -> set[str]:
    """Return the directories in which host-local reserves the addresses of a network."""
    if net is None:
        return set()
    return {os.path.join(str(ipam.get("dataDir") or _DATA_DIR), net.name) for ipam in _host_local(net)}


def range_sets(net: NetworkConfigList | None) -> Iterator[list[AddressRange]]:
    """Yield the range sets of a network. Each address of an attachment comes from a set of its own."""
    for ipam in _host_local(net):
        given = ipam.get("ranges")
        sets = [ranges for ranges in given if isinstance(ranges, list)] if isinstance(given, list) else []
        if ipam.get("subnet"):
            sets.append([ipam])
        for ranges in sets:
            # host-local refuses malformed ranges and two families in one set itself, at ADD.
            with suppress(ValueError, LookupError, TypeError, AttributeError):
                made = [_range(one) for one in ranges]
                if len({address.version for one in made for address in (one.start, one.end, one.gateway)}) == 1:
                    yield made


def is_in_ranges(net: NetworkConfigList | None, address: str) -> bool:
    """Return whether host-local can give an address to a container of a network."""
    parsed = ipaddress.ip_address(address)
    return any(parsed in one for ranges in range_sets(net) for one in ranges)


def _host_local(net: NetworkConfigList | None) -> Iterator[Mapping[str, Any]]:
    for document in plugin_documents(net):
        ipam = document.get("ipam")
        if isinstance(ipam, dict) and ipam.get("type") == "host-local":
            yield ipam


def _range(one: Mapping[str, Any]) -> AddressRange:
    subnet = ipaddress.ip_network(str(one["subnet"]), strict=False)
    last = subnet[-2] if subnet.version == 4 else subnet[-1]  # noqa: PLR2004 - IPv6 has no broadcast address
    start, end, gateway = (
        ipaddress.ip_address(str(one.get(key) or default))
        for key, default in (("rangeStart", subnet[1]), ("rangeEnd", last), ("gateway", subnet[1]))
    )
    return AddressRange(start, end, gateway)
