"""Find out whether published ports of the host lead to their containers, or to another container or program."""

from __future__ import annotations

from libcni._dataclass import replace
from libcni.config.port_mappings import PORT_MAPPINGS, ports_in
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import NodeFinding, Observations, finding_about
from libcni.errors import some
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING
from libcni.verbs.host_ports import PortRule, PortUser, port_holders
from libcni.verbs.port_rules import PortRules


def check_ports(node: NodeState) -> Observations:
    """Find programs that listen at published ports, and rules that lead a port elsewhere: the first one decides."""
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
            "clients of that program reach the container", "stop the program, or publish another port",
        )  # fmt: skip
    yield from (_caught(node, users[rule.user], rule) for rule in holders.rules)


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
    owner = f"that of container {others[0].container_id}" if others else " ".join(found.rule)
    remedy = "find out who added the rule, and remove it"
    if others:
        remedy = "publish another port for one of them" if others[0].state in LIVING else ""
    about = finding_about(
        "rules", "error", attachment, "port-caught",
        f"port {port} leads to {found.target or 'no container'}, not to {some(node.addresses_of(attachment))}: "
        f"the first rule that matches is {owner}",
        "clients of the port do not reach this container",
        remedy,
    )  # fmt: skip
    return replace(about, containers=(*about.containers, *(id_of(other) for other in others)))
