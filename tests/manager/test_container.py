"""A container's request: networks, names of interfaces, arguments."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import make_fake_namespace

from libcni import CapabilityArgs, ConfigError, InvalidIdentifierError, PortMapping
from libcni.manager import Container, NetworkRequest, pod_args
from manager.fakes import ManagerNode


def test_given_interface_names_are_kept_and_assigned_ones_avoid_them(node: ManagerNode) -> None:
    node.configure_each("a", "b", "c", "d")
    networks: list[str | NetworkRequest] = ["d", NetworkRequest("a"), "b@eth0", NetworkRequest("c", ifname="net1")]
    node.manager().set_up(Container("c1", "/ns", networks))
    assert node.calls("ADD") == ["ADD d c1 eth1", "ADD a c1 eth2", "ADD b c1 eth0", "ADD c c1 net1"]


@pytest.mark.parametrize("networks", [["a@x", "b@x"], ["a@", "b"], ["a@" + "x" * 16]])
def test_bad_and_duplicate_interface_names_are_refused_before_anything_runs(
    node: ManagerNode, networks: list[str]
) -> None:
    node.configure_each("a", "b")
    with pytest.raises(InvalidIdentifierError):
        node.manager(loopback=True).set_up(Container("c1", "/ns", networks))
    assert node.calls() == []


def test_a_network_of_a_container_may_be_a_configuration(node: ManagerNode) -> None:
    net = node.network("c", name="in-code")
    node.manager().set_up(Container("c1", "/ns", [net, NetworkRequest(net, "net1")]))
    assert node.calls() == ["ADD c c1 eth0", "ADD c c1 net1"]
    with pytest.raises(TypeError, match="a network of a Container must be a NetworkRequest, not 7"):
        node.manager().set_up(Container("c1", "/ns", [7]))  # type: ignore[list-item]


def test_an_address_of_the_container_goes_to_the_first_network_that_declares_it_alone(node: ManagerNode) -> None:
    others = {"aliases": ["db"], "io.kubernetes.cri.pod-annotations": {"x": "y"}, "cgroupPath": "/pods/1"}
    given = {"ips": ["10.1.0.9/24"], **others}
    node.configure("z")
    for name in ("a", "b"):
        node.configure(name, {"type": name, "capabilities": dict.fromkeys(given, True)})
    node.manager().set_up(Container("c1", "/ns", ["z", "a", "b"], capability_args=given))
    assert node.last_call("a", "ADD").config["runtimeConfig"] == given
    assert node.last_call("b", "ADD").config["runtimeConfig"] == others


def test_only_the_plugin_loopback_can_be_given_lo(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("own-lo", "loopback")
    with pytest.raises(InvalidIdentifierError, match="lo"):
        node.manager().set_up(Container("c1", "/ns", ["a@lo"]))
    node.manager().set_up(Container("c1", "/ns", ["own-lo@lo", "a"]))
    assert node.calls() == ["ADD loopback c1 lo", "ADD a c1 eth0"]


def test_the_same_network_twice_has_parameters_of_its_own_each_time(node: ManagerNode) -> None:
    node.configure("a", {"type": "a", "capabilities": {"mac": True}})
    requests = [NetworkRequest("a", capability_args={"mac": f"02:00:00:00:00:0{n}"}) for n in (1, 2)]
    node.manager().set_up(Container("c1", "/ns", requests))
    macs = [node.last_call("a", "ADD", ifname).config["runtimeConfig"]["mac"] for ifname in ("eth0", "eth1")]
    assert macs == ["02:00:00:00:00:01", "02:00:00:00:00:02"]


def test_capabilities_of_the_container_go_to_the_networks_that_declare_them(node: ManagerNode) -> None:
    node.configure("a", {"type": "a", "capabilities": {"portMappings": True}})
    node.configure("b")
    given = CapabilityArgs(port_mappings=(PortMapping(host_port=80, container_port=8080),), mac="02:00:00:00:00:09")
    result = node.manager().set_up(Container("c1", "/ns", ["a", "b"], capability_args=given))
    assert node.last_call("a", "ADD", "eth0").config["runtimeConfig"]["portMappings"][0]["hostPort"] == 80
    assert "runtimeConfig" not in node.last_call("b", "ADD", "eth1").config
    assert result.unused_capabilities == ("mac",)


def test_a_network_is_not_given_what_it_does_not_declare_and_so_does_not_refuse_it(node: ManagerNode) -> None:
    node.configure("a", {"type": "a", "capabilities": {"mac": True}})
    node.configure("b")
    given = {"mac": "02:00:00:00:00:09"}
    node.manager().set_up(Container("c1", "/ns", ["a", "b"], capability_args=given), strict=True)
    with pytest.raises(ConfigError, match="container c2: no plugin of its networks declares the capability ips"):
        node.manager().set_up(Container("c2", "/ns", ["a", "b"], capability_args={**given, "ips": []}), strict=True)
    assert node.calls() == ["ADD a c1 eth0", "ADD b c1 eth1"]
    request = NetworkRequest("b", capability_args=given)
    with pytest.raises(ConfigError):
        node.manager().set_up(Container("c2", "/ns", [request]), strict=True)


def test_a_wrong_value_for_the_second_network_is_refused_before_the_first_is_attached(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b", {"type": "b", "capabilities": {"bandwidth": True}})
    container = Container("c1", "/ns", ["a", "b"], capability_args={"bandwidth": {"ingressRate": 1000}})
    with pytest.raises(ConfigError, match="ingressRate and ingressBurst must be set together") as caught:
        node.manager().set_up(container)
    assert caught.value.location == "capability_args.bandwidth"
    assert node.calls() == [] == node.cni.get_cached_attachments()


def test_a_namespace_may_be_a_path_object(node: ManagerNode, tmp_path: Path) -> None:
    node.configure("a")
    netns = tmp_path / "ns"
    make_fake_namespace(netns)
    manager = node.manager()
    assert manager.set_up(Container("c1", netns)).netns == str(netns)
    assert node.last_call("a", "ADD", "eth0").env["CNI_NETNS"] == str(netns)
    manager.tear_down("c1")
    assert node.last_call("a", "DEL", "eth0").env["CNI_NETNS"] == str(netns)


def test_a_pods_arguments_reach_every_network_and_its_address_the_first_one(node: ManagerNode) -> None:
    node.configure("cluster", {"type": "cluster"})
    node.configure("store")
    first = NetworkRequest("cluster", args={"IP": "10.0.0.8", "MAC": "02:00:00:00:00:08"})
    second = NetworkRequest("store", "net1", args={"K8S_POD_UID": "u-2"})
    args = pod_args("s1", namespace="shop", name="web-0", uid="u-1")
    node.manager().set_up(Container("s1", "/ns", [first, second], args=args))
    names = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=s1;K8S_POD_UID=u-"
    asked = node.last_call("cluster", "ADD", "eth0").env["CNI_ARGS"]
    assert asked == f"{names}1;IP=10.0.0.8;MAC=02:00:00:00:00:08"
    assert node.last_call("store", "ADD", "net1").env["CNI_ARGS"] == f"{names}2", "the network's own wins"


def test_a_string_is_no_list_of_networks() -> None:
    with pytest.raises(TypeError, match="networks must be an iterable of items, not 'back'"):
        Container("c1", "/ns", "back")


def test_network_args_of_a_network_reach_its_configuration(node: ManagerNode) -> None:
    node.configure("a")
    request = NetworkRequest("a", network_args={"cni": {"ips": ["10.1.0.9"]}})
    node.manager().set_up(Container("c1", "/ns", [request]))
    assert node.last_call("a", "ADD", "eth0").config["args"] == {"cni": {"ips": ["10.1.0.9"]}}
