"""Compare host-local's reservations with the records."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from libcni.config.network import NetworkConfigList
from libcni.diagnosis.namespaces import masquerade_commands_of, port_commands
from libcni.diagnosis.node_view import NodeView, addresses_of, detach_command, name_of, plugin_documents
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import RecordError
from libcni.store.attachments import Attachment
from libcni.store.record import CORRUPT, READY
from libcni.store.records import RecordStore, without_hash

_error = partial(NodeFinding, "ipam", "error")

_DATA_DIR = "/var/lib/cni/networks"
_WARN_AT = 0.9
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class _Reservation:
    address: str
    container_id: str
    ifname: str
    path: str


def check_ipam(node: NodeView) -> Observations:
    """Find leaked and missing reservations, addresses in two records, and pools that are nearly full."""
    yield from _duplicate_addresses(node)
    for network, directory in sorted(host_local_directories(node)):
        try:
            reservations = _read_reservations(directory)
        except FileNotFoundError:
            reservations = []
        except OSError as error:
            yield NotChecked("ipam", directory, f"the reservations cannot be read: {error.strerror}")
            continue
        yield Checked("ipam", f"{counted(len(reservations), 'reservation')} of network {network} in {directory}")
        yield from _leaks(node, network, reservations)
        yield from _missing(node, network, directory, reservations)
        yield from _fill_level(node, network, reservations)
    other = {
        (net.name, plugin.ipam_type)
        for net in node.networks
        for plugin in net.plugins
        if plugin.ipam_type and plugin.ipam_type != "host-local"
    }
    for network, plugin_type in sorted(other):
        yield NotChecked("ipam", f"network {network}", f"reservations of the IPAM plugin {plugin_type}: unknown form")


def host_local_directories(node: NodeView) -> set[tuple[str, str]]:
    """Return (network, directory of its reservations) for all configurations, recorded ones and today's."""
    nets = (*node.networks, *(node.recorded(one) for one in node.attachments))
    return {(net.name, directory) for net in nets if net is not None for directory in _directories(net)}


def _directories(net: NetworkConfigList | None) -> set[str]:
    return {os.path.join(str(one.get("dataDir") or _DATA_DIR), net.name) for one in _host_local(net)} if net else set()


def _host_local(net: NetworkConfigList | None) -> Iterator[Mapping[str, Any]]:
    """Yield the ``ipam`` sections for host-local in a network's configuration."""
    for document in plugin_documents(net):
        ipam = document.get("ipam")
        if isinstance(ipam, dict) and ipam.get("type") == "host-local":
            yield ipam


def _read_reservations(directory: str) -> list[_Reservation]:
    found = []
    for name in sorted(os.listdir(directory)):
        try:
            ipaddress.ip_address(name)
        except ValueError:  # "lock" and "last_reserved_ip.0"
            continue
        path = os.path.join(directory, name)
        try:
            # host-local writes the container ID and, on a second line, the interface.
            with open(path, encoding="utf-8", errors="replace") as file:
                container_id, _, ifname = file.read().strip().partition("\n")
        except FileNotFoundError:  # released since the directory was listed
            continue
        found.append(_Reservation(name, container_id.strip(), ifname.strip(), path))
    return found


def _leaks(node: NodeView, network: str, reservations: Iterable[_Reservation]) -> Observations:
    owners = {(one.container_id, one.ifname) for one in node.attachments if one.network in {network, ""}}
    containers = {container_id for container_id, _ in owners}
    corrupt = {os.path.basename(one.path) for one in node.attachments if one.state == CORRUPT}
    try:
        corrupt.update(RecordStore(node.cni.cache_dir).names_set_aside())
    except RecordError as error:
        yield NotChecked("ipam", error.path, str(error))
        return
    corrupt = {without_hash(name) for name in corrupt}
    # Without the list of records every reservation would look like a leak.
    if node.record_error is not None:
        return
    for one in reservations:
        # host-local before 0.8 wrote no interface name.
        is_known = (one.container_id, one.ifname) in owners or (not one.ifname and one.container_id in containers)
        if is_known or f"{network}-{one.container_id}-{one.ifname}" in corrupt:
            continue
        # DEL with an empty namespace releases the address and some rules. rm releases only the address.
        commands = [f"rm {quoted(one.path)}"]
        net = node.configured(network)
        if net is not None and one.container_id:
            commands = [detach_command(one.container_id, one.ifname or "eth0", network)]
            commands += masquerade_commands_of(net, one.container_id, [one.address])
            # The ports of all interfaces of a container on a network are in one chain.
            if one.container_id not in containers:
                commands += port_commands(net, one.container_id, one.address)
        yield NodeFinding(
            "ipam", "warning", f"address {one.address} of network {network}",
            f"reserved for container {one.container_id or '?'}, interface {one.ifname or '?'}, which has no record",
            "a leak: nobody can use the address. If another runtime uses this network, it may be its container",
            "if no other runtime uses it:", tuple(commands),
        )  # fmt: skip


