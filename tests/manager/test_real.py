"""A container on two networks and loopback, with the real plugins, in namespaces of their own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from real.namespaces import PLUGIN_PATH, PLUGINS, Namespace, inside

from libcni import AsyncCNIConfig, CNIConfig, CNIErrorGroup, NetworkConfigList, PluginError, PortMapping
from libcni.manager import AsyncNetworkManager, Container, ContainerResult, Namespaces, NetworkManager, NetworkRequest
from libcni.testing import network_namespace

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("host-links")]

PORTS = {"portMappings": [PortMapping(host_port=18081, container_port=80).to_json()]}


def bridge(name: str, subnet: str, leases: Path, **more: Any) -> NetworkConfigList:
    ranges = [[{"subnet": f"{subnet}.0/24"}]]
    ipam = {"type": "host-local", "dataDir": os.fspath(leases), "ranges": ranges, **more}
    plugins: list[dict[str, Any]] = [
        {"type": "bridge", "bridge": f"br-{name}", "isGateway": True, "ipam": ipam, "mtu": 1400},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
    ]
    return NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": name, "plugins": plugins})


@pytest.fixture
def host() -> Iterator[Namespace]:
    """A namespace that plays the host: this thread and the plugins that it starts are in it."""
    with network_namespace() as made, inside(made.path):
        yield Namespace(made.name)


@pytest.fixture
def networks(tmp_path: Path) -> list[NetworkConfigList]:
    leases = tmp_path / "leases"
    front = bridge("front", "10.78.1", leases, routes=[{"dst": "0.0.0.0/0"}])
    return [front, bridge("back", "10.78.2", leases, routes=[{"dst": "10.99.0.0/16", "gw": "10.78.2.1"}])]


@pytest.fixture
def options(networks: list[NetworkConfigList]) -> dict[str, Any]:
    return {"conf_dirs": [], "networks": networks, "default": 2, "loopback": True, "namespaces": Namespaces()}


@pytest.fixture
def manager(host: Namespace, tmp_path: Path, options: dict[str, Any]) -> NetworkManager:
    cni = CNIConfig([PLUGINS], tmp_path / "cache", env={"PATH": PLUGIN_PATH})
    return NetworkManager(cni, **options)


@pytest.fixture
def names() -> Iterator[list[str]]:
    names = [f"libcni-{uuid4().hex[:8]}" for _ in range(2)]
    yield names
    for name in names:
        Namespaces().remove(name)


def leased(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "leases").glob("*/10.*"))


def assert_attached(result: ContainerResult, host: Namespace) -> Namespace:
    """Assert that what the result says is there, and return the container's namespace."""
    inner = Namespace(os.path.basename(result.netns))
    assert list(result.interfaces) == ["lo", "eth0", "eth1"]
    for name in ("eth0", "eth1"):
        said = result.interfaces[name]
        assert inner.addresses(name) == [str(address.address) for address in said.addresses]
        assert inner.link(name)["address"] == said.mac
        assert inner.link(name)["mtu"] == 1400
        assert said.sandbox == result.netns
    assert "LOOPBACK" in inner.link("lo")["flags"]
    assert "UP" in inner.link("lo")["flags"]
    assert {one.name for one in result.host_interfaces} >= {"br-front", "br-back"}
    assert {one.name for one in result.host_interfaces} <= set(host.links())
    return inner


def test_two_networks_with_loopback_and_all_that_belongs_to_it(
    manager: NetworkManager, host: Namespace, names: list[str], tmp_path: Path
) -> None:
    links = host.links()
    one = manager.set_up(Container(names[0], capability_args=PORTS))
    other = manager.set_up(Container(names[1]))
    inner, outer = assert_attached(one, host), assert_attached(other, host)
    assert [ip.compressed for ip in one.primary()] == ["10.78.1.2"]
    assert inner.routes() == {
        "default": "10.78.1.1",
        "10.78.1.0/24": None,
        "10.78.2.0/24": None,
        "10.99.0.0/16": "10.78.2.1",
    }
    for address in ("127.0.0.1", "10.78.1.2", "10.78.2.2"):
        with inner.serving(80):
            client = inner if address == "127.0.0.1" else outer
            assert client.greet(address, 80, "you") == "hello you"
    with inner.serving(80):
        assert host.greet("10.78.1.1", 18081, "through the host port") == "hello through the host port"

    assert [check.state for check in manager.check(names[0]).checks] == ["ok"] * 3
    assert manager.status().ready
    assert manager.gc(names).detached == ()
    for name in names:
        assert [row.ifname for row in manager.tear_down(name).detached] == ["eth1", "eth0", "lo"]
        assert not Namespaces().exists(name)
    assert leased(tmp_path) == []
    assert set(host.links()) - set(links) == {"br-front", "br-back"}


def test_check_tells_what_somebody_took_away(manager: NetworkManager, names: list[str]) -> None:
    result = manager.set_up(Container(names[0]))
    inner = Namespace(os.path.basename(result.netns))
    inner.run("ip", "route", "delete", "10.99.0.0/16")
    inner.run("ip", "address", "flush", "dev", "eth1")
    with pytest.raises(CNIErrorGroup) as caught:
        manager.check(names[0])
    states = {check.ifname: check.state for check in caught.value.report.checks}
    assert states == {"lo": "ok", "eth0": "ok", "eth1": "failed"}
    manager.tear_down(names[0])


def test_a_failure_on_the_second_network_leaves_nothing(
    manager: NetworkManager, names: list[str], tmp_path: Path
) -> None:
    wanted: list[str | NetworkRequest] = [
        "front",
        NetworkRequest("back", network_args={"cni": {"ips": ["10.200.0.1"]}}),
    ]
    with pytest.raises(PluginError):
        manager.set_up(Container(names[0], networks=wanted, capability_args=PORTS))
    assert leased(tmp_path) == []
    assert manager.cni.get_cached_attachments() == []
    assert not Namespaces().exists(names[0])


def test_a_namespace_that_has_gone_is_no_obstacle(
    manager: NetworkManager, host: Namespace, names: list[str], tmp_path: Path
) -> None:
    manager.set_up(Container(names[0], capability_args=PORTS))
    Namespaces().remove(names[0])
    assert len(leased(tmp_path)) == 2
    manager.tear_down(names[0])
    assert leased(tmp_path) == []
    assert "18081" not in host.run("iptables", "-t", "nat", "-S")


def test_gc_cleans_what_a_runtime_forgot(manager: NetworkManager, names: list[str], tmp_path: Path) -> None:
    for name in names:
        manager.set_up(Container(name))
    summary = manager.gc([names[1]])
    assert {one.container_id for one in summary.detached} == {names[0]}
    assert leased(tmp_path) == ["10.78.1.3", "10.78.2.3"]
    manager.tear_down(names[1])


def test_the_asyncio_manager_does_the_same(
    host: Namespace, names: list[str], tmp_path: Path, options: dict[str, Any]
) -> None:
    cni = AsyncCNIConfig([PLUGINS], tmp_path / "cache", env={"PATH": PLUGIN_PATH})
    manager = AsyncNetworkManager(cni, **options)

    async def go() -> None:
        results = await asyncio.gather(*(manager.set_up(Container(name)) for name in names))
        for result in results:
            assert_attached(result, host)
        await asyncio.gather(*(manager.tear_down(name) for name in names))

    asyncio.run(go())
    assert leased(tmp_path) == []
