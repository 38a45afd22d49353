"""The chain that people run: bridge with host-local, tuning, portmap, firewall, bandwidth; all real."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from reliability.forked import fork

import libcni

from .namespaces import PLUGIN_PATH, PLUGINS, Namespace

pytestmark = pytest.mark.real

MAC = "02:11:22:33:44:55"
PORT = {"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}
VERSIONS = ["0.3.1", "0.4.0", "1.0.0"]
VERSIONS_WITH_CHECK = ["0.4.0", "1.0.0"]


def network(leases: Path, version: str = "1.0.0") -> libcni.NetworkConfigList:
    """Return the chain; below 0.4.0 without firewall, which does not speak it."""
    rate = {"ingressRate": 80_000_000, "ingressBurst": 8_000_000, "egressRate": 80_000_000, "egressBurst": 8_000_000}
    ipam = {
        "type": "host-local",
        "dataDir": os.fspath(leases),
        "ranges": [[{"subnet": "10.77.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugins: list[dict[str, Any]] = [
        {"type": "bridge", "bridge": "br-cnitest", "isGateway": True, "ipMasq": True, "ipam": ipam},
        {"type": "tuning", "capabilities": {"mac": True}},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        {"type": "firewall", "backend": "iptables"},
        {"type": "bandwidth", **rate},
    ]
    if version not in VERSIONS_WITH_CHECK:
        plugins = [plugin for plugin in plugins if plugin["type"] != "firewall"]
    return libcni.NetworkConfigList.from_dict({"cniVersion": version, "name": "realnet", "plugins": plugins})


def first(container: Namespace) -> libcni.RuntimeConf:
    return libcni.RuntimeConf("c1", container.path, "eth0", capability_args={"mac": MAC, "portMappings": [PORT]})


def second(other: Namespace) -> libcni.RuntimeConf:
    return libcni.RuntimeConf("c2", other.path, "eth0")


def leased(leases: Path) -> list[str]:
    """Return the addresses that host-local holds."""
    return sorted(path.name for path in leases.glob("*/10.*"))


def bridge_ports(host: Namespace) -> list[str]:
    return [link["ifname"] for link in host.ip("link", "show", "master", "br-cnitest")]


def rules(table: str) -> str:
    return subprocess.run(["iptables", "-t", table, "-S"], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_result_says_is_there(
    cni: libcni.CNIConfig, host: Namespace, container: Namespace, leases: Path, records: Path, version: str
) -> None:
    result = cni.add_network_list(network(leases, version), first(container))
    assert result.cni_version == version
    [ip] = result.ips
    assert (ip.address, ip.gateway) == ("10.77.0.2/24", "10.77.0.1")
    [inner] = [interface for interface in result.interfaces if interface.sandbox == container.path]
    assert (inner.name, inner.mac) == ("eth0", MAC)

    assert container.addresses("eth0") == ["10.77.0.2/24"]
    assert container.routes() == {"default": "10.77.0.1", "10.77.0.0/24": None}
    assert container.link("eth0")["address"] == MAC
    assert host.addresses("br-cnitest") == ["10.77.0.1/24"]
    assert bridge_ports(host) == [result.interfaces[1].name]
    assert leased(leases) == ["10.77.0.2"]
    assert [path.name for path in records.iterdir()] == ["realnet-c1-eth0"]
    assert "--dport 18080 -j DNAT --to-destination 10.77.0.2:80" in rules("nat")
    assert ("-s 10.77.0.2/32 -j ACCEPT" in rules("filter")) is (version in VERSIONS_WITH_CHECK)
    assert "tbf" in {link.get("qdisc") for link in host.ip("link")}


@pytest.mark.parametrize("version", VERSIONS)
def test_packets_cross(
    cni: libcni.CNIConfig, host: Namespace, container: Namespace, other: Namespace, leases: Path, version: str
) -> None:
    net = network(leases, version)
    cni.add_network_list(net, first(container))
    cni.add_network_list(net, second(other))
    with container.serving(80):
        assert other.greet("10.77.0.2", 80, "from the other container") == "hello from the other container"
    with container.serving(80):
        assert host.greet("10.77.0.1", 18080, "through the host port") == "hello through the host port"


@pytest.mark.parametrize("version", VERSIONS)
def test_del_leaves_nothing(
    cni: libcni.CNIConfig, host: Namespace, container: Namespace, leases: Path, records: Path, version: str
) -> None:
    net, rt = network(leases, version), first(container)
    links = host.links()
    cni.add_network_list(net, rt)
    cni.del_network_list(net, rt)
    assert container.links() == ["lo"]
    assert bridge_ports(host) == []
    assert host.links() == [*links, "br-cnitest"]
    assert leased(leases) == []
    assert list(records.iterdir()) == []
    assert "10.77.0.2" not in rules("nat") + rules("filter")
    cni.del_network_list(net, rt)  # and may be repeated


@pytest.mark.parametrize("version", VERSIONS_WITH_CHECK)
def test_check_passes(
    cni: libcni.CNIConfig, container: Namespace, other: Namespace, leases: Path, version: str
) -> None:
    net = network(leases, version)
    cni.add_network_list(net, first(container))
    cni.add_network_list(net, second(other))
    cni.check_network_list(net, first(container))
    cni.check_network_list(net, second(other))


def test_on_asyncio(container: Namespace, other: Namespace, leases: Path, records: Path) -> None:
    async def attach_both_and_detach() -> None:
        client = libcni.AsyncCNIConfig([PLUGINS], records.parent, env={"PATH": PLUGIN_PATH})
        net, both = network(leases), [first(container), second(other)]
        results = await asyncio.gather(*(client.add_network_list(net, rt) for rt in both))
        assert [result.ips[0].address for result in results] == [
            address for namespace in (container, other) for address in namespace.addresses("eth0")
        ]
        await asyncio.gather(*(client.check_network_list(net, rt) for rt in both))
        await asyncio.gather(*(client.del_network_list(net, rt) for rt in both))

    asyncio.run(attach_both_and_detach())
    assert leased(leases) == []
    assert list(records.iterdir()) == []


def test_check_needs_0_4_0(cni: libcni.CNIConfig, container: Namespace, leases: Path) -> None:
    net = network(leases, "0.3.1")
    cni.add_network_list(net, first(container))
    with pytest.raises(libcni.VersionError):
        cni.check_network_list(net, first(container))


def _delete_address(container: Namespace) -> None:
    container.ip("address", "delete", "10.77.0.2/24", "dev", "eth0")


def _change_mac(container: Namespace) -> None:
    container.ip("link", "set", "eth0", "address", "02:00:00:00:00:99")


def _flush_ports(_: Namespace) -> None:
    subprocess.run(["iptables", "-t", "nat", "-F", "CNI-HOSTPORT-DNAT"], check=True)


@pytest.mark.parametrize("version", VERSIONS_WITH_CHECK)
@pytest.mark.parametrize(
    ("damage", "plugin", "code", "msg"),
    [
        (_delete_address, "bridge", 999, "10.77.0.2"),
        (_change_mac, "bridge", 999, MAC),
        (_flush_ports, "portmap", 999, "dnat"),
    ],
)
def test_check_fails_with_the_plugins_own_code(
    cni: libcni.CNIConfig,
    container: Namespace,
    leases: Path,
    version: str,
    damage: Any,
    plugin: str,
    code: int,
    msg: str,
) -> None:
    net, rt = network(leases, version), first(container)
    cni.add_network_list(net, rt)
    damage(container)
    with pytest.raises(libcni.PluginError) as caught:
        cni.check_network_list(net, rt)
    assert (caught.value.plugin, caught.value.verb, caught.value.code) == (plugin, "CHECK", code)
    assert msg in caught.value.msg


def test_failed_add_is_rolled_back(
    cni: libcni.CNIConfig, host: Namespace, container: Namespace, leases: Path, records: Path
) -> None:
    wrong = libcni.RuntimeConf(
        "c1", container.path, "eth0", capability_args={"portMappings": [{**PORT, "protocol": "nonsense"}]}
    )
    with pytest.raises(libcni.PluginError) as caught:
        cni.add_network_list(network(leases), wrong)
    assert caught.value.plugin == "portmap"
    assert caught.value.rollback_errors == ()
    assert container.links() == ["lo"]
    assert bridge_ports(host) == []
    assert leased(leases) == []
    assert list(records.iterdir()) == []


def test_del_works_after_the_namespace_has_gone(
    cni: libcni.CNIConfig, host: Namespace, container: Namespace, leases: Path, records: Path
) -> None:
    net = network(leases)
    cni.add_network_list(net, first(container))
    subprocess.run(["ip", "netns", "delete", container.name], check=True)
    try:
        cni.del_network_list(net, libcni.RuntimeConf("c1", None, "eth0"))
    finally:
        subprocess.run(["ip", "netns", "add", container.name], check=True)  # for the fixture to remove
    assert leased(leases) == []
    assert list(records.iterdir()) == []
    assert "10.77.0.2" not in rules("filter")
    assert "to-destination" not in rules("nat")  # bridge 1.1.1 leaves its ipMasq rule where CNI_NETNS is empty


_KILL = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && kill -KILL "$PPID"
exit 0
"""


