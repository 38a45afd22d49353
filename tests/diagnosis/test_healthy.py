"""Healthy nodes have no finding, without CHECK and with it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from nodes import plugins_know_gc

import libcni.kernel.echo
from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf
from libcni.diagnosis import traffic
from libcni.testing import wait_until

pytestmark = pytest.mark.real

PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}


def ranges(node: OperatorNode, *subnets: str) -> dict[str, Any]:
    return {"type": "host-local", "dataDir": str(node.leases), "ranges": [[{"subnet": one}] for one in subnets]}


def networks(node: OperatorNode) -> dict[str, list[dict[str, Any]]]:
    """Return the plugins of each kind of network."""
    pool, pool6 = f"{node.net}.0/24", f"{node.net6}::/64"
    bridge, gateway = node.bridge(pool), node.bridge(pool, isDefaultGateway=True)
    static = {
        "type": "static", "addresses": [{"address": f"{node.net}.9/24", "gateway": f"{node.net}.1"}],
        "routes": [{"dst": "192.168.0.0/16"}],
    }  # fmt: skip
    return {
        "ports": [{**gateway, "ipMasq": True}, PORTMAP, {"type": "firewall"}],
        "macvlan": [{"type": "macvlan", "master": "device0", "ipam": bridge["ipam"]}],
        "static": [{**bridge, "ipam": static}],
        "ipv6": [node.bridge(pool6, ipMasq=True, isDefaultGateway=True)],
        "dual stack": [{**bridge, "isGateway": True, "ipMasq": True, "ipam": ranges(node, pool, pool6)}],
        "several interfaces": [{**bridge, "ipMasq": True}],
        "layer 2": [{**bridge, "ipam": {}}, {"type": "tuning"}],
        "host-device": [{"type": "host-device", "device": "device0", "ipam": bridge["ipam"]}],
        "ptp": [{"type": "ptp", "ipMasq": True, "ipam": {**bridge["ipam"], "routes": [{"dst": "0.0.0.0/0"}]}}],
        "limited": [gateway, {"type": "bandwidth", "capabilities": {"bandwidth": True}}],
        "routed by source": [gateway, {"type": "sbr"}],
        "bridge without an address": [{**bridge, "isGateway": False}],
    }


ATTACHED = {
    "several interfaces": [("c1", "eth0"), ("c1", "eth1")],
    "bridge without an address": [("c1", "eth0"), ("c2", "eth0")],
}
FAULTS = {
    "limited": "bandwidth", "routed by source": "bridge", "layer 2": "bridge", "bridge without an address": "bridge",
    "ports": "portmap", "static": "bridge",
}  # fmt: skip
"""The plugins whose CHECK has a known fault for a kind of network."""
MENDED = {"limited", "ports", "static"}
"""Release 1.9.1 does not have these faults."""


@pytest.mark.parametrize(
    "kind",
    [
        "ports", "macvlan", "static", "ipv6", "dual stack", "several interfaces", "layer 2", "host-device", "ptp",
        "limited", "routed by source", "bridge without an address",
    ],
)  # fmt: skip
def test_a_healthy_node_has_no_finding(node: OperatorNode, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["ip", "link", "add", "device0", "type", "veth", "peer", "name", "peer0"], check=True)
    subprocess.run(["ip", "link", "set", "device0", "up"], check=True)
    node.configure("net", *networks(node)[kind])
    mapping = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    ports = {"portMappings": [mapping, {**mapping, "protocol": "udp"}]} if kind == "ports" else {}
    netns = node.new_namespace().path
    for container, ifname in ATTACHED.get(kind, [("c1", "eth0")]):
        path = netns if container == "c1" else node.new_namespace().path
        node.cni.add_network_list("net", RuntimeConf(container, path, ifname, capability_args=ports))
    if kind == "bridge without an address":
        # Such a bridge has the lowest MAC of its ports, so the CHECK of earlier containers fails after a later ADD.
        subprocess.run(["ip", "link", "set", "dev", "br-node", "address", "02:00:00:00:00:01"], check=True)
    # Packets, too: the kernel takes a second for a new link, or for an address of IPv6.
    monkeypatch.setattr(libcni.kernel.echo, "_PAUSES", (0.02, 0.03, 0.1))
    monkeypatch.setattr(traffic, "_SETTLED", 0.0)
    wait_until(lambda: {one.check for one in node.diagnose(send_packets=True).findings} <= {"traffic"})
    wait_until(lambda: not node.diagnose(send_packets=True).findings, 60)
    report = node.diagnose(run_check=True)
    # Known faults of plugins are notes about the plugins.
    has_fault = kind in FAULTS and not (kind in MENDED and plugins_know_gc())
    expected = {("note", f"plugin {FAULTS[kind]}")} if has_fault else set()
    assert {(one.severity, one.subject) for one in report.findings} == expected, [one.seen for one in report.findings]
    assert report.status == "ok"
