"""Compare host-local's reservations with the records and with the addresses of all namespaces."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import replace

from libcni.config.host_local import Reservation, is_in_ranges, range_sets, reservation_directories
from libcni.diagnosis.mends import Mend
from libcni.diagnosis.node_state import NodeState, finding_about, grouped, id_of
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, some
from libcni.diagnosis.rules import rules_to_remove
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING


def look_for(node: NodeState, network: str, container_id: str, ifname: str) -> NodeFinding:
    """Search all namespaces for a container without a usable record, by the addresses that are reserved for it.

    The finding has a remedy if the container lives, mends if it does not, and neither if that is unknown.
    """
    # host-local before 0.8 wrote no interface name.
    reserved = [one for one in node.reserved_for(network, container_id) if one.ifname in {"", ifname}]
    addresses = [one.address for one in reserved]
    pair = (f"{container_id}:{ifname}",)
    about = NodeFinding(
        "ipam", "warning", "unrecorded", f"container {container_id}, {network}, {ifname}", "", containers=pair
    )
    held = next((one for one in addresses if one in node.holders), "")
    if held:
        return _living(node, about, held, network)
    if not reserved:
        return replace(about, meaning="no address is reserved for it, so nobody knows whether the container lives")
    if node.why_unknown:
        return replace(about, meaning=f"nobody knows whether the container lives: {node.why_unknown}")
    if node.is_young(reserved):
        remedy = f"repair releases it when it is {node.pending_after:.0f} seconds old (--pending-after)"
        return replace(about, meaning="it was reserved a moment ago: its ADD may be running", remedy=remedy)
    directories = grouped((os.path.dirname(one.path), one.address) for one in reserved)
    mends = [Mend("release", path, tuple(freed), pair, (), network) for path, freed in directories.items()]
    mends += rules_to_remove(node, network, container_id, ifname, addresses)
    meaning = "its address is in no network namespace of this node"
    return replace(about, name="leak", meaning=meaning, mends=tuple(mends))


def _living(node: NodeState, about: NodeFinding, address: str, network: str) -> NodeFinding:
    space, link = node.holders[address][0]
    if others := node.recorded_at(network, address, space.path):
        meaning = f"its address {address} is that of {id_of(others[0])}, which is on record: releasing it frees that"
        return replace(about, name="wrong-reservation", meaning=meaning, remedy="detach or reload that container first")
    meaning = (
        f"its address {address} is on {link.name} in {space.path}: the container lives; libcni gc of this network "
        f"needs --valid {about.containers[0]}"
    )
    remedy = "leave it if it is another runtime's; if its record is lost, let its runtime restart the container"
    return replace(about, meaning=meaning, remedy=remedy)


def check_ipam(node: NodeState) -> Observations:
    """Find leaked and missing reservations, and addresses in two records."""
    yield from _duplicates(node)
    yield from _missing(node)
    for (network, directory), reservations in sorted(node.reservations.items()):
        yield Checked("ipam", f"{counted(len(reservations), 'reservation')} of network {network} in {directory}")
        yield from _unrecorded(node, network, reservations)
        yield from _unreserved(node, network, reservations)
    for path, reason in node.unread.items():
        if path.startswith("/"):
            yield NotChecked("ipam", path, reason)
    types = {(net.name, plugin.ipam_type) for net in node.networks for plugin in net.plugins if plugin.ipam_type}
    for network, plugin_type in sorted(types):
        if plugin_type not in {"host-local", "static"}:
            reason = f"reservations of the IPAM plugin {plugin_type}: unknown form"
            yield NotChecked("ipam", f"network {network}", reason)


def _unrecorded(node: NodeState, network: str, reservations: list[Reservation]) -> Observations:
    known = {(one.container_id, one.ifname) for one in node.attachments if one.network in {network, ""}}
    held = grouped(((one.container_id, one.ifname), one) for one in reservations)
    for (container_id, ifname), reserved in held.items():
        if (container_id, ifname) in known or node.is_known(network, container_id, ifname):
            continue
        # The reservation has a wrong name, or a meta-plugin such as Multus has made it: then the record has the network
        # of the meta-plugin, and the directory that of the delegate.
        if any(
            attachment.network == network or (attachment.container_id == container_id and attachment.ifname == ifname)
            for one in reserved
            for attachment in _holders(node, one.address)
        ):
            continue
        subject = f"address {', '.join(one.address for one in reserved)} of network {network}"
        if node.is_young(reserved):
            yield NotChecked("ipam", subject, "it was reserved a moment ago: its ADD may be running")
            continue
        seen = f"{subject} is reserved for a container without a record"
        found = look_for(node, network, container_id or "?", ifname or "eth0")
        if not found.remedy and not found.mends:
            yield NotChecked(
                "ipam", subject, f"reserved for container {container_id or '?'}, which has no record; {found.meaning}"
            )
            continue
        yield replace(
            found,
            seen=seen,
            meaning=found.meaning if found.remedy else f"a leak: {found.meaning}, and nobody can use it",
        )


def _holders(node: NodeState, address: str) -> list[Attachment]:
    """Return the recorded attachments whose interface has an address now."""
    spaces = [space for space, _ in node.holders.get(address, ())]
    recorded = [one for one in node.recorded_addresses.get(address, ()) if one.state in LIVING]
    return [one for one in recorded if any(node.space_of(one) is space for space in spaces)]


def _holder(node: NodeState, network: str, address: str) -> Attachment | None:
    """Return the recorded attachment of a network whose interface has an address now, or None."""
    return next((one for one in _holders(node, address) if one.network == network), None)


def _is_misnamed(node: NodeState, network: str, reservation: Reservation) -> bool:
    """Return whether a reservation names another attachment than the only one whose record has the address."""
    recorded = node.recorded_addresses.get(reservation.address, ())
    # host-local before 0.8 wrote no interface name. Its GC frees what is reserved for an interface that is not valid.
    names = {(one.container_id, ifname) for one in recorded for ifname in (one.ifname, "")}
    return (reservation.container_id, reservation.ifname) not in names and _holder(
        node, network, reservation.address
    ) is not None


def _missing(node: NodeState) -> Observations:
    """Find addresses in use that are not reserved for their container."""
    reserved = {
        (directory, ipaddress.ip_address(one.address)): one
        for (_, directory), reservations in node.reservations.items()
        for one in reservations
    }
    for one, _ in node.live:
        places = sorted(
            path for path in reservation_directories(node.recorded(one)) if (one.network, path) in node.reservations
        )
        for address, directory in ((address, path) for address in node.addresses_of(one) for path in places):
            found, about = reserved.get((directory, ipaddress.ip_address(address))), ""
            if found is not None:
                if not _is_misnamed(node, one.network, found) or _holder(node, one.network, address) is not one:
                    continue
                about = f" for it, but for {found.container_id or '?'}:{found.ifname}".rstrip(":")
            yield finding_about(
                "ipam", "error", one, "not-reserved", f"its address {address} is not reserved in {directory}{about}",
                "the next ADD can give the same address to another container",
                mends=(Mend("reserve", directory, (address,), (id_of(one),), (), one.network),),
            )  # fmt: skip


def _duplicates(node: NodeState) -> Observations:
    """Find containers that share an address. Networks are separate address spaces, so only one network is compared."""
    holders = grouped(
        ((one.network, address), one)
        for address, attachments in node.recorded_addresses.items()
        for one in attachments
        if one.state in LIVING
    )
    reserved = {
        (network, ipaddress.ip_address(one.address)): one
        for (network, _), reservations in node.reservations.items()
        for one in reservations
    }
    for (network, address), attachments in holders.items():
        reservation = reserved.get((network, ipaddress.ip_address(address)))
        names = [id_of(one) for one in attachments]
        pool = any(is_in_ranges(node.recorded(one), address) for one in attachments)
        strangers = [f"{link.name} in {space.path}" for space, link in node.strangers(address)] if pool else []
        if len(attachments) == 1 and not (strangers and node.space_of(attachments[0]) is not None):
            continue
        wrong = [one for one in attachments if reservation is not None and reservation.container_id != one.container_id]
        wrong = wrong or sorted(attachments, key=lambda one: one.record.created or 0)[1:]
        seen = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} it by record"
        seen += f", and {some(strangers)} also has it" if strangers else ""
        seen += f"; it is reserved for {reservation.container_id}" if reservation is not None else ""
        yield NodeFinding(
            "ipam", "error", "duplicate-address", f"address {address} of network {network}", seen,
            "two containers may use the same address",
            "find out which of them keeps the address; the others need one of their own" if strangers else "",
            # A reload requests the reserved address again, so only a container without a reservation gets another one.
            () if strangers else tuple(mend for one in wrong for mend in node.reloads(one, interrupts=True)[1]),
            tuple(names),
        )  # fmt: skip


def _unreserved(node: NodeState, network: str, reservations: list[Reservation]) -> Observations:
    """Find addresses of the pool that an interface has, without a reservation and without a record."""
    pool = [one for ranges in range_sets(node.configured(network)) for one in ranges]
    known = {*node.recorded_addresses, *(one.address for one in reservations), *(str(one.gateway) for one in pool)}
    for address, holders in node.holders.items():
        if address not in known and any(ipaddress.ip_address(address) in one for one in pool):
            for space, link in holders:
                yield NodeFinding(
                    "ipam", "warning", "unreserved", f"address {address} of network {network}",
                    f"{link.name} in {space.path} has it, and it is neither reserved nor on record",
                    "the next ADD can give it to a second container",
                    "if it is a container of this network, let its runtime restart it before anything is attached; "
                    "leave it if it is the network of a node inside a container",
                )  # fmt: skip
