"""Compare the interfaces, addresses and routes in the namespaces and on the host with the records."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

from libcni._dataclass import replace
from libcni.config.host_local import reservation_directories
from libcni.diagnosis.mends import Mend, MendKind, id_of
from libcni.diagnosis.node_state import NodeState, is_default
from libcni.diagnosis.obstacles import bridge_gateways
from libcni.diagnosis.reading import bridge_of, grouped, is_gateway
from libcni.diagnosis.reload_mend import reloads, reloads_of, renamed_bridge
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, finding_about, name_of
from libcni.diagnosis.stopped_links import (
    UPLINK,
    HardwareAddresses,
    command_in,
    in_another_vlan,
    let_take,
    settings_that_stop,
    takes,
)
from libcni.diagnosis.ways import check_ways
from libcni.errors import counted, some
from libcni.kernel.foreign import Space
from libcni.kernel.netlink import DROPS_PACKETS, MAIN_TABLE, Link, Neighbour, Network
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING
from libcni.store.place import Known, Place, is_same_index
from libcni.store.recorded_interface import place_of

_error = partial(finding_about, "interfaces", "error")
_CUT_OFF = "the container is cut off"
_FOLLOW_IPAM = {"bridge", "ptp", "macvlan", "ipvlan", "vlan", "host-device"}
_LIKE_ENDS = {"bridge", "ptp", "portmap", "firewall", "bandwidth", "sbr", "tuning"}
"""The plugins that set the same MTU at both ends of a veth, or set no MTU."""
_BLOCKED = {"state 0", "state 4"}
"""The states of a bridge's port in which it forwards nothing: disabled and blocking."""
_ONE_HOST = ("/32", "/128")
_WITH_MASTER = {"macvlan", "ipvlan", "vlan"}


def check_interfaces(node: NodeState) -> Observations:
    """Find faults of interfaces, addresses, routes, bridges and masters that cut containers off."""
    if node.host is None:
        yield NotChecked("interfaces", "this node", node.unread.get("this node", "the interfaces in it are unknown"))
        return
    for attachment in node.attachments:
        space = node.space_of(attachment)
        if attachment.state in LIVING and attachment.netns and (space is None or space.network is None):
            yield NotChecked("interfaces", name_of(attachment), f"{attachment.netns} cannot be entered")
    if node.elsewhere:
        reason = "this program is in another network namespace than the bridges of these attachments"
        yield NotChecked("interfaces", f"the host's side of {counted(len(node.elsewhere), 'attachment')}", reason)
    faults = list(_faults(node, node.host))
    yield from faults
    yield from check_ways(node, node.host, faults)
    if node.live:
        what = "the kernel's own routes; MTU and hairpin mode that no configuration sets"
        yield NotChecked("interfaces", what, "no plugin and no record says what these should be")
        yield Checked(
            "interfaces", f"interfaces, addresses and routes of {counted(len(node.live), 'ready attachment')}"
        )


def _faults(node: NodeState, host: Network) -> Iterator[NodeFinding]:
    explained: set[str] = set()
    routes = grouped((route.ifindex, route.destination) for route in host.routes)
    macs = HardwareAddresses(node, host)
    for (kind, name), users in _devices(node).items():
        for finding in _device(node, host, kind, name, users):
            if finding.name == "bridge-missing" or (kind == "master" and finding.severity == "error"):
                explained.update(finding.containers)
            yield finding
        if kind == "bridge" and name in host.links:
            about = partial(NodeFinding, "interfaces", subject=f"bridge {name}", containers=_names(users))
            documents = [document for _, document in users]
            yield from settings_that_stop(host.links[name], documents, about)
            yield from macs.wrong(host, host.links[name], {attachment.network for attachment, _ in users}, about)
    yield from _wrong_bridge_entries(node, host)
    yield from _uplink(node)
    for link in node.uplinks:
        about = partial(NodeFinding, "interfaces", subject=f"interface {link.name}")
        yield from settings_that_stop(link, (), about, only=UPLINK)
    yield from _doubled_hardware_addresses(node)
    yield from _without_default_route(node)
    yield from _other_gateways(node, host)
    for attachment, inside in node.live:
        if id_of(attachment) not in explained:
            yield from _inside(node, attachment, inside)
            yield from _moved_host_end(node, attachment, inside)
            yield from _stopped_inside(node, attachment, inside, macs)
        if attachment.path not in node.elsewhere:
            yield from _host_side(node, attachment, host, routes)
            yield from _stopped_outside(node, attachment, host, macs)


def _link_mend(kind: MendKind, attachment: Attachment, link: Link, *details: str, netns: str = "") -> Mend:
    return Mend(kind, link.name, details, (id_of(attachment),), netns=netns)


def _about(attachment: Attachment) -> partial[NodeFinding]:
    return partial(NodeFinding, "interfaces", subject=name_of(attachment), containers=(id_of(attachment),))


