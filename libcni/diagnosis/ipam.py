"""Compare host-local's reservations with the records and with the addresses of all namespaces."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from typing import Literal

from libcni._dataclass import replace
from libcni.config.host_local import Reservation, is_in_ranges, junk_in, range_sets, reservation_directories
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.config_drift import renamed_network
from libcni.diagnosis.container_side import replacing_addresses
from libcni.diagnosis.lock_holders import container_id_of, host_name_of, process_age
from libcni.diagnosis.mends import Mend, id_of
from libcni.diagnosis.node_state import Holder, NodeState
from libcni.diagnosis.reading import bridge_of, grouped
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, finding_about
from libcni.diagnosis.rules_left import rules_to_remove
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import counted, some
from libcni.kernel.foreign import Space
from libcni.kernel.life import Answer, Subject
from libcni.kernel.netlink import Link
from libcni.store.attachments import Attachment
from libcni.store.life_of_record import age_of
from libcni.store.model import LIVING

_CLOCK_STEP = 60.0
"""Seconds by which a clock may be set back while an ADD runs."""


def look_for(node: NodeState, network: str, container_id: str, ifname: str) -> NodeFinding:
    """Return a finding about a reservation without a usable record: search all namespaces for its addresses.

    The finding has a remedy if the container lives, mends if it is dead, and neither if nobody knows.
    """
    # host-local before 0.8 wrote no interface name.
    reserved = [
        reservation for reservation in node.reserved_for(network, container_id) if reservation.ifname in {"", ifname}
    ]
    addresses = [reservation.address for reservation in reserved]
    # A power cut leaves an empty file of host-local.
    pair = (f"{container_id or '?'}:{ifname}",)
    about = NodeFinding(
        "ipam", "warning", "unrecorded", f"container {container_id or '?'}, {network}, {ifname}", "", containers=pair
    )
    held = next((address for address in addresses if address in node.holders), "")
    if held:
        return _living(node, about, held, network)
    if not reserved:
        return replace(about, meaning="no address is reserved for the container, so nobody knows whether it lives")
    if _is_young(node, reserved):
        remedy = f"repair releases the reservation when it is {node.pending_after:.0f} seconds old (--pending-after)"
        return replace(about, meaning="this address was reserved a moment ago: the ADD may still run", remedy=remedy)
    answer = _life_of(node, network, reserved)
    if not answer.is_dead:
        return replace(about, meaning=f"nobody knows whether the container lives: {answer.reason}")
    directories = grouped((os.path.dirname(reservation.path), reservation.address) for reservation in reserved)
    mends = [Mend("release", path, tuple(freed), pair, (), network) for path, freed in directories.items()]
    mends += rules_to_remove(node, network, container_id, ifname, addresses) if container_id else ()
    meaning = "the address is in no network namespace of this node"
    return replace(about, name="leak", meaning=meaning, mends=tuple(mends))


def _living(node: NodeState, about: NodeFinding, address: str, network: str) -> NodeFinding:
    space, link, attachments = node.holders[address][0]
    if recorded := next((id_of(attachment) for attachment in attachments if attachment.network == network), ""):
        meaning = f"the recorded attachment {recorded} has this address: without the reservation another ADD may get it"
        remedy = f"detach or reload {recorded}, then call repair again"
        return replace(about, name="wrong-reservation", meaning=meaning, remedy=remedy)
    where = f"the address {address} is on {link.name} in {space.path}"
    if about.containers[0].partition(":")[0] == os.path.basename(space.path):
        # Its name is that of the namespace: a mend of "unreserved" has reserved the address.
        remedy = f"when the container has ended, repair frees the address after: {_removal_of(space)}"
        return replace(about, severity="note", meaning=f"{where}, for which it is reserved", remedy=remedy)
    if not space.process:
        # Its runtime may have been killed within the ADD, or may just be starting it.
        remedy = (
            "let the runtime remove the sandbox (crictl rmp); when the namespace has gone, repair frees the address"
        )
        return replace(about, meaning=f"{where}, and nothing runs in that namespace", remedy=remedy)
    meaning = (
        f"{where}: the container lives ({inhabitant_of(space)}); libcni gc of this network "
        f"needs --valid {about.containers[0]}"
    )
    remedy = "if another runtime attached the container, do nothing; if its record is lost, let its runtime restart it"
    return replace(about, meaning=meaning, remedy=remedy)


def check_ipam(node: NodeState) -> Observations:
    """Find leaked and missing reservations, and addresses in two records."""
    missing = list(_missing(node))
    yield from missing
    yield from _duplicates(node, {mend.network for finding in missing for mend in finding.mends})
    yield from _taken_gateways(node)
    for (network, directory), reservations in sorted(node.reservations.items()):
        yield Checked("ipam", f"{counted(len(reservations), 'reservation')} of network {network} in {directory}")
        if junk := junk_in(directory):
            seen = f"the directory has {counted(len(junk), 'file')} that host-local did not write: {some(junk)}"
            meaning, remedy = "these files reserve nothing", "find out where these files come from, then remove them"
            yield NodeFinding("ipam", "note", "junk", directory, seen, meaning, remedy)
        yield from _unrecorded(node, network, reservations)
        yield from _unreserved(node, network, reservations)
    ranges = [span for net in node.networks for spans in range_sets(net) for span in spans]
    ignored = {
        address: path for address, path in _ignored_addresses(node).items()
        if any(ipaddress.ip_address(address) in span for span in ranges)
    }  # fmt: skip
    if ignored:
        yield NodeFinding(
            "ipam", "note", "ignored-addresses", next(iter(ignored.values())),
            f"the namespace has {counted(len(ignored), 'address')} of a pool: {some(list(ignored))}",
            "any user can create such a namespace, so the doctor ignores its addresses",
        )  # fmt: skip
    for path, reason in node.unread.items():
        if path.startswith("/"):
            yield NotChecked("ipam", path, reason)
    types = {(net.name, plugin.ipam_type) for net in node.networks for plugin in net.plugins if plugin.ipam_type}
    for network, plugin_type in sorted(types):
        if plugin_type not in {"host-local", "static"}:
            reason = f"the doctor cannot read reservations of the IPAM plugin {plugin_type}"
            yield NotChecked("ipam", f"network {network}", reason)


def _unrecorded(node: NodeState, network: str, reservations: list[Reservation]) -> Observations:
    known = {
        (attachment.container_id, attachment.ifname)
        for attachment in node.attachments
        if attachment.network in {network, ""}
    }
    held = grouped(((reservation.container_id, reservation.ifname), reservation) for reservation in reservations)
    for (container_id, ifname), reserved in held.items():
        if (container_id, ifname) in known or node.is_known(network, container_id, ifname):
            continue
        # Either the reservation names a wrong container, or a delegate of a meta-plugin such as Multus reserved the
        # address: the record has the network of the meta-plugin, and the directory has the network of the delegate.
        if any(
            attachment.network == network or (attachment.container_id == container_id and attachment.ifname == ifname)
            for reservation in reserved
            for attachment in _holders(node, reservation.address)
        ):
            continue
        subject = f"address {', '.join(reservation.address for reservation in reserved)} of network {network}"
        if _is_young(node, reserved):
            reason = "this address was reserved a moment ago: the ADD may still run"
            if all(reservation.changed > node.started + _CLOCK_STEP for reservation in reserved):
                path = reserved[0].path
                reason = f"the time of its file is in the future, so its age is unknown; if no ADD runs: touch {path}"
            yield NotChecked("ipam", subject, reason)
            continue
        seen = f"{subject} is reserved for a container without a record"
        finding = look_for(node, network, container_id, ifname or "eth0")
        if not finding.remedy and not finding.mends:
            yield NotChecked(
                "ipam", subject, f"reserved for container {container_id or '?'}, which has no record; {finding.meaning}"
            )
            continue
        yield replace(
            finding,
            seen=seen,
            meaning=finding.meaning
            if finding.remedy
            else f"a leak: {finding.meaning}, and no container can get the address",
        )


def _holders(node: NodeState, address: str) -> list[Attachment]:
    """Return the ready attachments whose namespace has an address now, and whose record gives it to them."""
    recorded = (attachment for holder in node.holders.get(address, ()) for attachment in holder.recorded)
    return [attachment for attachment in recorded if attachment.state in LIVING]


def _is_misnamed(node: NodeState, attachment: Attachment, reservation: Reservation) -> bool:
    """Return whether a reservation for an attachment's address names another one, which no record knows."""
    address = reservation.address
    # host-local before 0.8 wrote no interface name. Its GC frees the reservations of interfaces that are not valid.
    names = {
        (other.container_id, ifname)
        for other in node.recorded_addresses.get(address, ())
        for ifname in (other.ifname, "")
    }
    holders = [other for other in _holders(node, address) if other.network == attachment.network]
    return (reservation.container_id, reservation.ifname) not in names and holders[:1] == [attachment]


