"""A container on two networks and loopback, with the real plugins, in namespaces of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from helpers import network
from nodes import Namespace, NewNamespace, RealNode

from libcni import InterfaceExistsError, NetworkConfigList, PortMapping, RuntimeConf
from libcni.kernel.namespace import unbind
from libcni.manager import Container, ContainerResult, NetworkManager
from manager.fakes import removed

pytestmark = pytest.mark.real

BOTH = ["front", "back"]
PORTS = {"portMappings": [PortMapping(host_port=18081, container_port=80).to_json()]}


@pytest.fixture
def networks(real_node: RealNode) -> list[NetworkConfigList]:
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}

    def bridged(name: str, subnet: str, **route: str) -> NetworkConfigList:
        bridge = real_node.bridge(f"{subnet}.0/24", bridge=f"br-{name}", mtu=1400, ipam={"routes": [route]})
        return network(bridge, portmap, name=name)

    front = bridged("front", "10.78.1", dst="0.0.0.0/0")
    return [front, bridged("back", "10.78.2", dst="10.99.0.0/16", gw="10.78.2.1")]


@pytest.fixture
def options(networks: list[NetworkConfigList]) -> dict[str, Any]:
    return {"networks": networks, "loopback": True, "namespaces": "/run/netns"}


@pytest.fixture
def manager(real_node: RealNode, options: dict[str, Any]) -> NetworkManager:
    return NetworkManager(real_node.cni, **options)


@pytest.fixture
def without_lo(real_node: RealNode, options: dict[str, Any]) -> NetworkManager:
    return NetworkManager(real_node.cni, **options | {"loopback": False})


@pytest.fixture
def names() -> Iterator[list[str]]:
    names = [f"libcni-{uuid4().hex[:8]}" for _ in range(2)]
    yield names
    for name in names:
        unbind(f"/run/netns/{name}")


def assert_attached(result: ContainerResult, host: Namespace) -> Namespace:
    """Assert that what the result says is there, and return the container's namespace."""
    inner = Namespace(os.path.basename(result.netns))
    assert list(result.interfaces) == ["lo", "eth0", "eth1"]
    for name in ("eth0", "eth1"):
        said = result.interfaces[name]
        assert inner.addresses(name) == [str(address.address) for address in said.addresses]
        assert inner.link(name)["address"] == said.interface.mac
        assert inner.link(name)["mtu"] == 1400
        assert said.interface.sandbox == result.netns
    assert "LOOPBACK" in inner.link("lo")["flags"]
    assert "UP" in inner.link("lo")["flags"]
    on_host = {link.name for attached in result.attachments for link in attached.result.interfaces if not link.sandbox}
    assert {"br-front", "br-back"} <= on_host <= set(host.links())
    return inner


def test_two_networks_with_loopback_and_all_that_belongs_to_it(
    manager: NetworkManager, real_node: RealNode, names: list[str]
) -> None:
    links = real_node.host.links()
    one = manager.set_up(Container(names[0], None, BOTH, capability_args=PORTS))
    other = manager.set_up(Container(names[1], None, BOTH))
    inner, outer = assert_attached(one, real_node.host), assert_attached(other, real_node.host)
    assert [address.address for address in one.addresses] == ["10.78.1.2/24", "10.78.2.2/24"]
    assert inner.routes() == {
        "default": "10.78.1.1",
        "10.78.1.0/24": None,
        "10.78.2.0/24": None,
        "10.99.0.0/16": "10.78.2.1",
    }
    for address in ("127.0.0.1", "10.78.1.2", "10.78.2.2"):
        with inner.echo_server(80):
            client = inner if address == "127.0.0.1" else outer
            assert client.echo(address, 80, "you") == "you"
    with inner.echo_server(80):
        assert real_node.host.echo("10.78.1.1", 18081, "through the host port") == "through the host port"

    assert [check.outcome for check in manager.check(names[0]).items] == ["ok"] * 3
    assert manager.status().ready
    assert manager.gc(names).of("detached") == ()
    for name in names:
        assert [row.ifname for row in manager.tear_down(name).of("detached")] == ["eth1", "eth0", "lo"]
        assert not os.path.exists(f"/run/netns/{name}")
    assert real_node.leased() == {}
    assert set(real_node.host.links()) - set(links) == {"br-front", "br-back"}


def test_after_a_refused_set_up_a_tear_down_leaves_interfaces_and_addresses_that_were_there(
    manager: NetworkManager, real_node: RealNode, networks: list[NetworkConfigList], new_namespace: NewNamespace
) -> None:
    """Another program has attached the container: the set-up was refused for eth0, and never came to eth1."""
    inner = new_namespace()
    other = real_node.client(cache_dir=real_node.root / "of-another-program")
    for number, net in enumerate(networks):
        other.add_network_list(net, RuntimeConf("c1", inner.path, f"eth{number}"))
    before = inner.links(), real_node.leased()
    with pytest.raises(InterfaceExistsError):
        manager.set_up(Container("c1", inner.path, BOTH))
    manager.tear_down("c1")
    assert (inner.links(), real_node.leased()) == before
    other.del_attachments(other.get_cached_attachments())


def test_a_namespace_stays_as_long_as_another_container_is_attached_in_it(
    manager: NetworkManager, without_lo: NetworkManager, names: list[str]
) -> None:
    one, other = names
    path = manager.set_up(Container(one)).netns
    other_result = without_lo.set_up(Container(other, path, ["front@net1"]))
    assert removed(manager.tear_down(one)) == []
    assert removed(manager.gc([other])) == []
    inner = Namespace(one)
    assert inner.links() == ["lo", "net1"]
    assert inner.addresses("net1") == [str(address.address) for address in other_result.interfaces["net1"].addresses]
    manager.check(other)
    manager.tear_down(other)
    assert removed(manager.gc([])) == [path]


def test_a_torn_record_keeps_a_namespace_with_an_interface_and_no_other(
    manager: NetworkManager, without_lo: NetworkManager, real_node: RealNode, names: list[str]
) -> None:
    one, other = names
    path = manager.set_up(Container(one)).netns
    without_lo.set_up(Container(other, path, ["front@net1"]))
    record = real_node.results / f"front-{other}-net1"
    data = record.read_bytes()
    record.write_bytes(data[:50])
    assert removed(manager.tear_down(one)) == []
    record.write_bytes(data)
    manager.check(other)
    manager.tear_down(other)
    record.write_bytes(data[:50])  # without an interface in the namespace it cannot mean an attachment there
    assert removed(manager.tear_down(one)) == [path]


def test_a_healthy_container_with_a_port_is_not_damaged_for_debians_portmap(
    real_node: RealNode, options: dict[str, Any], names: list[str]
) -> None:
    """With the machine's own PATH, CHECK of portmap 1.1.1 fails for each container that publishes a port."""
    manager = NetworkManager(real_node.client(env={"PATH": os.defpath + ":/usr/sbin:/sbin"}), **options)
    manager.set_up(Container(names[0], None, BOTH[:1], capability_args=PORTS))
    ports = manager.check(names[0]).items[-1]
    assert ports.outcome in {"ok", "known-fault"}
    if ports.outcome == "known-fault":
        assert "attaching it again does not help" in str(ports.error)
    manager.tear_down(names[0])