def _stopped_outside(
    node: NodeState, attachment: Attachment, host: Network, macs: HardwareAddresses
) -> Iterator[NodeFinding]:
    """Find what stops packets in an attachment's interfaces on the host that are up."""
    about, documents = _about(attachment), node.documents(attachment)
    for link in node.host_ends(attachment):
        yield from settings_that_stop(link, documents, about)
        yield from macs.wrong(host, link, {attachment.network}, about)
        if bridge := node.host_links_by_index.get(link.master):
            yield from in_another_vlan(bridge, link, documents, about)


def _stopped_inside(
    node: NodeState, attachment: Attachment, network: Network, macs: HardwareAddresses
) -> Iterator[NodeFinding]:
    """Find what stops packets in an attachment's interface in its namespace."""
    if link := network.links.get(attachment.ifname):
        about, netns = _about(attachment), attachment.netns
        yield from settings_that_stop(link, node.documents(attachment), about, netns)
        yield from macs.wrong(network, link, {attachment.network}, about, netns)


def _without_default_route(node: NodeState) -> Iterator[NodeFinding]:
    """Find containers that were attached without the default route which others of their network got."""
    alike = grouped(((one.network, one.ifname), (one, inside)) for one, inside in node.live)
    for ((network, _), pairs), is_6 in product(alike.items(), (False, True)):
        given = {
            one.path for one, _ in pairs
            if any(is_default(place) and (":" in place) == is_6 for place, _ in node.summary_of(one).routes)
        }  # fmt: skip
        lacking = [
            one for one, inside in (pairs if given else ())
            if one.path not in given and any((":" in address) == is_6 for address in node.addresses_of(one))
            and not any(is_default(way.destination) and (":" in way.destination) == is_6 for way in inside.routes)
        ]  # fmt: skip
        if lacking:
            gateways = [
                (one, cidr) for one in lacking for cidr in node.summary_of(one).gateways if (":" in cidr) == is_6
            ]
            commands = [
                command_in(one.netns, f"ip{' -6' * is_6} route add default via {cidr.partition('/')[0]}")
                for one, cidr in gateways
            ]
            names = tuple(map(id_of, lacking))
            others = f"{counted(len(given), 'other attachment')} of the network got one"
            remedy = "if that is a mistake, add the routes to the network's file, and start the container again"
            yield NodeFinding(
                "interfaces", "warning", "route-missing", f"network {network}",
                f"{some(names)}: attached without a default route of {'IPv6' if is_6 else 'IPv4'}; {others}",
                "without it a container reaches its own network only",
                f"{remedy}; until then: {some(commands, '; ')}" if commands else remedy, (), names,
            )  # fmt: skip


def _other_gateways(node: NodeState, host: Network) -> Iterator[NodeFinding]:
    """Find what has told containers that an address of their bridge is its own, such as a virtual machine.

    The kernel may keep a neighbour's old hardware address for a while. So it must also be behind a port of the bridge.
    """
    own = {text.partition("/")[0] for link in host.links.values() for text in link.addresses}
    ports_of = grouped((entry.mac, entry.port) for entry in host.bridge_entries if entry.is_learned)
    users: dict[tuple[str, str, int, int], list[Attachment]] = {}
    for attachment, inside in node.live:
        for entry in inside.learned:
            if entry.address in own and entry.mac in ports_of and _is_of_another(node, host, attachment, entry):
                masters = {end.master for end in node.host_ends(attachment)} - {0}
                for port in ports_of[entry.mac]:
                    link = node.host_links_by_index.get(port)
                    if link is not None and link.master in masters:
                        users.setdefault((entry.address, entry.mac, port, link.master), []).append(attachment)
    for (address, mac, port, master), attachments in users.items():
        name, bridge = node.host_links_by_index[port].name, node.host_links_by_index[master].name
        owners = [one for one in node.attachments if any(end.index == port for end in node.host_ends(one))]
        places = [f"{link.name} in {space.path}" for space in node.spaces.values() if space.network is not None
                  for link in space.network.links.values() if link.mac == mac]  # fmt: skip
        who = f"of container {owners[0].container_id}" if owners else "which no record names"
        yield NodeFinding(
            "interfaces", "error", "wrong-neighbour", f"bridge {bridge}",
            f"the address {address} of the bridge is also behind its port {name}, {who}: "
            f"the hardware address {mac}{f', {places[0]}' if places else ''}",
            f"packets of {some([*map(id_of, attachments)])} for this address, and through it, go there",
            f"find out what is behind {name}, and take the address {address} from it; "
            f"to see the addresses behind each port: bridge fdb show br {shlex.quote(bridge)}",
            (), tuple(map(id_of, attachments)),
        )  # fmt: skip


def _is_of_another(node: NodeState, host: Network, attachment: Attachment, entry: Neighbour) -> bool:
    """Return whether the address of a neighbour is that of the container's gateway here, and its hardware address not.

    An address of the node elsewhere may be the container's own: then the other interface is the fault.
    """
    links = [host.links[name] for name in node.gateway_interfaces(attachment) if name in host.links]
    macs = [link.mac for link in links if link.has_address(entry.address)]
    return bool(macs) and entry.mac not in macs