def _missing(node: NodeState) -> Iterator[NodeFinding]:
    """Find addresses in use that are not reserved for their container."""
    nets: dict[object, NetworkConfigList | None] = {}
    for attachment, _ in node.live:
        places = sorted(
            path
            for path in reservation_directories(node.recorded(attachment))
            if (attachment.network, path) in node.reservations
        )
        for address, directory in product(node.addresses_of(attachment), places):
            reservation, state = node.reservation(directory, address), "not reserved"
            if reservation is not None:
                if not _is_misnamed(node, attachment, reservation):
                    continue
                state = f"reserved for {reservation.container_id or '?'}:{reservation.ifname}".rstrip(":")
            yield finding_about(
                "ipam", "error", attachment, "not-reserved",
                f"its address {address} is {state} in {directory}",
                "the next ADD can give the same address to another container",
                mends=(Mend("reserve", directory, (address,), (id_of(attachment),), (), attachment.network),),
            )  # fmt: skip
        yield from _missing_next(node, attachment, nets)


def _missing_next(
    node: NodeState, attachment: Attachment, nets: dict[object, NetworkConfigList | None]
) -> Iterator[NodeFinding]:
    """Find addresses in use that are not reserved in the directory of the next ADD, because the file was changed.

    ``nets``: the present configurations of networks and recorded configurations that were examined before.
    """
    recorded = node.recorded(attachment)
    if recorded is None:
        return
    key = attachment.network, id(recorded)
    if key not in nets:
        nets[key] = node.configured(attachment.network) or renamed_network(node, attachment)
    net = nets[key]
    for directory in sorted(reservation_directories(net) - reservation_directories(recorded)):
        for address in node.addresses_of(attachment):
            holders = node.holders.get(address, ())
            if (
                net is not None and is_in_ranges(net, address) and node.reservation(directory, address) is None
                and any(attachment in holder.recorded for holder in holders)
            ):  # fmt: skip
                yield finding_about(
                    "ipam", "error", attachment, "not-reserved",
                    f"its address {address} is not reserved in {directory}, where the next ADD looks: {net.file} "
                    "had another directory or network name when the container was attached",
                    "the next ADD can give the same address to another container",
                    mends=(Mend("reserve", directory, (address,), (id_of(attachment),), (), net.name),),
                )  # fmt: skip


