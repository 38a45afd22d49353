"""Check interfaces, addresses and routes in the namespaces and on the host, and the host's side of each container."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from libcni.diagnosis.container_side import CUT_OFF, faults_inside, without_default_route
from libcni.diagnosis.mends import Mend, id_of, link_mend
from libcni.diagnosis.node_devices import devices_of, faults_of_device, faults_of_uplink, names_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import bridge_of, grouped
from libcni.diagnosis.reload_mend import renamed_bridge
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
from libcni.diagnosis.wrong_neighbours import doubled_hardware_addresses, other_gateways, wrong_bridge_entries
from libcni.errors import counted, some
from libcni.kernel.netlink import Link, Network
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING

_error = partial(finding_about, "interfaces", "error")
_BLOCKED = {"state 0", "state 4"}
"""The states of a bridge's port in which it forwards nothing: disabled and blocking."""


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
    for (kind, name), users in devices_of(node).items():
        for finding in faults_of_device(node, host, kind, name, users):
            if finding.name == "bridge-missing" or (kind == "master" and finding.severity == "error"):
                explained.update(finding.containers)
            yield finding
        if kind == "bridge" and name in host.links:
            about = partial(NodeFinding, "interfaces", subject=f"bridge {name}", containers=names_of(users))
            documents = [document for _, document in users]
            yield from settings_that_stop(host.links[name], documents, about)
            yield from macs.wrong(host, host.links[name], {attachment.network for attachment, _ in users}, about)
    yield from wrong_bridge_entries(node, host)
    yield from faults_of_uplink(node)
    for link in node.uplinks:
        about = partial(NodeFinding, "interfaces", subject=f"interface {link.name}")
        yield from settings_that_stop(link, (), about, only=UPLINK)
    yield from doubled_hardware_addresses(node)
    yield from without_default_route(node)
    yield from other_gateways(node, host)
    for attachment, inside in node.live:
        if id_of(attachment) not in explained:
            yield from faults_inside(node, attachment, inside)
            yield from _moved_host_end(node, attachment, inside)
            yield from _stopped_inside(node, attachment, inside, macs)
        if attachment.path not in node.elsewhere:
            yield from _host_side(node, attachment, host, routes)
            yield from _stopped_outside(node, attachment, host, macs)


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
            mend = link_mend("join", attachment, link, bridge, *["hairpin on"] * wants_hairpin)
            yield _error(attachment, "off-bridge", seen, CUT_OFF, mends=(mend,))
        elif bridges and wants_hairpin and "hairpin on" not in link.settings:
            yield finding_about(
                "interfaces", "warning", attachment, "hairpin-off",
                f"hairpin mode of the host interface {link.name} is off, but the configuration sets it",
                "the container cannot reach itself by a published port or a service",
                f"bridge link set dev {link.name} hairpin on",
            )  # fmt: skip
        if not link.is_up:
            mends: tuple[Mend, ...] = (link_mend("set-up", attachment, link),)
            yield _error(attachment, "host-end-down", f"the host interface {link.name} is down", CUT_OFF, mends=mends)
        elif bridges and not _BLOCKED.isdisjoint(link.settings) and _is_up_inside(node, attachment):
            master = node.host_links_by_index.get(link.master)
            if master is None or not master.is_up:  # the kernel blocks all ports of a bridge that is down
                continue
            seen = f"the bridge does not forward packets of the host interface {link.name}"
            yield _error(attachment, "off-bridge", seen, CUT_OFF, f"bridge link set dev {link.name} state 3")
        elif any(document.get("type") == "ptp" for document in documents):
            hosts = [f"{address}/{128 if ':' in address else 32}" for address in node.addresses_of(attachment)]
            if missing := [text for text in hosts if text not in routes.get(link.index, ())]:
                seen = f"the node's route to {some(missing)} over {link.name} is missing"
                mends = tuple(link_mend("add-route", attachment, link, text) for text in missing)
                yield _error(attachment, "host-route-missing", seen, CUT_OFF, mends=mends)
            yield from _gateway_of_ptp(node, attachment, link)


def _gateway_of_ptp(node: NodeState, attachment: Attachment, link: Link) -> Iterator[NodeFinding]:
    """Find a host end that has lost the gateway's address, which ptp gives each of them, for one host alone."""
    gateways = [cidr.partition("/")[0] for cidr in node.summary_of(attachment).gateways]
    if missing := [address for address in dict.fromkeys(gateways) if not link.has_address(address)]:
        mends = tuple(
            link_mend("add-address", attachment, link, f"{address}/{128 if ':' in address else 32}")
            for address in missing if takes(link, address)
        )  # fmt: skip
        yield _error(
            attachment, "gateway-missing", f"its host interface {link.name} does not have the address {some(missing)}",
            "the container loses its gateway as soon as it asks again for the gateway's hardware address",
            "" if len(mends) == len(missing) else f"call repair again after: {let_take(link)}", mends,
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
    yield _error(attachment, "interface-moved", seen, CUT_OFF, remedy)


def _is_up_inside(node: NodeState, attachment: Attachment) -> bool:
    """Return whether an attachment's interface is up. If it is not, the kernel disables its bridge's port."""
    space = node.space_of(attachment)
    link = space.network.links.get(attachment.ifname) if space is not None and space.network is not None else None
    return link is not None and link.is_up