def _uplink(node: NodeState) -> Iterator[NodeFinding]:
    """Find an interface with the node's default route that nothing is connected to, or that a bridge has taken."""
    links = [link for link in (node.way_out(version)[0] for version in (4, 6)) if link is not None and link.is_up]
    for link in {link.index: link for link in links}.values():
        about = partial(NodeFinding, "interfaces", "error", subject=f"interface {link.name}")
        master, name = node.host_links_by_index.get(link.master), shlex.quote(link.name)
        lost = "the node and its containers reach no other network over it"
        if master is not None and master.kind == "bridge" and link.addresses:
            yield about(
                name="link-setting", seen=f"it belongs to the bridge {master.name}, which takes its packets",
                meaning=f"nothing arrives at its addresses {some(link.addresses)}: {lost}",
                remedy=f"move its addresses and routes to {master.name}, or run: ip link set {name} nomaster",
            )  # fmt: skip
        elif not link.has_carrier:
            yield about(
                name="link-down", seen="it is up, and has no carrier: nothing is connected to it", meaning=lost,
                remedy=f"check the cable and the other end: ip link show dev {name}",
            )  # fmt: skip


def _doubled_hardware_addresses(node: NodeState) -> Iterator[NodeFinding]:
    """Find containers of one network with one hardware address, which only the interfaces of ipvlan share."""
    links = (
        (attachment, network.links[attachment.ifname]) for attachment, network in node.live
        if attachment.ifname in network.links
    )  # fmt: skip
    users = grouped(
        ((attachment.network, link.mac), attachment) for attachment, link in links if link.mac and link.kind != "ipvlan"
    )
    for (_, mac), attachments in users.items():
        if len(attachments) > 1 and mac.strip("0:"):
            own = [(attachment, node.summary_of(attachment).macs) for attachment in attachments]
            changed = [(attachment, macs[0]) for attachment, macs in own if macs and mac not in macs]
            commands = [
                command_in(attachment.netns, f"ip link set {attachment.ifname} address {recorded}")
                for attachment, recorded in changed
            ]
            seen = f"{some(list(map(id_of, attachments)))} have it"
            if changed:
                seen += f"; {some([id_of(attachment) for attachment, _ in changed])} had another one after the ADD"
            yield NodeFinding(
                "interfaces", "error", "duplicate-mac", f"hardware address {mac}", seen,
                "the bridge delivers the packets for all these containers to one container",
                "; ".join(commands) or "keep the hardware address of one container, and change those of the others", (),
                tuple(map(id_of, attachments)),
            )  # fmt: skip


def _wrong_bridge_entries(node: NodeState, host: Network) -> Iterator[NodeFinding]:
    """Find static entries in a bridge's table that lead a container's packets to another port."""
    made = {entry.mac: entry.port for entry in host.bridge_entries if not entry.is_learned}
    for attachment, network in node.live if made else ():
        link = network.links.get(attachment.ifname)
        ends = {end.index: end.name for end in node.host_ends(attachment)}
        port = made.get(link.mac) if link is not None else None
        if link is not None and port is not None and ends and port not in ends and link.kind != "ipvlan":
            name = node.host_links_by_index[port].name if port in node.host_links_by_index else str(port)
            yield _error(
                attachment, "wrong-neighbour",
                f"a static entry of its bridge leads {link.mac} to {name}, not to {some([*ends.values()])}",
                "packets for this container are lost", f"bridge fdb del {link.mac} dev {name} master",
            )  # fmt: skip


# Bridges and masters.


_Users = list[tuple[Attachment, Mapping[str, Any]]]
"""The attachments that use a device of the host, each with its plugin's configuration."""


def _devices(node: NodeState) -> dict[tuple[str, str], _Users]:
    """Return the users of each (``bridge`` or ``master``, configured name)."""
    users: dict[tuple[str, str], _Users] = {}
    for attachment in (attachment for attachment, _ in node.live if attachment.path not in node.elsewhere):
        for document in node.documents(attachment):
            # A master inside the container is not on the host.
            master = "" if document.get("linkInContainer") else str(document.get("master") or "")
            if document.get("type") == "bridge":
                users.setdefault(("bridge", bridge_of(document)), []).append((attachment, document))
            elif document.get("type") in _WITH_MASTER and master:
                users.setdefault(("master", master), []).append((attachment, document))
    return users