def _duplicates(node: NodeState, unreserved: set[str]) -> Observations:
    """Find containers that share an address. Networks are separate address spaces, except those on one bridge.

    ``unreserved``: the networks with addresses in use that are not reserved: a new container may get one of them.
    """
    holders = grouped(
        ((_domain_of(node, attachment), address), attachment)
        for attachment, _ in node.live
        for address in node.addresses_of(attachment)
    )
    directories = grouped(node.reservations)
    for (_, address), attachments in holders.items():
        networks = list(dict.fromkeys(attachment.network for attachment in attachments))
        others = node.strangers(address)
        if others and not any(is_in_ranges(node.recorded(attachment), address) for attachment in attachments):
            others = []
        strangers = [f"{link.name} {_place(node, space)}" for space, link, _ in others]
        if len(attachments) == 1 and not strangers:
            continue
        names = [id_of(attachment) for attachment in attachments]
        places = [directory for network in networks for directory in directories.get(network, ())]
        found = (node.reservation(directory, address) for directory in places)
        reservation = next(filter(None, found), None)
        # The older one keeps its address, whoever has the reservation.
        newer = _newer_ones(attachments)
        # Those of a network without a file get an address of another one.
        without = [one for one in attachments if node.configured(one.network) is None]
        newer = without if 0 < len(without) < len(attachments) else newer
        # A reload asks for the reserved address again. The time of a file is no proof, so it moves nobody.
        movable = [
            one for one in newer
            if not one.pod and one not in without and not strangers and one.record.created is not None
            and not (reservation and reservation.container_id == one.container_id)
        ]  # fmt: skip
        mends = tuple(mend for attachment in movable for mend in reloads(node, attachment, interrupts=True)[1])
        moved = {name for mend in mends for name in mend.containers}
        remedies = [*_restarts([one for one in newer if id_of(one) not in moved])]
        if others:
            remedies.append(_removals(node, address, others, attachments))
        remedy = "; ".join(remedies)
        if remedy and not unreserved.isdisjoint(networks):
            remedy = (
                f"first run libcni repair --yes, or the new container may get a third one's address; then: {remedy}"
            )
        if not (mends or remedy):
            remedy = "decide which of them keeps the address, and restart the others: those get other addresses"
        seen = f"on record for {', '.join(names)}"
        seen += f"; also on {some(strangers)}" if strangers else ""
        seen += f"; reserved for {reservation.container_id}" if reservation is not None else ""
        yield NodeFinding(
            "ipam", "error", "duplicate-address", f"address {address} of network {' and '.join(networks)}", seen,
            "two containers may use the same address",
            remedy, mends,
            tuple(names),
        )  # fmt: skip


