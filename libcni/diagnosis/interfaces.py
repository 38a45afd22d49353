"""Compare the interfaces, addresses and routes in the namespaces and on the host with the records."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from libcni.config.host_local import is_in_ranges
from libcni.config.network import plugin_documents
from libcni.config.runtime_conf import RuntimeConf
from libcni.diagnosis.known_faults import known_fault
from libcni.diagnosis.mends import Mend, MendKind
from libcni.diagnosis.node_state import (
    NodeState,
    Space,
    bridge_of,
    finding_about,
    id_of,
    is_gateway,
    name_of,
    result_of,
)
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, some
from libcni.errors import CNIError, NotAttachedError, PluginError, VersionError
from libcni.kernel.netlink import MAIN_TABLE, NOWHERE, Link, Network
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING, is_other_mac
from libcni.store.recorded_interfaces import place_of

_CUT_OFF = "the container is cut off"
_WITH_MASTER = {"macvlan", "ipvlan", "vlan"}


def check_interfaces(node: NodeState) -> Observations:
    """Find faults that cut containers off: of interfaces, addresses, routes, bridges and masters."""
    if node.host is None:
        yield NotChecked("interfaces", "this node", node.unread.get("this node", "its interfaces are unknown"))
        return
    for attachment in node.attachments:
        space = node.space_of(attachment)
        if attachment.state in LIVING and attachment.netns and (space is None or space.network is None):
            yield NotChecked("interfaces", name_of(attachment), f"{attachment.netns} cannot be entered")
    if node.elsewhere:
        reason = "this program is in another network namespace than their bridges"
        yield NotChecked("interfaces", f"the host's side of {counted(len(node.elsewhere), 'attachment')}", reason)
    yield from _all_sides(node, node.host)
    if node.live:
        yield Checked(
            "interfaces", f"interfaces, addresses and routes of {counted(len(node.live), 'ready attachment')}"
        )


def _all_sides(node: NodeState, host: Network) -> Observations:
    devices = _devices(node)
    twice = [*_two_bridges(node, host, devices)]
    yield from twice
    explained: set[str] = {name for finding in twice for name in finding.containers}
    for (kind, name), users in devices.items():
        for finding in _device(node, host, kind, name, users, has_second=bool(twice)):
            explained.update(finding.containers)
            yield finding
    for attachment, inside in node.live:
        if id_of(attachment) not in explained:
            yield from _inside(node, attachment, inside)
        if attachment.path not in node.elsewhere:
            yield from _host_side(node, attachment, inside, host)


_Users = list[tuple[Attachment, Mapping[str, Any]]]
"""The attachments that use a device of the host, each with its plugin's configuration."""


def _devices(node: NodeState) -> dict[tuple[str, str], _Users]:
    """Return the users of each (``bridge`` or ``master``, configured name)."""
    found: dict[tuple[str, str], _Users] = {}
    for attachment in (attachment for attachment, _ in node.live if attachment.path not in node.elsewhere):
        for document in node.documents(attachment):
            # A master inside the container is not on the host.
            master = "" if document.get("linkInContainer") else str(document.get("master") or "")
            if document.get("type") == "bridge":
                found.setdefault(("bridge", bridge_of(document)), []).append((attachment, document))
            elif document.get("type") in _WITH_MASTER and master:
                found.setdefault(("master", master), []).append((attachment, document))
    return found