def test_a_runtime_that_is_killed_within_add_leaves_no_firewall_rule(
    cni: libcni.CNIConfig, host: Namespace, container: Namespace, leases: Path, records: Path, tmp_path: Path
) -> None:
    """firewall deletes the rules of the addresses in prevResult, so DEL must know the result so far."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/killer").write_text(_KILL)
    (tmp_path / "bin/killer").chmod(0o755)
    path = [PLUGINS, os.fspath(tmp_path / "bin")]
    client = libcni.CNIConfig(path, records.parent, env={"PATH": PLUGIN_PATH}, start_ahead="never")
    chain = network(leases).plugins
    plugins = [json.loads(chain[0].text), json.loads(chain[3].text), {"type": "killer"}]
    net = libcni.NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "realnet", "plugins": plugins})
    rt = libcni.RuntimeConf("c1", container.path, "eth0")
    _, status = os.waitpid(fork(lambda: client.add_network_list(net, rt)), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert [one.state for one in client.get_cached_attachments()] == ["pending"]
    assert "-s 10.77.0.2/32 -j ACCEPT" in rules("filter")
    client.del_network_list(net, rt)
    assert "10.77.0.2" not in rules("filter")
    assert (leased(leases), client.get_cached_attachments(), os.listdir(records.parent / "partial")) == ([], [], [])