def _newer_ones(attachments: list[Attachment]) -> list[Attachment]:
    """Return all attachments but the oldest one; [] if an age is unknown.

    Go libcni records no time: the file has that of the ADD, if nobody has copied it.
    """
    dated: list[tuple[float, int, Attachment]] = []
    for number, attachment in enumerate(attachments):
        created = attachment.record.created
        with suppress(OSError):
            created = os.stat(attachment.path).st_mtime if created is None else created
        if created is None:
            return []
        dated.append((created, number, attachment))
    return [attachment for _, _, attachment in sorted(dated)[1:]]


def _restarts(attachments: list[Attachment]) -> Iterator[str]:
    """Yield how to give containers other addresses. Kubernetes keeps the first address of a pod for ever."""
    for attachment in attachments:
        if attachment.pod:
            yield shlex.join(["kubectl", "delete", "pod", "-n", *attachment.pod.split("/", 1)])
    if ids := [attachment.container_id for attachment in attachments if not attachment.pod]:
        yield f"restart {some(ids)}"


def _removals(node: NodeState, address: str, others: list[Holder], attachments: list[Attachment]) -> str:
    """Return the commands that take an address from interfaces without a record of it."""
    places = [(link, "" if node.is_host(space) else space.path) for space, link, _ in others]
    commands = "; ".join(
        command_in(netns, f"ip address del {text} dev {shlex.quote(link.name)}")
        for link, netns in places for text in link.addresses if text.partition("/")[0] == address
    )  # fmt: skip
    # A container with an address of its own got this one later, and not from a plugin.
    if all(netns for _, netns in places) and all(node.recorded_in(space) for space, _, _ in others):
        return commands
    ours = some(list(map(id_of, attachments)))
    first = _first_one(node, others, attachments)
    if first == "ours":
        who = some([_inhabitants(node, space) for space, _, _ in others])
        return f"{ours} had the address first, so restart the other container ({who}): it gets another address"
    if first == "others":
        return f"the other container had the address first: {'; '.join(_restarts(attachments))}"
    return f"if {ours} had the address first: {commands}; else: {'; '.join(_restarts(attachments))}"