def _device(  # noqa: PLR0913 - a device and its users
    node: NodeState, host: Network, kind: str, name: str, users: _Users, *, has_second: bool
) -> Iterator[NodeFinding]:
    """Find a bridge or master that no longer exists, is down, or has lost its gateway address."""
    link = host.links.get(name)
    renamed: dict[str, _Users] = {}
    for user in users:
        renamed.setdefault(node.renamed_bridge(user[0]) if kind == "bridge" else "", []).append(user)
    users = renamed.pop("", [])
    for other, moved in renamed.items():
        if link is None or not any(map(link.has_address, _gateways(node, moved))):
            # A reload would make a second bridge with the same address beside it, and cut off all of them.
            yield NodeFinding(
                "interfaces", "warning", "bridge-renamed", f"bridge {name}",
                f"it {'does not exist' if link is None else 'is another bridge now'}; "
                f"{counted(len(moved), 'container')} of it are on {other}, which works",
                "an ADD or a reload makes a second bridge with the same address, and these containers are cut off",
                f"give {other} its name back, or drain the node and remove it, before anything is attached",
                containers=tuple(id_of(attachment) for attachment, _ in moved),
            )  # fmt: skip
        yield from _state_of(host.links[other], f"bridge {other}", moved, _gateways(node, moved))
    attached = list({id_of(attachment): attachment for attachment, _ in users}.values())
    about = partial(
        NodeFinding,
        check="interfaces",
        severity="error",
        subject=f"{kind} {name}",
        containers=tuple(map(id_of, attached)),
    )
    if link is not None:
        gateways = _gateways(node, users)
        yield from _state_of(link, f"{kind} {name}", users, gateways)
        yield from _subnet_route(host, link, users, gateways) if not renamed and not has_second else ()
        yield from _renamed_in_file(node, host, name, users) if kind == "bridge" else ()
    elif kind == "master":
        remedy = f"bring {name} back, then call repair again"
        meaning = "its containers are cut off, and no more can be attached"
        yield about(name="master-missing", seen="it does not exist", meaning=meaning, remedy=remedy)
    elif attached:
        seen = f"it does not exist; {counted(len(attached), 'container')} of it lives"
        meaning = "they are cut off; the plugin makes the bridge anew"
        remedy, mends = node.reloads_of(attached)
        yield about(name="bridge-missing", seen=seen, meaning=meaning, remedy=remedy, mends=mends)


def _two_bridges(node: NodeState, host: Network, devices: Mapping[tuple[str, str], _Users]) -> Iterator[NodeFinding]:
    """Find bridges with the same address: a person has renamed one, or its name in the configuration."""
    names = {link.index: name for name, link in host.links.items()}
    by_gateway: dict[str, dict[str, dict[str, None]]] = {}
    for (kind, name), users in devices.items():
        for attachment, document in users if kind == "bridge" else ():
            actual = node.renamed_bridge(attachment) or name
            candidates = dict.fromkeys((*_bridges_of_today(node, attachment), name, actual))
            for full in _gateways(node, [(attachment, document)]):
                containers = by_gateway.setdefault(full, {})
                for bridge in candidates:
                    if bridge in host.links and host.links[bridge].has_address(full):
                        containers.setdefault(bridge, {}).update({id_of(attachment): None} if bridge == actual else {})
    for full, bridges in by_gateway.items():
        if len(bridges) > 1:
            subnet = str(ipaddress.ip_interface(full).network)
            routed = {names.get(route.ifindex) for route in host.routes if route.destination == subnet}
            cut_off = tuple(name for bridge in bridges.keys() - routed for name in bridges[bridge])
            counts = [f"{counted(len(users), 'container')} on {bridge}" for bridge, users in bridges.items()]
            yield NodeFinding(
                "interfaces", "error", "two-bridges", f"bridges {' and '.join(bridges)}",
                f"they have the address {full}: {', '.join(counts)}",
                "the node reaches the containers of one bridge only, and each container those of its own",
                f"drain the containers on one of them, and remove that one; then name the other {next(iter(bridges))}",
                containers=cut_off,
            )  # fmt: skip


def _bridges_of_today(node: NodeState, attachment: Attachment) -> list[str]:
    """Return the bridges on which today's configuration attaches containers with the addresses of an attachment."""
    net = node.configured(attachment.network)
    if net is None or not any(is_in_ranges(net, address) for address in node.addresses_of(attachment)):
        return []
    documents = [document for document in plugin_documents(net) if document.get("type") == "bridge"]
    return [bridge_of(document) for document in documents if is_gateway(document)]