def _device(node: NodeState, host: Network, kind: str, name: str, users: _Users) -> Iterator[NodeFinding]:
    """Find a bridge or master that no longer exists, is down, or has lost its gateway address."""
    link = host.links.get(name)
    by_bridge = grouped((renamed_bridge(node, user[0]) if kind == "bridge" else "", user) for user in users)
    users = by_bridge.pop("", [])
    for other, moved in by_bridge.items():
        # A reload would create a second bridge with the same address, and cut off all containers.
        remedy = f"give {other} its old name again, or drain the node and remove {other}"
        if link is not None:  # the containers of each bridge do not reach those of the other
            ports = f"$(ip -o link show master {other} | cut -d: -f2 | cut -d@ -f1)"
            move = f"for port in {ports}; do ip link set $port master {name}; done; ip link del {other}"
            remedy = f"move its ports to {name}, then call repair: {move}"
        yield NodeFinding(
            "interfaces", "warning" if link is None else "error", "bridge-renamed", f"bridge {name}",
            f"it {'does not exist' if link is None else 'is another bridge'}; "
            f"{counted(len(moved), 'attachment')} moved to bridge {other}",
            "an ADD or a reload creates a second bridge with the same address, and cuts off one bridge's containers",
            remedy, containers=_names(moved),
        )  # fmt: skip
        yield from _state_of(host.links[other], f"bridge {other}", moved, _gateways(node, moved))
    if link is not None:
        gateways = _gateways(node, users)
        others = [one for one in host.links.values() if one.name not in by_bridge]
        yield from _state_of(link, f"{kind} {name}", users, gateways, others)
        yield from _subnet_route(host, link, users, gateways) if not by_bridge else ()
    elif users:
        attached = {id_of(attachment): attachment for attachment, _ in users}.values() if kind == "bridge" else ()
        remedy, mends = reloads_of(node, attached)
        remedy = remedy if kind == "bridge" else f"create {name} again, then call repair again"
        seen = f"it does not exist; needed by {counted(len(_names(users)), 'living attachment')}"
        yield NodeFinding(
            "interfaces", "error", "bridge-missing" if kind == "bridge" else "master-missing", f"{kind} {name}",
            seen, "these containers are cut off", remedy, mends,
            _names(users),
        )  # fmt: skip


def _names(users: _Users) -> tuple[str, ...]:
    return tuple(dict.fromkeys(id_of(attachment) for attachment, _ in users))


def _gateways(node: NodeState, users: _Users) -> list[str]:
    """Return the addresses with prefix length that a bridge has as the gateway of its containers."""
    attachments = [
        attachment for attachment, document in users if document.get("type") == "bridge" and is_gateway(document)
    ]
    nets = map(node.configured, dict.fromkeys(attachment.network for attachment in attachments))
    # If its prefix length was changed in the file, the next ADD refuses a bridge that has the old one.
    present = {cidr.partition("/")[0]: cidr for net in nets if net is not None for cidr in bridge_gateways(net)}
    recorded = {cidr for attachment in attachments for cidr in node.summary_of(attachment).gateways}
    return sorted({present.get(cidr.partition("/")[0], cidr) for cidr in recorded})


def _state_of(
    link: Link, subject: str, users: _Users, gateways: list[str], links: Iterable[Link] = ()
) -> Iterator[NodeFinding]:
    """Find a device that is down, or has lost its gateway address."""
    containers = _names(users)
    about = partial(NodeFinding, "interfaces", severity="error", subject=subject, containers=containers)
    if users and not link.is_up:
        mends: tuple[Mend, ...] = (Mend("set-up", link.name, (), containers),)
        yield about(
            name="link-down", seen="it is down", meaning="the containers of this device are cut off", mends=mends
        )
    ports = [other.mtu for other in links if other.master == link.index]
    mtus = [mtu for _, document in users if isinstance(mtu := document.get("mtu"), int) and mtu > 0]
    # The kernel gives a bridge the smallest MTU of its ports.
    if ports and mtus and 0 < link.mtu < min(*ports, *mtus):
        seen = f"the MTU is {link.mtu}, but the ports and the network's configuration have {min(*ports, *mtus)}"
        remedy = f"ip link set {link.name} mtu {min(*ports, *mtus)}"
        yield about(
            name="mtu-changed", severity="warning", seen=seen, meaning="large packets may be lost", remedy=remedy
        )
    for other in (one for one in links if one.index != link.index and one.is_up):
        if doubled := [cidr.partition("/")[0] for cidr in gateways if other.has_address(cidr)]:
            users_of = [one.name for one in links if one.master == other.index]
            remedy = f"if nobody uses {other.name}: ip link del {other.name}"
            if users_of:
                remedy = f"find out who uses {some(users_of)} on {other.name}, and give one network another subnet"
            yield about(
                name="gateway-doubled", severity="warning", seen=f"the address {some(doubled)} is on {other.name}, too",
                meaning="the node may send packets for this bridge's containers to the other interface", remedy=remedy,
            )  # fmt: skip
    if missing := [cidr for cidr in gateways if not link.has_address(cidr)]:
        mends = tuple(Mend("add-address", link.name, (cidr,), containers) for cidr in missing if takes(link, cidr))
        about = partial(about, name="gateway-missing", seen=f"the bridge does not have the address {some(missing)}")
        remedy = "" if len(mends) == len(missing) else let_take(link, *mtus)
        yield about(meaning="the containers cannot reach their gateway", mends=mends, remedy=remedy)