def _first_one(
    node: NodeState, others: list[Holder], attachments: list[Attachment]
) -> Literal["ours", "others", "unknown"]:
    """Return who had an address first: a runtime starts the first process of a container after its ADD."""
    running = [None if node.is_host(space) else process_age(space.process) for space, _, _ in others]
    attached = [age_of(attachment.record) for attachment in attachments]
    known = [age for age in (*running, *attached) if age is not None]
    if len(known) == len(running) + len(attached):
        process_ages, ages = known[: len(running)], known[len(running) :]
        if max(process_ages) < min(ages):
            return "ours"
        if min(process_ages) > max(ages):
            return "others"
    return "unknown"


def _is_gateway(node: NodeState, network: str, address: str) -> bool:
    """Return whether the plugins reported an address as the gateway of an attachment to a network."""
    attached = (node.summary_of(one) for one in node.attachments if one.network == network)
    return any(address == cidr.partition("/")[0] for summary in attached for cidr in summary.gateways)


def _cidr_on(link: Link, address: str) -> str:
    """Return an address of an interface with its prefix length."""
    return next(text for text in link.addresses if text.partition("/")[0] == address)


def _place(node: NodeState, space: Space) -> str:
    if node.is_host(space):
        return "of this node itself"
    return f"in {space.path} ({_inhabitants(node, space)})"


def _domain_of(node: NodeState, attachment: Attachment) -> tuple[str, ...]:
    """Return what an attachment shares with those that must not have its address: its bridge, or else its network."""
    bridges = [one for one in node.documents(attachment) if one.get("type") == "bridge"]
    is_here = attachment.path not in node.elsewhere
    return (bridge_of(bridges[0]), str(bridges[0].get("vlan"))) if bridges and is_here else ("", "", attachment.network)


def _taken_gateways(node: NodeState) -> Observations:
    """Find containers whose interface has the address of their network's gateway."""
    gateways = {
        (attachment.network, cidr.partition("/")[0]): None
        for attachment, _ in node.live for cidr in node.summary_of(attachment).gateways
    }  # fmt: skip
    for network, address in gateways:
        for space, link, _ in node.holders.get(address, ()):
            containers = [id_of(one) for one in node.recorded_in(space) if one.network == network]
            if containers and not node.is_host(space):
                yield NodeFinding(
                    "ipam", "error", "duplicate-address", f"gateway {address} of network {network}",
                    f"{link.name} in {space.path} ({_inhabitants(node, space)}) has it, too",
                    "packets for the gateway may go to this container",
                    command_in(
                        space.path, f"ip address del {_cidr_on(link, address)} dev {shlex.quote(link.name)}"
                    ), (),
                    tuple(containers),
                )  # fmt: skip


