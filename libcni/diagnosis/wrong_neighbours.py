"""Find hardware addresses that lead packets for a container or its gateway elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import partial

from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.report import NodeFinding, finding_about
from libcni.diagnosis.stopped_links import (
    command_in,
)
from libcni.errors import some
from libcni.kernel.netlink import Neighbour, Network
from libcni.store.attachments import Attachment

_error = partial(finding_about, "interfaces", "error")


def other_gateways(node: NodeState, host: Network) -> Iterator[NodeFinding]:
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


def doubled_hardware_addresses(node: NodeState) -> Iterator[NodeFinding]:
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


def wrong_bridge_entries(node: NodeState, host: Network) -> Iterator[NodeFinding]:
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
