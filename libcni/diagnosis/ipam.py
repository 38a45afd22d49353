"""Compare host-local's reservations with the records and with the addresses of all namespaces."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections import defaultdict
from dataclasses import dataclass
from functools import partial

from libcni.config.host_local import range_sets, reservation_directories
from libcni.diagnosis.reading import (
    Reading,
    Reservation,
    addresses_of,
    detach_command,
    id_of,
    name_of,
    reload_command,
)
from libcni.diagnosis.report import Checked, Disruption, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.diagnosis.rules import chain_for_del, removal_commands
from libcni.store.attachments import Attachment
from libcni.store.record import READY

_error = partial(NodeFinding, "ipam", "error")

_WARN_AT = 0.9
_YOUNG = 10.0
"""Seconds: the reservation of an ADD that runs now has no record, or no interface, in this reading."""


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """What is known of a container that has no usable record.

    Attributes:
        identity: network, container ID and interface.
        is_alive: whether one of its addresses was found in a namespace.
        meaning: what was found.
        remedy, commands, disrupts: what to do.
    """

    identity: tuple[str, str, str]
    is_alive: bool
    meaning: str
    remedy: str = ""
    commands: tuple[str, ...] = ()
    disrupts: tuple[Disruption, ...] = ()

    @property
    def name(self) -> str:
        """The attachment in words."""
        network, container_id, ifname = self.identity
        return f"container {container_id}, {network}, {ifname}"

    @property
    def containers(self) -> tuple[str, ...]:
        """The attachment as ``ID:IFNAME``."""
        return (f"{self.identity[1]}:{self.identity[2]}",)


def look_for(node: Reading, network: str, container_id: str, ifname: str) -> Unrecorded:
    """Look in every namespace for a container without a usable record, by the addresses that are reserved for it."""
    identity = network, container_id, ifname
    # host-local before 0.8 wrote no interface name.
    reserved = [one for one in node.reserved_for(network, container_id) if one.ifname in {"", ifname}]
    found = [(one.address, space, link) for one in reserved for space, link in node.holders(one.address)]
    if found:
        address, space, link = found[0]
        if others := node.recorded_at(network, address, space.path):
            meaning = (
                f"its address {address} is that of {id_of(others[0])}, which is on record: releasing it frees that"
            )
            return Unrecorded(identity, is_alive=True, meaning=meaning, remedy="detach or reload that container first")
        pair = f"{container_id}:{ifname}"
        meaning = (
            f"its address {address} is on {link.name} in {space.path}: the container lives; libcni gc of this network "
            f"needs --valid {quoted(pair)}"
        )
        remedy = "leave it if it is another runtime's; if its record is lost, let its runtime restart the container"
        disrupts: tuple[Disruption, ...] = ()
        if net := node.configured(network):
            remedy += ", or attach it again with the address, and with the --owner and --capabilities that it had:"
            given = [network, space.path, "-c", container_id, "-i", ifname]
            detach = shlex.join(["libcni", "del", *given, "--use-given"])
            if chain := chain_for_del(node, net, container_id, address):
                detach = f"{chain} && {detach}"
            attach = shlex.join(["libcni", "add", *given, "--args", f"IgnoreUnknown=1;IP={address}"])
            disrupts = (Disruption(detach, (pair,)), Disruption(attach, (pair,)))
        return Unrecorded(identity, is_alive=True, meaning=meaning, remedy=remedy, disrupts=disrupts)
    if not reserved:
        meaning = "no address is reserved for it, so nobody knows whether the container lives"
        return Unrecorded(identity, is_alive=False, meaning=meaning)
    if reason := _why_unknown(node):
        return Unrecorded(identity, is_alive=False, meaning=f"nobody knows whether the container lives: {reason}")
    addresses = [one.address for one in reserved]
    commands = [f"rm {quoted(one.path)}" for one in reserved]
    if node.configured(network) is not None:
        # Without a namespace: DEL releases the addresses and some rules, and touches no interface.
        commands = [detach_command(container_id, ifname, network)]
    commands += removal_commands(node, network, container_id, ifname, addresses)
    meaning = f"its address {addresses[0]} is in no network namespace of this node"
    return Unrecorded(identity, is_alive=False, meaning=meaning, commands=tuple(commands))


def _why_unknown(node: Reading) -> str:
    if os.geteuid():
        return "only root sees the namespaces of all processes"
    if node.unknown_namespace:
        return f"{node.unknown_namespace} cannot be entered"
    if not node.sees_all_processes:
        return "this program is in another PID namespace than the runtime, and cannot see all containers"
    return ""


def check_ipam(node: Reading) -> Observations:
    """Find leaked and missing reservations, addresses in two records, and pools that are nearly full."""
    yield from _duplicates(node)
    for (network, directory), reservations in sorted(node.reservations.items()):
        yield Checked("ipam", f"{counted(len(reservations), 'reservation')} of network {network} in {directory}")
        yield from _unrecorded(node, network, reservations)
        yield from _missing(node, network, directory, reservations)
        yield from _fill_level(node, network, reservations)
        yield from _unreserved(node, network, reservations)
    other = {
        (net.name, plugin.ipam_type)
        for net in node.networks
        for plugin in net.plugins
        if plugin.ipam_type and plugin.ipam_type not in {"host-local", "static"}
    }
    for network, plugin_type in sorted(other):
        yield NotChecked("ipam", f"network {network}", f"reservations of the IPAM plugin {plugin_type}: unknown form")


def _unrecorded(node: Reading, network: str, reservations: list[Reservation]) -> Observations:
    known = {(one.container_id, one.ifname) for one in node.attachments if one.network in {network, ""}}
    for one in reservations:
        if (one.container_id, one.ifname) in known or node.is_known(network, one.container_id, one.ifname):
            continue
        subject = f"address {one.address} of network {network}"
        if one.changed > node.started - _YOUNG:
            yield NotChecked("ipam", subject, "it was reserved a moment ago: its ADD may be running")
            continue
        seen = f"reserved for container {one.container_id or '?'}, interface {one.ifname or '?'}, which has no record"
        found = look_for(node, network, one.container_id, one.ifname or "eth0")
        if not found.is_alive and not found.commands:
            yield NotChecked("ipam", subject, f"{seen}; {found.meaning}")
            continue
        meaning = found.meaning if found.is_alive else f"a leak: {found.meaning}, and nobody can use it"
        yield NodeFinding(
            "ipam", "warning", subject, seen, meaning, found.remedy, found.commands, found.disrupts,
            found.containers,
        )  # fmt: skip


def _missing(node: Reading, network: str, directory: str, reservations: list[Reservation]) -> Observations:
    by_address = {ipaddress.ip_address(one.address): one for one in reservations}
    for one in node.attachments:
        if one.state != READY or one.network != network or directory not in reservation_directories(node.recorded(one)):
            continue
        for address in addresses_of(one):
            if ipaddress.ip_address(address) in by_address:
                continue
            path = quoted(os.path.join(directory, address))
            content = f"printf '%s\\r\\n%s' {quoted(one.container_id)} {quoted(one.ifname)}"
            yield _error(
                name_of(one), f"its address {address} is not reserved in {directory}",
                "the next ADD can give the same address to another container",
                # set -C: another container may have got the address since.
                commands=(f"mkdir -p {quoted(directory)}", f"(set -C; {content} > {path})"),
                containers=(id_of(one),),
            )  # fmt: skip


def _duplicates(node: Reading) -> Observations:
    """Find containers that share an address. Networks are separate address spaces, so only one network is compared."""
    reserved = {
        (network, ipaddress.ip_address(one.address)): one
        for (network, _), reservations in node.reservations.items()
        for one in reservations
    }
    holders: dict[tuple[str, str], list[Attachment]] = defaultdict(list)
    for one in node.attachments:
        for address in addresses_of(one) if one.state == READY else ():
            holders[one.network, address].append(one)
    for (network, address), attachments in holders.items():
        reservation = reserved.get((network, ipaddress.ip_address(address)))
        others = [
            one for one in attachments if reservation is not None and one.container_id != reservation.container_id
        ]
        if len(attachments) < 2 and not others:  # noqa: PLR2004 - an address of one container
            continue
        wrong = others or sorted(attachments, key=lambda one: one.record.created or 0)[1:]
        seen = f"recorded for several containers: {', '.join(map(id_of, attachments))}"
        if len(attachments) == 1 and reservation is not None:
            seen = f"recorded for {id_of(attachments[0])}, and reserved for container {reservation.container_id}"
        yield _error(
            f"address {address} of network {network}", seen, "two containers may use the same address",
            "one of them needs an address of its own", disrupts=(
                Disruption(reload_command(*wrong), tuple(map(id_of, wrong))),
            ), containers=tuple(map(id_of, attachments)),
        )  # fmt: skip


def _unreserved(node: Reading, network: str, reservations: list[Reservation]) -> Observations:
    """Find addresses of the pool that an interface has, and of which neither a reservation nor a record is left."""
    pool = [one for ranges in range_sets(node.configured(network)) for one in ranges]
    known = {*node.recorded_addresses, *(one.address for one in reservations), *(str(one.gateway) for one in pool)}
    for space in node.spaces.values():
        for link in space.network.links.values() if space.network else ():
            for address in (text.partition("/")[0] for text in link.addresses):
                if address not in known and any(ipaddress.ip_address(address) in one for one in pool):
                    yield NodeFinding(
                        "ipam", "warning", f"address {address} of network {network}",
                        f"{link.name} in {space.path} has it, and it is neither reserved nor on record",
                        "the next ADD can give it to a second container",
                        "if it is a container of this network, let its runtime restart it before anything is attached; "
                        "leave it if it is the network of a node inside a container",
                    )  # fmt: skip


def _fill_level(node: Reading, network: str, reservations: list[Reservation]) -> Observations:
    net = node.configured(network)
    used = [ipaddress.ip_address(one.address) for one in reservations]
    for ranges in range_sets(net):
        size = sum(one.size for one in ranges)
        taken = sum(any(address in one for one in ranges) for address in used)
        if size <= 0 or taken < _WARN_AT * size:
            continue
        is_full = taken >= size
        pool = ", ".join(f"{one.start} to {one.end}" for one in ranges)
        yield NodeFinding(
            "ipam", "error" if is_full else "warning", f"network {network}",
            f"{taken} of {size} addresses of the pool {pool} are reserved ({100 * taken // size} %)",
            "no more containers can be attached" if is_full else "soon no more containers can be attached",
            f"detach containers that nobody needs, or use a larger range in {net.file if net else '?'}:",
            (shlex.join(["libcni", "attachments", "-n", network]),),
        )  # fmt: skip
