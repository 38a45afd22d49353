"""Real plugins one by one: ptp, macvlan, loopback, static."""

from __future__ import annotations

import os
import subprocess

import pytest
from nodes import Namespace, RealNode

import libcni

pytestmark = pytest.mark.real

STATIC = {
    "type": "static",
    "addresses": [{"address": "10.78.0.7/24", "gateway": "10.78.0.1"}],
    "routes": [{"dst": "192.0.2.0/24", "gw": "10.78.0.1"}],
}


def runtime_conf(container: Namespace, ifname: str = "eth0") -> libcni.RuntimeConf:
    return libcni.RuntimeConf("c1", container.path, ifname)


@pytest.fixture
def parent() -> str:
    """Return a link that stands for the machine's network card. (Not every kernel has dummy links.)"""
    subprocess.run(["ip", "link", "add", "card0", "type", "veth", "peer", "name", "switch0"], check=True)
    for name in ("card0", "switch0"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return "card0"


def test_ptp(node: RealNode, container: Namespace) -> None:
    ipam = node.bridge("10.79.0.0/24", ipam={"routes": [{"dst": "0.0.0.0/0"}]})["ipam"]
    net, rt = node.network({"type": "ptp", "ipMasq": True, "mtu": 1400, "ipam": ipam}), runtime_conf(container)
    links = node.host.links()
    result = node.cni.add_network_list(net, rt)
    assert [ip.address for ip in result.ips] == container.addresses("eth0") == ["10.79.0.2/24"]
    assert container.routes()["default"] == "10.79.0.1"
    assert container.link("eth0")["mtu"] == 1400
    with container.echo_server(80):
        assert node.host.echo("10.79.0.2", 80, "from the machine") == "from the machine"
    node.cni.check_network_list(net, rt)
    container.ip("address", "delete", "10.79.0.2/24", "dev", "eth0")
    with pytest.raises(libcni.PluginError, match=r"10\.79\.0\.2"):
        node.cni.check_network_list(net, rt)
    node.cni.del_network_list(net, rt)
    assert container.links() == ["lo"]
    assert node.host.links() == links
    assert (node.leased(), os.listdir(node.results)) == ({}, [])


def test_macvlan_with_static(node: RealNode, parent: str, container: Namespace) -> None:
    net = node.network({"type": "macvlan", "master": parent, "mode": "bridge", "ipam": STATIC})
    rt = runtime_conf(container)
    result = node.cni.add_network_list(net, rt)
    assert [ip.address for ip in result.ips] == container.addresses("eth0") == ["10.78.0.7/24"]
    assert container.routes()["192.0.2.0/24"] == "10.78.0.1"
    node.cni.check_network_list(net, rt)
    container.ip("address", "delete", "10.78.0.7/24", "dev", "eth0")
    with pytest.raises(libcni.PluginError, match=r"10\.78\.0\.7"):
        node.cni.check_network_list(net, rt)
    node.cni.del_network_list(net, rt)
    assert container.links() == ["lo"]
    assert os.listdir(node.results) == []


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
def test_loopback(node: RealNode, container: Namespace, version: str) -> None:
    net, rt = node.network("loopback", cniVersion=version), runtime_conf(container, "lo")
    assert "UP" not in container.link("lo")["flags"]
    result = node.cni.add_network_list(net, rt)
    assert result.interfaces[0].name == "lo"
    assert "UP" in container.link("lo")["flags"]
    if version != "0.3.1":
        node.cni.check_network_list(net, rt)
    node.cni.del_network_list(net, rt)
    assert "UP" not in container.link("lo")["flags"]
    assert os.listdir(node.results) == []
