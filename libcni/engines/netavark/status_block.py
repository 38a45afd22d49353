"""Podman's status block, made from the result of an ADD."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import re
from collections.abc import Mapping, Sequence
from typing import Any

from libcni.errors import CNIError
from libcni.manager import AttachmentResult
from libcni.protocol.result import Result

_MAC = re.compile("[0-9A-Fa-f]{2}((:[0-9A-Fa-f]{2}){5}|(:[0-9A-Fa-f]{2}){7}|(:[0-9A-Fa-f]{2}){19})")
"""The hardware addresses that podman can read: 6, 8 or 20 bytes."""
_NO_MAC = "00:00:00:00:00:00"


def status_block(network: str, netns: str, ifname: str, result: Result) -> dict[str, Any]:
    """Return podman's status block for the result of an ADD.

    Raises:
        CNIError: a name server is not an IP address: netavark could not read the block, and would tear nothing down.
    """
    attached = AttachmentResult(network, ifname, result)
    for server in result.dns.nameservers:
        _packed(server, "name server")
    return {
        "dns_search_domains": [name for name in (result.dns.domain, *result.dns.search) if name],
        "dns_server_ips": list(result.dns.nameservers),
        "interfaces": {
            link.name: {
                "mac_address": _mac(link.mac, netns, link.name),
                "subnets": [{"ipnet": ip.address, "gateway": ip.gateway or None} for ip in interface.addresses],
            }
            for interface in attached.interfaces
            if (link := interface.interface).sandbox or link.name == attached.own.interface.name
        },
    }


def check_granted(status: Mapping[str, Any], network: str, ifname: str, ips: Sequence[str], mac: str) -> None:
    """Raise CNIError if an attachment lacks an address that was requested: plugins ignore unknown arguments.

    Raises:
        CNIError: the network gave other addresses.
    """
    own = status["interfaces"].get(ifname) or {"subnets": [], "mac_address": _NO_MAC}
    granted = {_packed(subnet["ipnet"].partition("/")[0], "address") for subnet in own["subnets"]}
    for ip in ips:
        if _packed(ip, "address") not in granted:
            problem = f"--ip {ip}: CNI network {network} did not give this address"
            raise CNIError(problem, hint="choose an address in the ranges of the network's ipam")
    if mac and own["mac_address"].lower() != mac.lower():
        problem = f"--mac-address {mac}: CNI network {network} gave {own['mac_address']}"
        raise CNIError(problem, hint="declare the capability mac in a plugin that supports it")


def _packed(address: str, kind: str) -> bytes:
    """Return an address as bytes: the same for each way to write it."""
    try:
        return _socket.inet_pton(_socket.AF_INET6 if ":" in address else _socket.AF_INET, address)
    except (OSError, ValueError) as error:
        raise CNIError(f'the {kind} "{address}" is not an IP address') from error


def _mac(mac: str | None, netns: str, ifname: str) -> str:
    """Return an interface's hardware address. Podman needs an address, and some plugins give none."""
    if mac and _MAC.fullmatch(mac):
        return mac
    from libcni.kernel.netlink import links  # most plugins give the address

    try:
        return links(netns)[ifname].mac or _NO_MAC
    except (OSError, KeyError):
        return _NO_MAC
