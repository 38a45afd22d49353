"""Compare host-local's reservations with the records and with the addresses of all namespaces."""

from __future__ import annotations

import ipaddress
import os
import shlex
from dataclasses import replace

from libcni.config.host_local import range_sets, reservation_directories
from libcni.diagnosis.reading import (
    Reading,
    Reservation,
    addresses_of,
    detach_command,
    finding_about,
    id_of,
    reload_command,
)
from libcni.diagnosis.report import Checked, Disruption, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.diagnosis.rules import chain_for_del, has_other_ports, removal_commands
from libcni.store.attachments import Attachment
from libcni.store.record import READY

_YOUNG = 10.0
"""Seconds: the reservation of an ADD that runs now has no record, or no interface, in this reading."""


def look_for(node: Reading, network: str, container_id: str, ifname: str) -> NodeFinding:
    """Look in every namespace for a container without a usable record, by the addresses that are reserved for it.

    The finding has a remedy if the container lives, commands if it does not, and neither if nobody knows.
    """
    # host-local before 0.8 wrote no interface name.
    reserved = [one for one in node.reserved_for.get((network, container_id), ()) if one.ifname in {"", ifname}]
    addresses = [one.address for one in reserved]
    pair = (f"{container_id}:{ifname}",)
    about = NodeFinding("ipam", "warning", f"container {container_id}, {network}, {ifname}", "", containers=pair)
    held = next((one for one in addresses if one in node.holders), "")
    if held:
        return _living(node, about, held, network, container_id, ifname)
    if not reserved:
        return replace(about, meaning="no address is reserved for it, so nobody knows whether the container lives")
    if node.why_unknown:
        return replace(about, meaning=f"nobody knows whether the container lives: {node.why_unknown}")
    commands = [f"rm {quoted(one.path)}" for one in reserved]
    # DEL of portmap would remove the ports of all interfaces of a container, another runtime's of the same ID included.
    others = ("", container_id) in node.attached or has_other_ports(node, network, container_id, addresses)
    if node.configured(network) is not None and not others:
        # Without a namespace: DEL releases the addresses and some rules, and touches no interface.
        commands = [detach_command(container_id, ifname, network)]
    commands += removal_commands(node, network, container_id, ifname, addresses)
    meaning = f"its address {addresses[0]} is in no network namespace of this node"
    return replace(about, meaning=meaning, commands=tuple(commands))


def _living(  # noqa: PLR0913, PLR0917 - an attachment and its address
    node: Reading, about: NodeFinding, address: str, network: str, container_id: str, ifname: str
) -> NodeFinding:
    space, link = node.holders[address][0]
    if others := node.recorded_at(network, address, space.path):
        meaning = f"its address {address} is that of {id_of(others[0])}, which is on record: releasing it frees that"
        return replace(about, meaning=meaning, remedy="detach or reload that container first")
    (pair,) = about.containers
    meaning = (
        f"its address {address} is on {link.name} in {space.path}: the container lives; libcni gc of this network "
    )
    about = replace(about, meaning=f"{meaning}needs --valid {quoted(pair)}")
    remedy = "leave it if it is another runtime's; if its record is lost, let its runtime restart the container"
    net = node.configured(network)
    if net is None:
        return replace(about, remedy=remedy)
    given = [network, space.path, "-c", container_id, "-i", ifname]
    detach = shlex.join(["libcni", "del", *given, "--use-given"])
    if chain := chain_for_del(node, net, container_id, address):
        detach = f"{chain} && {detach}"
    attach = shlex.join(["libcni", "add", *given, "--args", f"IgnoreUnknown=1;IP={address}"])
    remedy += ", or attach it again with the address, and with the --owner and --capabilities that it had:"
    return replace(
        about, remedy=remedy, disrupts=(Disruption(detach, about.containers), Disruption(attach, about.containers))
    )


def check_ipam(node: Reading) -> Observations:
    """Find leaked and missing reservations, and addresses in two records."""
    yield from _duplicates(node)
    for (network, directory), reservations in sorted(node.reservations.items()):
        yield Checked("ipam", f"{counted(len(reservations), 'reservation')} of network {network} in {directory}")
        yield from _unrecorded(node, network, reservations)
        yield from _missing(node, network, directory, reservations)
        yield from _unreserved(node, network, reservations)
    types = {(net.name, plugin.ipam_type) for net in node.networks for plugin in net.plugins if plugin.ipam_type}
    for network, plugin_type in sorted(types):
        if plugin_type not in {"host-local", "static"}:
            reason = f"reservations of the IPAM plugin {plugin_type}: unknown form"
            yield NotChecked("ipam", f"network {network}", reason)