def _subnet_route(host: Network, link: Link, users: _Users, gateways: list[str]) -> Iterator[NodeFinding]:
    """Find the node's routes to a bridge's containers that are missing; whether another route wins, the kernel says."""
    main = [route for route in host.routes if route.table == MAIN_TABLE and route.destination[-2:] != "/0"]
    masters = {one.index for one in host.links.values() if one.kind == "vrf"}  # with tables of their own
    for cidr in gateways if link.is_up and link.master not in masters else ():
        subnet = str(ipaddress.ip_network(cidr, strict=False))
        is_there = any(
            route.destination == subnet or (route.ifindex == link.index and _covers(route.destination, subnet))
            for route in main
        )
        # With another prefix length the kernel made another route; the check of the next container says that.
        if cidr in link.addresses and not is_there:
            mends = (Mend("add-route", link.name, (subnet,), _names(users)),)
            yield NodeFinding(
                "interfaces", "error", "subnet-route-missing", f"route to {subnet}",
                f"the node has no such route over {link.name}", "the node cannot reach these containers", "", mends,
                _names(users),
            )  # fmt: skip


def _covers(wide: str, narrow: str) -> bool:
    one, other = ipaddress.ip_network(wide), ipaddress.ip_network(narrow)
    return one.version == other.version and other.subnet_of(one)  # type: ignore[arg-type]  # the same family


# One container.


def _host_side(
    node: NodeState, attachment: Attachment, host: Network, routes: Mapping[int, list[str]]
) -> Iterator[NodeFinding]:
    """Find faults of one container on the host: in its veth and the ``routes`` to it, by interface."""
    documents = node.documents(attachment)
    names = [bridge_of(document) for document in documents if document.get("type") == "bridge"]
    bridges = {host.links[name].index: name for name in names if name in host.links}
    wants_hairpin = any(document.get("hairpinMode") is True for document in documents)
    for link in node.host_ends(attachment):
        if bridges and link.master not in bridges and not renamed_bridge(node, attachment):
            bridge = next(iter(bridges.values()))
            seen = f"the host interface {link.name} is not on bridge {bridge}"
            mend = _link_mend("join", attachment, link, bridge, *["hairpin on"] * wants_hairpin)
            yield _error(attachment, "off-bridge", seen, _CUT_OFF, mends=(mend,))
        elif bridges and wants_hairpin and "hairpin on" not in link.settings:
            yield finding_about(
                "interfaces", "warning", attachment, "hairpin-off",
                f"hairpin mode of the host interface {link.name} is off, but the configuration sets it",
                "the container cannot reach itself by a published port or a service",
                f"bridge link set dev {link.name} hairpin on",
            )  # fmt: skip
        if not link.is_up:
            mends: tuple[Mend, ...] = (_link_mend("set-up", attachment, link),)
            yield _error(attachment, "host-end-down", f"the host interface {link.name} is down", _CUT_OFF, mends=mends)
        elif bridges and not _BLOCKED.isdisjoint(link.settings) and _is_up_inside(node, attachment):
            master = node.host_links_by_index.get(link.master)
            if master is None or not master.is_up:  # the kernel blocks all ports of a bridge that is down
                continue
            seen = f"the bridge does not forward packets of the host interface {link.name}"
            yield _error(attachment, "off-bridge", seen, _CUT_OFF, f"bridge link set dev {link.name} state 3")
        elif any(document.get("type") == "ptp" for document in documents):
            hosts = [f"{address}/{128 if ':' in address else 32}" for address in node.addresses_of(attachment)]
            if missing := [text for text in hosts if text not in routes.get(link.index, ())]:
                seen = f"the node's route to {some(missing)} over {link.name} is missing"
                mends = tuple(_link_mend("add-route", attachment, link, text) for text in missing)
                yield _error(attachment, "host-route-missing", seen, _CUT_OFF, mends=mends)
            yield from _gateway_of_ptp(node, attachment, link)


def _gateway_of_ptp(node: NodeState, attachment: Attachment, link: Link) -> Iterator[NodeFinding]:
    """Find a host end that has lost the gateway's address, which ptp gives each of them, for one host alone."""
    gateways = [cidr.partition("/")[0] for cidr in node.summary_of(attachment).gateways]
    if missing := [address for address in dict.fromkeys(gateways) if not link.has_address(address)]:
        mends = tuple(
            _link_mend("add-address", attachment, link, f"{address}/{128 if ':' in address else 32}")
            for address in missing if takes(link, address)
        )  # fmt: skip
        yield _error(
            attachment, "gateway-missing", f"its host interface {link.name} does not have the address {some(missing)}",
            "the container loses its gateway as soon as it asks again for the gateway's hardware address",
            "" if len(mends) == len(missing) else f"{let_take(link)}; then call repair again", mends,
        )  # fmt: skip


