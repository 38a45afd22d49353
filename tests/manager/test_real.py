"""A container on two networks and loopback, with the real plugins, in namespaces of their own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from real.namespaces import PLUGIN_PATH, PLUGINS, Namespace, inside

from libcni import AsyncCNIConfig, CNIConfig, CNIErrorGroup, ConfigError, NetworkConfigList, PluginError, PortMapping
from libcni.manager import (
    AsyncNetworkManager,
    AttachmentDefinitions,
    Container,
    ContainerResult,
    DefaultRouteError,
    NamespaceError,
    Namespaces,
    NetworkAttachmentDefinition,
    NetworkManager,
    NetworkRequest,
    Pod,
    network_status,
)
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


def test_check_finds_what_was_removed_by_hand(manager: NetworkManager, names: list[str]) -> None:
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


def definition(name: str, namespace: str, net: NetworkConfigList) -> NetworkAttachmentDefinition:
    return NetworkAttachmentDefinition(name, namespace, net)


def test_an_address_and_host_ports_of_a_pod_go_to_the_first_network_alone(
    manager: NetworkManager, names: list[str]
) -> None:
    pod = Pod("shop", "web-0", "u1", names[0])
    result = manager.set_up(pod.container(default=["front", "back"], ip="10.78.1.50", capability_args=PORTS))
    inner = Namespace(os.path.basename(result.netns))
    assert inner.addresses("eth0") == ["10.78.1.50/24"]
    assert inner.addresses("eth1")[0].startswith("10.78.2.")
    manager.check(names[0])
    manager.tear_down(names[0])


def test_a_selection_with_a_default_route_gets_it_and_check_still_succeeds(
    manager: NetworkManager, networks: list[NetworkConfigList], names: list[str], tmp_path: Path
) -> None:
    front, back = networks
    other = NetworkConfigList.from_dict({**json.loads(back.raw), "plugins": json.loads(back.raw)["plugins"][:1]})
    definitions = AttachmentDefinitions([definition("store", "shop", back), definition("store", "ops", other)])
    pod = Pod("shop", "web-0", "u1", names[0])
    selection = '[{"name": "store", "default-route": ["10.78.2.1"]}, {"name": "store", "namespace": "ops"}]'
    result = manager.set_up(pod.container(default=[front.name], selection=selection, definitions=definitions))
    inner = Namespace(os.path.basename(result.netns))
    [first, second] = [route for route in inner.ip("-4", "route") if route["dst"] == "default"]
    assert (first["gateway"], first["dev"], "metric" in first) == ("10.78.2.1", "net1", False)
    assert (second["gateway"], second["dev"], second["metric"]) == ("10.78.1.1", "eth0", 4096)
    assert [(row["name"], row["interface"]) for row in network_status(result)] == [
        ("front", "eth0"),
        ("shop/store", "net1"),
        ("ops/store", "net2"),
    ]
    assert [check.state for check in manager.check(names[0]).checks] == ["ok"] * 4
    manager.tear_down(names[0])
    assert leased(tmp_path) == []


def test_two_pods_may_not_want_the_default_route_twice() -> None:
    selection = '[{"name": "a", "default-route": ["10.0.0.1"]}, {"name": "b", "default-route": ["10.0.0.2"]}]'
    with pytest.raises(ConfigError, match="a and b both want the default route"):
        Pod("shop", "web-0", "u1", "s1").container(default=["front"], selection=selection)


def test_a_gateway_that_is_not_reachable_is_an_error_and_all_is_undone(
    manager: NetworkManager, names: list[str], tmp_path: Path
) -> None:
    request = NetworkRequest("back", default_route=("192.0.2.1",))
    with pytest.raises(DefaultRouteError, match=r"192\.0\.2\.1"):
        manager.set_up(Container(names[0], networks=["front", request]))
    assert (leased(tmp_path), manager.cni.get_cached_attachments()) == ([], [])
    assert not Namespaces().exists(names[0])


def test_a_namespace_of_the_caller_stays_with_all_that_is_in_it(manager: NetworkManager, names: list[str]) -> None:
    path = Namespaces().create(names[0])
    manager.tear_down(names[0])  # never attached
    manager.gc([])
    manager.set_up(Container(names[0], path))
    assert manager.tear_down(names[0]).netns_removed == ""
    assert Namespaces().exists(names[0])
    with pytest.raises(NamespaceError):
        manager.set_up(Container(names[0]))
    assert Namespaces().exists(names[0])