def _renamed_in_file(node: NodeState, host: Network, name: str, users: _Users) -> Iterator[NodeFinding]:
    """Find a configuration file that names another bridge than the one that its containers are on."""
    by_bridge: dict[tuple[str, str], list[Attachment]] = {}
    for attachment, document in users if name in host.links else ():
        for bridge in _bridges_of_today(node, attachment) if _gateways(node, [(attachment, document)]) else ():
            if bridge not in {name, node.renamed_bridge(attachment)} and bridge not in host.links:
                by_bridge.setdefault((attachment.network, bridge), []).append(attachment)
    for (network, bridge), attachments in by_bridge.items():
        yield NodeFinding(
            "interfaces", "warning", "bridge-renamed", f"network {network}",
            f"its file names bridge {bridge}, and {counted(len(attachments), 'container')} of it are on {name}",
            "an ADD makes a second bridge with the same address, and these containers are cut off",
            f"name {name} in the configuration again, or drain the node and remove {name}, before anything is attached",
            containers=tuple(map(id_of, attachments)),
        )  # fmt: skip


def _gateways(node: NodeState, users: _Users) -> list[str]:
    """Return the addresses with prefix length that a bridge has as the gateway of its containers."""
    attachments = [
        attachment for attachment, document in users if document.get("type") == "bridge" and is_gateway(document)
    ]
    return sorted({full for attachment in attachments for full in node.outcome_of(attachment).gateways})


def _state_of(link: Link, subject: str, users: _Users, gateways: list[str]) -> Iterator[NodeFinding]:
    """Find a device that is down, or has lost its gateway address."""
    containers = tuple(dict.fromkeys(id_of(attachment) for attachment, _ in users))
    about = partial(NodeFinding, check="interfaces", severity="error", subject=subject, containers=containers)
    if users and not link.is_up:
        mends: tuple[Mend, ...] = (Mend("set-up", link.name, (), containers),)
        yield about(name="link-down", seen="it is down", meaning="its containers are cut off", mends=mends)
    if missing := [full for full in gateways if not link.has_address(full)]:
        mends = tuple(Mend("add-address", link.name, (full,), containers) for full in missing)
        seen = f"it does not have the address {some(missing)}"
        yield about(name="gateway-missing", seen=seen, meaning="its containers cannot reach their gateway", mends=mends)


def _subnet_route(host: Network, link: Link, users: _Users, gateways: list[str]) -> Iterator[NodeFinding]:
    """Find routes of the node to a bridge's containers that use another interface, and missing ones."""
    names = {other.index: other.name for other in host.links.values()}
    main = [route for route in host.routes if route.table == MAIN_TABLE and route.destination[-2:] != "/0"]
    for full in gateways if link.is_up else ():
        if not link.has_address(full):
            continue
        subnet = ipaddress.ip_network(full, strict=False)
        own = [route.metric for route in main if route.destination == str(subnet) and route.ifindex == link.index]
        others = [
            route for route in main
            if route.ifindex != link.index and (route.destination != str(subnet) or not own or route.metric < min(own))
            and _is_within(route.destination, subnet)
        ]  # fmt: skip
        about = partial(
            NodeFinding, check="interfaces", severity="error", subject=f"route to {subnet}",
            containers=tuple(id_of(attachment) for attachment, _ in users),
        )  # fmt: skip
        if others:
            destination, device = others[0].destination, names.get(others[0].ifindex, "nowhere")
            seen = f"the node's route to {destination} leads over {device}, not over {link.name}"
            remedy = f"find out who made it, then: ip route del {destination}"
            yield about(name="route-stolen", seen=seen, meaning="the node cannot reach these containers", remedy=remedy)
        elif not own:
            mends = (Mend("add-route", link.name, (str(subnet),)),)
            yield about(
                name="subnet-route-missing",
                seen=f"the node has none over {link.name}",
                meaning="the node cannot reach these containers",
                mends=mends,
            )