def _unrecorded(node: Reading, network: str, reservations: list[Reservation]) -> Observations:
    known = {(one.container_id, one.ifname) for one in node.attachments if one.network in {network, ""}}
    held: dict[tuple[str, str], list[Reservation]] = {}
    for one in reservations:
        held.setdefault((one.container_id, one.ifname), []).append(one)
    for (container_id, ifname), reserved in held.items():
        if (container_id, ifname) in known or node.is_known(network, container_id, ifname):
            continue
        subject = f"address {', '.join(one.address for one in reserved)} of network {network}"
        if any(one.changed > node.started - _YOUNG for one in reserved):
            yield NotChecked("ipam", subject, "it was reserved a moment ago: its ADD may be running")
            continue
        seen = f"reserved for container {container_id or '?'}, interface {ifname or '?'}, which has no record"
        found = look_for(node, network, container_id, ifname or "eth0")
        if not found.remedy and not found.commands:
            yield NotChecked("ipam", subject, f"{seen}; {found.meaning}")
            continue
        meaning = found.meaning if found.remedy else f"a leak: {found.meaning}, and nobody can use it"
        yield replace(found, subject=subject, seen=seen, meaning=meaning)


def _missing(node: Reading, network: str, directory: str, reservations: list[Reservation]) -> Observations:
    reserved = {ipaddress.ip_address(one.address) for one in reservations}
    for one in node.attachments:
        if one.state != READY or one.network != network or directory not in reservation_directories(node.recorded(one)):
            continue
        for address in addresses_of(one):
            if ipaddress.ip_address(address) not in reserved:
                content = f"printf '%s\\r\\n%s' {quoted(one.container_id)} {quoted(one.ifname)}"
                yield finding_about(
                    one, "ipam", "error", f"its address {address} is not reserved in {directory}",
                    "the next ADD can give the same address to another container",
                    # set -C: another container may have got the address since.
                    commands=(
                        f"mkdir -p {quoted(directory)}",
                        f"(set -C; {content} > {quoted(os.path.join(directory, address))})",
                    ),
                )  # fmt: skip


def _duplicates(node: Reading) -> Observations:
    """Find containers that share an address. Networks are separate address spaces, so only one network is compared."""
    holders: dict[tuple[str, str], list[Attachment]] = {}
    for address, attachments in node.recorded_addresses.items():
        for one in attachments:
            if one.state == READY:
                holders.setdefault((one.network, address), []).append(one)
    reserved = {
        (network, ipaddress.ip_address(one.address)): one.container_id
        for (network, _), reservations in node.reservations.items()
        for one in reservations
    }
    for (network, address), attachments in holders.items():
        owner = reserved.get((network, ipaddress.ip_address(address)))
        wrong = [one for one in attachments if owner not in {None, one.container_id}]
        if len(attachments) > 1:
            wrong = wrong or sorted(attachments, key=lambda one: one.record.created or 0)[1:]
            seen = f"recorded for several containers: {', '.join(map(id_of, attachments))}"
        else:
            seen = f"recorded for {id_of(attachments[0])}, and reserved for container {owner}"
        if wrong:
            yield NodeFinding(
                "ipam", "error", f"address {address} of network {network}", seen,
                "two containers may use the same address", "one of them needs an address of its own",
                disrupts=(Disruption(reload_command(*wrong), tuple(map(id_of, wrong))),),
                containers=tuple(map(id_of, attachments)),
            )  # fmt: skip


def _unreserved(node: Reading, network: str, reservations: list[Reservation]) -> Observations:
    """Find addresses of the pool that an interface has, and of which neither a reservation nor a record is left."""
    pool = [one for ranges in range_sets(node.configured(network)) for one in ranges]
    known = {*node.recorded_addresses, *(one.address for one in reservations), *(str(one.gateway) for one in pool)}
    for address, holders in node.holders.items():
        if address not in known and any(ipaddress.ip_address(address) in one for one in pool):
            for space, link in holders:
                yield NodeFinding(
                    "ipam", "warning", f"address {address} of network {network}",
                    f"{link.name} in {space.path} has it, and it is neither reserved nor on record",
                    "the next ADD can give it to a second container",
                    "if it is a container of this network, let its runtime restart it before anything is attached; "
                    "leave it if it is the network of a node inside a container",
                )  # fmt: skip
