"""Real plugins one by one: ptp, macvlan, loopback, static."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import libcni

from .namespaces import Namespace

pytestmark = pytest.mark.real

STATIC = {
    "type": "static",
    "addresses": [{"address": "10.78.0.7/24", "gateway": "10.78.0.1"}],
    "routes": [{"dst": "192.0.2.0/24", "gw": "10.78.0.1"}],
}


def network(plugin: dict[str, Any], version: str = "1.0.0") -> libcni.NetworkConfigList:
    return libcni.NetworkConfigList.from_dict({"cniVersion": version, "name": "realnet", "plugins": [plugin]})


def runtime_conf(container: Namespace, ifname: str = "eth0") -> libcni.RuntimeConf:
    return libcni.RuntimeConf("c1", container.path, ifname)


@pytest.fixture
def parent(host: Namespace) -> str:
    """Return a link that stands for the machine's network card. (Not every kernel has dummy links.)"""
    subprocess.run(["ip", "link", "add", "card0", "type", "veth", "peer", "name", "switch0"], check=True)
    for name in ("card0", "switch0"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    return "card0"


def test_ptp(cni: libcni.CNIConfig, host: Namespace, container: Namespace, leases: Path, records: Path) -> None:
    ipam = {
        "type": "host-local",
        "dataDir": os.fspath(leases),
        "subnet": "10.79.0.0/24",
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    net, rt = network({"type": "ptp", "ipMasq": True, "mtu": 1400, "ipam": ipam}), runtime_conf(container)
    links = host.links()
    result = cni.add_network_list(net, rt)
    assert [ip.address for ip in result.ips] == container.addresses("eth0") == ["10.79.0.2/24"]
    assert container.routes()["default"] == "10.79.0.1"
    assert container.link("eth0")["mtu"] == 1400
    with container.serving(80):
        assert host.greet("10.79.0.2", 80, "from the machine") == "hello from the machine"
    cni.check_network_list(net, rt)
    container.ip("address", "delete", "10.79.0.2/24", "dev", "eth0")
    with pytest.raises(libcni.PluginError, match=r"10\.79\.0\.2"):
        cni.check_network_list(net, rt)
    cni.del_network_list(net, rt)
    assert container.links() == ["lo"]
    assert host.links() == links
    assert list(leases.glob("*/10.*")) == list(records.iterdir()) == []


def test_macvlan_with_static(cni: libcni.CNIConfig, parent: str, container: Namespace, records: Path) -> None:
    net = network({"type": "macvlan", "master": parent, "mode": "bridge", "ipam": STATIC})
    rt = runtime_conf(container)
    result = cni.add_network_list(net, rt)
    assert [ip.address for ip in result.ips] == container.addresses("eth0") == ["10.78.0.7/24"]
    assert container.routes()["192.0.2.0/24"] == "10.78.0.1"
    cni.check_network_list(net, rt)
    container.ip("address", "delete", "10.78.0.7/24", "dev", "eth0")
    with pytest.raises(libcni.PluginError, match=r"10\.78\.0\.7"):
        cni.check_network_list(net, rt)
    cni.del_network_list(net, rt)
    assert container.links() == ["lo"]
    assert list(records.iterdir()) == []


def test_macvlan_containers_reach_each_other(
    cni: libcni.CNIConfig, parent: str, container: Namespace, other: Namespace
) -> None:
    second = {"type": "static", "addresses": [{"address": "10.78.0.8/24"}]}
    plugin = {"type": "macvlan", "master": parent, "mode": "bridge"}
    cni.add_network_list(network({**plugin, "ipam": STATIC}), runtime_conf(container))
    cni.add_network_list(network({**plugin, "ipam": second}), libcni.RuntimeConf("c2", other.path, "eth0"))
    with container.serving(80):
        assert other.greet("10.78.0.7", 80, "over one card") == "hello over one card"


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
def test_loopback(cni: libcni.CNIConfig, container: Namespace, records: Path, version: str) -> None:
    net, rt = network({"type": "loopback"}, version), runtime_conf(container, "lo")
    assert "UP" not in container.link("lo")["flags"]
    result = cni.add_network_list(net, rt)
    assert result.interfaces[0].name == "lo"
    assert "UP" in container.link("lo")["flags"]
    if version != "0.3.1":
        cni.check_network_list(net, rt)
    cni.del_network_list(net, rt)
    assert "UP" not in container.link("lo")["flags"]
    assert list(records.iterdir()) == []


def test_one_plugin_alone(cni: libcni.CNIConfig, container: Namespace, records: Path) -> None:
    plugin = libcni.PluginConfig.from_dict({"cniVersion": "1.0.0", "name": "lonet", "type": "loopback"})
    rt = runtime_conf(container, "lo")
    cni.add_network(plugin, rt)
    assert "UP" in container.link("lo")["flags"]
    cni.check_network(plugin, rt)
    cni.del_network(plugin, rt)
    assert "UP" not in container.link("lo")["flags"]
    assert list(records.iterdir()) == []


def test_what_cannot_be_rolled_back_stays_recorded(cni: libcni.CNIConfig, container: Namespace) -> None:
    net = network({"type": "macvlan", "master": "card1", "ipam": STATIC})
    with pytest.raises(libcni.PluginError) as caught:
        cni.add_network_list(net, runtime_conf(container))
    assert (caught.value.plugin, caught.value.code, caught.value.msg) == ("macvlan", 999, "Link not found")
    [error] = caught.value.rollback_errors  # macvlan 1.1.1 looks for its master on DEL too
    assert isinstance(error, libcni.PluginError)
    assert (error.verb, error.msg) == ("DEL", "Link not found")
    assert [attachment.state for attachment in cni.get_cached_attachments()] == ["pending"]
