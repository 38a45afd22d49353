"""Find out whether published ports of the host lead to their containers, or to another container or program."""

from __future__ import annotations

from libcni._dataclass import replace
from libcni.config.port_mappings import PORT_MAPPINGS, ports_in
from libcni.diagnosis.lost_packets import remedy_of
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.namespaces import remove_replaced, replaced_by
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.packets import Place
from libcni.diagnosis.reading import LOCALNET, grouped
from libcni.diagnosis.report import NodeFinding, Observations, finding_about
from libcni.errors import some
from libcni.kernel.rules import ports_chain
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING
from libcni.verbs.host_ports import PortRule, PortUser, port_holders
from libcni.verbs.port_rules import PortRules


def check_ports(node: NodeState) -> Observations:
    """Find programs that listen at published ports, and rules that lead a port elsewhere.

    The first matching rule counts.
    """
    users = {
        PortUser(attachment.container_id, ports, node.addresses_of(attachment)): attachment
        for attachment, _ in node.live
        if attachment.path not in node.elsewhere
        and _publishes(node, attachment)
        and (ports := tuple(ports_in(attachment.capability_args)))
    }
    containers = {user.container_id: attachment for user, attachment in users.items()}
    holders = port_holders(users, PortRules(node.rules))
    for listener in holders.listeners:
        yield finding_about(
            "next", "warning", containers[listener.container_id], "port-shadowed",
            f"{listener.who} listens on host port {listener.port}, which this container publishes",
            "clients of that program reach the container instead", "stop the program, or publish another port",
        )  # fmt: skip
    for rule in holders.rules:
        attachment, words = users[rule.user], rule.found.rule
        # A wrong rule in the container's own chain is a missing one, which a mend puts there alone.
        if ports_chain(attachment.network, attachment.container_id) != words[1]:
            yield _caught(node, attachment, rule)
    yield from _not_from_localhost(node, list(users.values()))


def _not_from_localhost(node: NodeState, attachments: list[Attachment]) -> Observations:
    """Find bridges that drop packets from 127.0.0.1: portmap lets them through, unless it is told to translate none."""
    links = node.host.links if node.host is not None and not node.forwards.get(LOCALNET) else {}
    chains = {chain for program in node.rules if program != "nft" for chain in node.table(program, "nat").chains}
    users = grouped(
        (interface, id_of(attachment)) for attachment in attachments
        # portmap's rules of nftables need no such setting.
        if ports_chain(attachment.network, attachment.container_id) in chains
        and not any(one.get("type") == "portmap" and one.get("snat") is False for one in node.documents(attachment))
        and any("." in address for address in node.addresses_of(attachment))
        and any(port.address in {"", "127.0.0.1"} for port in ports_in(attachment.capability_args))
        for interface in node.gateway_interfaces(attachment)
    )  # fmt: skip
    for interface, names in users.items():
        if interface in links and "route_localnet 1" not in links[interface].settings:
            yield NodeFinding(
                "rules", "warning", "localnet-off", f"interface {interface}",
                f"route_localnet of this interface is 0, but portmap has set it to 1 for {some(names)}",
                "programs on this node do not reach the published ports at 127.0.0.1",
                f"sysctl -w net/ipv4/conf/{interface}/route_localnet=1", (), tuple(names),
            )  # fmt: skip


def _publishes(node: NodeState, attachment: Attachment) -> bool:
    """Return whether a plugin of an attachment publishes the ports of its capability arguments."""
    net = node.recorded(attachment)
    return net is not None and not net.unused_capabilities({PORT_MAPPINGS: ()})


def _caught(node: NodeState, attachment: Attachment, rule: PortRule) -> NodeFinding:
    _, port, found = rule
    others = [
        other for other in node.recorded_addresses.get(found.target, ())
        if other.container_id != attachment.container_id and port in set(ports_in(other.capability_args))
    ]  # fmt: skip
    owner = " ".join(found.rule)
    if others:
        owner = f"that of container {others[0].container_id}{replaced_by(node, others[0])}"
    program, table = next(
        (program, name) for program, tables in node.rules.items() for name, one in tables.items()
        if any(found.rule in rules for rules in one.chains.values())
    )  # fmt: skip
    remedy = remedy_of(node, Place(program, table, ""), found.rule)
    if others:
        remedy = "publish another port for one of the two containers" if others[0].state in LIVING else ""
        remedy = remove_replaced(others[:1]) if others[0].path in node.replaced else remedy
    about = finding_about(
        "rules", "error", attachment, "port-caught",
        f"port {port} leads to {found.target or 'no container'}, not to {some(node.addresses_of(attachment))}: "
        f"the first rule that matches is {owner}",
        "clients of the port do not reach this container",
        remedy,
    )  # fmt: skip
    return replace(about, containers=(*about.containers, *(id_of(other) for other in others)))
