"""Check the node's devices of containers: bridges, masters, and the interface of the default route."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from libcni.diagnosis.mends import Mend, id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.obstacles import bridge_gateways
from libcni.diagnosis.reading import bridge_of, grouped, is_gateway
from libcni.diagnosis.reload_mend import reloads_of, renamed_bridge
from libcni.diagnosis.report import NodeFinding
from libcni.diagnosis.stopped_links import (
    let_take,
    takes,
)
from libcni.errors import counted, some
from libcni.kernel.netlink import MAIN_TABLE, Link, Network
from libcni.store.attachments import Attachment

WITH_MASTER = {"macvlan", "ipvlan", "vlan"}


def faults_of_uplink(node: NodeState) -> Iterator[NodeFinding]:
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


_Users = list[tuple[Attachment, Mapping[str, Any]]]
"""The attachments that use a device of the host, each with its plugin's configuration."""


def devices_of(node: NodeState) -> dict[tuple[str, str], _Users]:
    """Return the users of each (``bridge`` or ``master``, configured name)."""
    users: dict[tuple[str, str], _Users] = {}
    for attachment in (attachment for attachment, _ in node.live if attachment.path not in node.elsewhere):
        for document in node.documents(attachment):
            # A master inside the container is not on the host.
            master = "" if document.get("linkInContainer") else str(document.get("master") or "")
            if document.get("type") == "bridge":
                users.setdefault(("bridge", bridge_of(document)), []).append((attachment, document))
            elif document.get("type") in WITH_MASTER and master:
                users.setdefault(("master", master), []).append((attachment, document))
    return users


def faults_of_device(node: NodeState, host: Network, kind: str, name: str, users: _Users) -> Iterator[NodeFinding]:
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
            remedy, containers=names_of(moved),
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
        seen = f"it does not exist; needed by {counted(len(names_of(users)), 'living attachment')}"
        yield NodeFinding(
            "interfaces", "error", "bridge-missing" if kind == "bridge" else "master-missing", f"{kind} {name}",
            seen, "these containers are cut off", remedy, mends,
            names_of(users),
        )  # fmt: skip


def names_of(users: _Users) -> tuple[str, ...]:
    """Return the attachments of the users of a device, as ``ID:IFNAME``."""
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
    containers = names_of(users)
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
            mends = (Mend("add-route", link.name, (subnet,), names_of(users)),)
            yield NodeFinding(
                "interfaces", "error", "subnet-route-missing", f"route to {subnet}",
                f"the node has no such route over {link.name}", "the node cannot reach these containers", "", mends,
                names_of(users),
            )  # fmt: skip


def _covers(wide: str, narrow: str) -> bool:
    one, other = ipaddress.ip_network(wide), ipaddress.ip_network(narrow)
    return one.version == other.version and other.subnet_of(one)  # type: ignore[arg-type]  # the same family
