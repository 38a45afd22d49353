"""A node with ports and firewall rules, and what an attachment of it leaves on the host."""

from __future__ import annotations

from nodes import RealNode

from libcni import RuntimeConf

SUBNET = "10.96.0.0/24"


def publish(node: RealNode) -> RealNode:
    """Give a node a network with ports and firewall rules."""
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    node.settings["durable"] = False
    node.configure("net", node.bridge(SUBNET), portmap, {"type": "firewall"})
    return node


def conf(container: str, netns: str, number: int = 0) -> RuntimeConf:
    ports = {"portMappings": [{"hostPort": 22000 + number, "containerPort": 80, "protocol": "tcp"}]}
    return RuntimeConf(container, netns, "eth0", capability_args=ports)


def rules(node: RealNode) -> list[str]:
    return sorted(node.host.rules("nat", "-A") + node.host.rules("filter", "-A"))


def left(node: RealNode) -> list[str]:
    """Return what attachments have on the host: their veths, addresses, rules and records."""
    found = [name for name in node.host.links() if name.startswith("veth")]
    found += [*node.leased(), *node.host.rules("nat", "220"), *node.host.rules("filter", "10.96.0.")]
    return [*found, *(path.name for path in node.results.glob("*"))]


def assert_works(node: RealNode, container: str = "c1") -> None:
    [attachment] = node.cni.get_cached_attachments(container)
    assert attachment.state == "ready"
    node.cni.check_network_list("net", RuntimeConf(container, None, "eth0"))