def _unreserved(node: NodeState, network: str, reservations: list[Reservation]) -> Observations:
    """Find addresses of the pool that interfaces have without a reservation and without a record of the address."""
    net = node.configured(network)
    pool = [span for ranges in range_sets(net) for span in ranges]
    known = {
        *node.recorded_addresses,
        *(reservation.address for reservation in reservations),
        *(str(span.gateway) for span in pool),
        *replacing_addresses(node),
    }
    found = [
        (address, holder)
        for address, holders in node.holders.items()
        if address not in known and any(ipaddress.ip_address(address) in span for span in pool)
        for holder in holders
    ]
    directories = reservation_directories(net)
    for address, holder in found:
        if node.is_host(holder.space):
            if _is_gateway(node, network, address):
                continue  # the file has another one now: the check of the next container says that
            remedy = f"find out who created {holder.link.name}; give that interface or the network another subnet"
            if holder.link.name == "lo":
                remedy = "find out who added it (keepalived and kube-vip do), then run: "
                remedy += f"ip address del {_cidr_on(holder.link, address)} dev lo"
            yield NodeFinding(
                "ipam", "warning", "unreserved", f"network {network}",
                f"address {address} of the pool is on {holder.link.name} of the node, which is not the bridge",
                "the next ADD can give the address to a container, and the node would take the container's packets",
                remedy,
            )  # fmt: skip
            continue
        name = f"{_owner_of(node, holder.space, network)}:{holder.link.name}"
        # Only of an interface whose other end is here it is certain that it is on this node's network.
        reader = holder.space.network.reader if holder.space.network is not None else None
        is_ours = reader is not None and holder.link.peer_namespace == reader and len(directories) == 1
        mends = tuple(Mend("reserve", path, (address,), (name,), (), network) for path in directories if is_ours)
        remedy = (
            "if it belongs to a container of this network, let the runtime restart the container before the next ADD; "
            "if it belongs to a node inside a container (such as kind), do nothing"
        )
        if mends:  # the kernel answers for the address, whatever runs there; a sandbox that failed may have left it
            remedy = "" if holder.space.process else f"if no container needs it: {_removal_of(holder.space)}"
        yield NodeFinding(
            "ipam", "warning", "unreserved", f"container {name.partition(':')[0]}",
            f"address {address} of network {network} is on {holder.link.name} in {holder.space.path}"
            f" ({inhabitant_of(holder.space)}), and it is neither reserved nor on record",
            "the next ADD can give this address to a second container",
            remedy, mends, (name,),
        )  # fmt: skip


def _removal_of(space: Space) -> str:
    """Return the command that removes the name of a namespace, or words for it."""
    directory, name = os.path.split(space.path)
    is_named = directory in {"/run/netns", "/var/run/netns"}
    return f"ip netns del {shlex.quote(name)}" if is_named else "remove the namespace"


def _owner_of(node: NodeState, space: Space, network: str) -> str:
    """Return the recorded container of a namespace; else the ID in the control group of its process, or its name."""
    recorded = [one for one in node.recorded_in(space) if one.network == network]
    return recorded[0].container_id if recorded else container_id_of(space.process) or os.path.basename(space.path)


def _inhabitants(node: NodeState, space: Space) -> str:
    """Return the containers of a namespace by record, or who lives there."""
    names = dict.fromkeys(attachment.pod or attachment.container_id for attachment in node.recorded_in(space))
    return some(list(names)) or inhabitant_of(space)


def inhabitant_of(space: Space) -> str:
    """Return text about a process in a namespace and its host name (in Kubernetes the pod's), or that none runs."""
    if not space.process:
        return "nothing runs there"
    name = host_name_of(space.process)
    return f"process {space.process}" + (f", host name {name}" if name else "")


def _life_of(node: NodeState, network: str, reservations: Iterable[Reservation]) -> Answer:
    """Return whether the container of reservations without a record lives: by their addresses alone."""
    addresses = tuple(one.address for one in reservations)
    age = min(node.started - one.changed for one in reservations)
    return node.life.of(Subject(addresses=addresses, bridges=node.bridges_of.get(network, ()), age=age))


def _ignored_addresses(node: NodeState) -> dict[str, str]:
    """Return the addresses that count for nothing, each with the path of a namespace that a user can have made."""
    return {
        text.partition("/")[0]: space.path
        for space in node.spaces.values() if space.network is not None and not space.is_trusted
        for link in space.network.links.values() if not space.is_evidence(link)
        for text in link.addresses
    }  # fmt: skip


def _is_young(node: NodeState, reservations: Iterable[Reservation]) -> bool:
    """Return whether one of the reservations may belong to a running ADD, which has no interface yet."""
    return any(reservation.changed > node.started - node.pending_after for reservation in reservations)