def _moved_host_end(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    """Find a veth whose end on the host is in another namespace, while those of its network's others are here."""
    link = inside.links.get(attachment.ifname)
    is_veth = any(document.get("type") in {"bridge", "ptp"} for document in node.documents(attachment))
    if (
        link is None
        or not is_veth
        or attachment.path in node.elsewhere
        or link.kind != "veth"
        or node.host_ends(attachment)
    ):
        return
    names = node.summary_of(attachment).veths
    is_inside = any(other.index == link.peer and other.name in names for other in inside.links.values())
    if not is_inside if link.peer_namespace is None else link.peer_namespace == inside.reader:
        return
    places = [
        (name, space.path) for space in node.spaces.values() if space.network is not None
        for name in names if name in space.network.links and space.network.links[name].index == link.peer
    ]  # fmt: skip
    seen = f"the host's end of {attachment.ifname}, {some(list(names))}, is in another network namespace"
    remedy = "find out where this interface is, and move it back"
    if places:
        [(name, path), *_] = places
        seen = f"the host's end of {attachment.ifname}, {name}, is in {path}"
        remedy = f"move it back, then call repair: {command_in(path, f'ip link set {name} netns $$')}"
    yield _error(attachment, "interface-moved", seen, _CUT_OFF, remedy)


def _is_up_inside(node: NodeState, attachment: Attachment) -> bool:
    """Return whether an attachment's interface is up. If it is not, the kernel disables its bridge's port."""
    space = node.space_of(attachment)
    link = space.network.links.get(attachment.ifname) if space is not None and space.network is not None else None
    return link is not None and link.is_up


def _inside(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    """Find faults inside a container's namespace."""
    link, netns = inside.links.get(attachment.ifname), attachment.netns
    if link is None:
        yield _without_interface(node, attachment)
        return
    if not link.is_up and node.summary_of(attachment).has_addresses:
        mends: tuple[Mend, ...] = (_link_mend("set-up", attachment, link, netns=netns),)
        yield _error(attachment, "interface-down", f"{attachment.ifname} is down in {netns}", _CUT_OFF, mends=mends)
        return
    yield from _addresses(node, attachment, inside)
    prefixes = list(_prefixes(node, attachment, inside))
    yield from prefixes
    mtu = _expected_mtu(node, attachment)
    if mtu and link.mtu and link.mtu != mtu:
        seen = f"the MTU of {link.name} is {link.mtu}, but the plugin has set {mtu}"
        yield finding_about(
            "interfaces", "warning", attachment, "mtu-changed", seen,
            "large packets may be lost", command_in(netns, f"ip link set {link.name} mtu {mtu}"),
        )  # fmt: skip
    else:
        yield from _unlike_ends(node, attachment, link)
    # The kernel removes the routes with the address.
    if not prefixes and not lost_addresses(node, attachment, inside):
        yield from _routes(node, attachment, inside, link)
        yield from _subnets_of_ptp(node, attachment, inside, link)


def _unlike_ends(node: NodeState, attachment: Attachment, link: Link) -> Iterator[NodeFinding]:
    """Find a veth whose ends have different MTUs: these plugins give both the same."""
    documents = node.documents(attachment)
    if not {str(document.get("type")) for document in documents} <= _LIKE_ENDS or any(map(_has_mtu, documents)):
        return
    for end in node.host_ends(attachment):
        if end.mtu and link.mtu and end.mtu != link.mtu:
            larger = f"mtu {max(end.mtu, link.mtu)}"
            command = command_in(attachment.netns, f"ip link set {link.name} {larger}")
            command = f"ip link set {end.name} {larger}" if end.mtu < link.mtu else command
            yield finding_about(
                "interfaces", "warning", attachment, "mtu-changed",
                f"the MTU of {link.name} is {link.mtu}, but the MTU of its other end, {end.name}, is {end.mtu}",
                "large packets may be lost", f"if the larger MTU is right: {command}",
            )  # fmt: skip


def _has_mtu(document: Mapping[str, Any]) -> bool:
    return document.get("type") == "tuning" and bool(document.get("mtu"))


def _expected_mtu(node: NodeState, attachment: Attachment) -> int:
    """Return the MTU that the last plugin with such a key has set, or 0."""
    documents = node.documents(attachment)
    set_to = [one["mtu"] for one in documents if one.get("mtu") and one.get("type") in {*_FOLLOW_IPAM, "tuning"}]
    return set_to[-1] if set_to and isinstance(set_to[-1], int) else 0


def lost_addresses(node: NodeState, attachment: Attachment, inside: Network) -> list[tuple[str, str]]:
    """Return (interface, address with prefix length) of the recorded addresses that no interface has any longer."""
    # These plugins leave an address where they have reported it.
    is_known = {str(document.get("type")) for document in node.documents(attachment)} <= {*_FOLLOW_IPAM, *_LIKE_ENDS}
    return [
        (name, cidr) for name, cidr in node.summary_of(attachment).placed
        # A plugin may have renamed the interface, or moved the address, on purpose. Then only its CHECK can judge.
        if name in inside.links
        and not any(
            other.has_address(cidr) for other in inside.links.values()
            if other.name != "lo" or name == "lo" or not is_known
        )
    ]  # fmt: skip


def _prefixes(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    """Find addresses with another prefix length than the recorded one; other plugins than these may change it."""
    if not any(document.get("type") in _FOLLOW_IPAM for document in node.documents(attachment)):
        return
    for name, cidr in node.summary_of(attachment).placed:
        link = inside.links.get(name)
        if link is not None and link.has_address(cidr) and cidr not in link.addresses:
            others = [text for text in link.addresses if text.partition("/")[0] == cidr.partition("/")[0]]
            change: list[tuple[MendKind, str]] = [
                *(("remove-address", text) for text in others),
                ("add-address", _as_placed(node, attachment, cidr)),
            ]
            mends = (_link_mend(kind, attachment, link, text, netns=attachment.netns) for kind, text in change)
            yield _error(
                attachment, "prefix-changed", f"the address on {name} is {some(others)}, but {cidr} is recorded",
                "the container's routes to its gateway and neighbours are wrong",
                mends=tuple(replace(mend, interrupts=mend.containers) for mend in mends),
            )  # fmt: skip


def _gateway_of(node: NodeState, attachment: Attachment, cidr: str) -> str:
    """Return the gateway behind which ptp places the network of an address; "" for other plugins and single hosts."""
    is_ptp = any(document.get("type") == "ptp" for document in node.documents(attachment))
    gateways = [gateway.partition("/")[0] for gateway in node.summary_of(attachment).gateways]
    same = [gateway for gateway in gateways if (":" in gateway) == (":" in cidr)]
    return same[0] if same and is_ptp and not cidr.endswith(_ONE_HOST) else ""


def _as_placed(node: NodeState, attachment: Attachment, cidr: str) -> str:
    """Return the detail of the mend that adds an address as its plugin did."""
    gateway = _gateway_of(node, attachment, cidr)
    return f"{cidr} via {gateway}" if gateway else cidr


def _subnets_of_ptp(node: NodeState, attachment: Attachment, inside: Network, link: Link) -> Iterator[NodeFinding]:
    """Find the kernel's route to the network of a ptp address, which comes when somebody adds the address by hand."""
    for name, cidr in node.summary_of(attachment).placed:
        gateway, subnet = _gateway_of(node, attachment, cidr), str(ipaddress.ip_interface(cidr).network)
        ways = [route for route in inside.routes if (route.destination, route.ifindex) == (subnet, link.index)]
        first = min(ways, key=lambda route: route.metric, default=None)
        if gateway and name == link.name and first is not None and not first.gateway:
            commands = (
                f"route replace {ipaddress.ip_network(gateway)} dev {name}", f"route del {subnet} dev {name}",
                f"route replace {subnet} via {gateway} dev {name}",
            )  # fmt: skip
            yield _error(
                attachment, "route-changed", f"the route to {subnet} has no gateway; that of ptp has {gateway}",
                "the container cannot reach the other containers of its network",
                "; ".join(command_in(attachment.netns, f"ip {command}") for command in commands),
            )  # fmt: skip


def _others(node: NodeState, link: Link, address: str) -> list[str]:
    """Return the addresses of an interface that somebody gave it instead of ``address``: no record knows them."""
    return [
        text for text in link.addresses
        if (":" in text) == (":" in address) and not text.startswith("fe80:")
        and text.partition("/")[0] not in node.recorded_addresses
    ]  # fmt: skip


def replacing_addresses(node: NodeState) -> set[str]:
    """Return the addresses that somebody gave to containers instead of the recorded ones, without prefix lengths."""
    return {
        text.partition("/")[0]
        for attachment, inside in node.live
        # Most containers have their addresses: do not decode their results again.
        if not all(
            any(holder.space.network is inside for holder in node.holders.get(address, ()))
            for address in node.addresses_of(attachment)
        )
        for name, cidr in lost_addresses(node, attachment, inside)
        for text in _others(node, inside.links[name], cidr)
    }


def _addresses(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    netns = attachment.netns
    directories = reservation_directories(node.recorded(attachment))
    for name, cidr in lost_addresses(node, attachment, inside):
        address = cidr.partition("/")[0]
        others = _others(node, inside.links[name], address)
        instead = f", which has {some(others)} instead" if others else ""
        about = partial(_error, attachment, "address-lost", f"the address {address} is not on {name}{instead}")
        meaning = "the container cannot be reached at its recorded address"
        if not takes(inside.links[name], address):
            mtu = _expected_mtu(node, attachment) or max((end.mtu for end in node.host_ends(attachment)), default=0)
            command = command_in(netns, let_take(inside.links[name], mtu))
            yield about(meaning, f"{command}; then call repair again")
        elif held := node.holders.get(address):  # two interfaces with one address are worse than no interface with it
            owner = f"find the owner of that interface in {held[0].space.path}"
            yield about(f"{meaning}, and another interface has the address", owner)
        elif any(
            reservation.container_id != attachment.container_id and os.path.dirname(reservation.path) in directories
            for reservation in node.reservations_of.get(address, ())
        ):  # a later container may use the address at any moment
            yield about(
                f"{meaning}, which is reserved for another container now", *reloads(node, attachment, interrupts=True)
            )
        else:
            link = inside.links[name]
            mends = (
                *(_link_mend("remove-address", attachment, link, other, netns=netns) for other in others),
                _link_mend("add-address", attachment, link, _as_placed(node, attachment, cidr), netns=netns),
            )
            # Both or none: beside the other address the container would still send from that one.
            yield about(
                meaning, mends=tuple(replace(one, interrupts=one.containers) for one in mends) if others else mends
            )


def _routes(node: NodeState, attachment: Attachment, inside: Network, link: Link) -> Iterator[NodeFinding]:
    """Find the reported routes that are missing, or that lead to another gateway than was reported."""
    netns = attachment.netns
    present = grouped((route.destination, route) for route in inside.routes if route.ifindex != DROPS_PACKETS)
    routes = _reported_routes(node, attachment)
    reported = grouped((destination, gateway) for destination, gateway, _ in routes)
    missing = [(place, gateway) for place, gateways in reported.items() if place not in present for gateway in gateways]
    if missing:
        mends = tuple(_link_mend("add-route", attachment, link, *filter(None, route), netns=netns) for route in missing)
        seen = f"the route to {some([destination for destination, _ in missing])} is not in {netns}"
        yield _error(attachment, "route-missing", seen, "the container cannot reach these addresses", mends=mends)
    for destination in dict.fromkeys(place for place, _, is_sure in routes if is_sure):
        ways = present.get(destination, ())
        metrics = [way.metric for way in ways]
        actual = {route.gateway for route in ways if route.metric == min(metrics)}
        if actual and actual.isdisjoint(reported[destination]):
            seen = f"the route to {destination} leads to {some(sorted(actual)) or 'no gateway'}"
            [right, *_] = reported[destination]
            command = f"ip route replace {destination} via {right} dev {link.name}"
            if any(way.gateway == right for way in ways):  # behind the other one, which has a lower metric
                [wrong, *_] = sorted(actual)
                command = f"ip route del {destination}{f' via {wrong}' * bool(wrong)} metric {min(metrics)}"
            yield _error(
                attachment, "route-changed", f"{seen}; the plugins reported {some(reported[destination])}",
                "packets to this destination leave the container by another way",
                f"find out who changed the route; then: {command_in(netns, command)}",
            )  # fmt: skip


def _without_interface(node: NodeState, attachment: Attachment) -> NodeFinding:
    recorded, own = place_of(attachment.record), node.space_of(attachment)
    for space in node.spaces.values():
        # The device of host-device returns to the host's namespace by itself: nobody has moved it.
        if space.network is None or node.is_host(space):
            continue
        for link in space.network.links.values():
            if _is_recorded(recorded, space, link, is_own=space is own):
                seen = f"{attachment.ifname} of {attachment.netns} is {link.name} in {space.path} now"
                remedy = "move the interface back, or rename it back, before you detach the container"
                return _error(
                    attachment, "interface-moved", seen, "DEL is refused, or does not find the interface", remedy
                )
    seen, meaning = (
        f"there is no interface {attachment.ifname} in {attachment.netns}",
        "the container has lost this network",
    )
    return _error(attachment, "interface-missing", seen, meaning, *reloads(node, attachment))


def _is_recorded(recorded: Place, space: Space, link: Link, *, is_own: bool) -> bool:
    """Return whether an interface is a recorded one; ``is_own``: whether it is in the recorded namespace."""
    cookie = space.network.cookie if space.network is not None else 0
    if is_same_index(recorded, Place(cookie=cookie, interface=Known(link.index))):
        return True
    # Users choose hardware addresses, and all ipvlan interfaces of a device have its address. An interface that was
    # moved keeps its index if it is free there.
    is_same = link.mac == recorded.mac and recorded.number in {0, link.index} and link.kind != "ipvlan"
    return bool(link.mac) and is_same and (is_own or space.is_evidence(link))


def _reported_routes(node: NodeState, attachment: Attachment) -> list[tuple[str, str, bool]]:
    """Return (destination, gateway, whether the gateway is certain) of the routes that the plugins reported.

    The kernel's own route to the subnet is not among them: some plugins replace it.
    """
    summary = node.summary_of(attachment)
    gateways = {":" in gateway: gateway.partition("/")[0] for gateway in reversed(summary.gateways)}
    # For a route without a gateway these plugins use that of the address; others may do as they like.
    follows = any(document.get("type") in _FOLLOW_IPAM for document in node.documents(attachment))
    found = [(place, own or gateways.get(":" in place, ""), bool(own)) for place, own in summary.routes]
    return [(place, gateway, bool(gateway and (is_own or follows))) for place, gateway, is_own in found]