def _missing(node: NodeView, network: str, directory: str, reservations: Iterable[_Reservation]) -> Observations:
    by_address = {ipaddress.ip_address(one.address): one for one in reservations}
    for one in node.attachments:
        if one.state != READY or one.network != network or directory not in _directories(node.recorded(one)):
            continue
        for address in addresses_of(one):
            reserved = by_address.get(ipaddress.ip_address(address))
            if reserved is None:
                path = quoted(os.path.join(directory, address))
                content = f"printf '%s\\r\\n%s' {quoted(one.container_id)} {quoted(one.ifname)}"
                yield _error(
                    name_of(one), f"its address {address} is not reserved in {directory}",
                    "the next ADD can give the same address to another container",
                    # set -C: another container may have got the address since.
                    commands=(f"mkdir -p {quoted(directory)}", f"(set -C; {content} > {path})"),
                )  # fmt: skip
            elif reserved.container_id != one.container_id:
                yield _error(
                    name_of(one), f"its address {address} is reserved for container {reserved.container_id}",
                    "two containers may use the same address",
                    "attach it again, so that it gets an address of its own:", node.attach_again(one),
                )  # fmt: skip


def _duplicate_addresses(node: NodeView) -> Observations:
    """Find addresses in two records. Networks are separate address spaces, so only one network is compared."""
    holders: dict[tuple[str, str], list[Attachment]] = defaultdict(list)
    for one in node.attachments:
        for address in addresses_of(one) if one.state == READY else ():
            holders[one.network, address].append(one)
    for (network, address), attachments in holders.items():
        if len(attachments) > 1:
            *_, last = sorted(attachments, key=lambda one: one.record.created or 0)
            names = ", ".join(f"{one.container_id} ({one.ifname})" for one in attachments)
            yield _error(
                f"address {address} of network {network}", f"recorded for several containers: {names}",
                "their traffic is mixed up", f"detach one of them, such as the last one, {last.container_id}:",
                (detach_command(last.container_id, last.ifname),),
            )  # fmt: skip


def _fill_level(node: NodeView, network: str, reservations: Iterable[_Reservation]) -> Observations:
    net = node.configured(network)
    used = [ipaddress.ip_address(one.address) for one in reservations]
    for ipam in _host_local(net):
        for ranges in _range_sets(ipam):
            size = sum(_size(one) for one in ranges)
            # Python refuses to compare addresses of two families.
            same_family = [address for address in used if address.version == ranges[0][0].version]
            taken = sum(any(start <= address <= end for start, end, _ in ranges) for address in same_family)
            if size <= 0 or taken < _WARN_AT * size:
                continue
            is_full = taken >= size
            pool = ", ".join(f"{start} to {end}" for start, end, _ in ranges)
            yield NodeFinding(
                "ipam", "error" if is_full else "warning", f"network {network}",
                f"{taken} of {size} addresses of the pool {pool} are reserved ({100 * taken // size} %)",
                "no more containers can be attached" if is_full else "soon no more containers can be attached",
                f"detach containers (libcni del -c ID), or use a larger range in {net.file if net else '?'}:",
                (shlex.join(["libcni", "attachments", "-n", network]),),
            )  # fmt: skip


_Range = tuple[Any, Any, Any]
"""The first address, the last one, and the gateway, all of one family."""


def _range_sets(ipam: Mapping[str, Any]) -> list[list[_Range]]:
    """Return the range sets of a configuration. Each address of an attachment comes from a set of its own."""
    given = ipam.get("ranges")
    sets = [ranges for ranges in given if isinstance(ranges, list)] if isinstance(given, list) else []
    if ipam.get("subnet"):
        sets.append([ipam])
    found = []
    for ranges in sets:
        # host-local refuses malformed ranges and two families in one set itself, at ADD.
        with suppress(ValueError, LookupError, TypeError, AttributeError):
            made = [_range(one) for one in ranges]
            if len({address.version for one in made for address in one}) == 1:
                found.append(made)
    return found


def _range(one: Mapping[str, Any]) -> _Range:
    subnet = ipaddress.ip_network(str(one["subnet"]), strict=False)
    last = subnet[-2] if subnet.version == 4 else subnet[-1]  # noqa: PLR2004 - IPv6 has no broadcast address
    start, end, gateway = (
        ipaddress.ip_address(str(one.get(key) or default))
        for key, default in (("rangeStart", subnet[1]), ("rangeEnd", last), ("gateway", subnet[1]))
    )
    return start, end, gateway


def _size(one: _Range) -> int:
    # host-local never gives the gateway's address to a container.
    start, end, gateway = one
    size: int = int(end) - int(start) + 1 - (start <= gateway <= end)
    return size