def _is_within(destination: str, subnet: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    network = ipaddress.ip_network(destination)
    return network.version == subnet.version and network.subnet_of(subnet)  # type: ignore[arg-type]  # the same family


def _host_side(node: NodeState, attachment: Attachment, inside: Network, host: Network) -> Observations:
    """Find faults of one container on the host: in its veth and the routes to it."""
    about = partial(finding_about, attachment, "interfaces", "error")
    meaning = _CUT_OFF
    documents = node.documents(attachment)
    names = [bridge_of(document) for document in documents if document.get("type") == "bridge"]
    bridges = [host.links[name] for name in names if name in host.links]
    ends, veths = node.host_ends(attachment), node.outcome_of(attachment).veths
    if len(ends) < len(veths) and attachment.ifname in inside.links:
        paths = [space.path for space in node.spaces.values() for veth in veths if _has(space, *veth)]
        seen = f"its host interface {veths[0][0]} is not on the node, but in {(*paths, 'no namespace')[0]}"
        yield about("host-end-moved", seen, meaning, *node.reloads(attachment))
    for link in ends:
        if bridges and link.master not in {bridge.index for bridge in bridges} and not node.renamed_bridge(attachment):
            seen = f"its host interface {link.name} is not on bridge {bridges[0].name}"
            yield about("off-bridge", seen, meaning, mends=(_link_mend("join", attachment, link, bridges[0].name),))
        if not link.is_up:
            seen = f"its host interface {link.name} is down"
            yield about("host-end-down", seen, meaning, mends=(_link_mend("set-up", attachment, link),))
        elif any(document.get("type") == "ptp" for document in documents):
            hosts = [f"{address}/{128 if ':' in address else 32}" for address in node.addresses_of(attachment)]
            if missing := [text for text in hosts if text not in node.host_routes.get(link.index, ())]:
                seen = f"the node's route to {some(missing)} over {link.name} is missing"
                mends = tuple(_link_mend("add-route", attachment, link, text) for text in missing)
                yield about("host-route-missing", seen, meaning, mends=mends)
    yield from _neighbours(node, attachment, inside, host, bridges)


def _neighbours(
    node: NodeState, attachment: Attachment, inside: Network, host: Network, bridges: list[Link]
) -> Observations:
    """Find permanent neighbour entries whose hardware address is not that of the interface."""
    about = partial(finding_about, attachment, "interfaces", "error", "static-neighbour")
    own, ips = inside.links.get(attachment.ifname), getattr(result_of(attachment), "ips", ())
    for address in node.addresses_of(attachment) if own is not None else ():
        wrong = host.neighbours.get(address)
        if own is not None and wrong not in {None, own.mac}:
            remedy = f"find out who wrote it, then: ip neigh del {address} dev INTERFACE"
            yield about(f"somebody wrote the hardware address {wrong} for {address} on the node", _CUT_OFF, remedy)
    for gateway, mac in {
        (ip.gateway, link.mac) for link in bridges for ip in ips if link.has_address(ip.gateway or "-")
    }:
        if (wrong := inside.neighbours.get(gateway, mac)) != mac:
            remedy = f"find out who wrote it, then, inside: ip neigh del {gateway} dev {attachment.ifname}"
            yield about(f"somebody wrote the hardware address {wrong} for its gateway {gateway}", _CUT_OFF, remedy)


def _has(space: Space, name: str, mac: str) -> bool:
    link = space.network.links.get(name) if space.network is not None else None
    return link is not None and link.mac == mac


def _link_mend(kind: MendKind, attachment: Attachment, link: Link, *details: str, netns: str = "") -> Mend:
    return Mend(kind, link.name, details, (id_of(attachment),), netns=netns)


def _inside(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding]:
    """Find faults inside a container's namespace."""
    about = partial(finding_about, attachment, check="interfaces", severity="error")
    result = result_of(attachment)
    link = inside.links.get(attachment.ifname)
    if link is None:
        yield _without_interface(node, attachment)
        return
    if not link.is_up and (result is None or result.ips):
        mends = (_link_mend("set-up", attachment, link, netns=attachment.netns),)
        yield about(
            name="interface-down",
            seen=f"{attachment.ifname} is down in {attachment.netns}",
            meaning="the container is cut off",
            mends=mends,
        )
        return
    lost = [
        (name, full) for name, full in _placed_addresses(attachment)
        # A plugin may have renamed the interface, or moved the address, on purpose. Then only its CHECK can judge.
        if name in inside.links and not any(other.has_address(full) for other in inside.links.values())
    ]  # fmt: skip
    for name, full in lost:
        address = full.partition("/")[0]
        seen = f"its address {address} is not on {name}"
        meaning = "the container cannot be reached at its recorded address"
        if node.holders.get(address):  # two interfaces with one address would be worse than none
            yield about(
                name="address-lost",
                seen=seen,
                meaning=f"{meaning}, and another interface has it",
                remedy="find out who has it",
            )
        else:
            mends = (_link_mend("add-address", attachment, inside.links[name], full, netns=attachment.netns),)
            yield about(name="address-lost", seen=seen, meaning=meaning, mends=mends)
    for gateway in dict.fromkeys(ip.gateway for ip in (result.ips if result else ()) if ip.gateway):
        if link.has_address(gateway):
            yield about(
                name="gateway-taken",
                seen=f"{attachment.ifname} has the address {gateway} of its gateway",
                meaning="its neighbours may take the container for the gateway",
                remedy=f"find out who added it, then, inside: ip address del {gateway} dev {attachment.ifname}",
            )
    yield from () if lost else _routes(node, attachment, inside, link)
    yield from _changed_by_hand(node, attachment, link)


def _routes(node: NodeState, attachment: Attachment, inside: Network, link: Link) -> Iterator[NodeFinding]:
    gateways: dict[str, set[str]] = {}
    for route in (route for route in inside.routes if route.ifindex != NOWHERE):
        gateways.setdefault(route.destination, set()).add(route.gateway)
    missing: list[tuple[str, str]] = []
    for destination, gateway in _recorded_routes(attachment):
        actual = gateways.get(destination)
        if actual is None:
            missing.append((destination, gateway))
        elif gateway and gateway not in actual:
            yield finding_about(
                attachment, "interfaces", "error", "wrong-gateway",
                f"its route to {destination} leads to {some(sorted(actual)) or 'no gateway'}, not to {gateway}",
                "the container may not reach these addresses", *node.reloads(attachment, interrupts=True),
            )  # fmt: skip
    if missing:
        # The gateway can be reached only over the route to the subnet, which comes last here.
        mends = tuple(
            _link_mend("add-route", attachment, link, *filter(None, route), netns=attachment.netns)
            for route in reversed(missing)
        )
        seen = f"its route to {some([destination for destination, _ in missing])} is not in {attachment.netns}"
        yield finding_about(
            attachment,
            "interfaces",
            "error",
            "route-missing",
            seen,
            "the container cannot reach these addresses",
            mends=mends,
        )


def _changed_by_hand(node: NodeState, attachment: Attachment, link: Link) -> Iterator[NodeFinding]:
    """Find a hardware address or MTU that differs from the record or the configuration."""
    sizes = [
        size for document in node.documents(attachment) if isinstance(size := document.get("mtu"), int) and size > 0
    ]
    mac = place_of(attachment.record).mac
    changes = (
        [f"hardware address {mac}, but {link.mac}"] if is_other_mac(mac, link.mac) and link.kind != "ipvlan" else []
    )
    changes += [f"MTU {sizes[-1]}, but {link.mtu}"] if sizes and link.mtu not in {0, sizes[-1]} else []
    if changes:
        yield finding_about(
            attachment, "interfaces", "warning", "interface-changed",
            f"{attachment.ifname} has not its {' and '.join(changes)}",
            "neighbours and plugins expect what was recorded", *node.reloads(attachment, interrupts=True),
        )  # fmt: skip


def _without_interface(node: NodeState, attachment: Attachment) -> NodeFinding:
    result = result_of(attachment)
    macs = {interface.mac for interface in (result.interfaces if result else ()) if interface.name == attachment.ifname}
    for space in node.spaces.values():
        # A device of the host that returned to the host's namespace has not been moved.
        if space.network is None or (node.host is not None and space.network.cookie == node.host.cookie):
            continue
        for link in space.network.links.values():
            # All ipvlan interfaces of a device have its hardware address.
            if link.mac and link.mac in macs and link.kind != "ipvlan":
                seen = f"{attachment.ifname} of {attachment.netns} is {link.name} in {space.path} now"
                remedy = "move and rename it back before it is detached"
                return finding_about(
                    attachment,
                    "interfaces",
                    "warning",
                    "interface-moved",
                    seen,
                    "DEL is refused, or does not find it",
                    remedy,
                )
    seen = f"there is no interface {attachment.ifname} in {attachment.netns}"
    return finding_about(
        attachment,
        "interfaces",
        "error",
        "interface-missing",
        seen,
        "the container has lost this network",
        *node.reloads(attachment),
    )


def _recorded_routes(attachment: Attachment) -> Iterator[tuple[str, str]]:
    """Yield (destination, gateway) of the recorded routes, and of those that the kernel makes for the addresses."""
    if (result := result_of(attachment)) is not None:
        defaults = {":" in ip.gateway: ip.gateway for ip in reversed(result.ips) if ip.gateway}
        # An address of one host has no route of its own.
        subnets = [(ip.address, "") for ip in result.ips if not ip.address.endswith(("/32", "/128"))]
        for text, gateway in (
            *((route.dst, route.gw or defaults.get(":" in route.dst, "")) for route in result.routes),
            *subnets,
        ):
            with suppress(ValueError):
                yield str(ipaddress.ip_network(text, strict=False)), gateway


def _placed_addresses(attachment: Attachment) -> Iterator[tuple[str, str]]:
    """Yield (interface, address with prefix length) for the addresses that the result places in the container."""
    if (result := result_of(attachment)) is not None:
        for ip in result.ips:
            if ip.interface is None:
                yield attachment.ifname, ip.address
            elif 0 <= ip.interface < len(result.interfaces) and result.interfaces[ip.interface].sandbox:
                yield result.interfaces[ip.interface].name, ip.address


def run_checks(node: NodeState, explained: set[str], *, run_check: bool) -> Observations:
    """If ``run_check``, run CHECK of the live attachments; ``explained``: those that have a finding already."""
    attachments = [
        attachment for attachment in node.attachments if attachment.state in LIVING and os.path.exists(attachment.netns)
    ]
    if not attachments:
        return
    if not run_check:
        yield NotChecked("interfaces", "the plugins' own checks", "CHECK was not run; libcni doctor --check runs it")
        return
    passed = known = 0
    faults: dict[tuple[str, str], list[str]] = {}
    for attachment in attachments:
        try:
            # Go libcni 1.1 does not record the path.
            given = attachment.netns if attachment.made_by_go else None
            node.cni.check_network_list(
                attachment.network, RuntimeConf(attachment.container_id, given, attachment.ifname)
            )
            passed += 1
        except VersionError as error:
            yield NotChecked("interfaces", name_of(attachment), f"CHECK: {error}")
        except CNIError as error:
            if fault := known_fault(error):
                faults.setdefault(fault, []).append(id_of(attachment))
            elif id_of(attachment) in explained:
                known += 1
            else:
                yield _failed_check(node, attachment, error)
    also = f", {known} failed for what is reported above" if known else ""
    yield Checked("interfaces", f"CHECK of {counted(len(attachments), 'attachment')}, {passed} passed{also}")
    for (plugin, meaning), containers in faults.items():
        shown = f"CHECK failed for {counted(len(containers), 'attachment')} by a known fault of the plugin"
        newer = ". A newer plugin does not have the fault" if "1.1.1" in meaning else ""
        yield NodeFinding(
            "interfaces", "note", "known-fault", f"plugin {plugin}", shown,
            f"{meaning}; the containers may be in order",
            f"nothing; attaching them again does not help{newer}",
            containers=tuple(containers),
        )  # fmt: skip


def _failed_check(node: NodeState, attachment: Attachment, error: CNIError) -> NodeFinding:
    about = partial(finding_about, attachment, check="interfaces")
    # A plugin that crashed or hung says nothing about the attachment.
    says_so = isinstance(error, PluginError) and error.code is not None and not error.retryable
    if says_so or isinstance(error, NotAttachedError):
        # The doctor's own checks found no fault, so the container may work.
        seen, meaning = f"CHECK failed: {error.text}", "a plugin finds the container's network damaged"
        remedy, mends = node.reloads(attachment, interrupts=True)
        return about(name="check-failed", severity="error", seen=seen, meaning=meaning, remedy=remedy, mends=mends)
    seen, meaning = f"CHECK gave no answer: {error.text}", "nobody knows whether the container's network is in order"
    remedy = "find out why, then check the container again"
    return about(name="check-unanswered", severity="warning", seen=seen, meaning=meaning, remedy=remedy)
