"""The chain that people run: bridge with host-local, tuning, portmap, firewall, bandwidth; all real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest
from nodes import Namespace, RealNode
from processes import fork

import libcni

pytestmark = pytest.mark.real

MAC = "02:11:22:33:44:55"
PORT = {"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}
VERSIONS = ["0.3.1", "0.4.0", "1.0.0"]
VERSIONS_WITH_CHECK = ["0.4.0", "1.0.0"]


def network(node: RealNode, version: str = "1.0.0") -> libcni.NetworkConfigList:
    """Return the chain; below 0.4.0 without firewall, which does not speak it."""
    rate = {"ingressRate": 80_000_000, "ingressBurst": 8_000_000, "egressRate": 80_000_000, "egressBurst": 8_000_000}
    plugins: list[dict[str, Any]] = [
        node.bridge("10.77.0.0/24", ipMasq=True, ipam={"routes": [{"dst": "0.0.0.0/0"}]}),
        {"type": "tuning", "capabilities": {"mac": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        {"type": "firewall", "backend": "iptables"},
        {"type": "bandwidth", **rate},
    ]
    if version not in VERSIONS_WITH_CHECK:
        plugins = [plugin for plugin in plugins if plugin["type"] != "firewall"]
    return node.network(*plugins, name="realnet", cniVersion=version)


def first(container: Namespace) -> libcni.RuntimeConf:
    return libcni.RuntimeConf("c1", container.path, "eth0", capability_args={"mac": MAC, "portMappings": [PORT]})


def second(other: Namespace) -> libcni.RuntimeConf:
    return libcni.RuntimeConf("c2", other.path, "eth0")


def bridge_ports(node: RealNode) -> list[str]:
    return [link["ifname"] for link in node.host.ip("link", "show", "master", "br-node")]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_result_says_is_there_until_del(node: RealNode, container: Namespace, version: str) -> None:
    net, rt = network(node, version), first(container)
    links = node.host.links()
    result = node.cni.add_network_list(net, rt)
    assert result.cni_version == version
    [ip] = result.ips
    assert (ip.address, ip.gateway) == ("10.77.0.2/24", "10.77.0.1")
    [inner] = [interface for interface in result.interfaces if interface.sandbox == container.path]
    assert (inner.name, inner.mac) == ("eth0", MAC)

    assert container.addresses("eth0") == ["10.77.0.2/24"]
    assert container.routes() == {"default": "10.77.0.1", "10.77.0.0/24": None}
    assert container.link("eth0")["address"] == MAC
    assert node.host.addresses("br-node") == ["10.77.0.1/24"]
    assert bridge_ports(node) == [result.interfaces[1].name]
    assert list(node.leased()) == ["10.77.0.2"]
    assert [*os.listdir(node.results)] == ["realnet-c1-eth0"]
    assert node.host.rules("nat", "--dport 18080 -j DNAT --to-destination 10.77.0.2:80")
    assert bool(node.host.rules("filter", "-s 10.77.0.2/32 -j ACCEPT")) is (version in VERSIONS_WITH_CHECK)
    assert "tbf" in {link.get("qdisc") for link in node.host.ip("link")}
    if version in VERSIONS_WITH_CHECK:
        node.cni.check_network_list(net, rt)

    node.cni.del_network_list(net, rt)
    assert container.links() == ["lo"]
    assert bridge_ports(node) == []
    assert node.host.links() == [*links, "br-node"]
    assert node.leased() == {}
    assert os.listdir(node.results) == []
    assert node.host.rules("nat", "10.77.0.2") + node.host.rules("filter", "10.77.0.2") == []
    node.cni.del_network_list(net, rt)  # and may be repeated


def test_packets_cross(node: RealNode, container: Namespace, other: Namespace) -> None:
    net = network(node)
    node.cni.add_network_list(net, first(container))
    node.cni.add_network_list(net, second(other))
    with container.echo_server(80):
        assert other.echo("10.77.0.2", 80, "from the other container") == "from the other container"
    with container.echo_server(80):
        assert node.host.echo("10.77.0.1", 18080, "through the host port") == "through the host port"


def _delete_address(container: Namespace) -> None:
    container.ip("address", "delete", "10.77.0.2/24", "dev", "eth0")


def _change_mac(container: Namespace) -> None:
    container.ip("link", "set", "eth0", "address", "02:00:00:00:00:99")


def _flush_ports(_: Namespace) -> None:
    subprocess.run(["iptables", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT"], check=True)


@pytest.mark.parametrize(
    ("damage", "plugin", "code", "msg"),
    [
        (_delete_address, "bridge", 999, "10.77.0.2"),
        (_change_mac, "bridge", 999, MAC),
        (_flush_ports, "portmap", 999, "dnat"),
    ],
)
def test_check_fails_with_the_plugins_own_code(
    node: RealNode, container: Namespace, damage: Any, plugin: str, code: int, msg: str
) -> None:
    net, rt = network(node), first(container)
    node.cni.add_network_list(net, rt)
    damage(container)
    with pytest.raises(libcni.PluginError) as caught:
        node.cni.check_network_list(net, rt)
    assert (caught.value.plugin, caught.value.verb, caught.value.code) == (plugin, "CHECK", code)
    assert msg in caught.value.msg


def test_a_runtime_that_is_killed_within_add_leaves_no_firewall_rule(node: RealNode, container: Namespace) -> None:
    """firewall deletes the rules of the addresses in prevResult, so DEL must know the intermediate result."""
    node.plugin("killer", '[ "$CNI_COMMAND" = ADD ] && kill -KILL "$PPID"; exit 0')
    client = node.client(start_ahead="never")
    chain = network(node).plugins
    net = node.network(json.loads(chain[0].text), json.loads(chain[3].text), "killer")
    rt = libcni.RuntimeConf("c1", container.path, "eth0")
    _, status = os.waitpid(fork(lambda: client.add_network_list(net, rt)), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert [one.state for one in client.get_cached_attachments()] == ["pending"]
    assert node.host.rules("filter", "-s 10.77.0.2/32 -j ACCEPT")
    client.del_network_list(net, rt)
    assert not node.host.rules("filter", "10.77.0.2")
    assert (node.leased(), client.get_cached_attachments()) == ({}, [])
