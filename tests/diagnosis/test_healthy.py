"""Healthy nodes have no finding, without CHECK and with it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from nodes import plugins_know_gc

from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf

pytestmark = pytest.mark.real

PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}


def attach(node: OperatorNode, container: str, ifname: str = "eth0", network: str = "net", **more: Any) -> None:
    rt = RuntimeConf(container, node.new_namespace().path, ifname, **more)
    node.client(owner=more.pop("owner", "")).add_network_list(network, rt)


def ports_published(node: OperatorNode) -> None:
    node.configure(
        "net", node.bridge(f"{node.net}.0/24", ipMasq=True, isDefaultGateway=True), PORTMAP, {"type": "firewall"}
    )
    for number, container in enumerate(("c1", "c2")):
        mapping = {"hostPort": 8080 + number, "containerPort": 80, "protocol": "tcp"}
        attach(node, container, capability_args={"portMappings": [mapping, {**mapping, "protocol": "udp"}]})
    attach(node, "c3")


def macvlan(node: OperatorNode) -> None:
    subprocess.run(["ip", "link", "add", "master0", "type", "veth", "peer", "name", "peer0"], check=True)
    subprocess.run(["ip", "link", "set", "master0", "up"], check=True)
    node.configure("net", {"type": "macvlan", "master": "master0", "ipam": node.bridge(f"{node.net}.0/24")["ipam"]})
    attach(node, "c1")


def static(node: OperatorNode) -> None:
    addresses = [{"address": f"{node.net}.9/24", "gateway": f"{node.net}.1"}]
    ipam = {"type": "static", "addresses": addresses, "routes": [{"dst": "192.168.0.0/16"}]}
    node.configure("net", {"type": "bridge", "bridge": "br-node", "ipam": ipam})
    attach(node, "c1")


def ipv6_only(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net6}::/64", ipMasq=True, isDefaultGateway=True))
    attach(node, "c1")


def dual_stack(node: OperatorNode) -> None:
    ranges = [[{"subnet": f"{node.net}.0/24"}], [{"subnet": f"{node.net6}::/64"}]]
    ipam = {"type": "host-local", "dataDir": str(node.leases), "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    node.configure("net", {"type": "bridge", "bridge": "br-node", "isGateway": True, "ipMasq": True, "ipam": ipam})
    attach(node, "c1")


def several_interfaces(node: OperatorNode) -> None:
    node.configure("net", node.bridge(f"{node.net}.0/24", ipMasq=True))
    node.configure("other", node.bridge(f"{node.second}.0/24", bridge="br-other"))
    netns = node.new_namespace().path
    for ifname, network in (("eth0", "net"), ("eth1", "net"), ("net1", "other")):
        node.cni.add_network_list(network, RuntimeConf("c1", netns, ifname))


def layer_2(node: OperatorNode) -> None:
    node.configure("net", {"type": "bridge", "bridge": "br-node", "ipam": {}}, {"type": "tuning"})
    attach(node, "c1")


def host_device(node: OperatorNode) -> None:
    subprocess.run(["ip", "link", "add", "device0", "type", "veth", "peer", "name", "peer0"], check=True)
    ipam = node.bridge(f"{node.net}.0/24")["ipam"]
    node.configure("net", {"type": "host-device", "device": "device0", "ipam": ipam})
    attach(node, "c1")


def empty(node: OperatorNode) -> None:
    node.write_bridge()


def two_owners(node: OperatorNode) -> None:
    for owner in ("podman", "runtime"):
        rt = RuntimeConf(f"{owner}-1", node.new_namespace().path, "eth0")
        node.client(owner=owner).add_network_list("net", rt)


def point_to_point(node: OperatorNode) -> None:
    ipam = {**node.bridge(f"{node.net}.0/24")["ipam"], "routes": [{"dst": "0.0.0.0/0"}]}
    node.configure("net", {"type": "ptp", "ipMasq": True, "ipam": ipam})
    attach(node, "c1")


def limited_and_routed_by_source(node: OperatorNode) -> None:
    """The CHECK of both plugins has a known fault."""
    node.configure(
        "net",
        node.bridge(f"{node.net}.0/24", isDefaultGateway=True),
        {"type": "bandwidth", "capabilities": {"bandwidth": True}},
    )
    node.configure("routed", node.bridge(f"{node.second}.0/24", bridge="br-2", isDefaultGateway=True), {"type": "sbr"})
    attach(node, "c1")
    attach(node, "c2", network="routed")


def several_on_a_bridge_without_an_address(node: OperatorNode) -> None:
    """Such a bridge has the lowest MAC of its ports, so the CHECK of earlier containers fails after a later ADD."""
    node.write_bridge(isGateway=False)
    attach(node, "c1")
    attach(node, "c2")
    subprocess.run(["ip", "link", "set", "dev", "br-node", "address", "02:00:00:00:00:01"], check=True)


@pytest.mark.parametrize(
    "attached",
    [
        ports_published, macvlan, static, ipv6_only, dual_stack, several_interfaces, layer_2, host_device, empty,
        two_owners, point_to_point, limited_and_routed_by_source, several_on_a_bridge_without_an_address,
    ],
)  # fmt: skip
def test_a_healthy_node_has_no_finding(node: OperatorNode, attached: Callable[[OperatorNode], None]) -> None:
    attached(node)
    assert node.diagnose().findings == ()
    report = node.diagnose(run_check=True)
    # Known faults of plugins are notes about the plugins.
    notes = {(one.severity, one.subject) for one in report.findings}
    expected: dict[Any, set[tuple[str, str]]] = {
        limited_and_routed_by_source: {("note", "plugin bridge")},
        layer_2: {("note", "plugin bridge")},
        several_on_a_bridge_without_an_address: {("note", "plugin bridge")},
    }
    if not plugins_know_gc():  # faults that release 1.9.1 does not have
        expected[ports_published] = {("note", "plugin portmap")}
        expected[limited_and_routed_by_source] |= {("note", "plugin bandwidth")}
        expected[static] = {("note", "plugin bridge")}
    assert notes == expected.get(attached, set()), [one.seen for one in report.findings]
    assert report.status == "ok"
