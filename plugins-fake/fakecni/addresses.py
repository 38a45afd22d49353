"""Allocate addresses: the first host of a subnet is the gateway, the others follow in order."""

from __future__ import annotations

from fakecni.call import Failure
from fakecni.state import Owner, Shelf


def subnets(ipam: dict) -> list:
    """Return the subnets of ``{"subnet": ...}`` or of host-local's ``{"ranges": [[{"subnet": ...}], ...]}``."""
    alone = [ipam["subnet"]] if "subnet" in ipam else []
    return alone + [entries[0]["subnet"] for entries in ipam.get("ranges", [])]


def allocate(shelf: Shelf, subnet: str, owner: Owner) -> dict:
    """Take the first free address of ``subnet``; return it as a result's ``ips`` lists it."""
    import ipaddress  # only ADD needs it

    network = ipaddress.ip_network(subnet)
    first = int(network.network_address) + 1
    taken = set(shelf.names())
    for number in range(first + 1, first + network.num_addresses - 2):
        address = str(type(network.network_address)(number))
        if address not in taken and shelf.take(address, owner):
            return {"address": f"{address}/{network.prefixlen}", "gateway": str(network.network_address + 1)}
    raise Failure(999, f"no addresses available in {subnet}")
