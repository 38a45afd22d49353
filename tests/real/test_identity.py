"""A neighbour who comes while a verb runs: each plugin that removes something is asked about it just before."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from nodes import PASS_ON, Namespace, NewNamespace, RealNode, both_clients

import libcni
from libcni import PluginError, RuntimeConf

pytestmark = pytest.mark.real

ONLY_ETH0 = "ip -n {name} link del eth0; ip -n {name} link add eth0 type veth peer name theirs"
NAMESPACE = "ip netns del {name}; ip netns add {name}; ip -n {name} link add eth0 type veth peer name theirs"
replaced = pytest.mark.parametrize("how", [ONLY_ETH0, NAMESPACE], ids=["interface", "namespace"])

ONE_ADDRESS = {"rangeStart": "10.98.0.2", "rangeEnd": "10.98.0.2"}


@pytest.fixture
def container(host: Namespace, new_namespace: NewNamespace) -> Iterator[Namespace]:
    """Return a namespace that a test may remove and make again."""
    made = new_namespace()
    yield made
    subprocess.run(["ip", "netns", "add", made.name], check=False, capture_output=True)


def conf(namespace: Namespace | str, container_id: str = "c1") -> RuntimeConf:
    return RuntimeConf(container_id, namespace if isinstance(namespace, str) else namespace.path, "eth0")


def chain(node: RealNode, *plugins: str | dict[str, Any], **keys: Any) -> libcni.NetworkConfigList:
    return node.network(node.bridge("10.98.0.0/24"), *plugins, **keys)


def when(verb: str, commands: str) -> str:
    """Return the body of a plugin that runs commands on one verb and passes the result on."""
    return f"if [ $CNI_COMMAND = {verb} ]; then {commands}; fi\n{PASS_ON}"


def owners(node: RealNode) -> set[str]:
    return {text.split()[0] for text in node.leased().values()}


def is_theirs(container: Namespace) -> bool:
    """Return whether the eth0 there is the neighbour's."""
    return {"eth0", "theirs"} <= set(container.links())


# while a DEL runs


@both_clients
@replaced
def test_a_neighbour_who_comes_while_a_del_runs_keeps_its_interface(
    node: RealNode, container: Namespace, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    node.plugin("slow", when("DEL", how.format(name=container.name)))
    net = chain(node, "slow")
    node.cni.add_network_list(net, conf(container))
    report = node.cni.del_network_list(net, conf(container))
    assert is_theirs(container)
    assert ([one.state for one in report.plugins], node.leased(), node.states()) == (["done", "done"], {}, [])
    assert sum("DEL leaves it alone" in one for one in caplog.messages) == 1


# the interface


SAME_MAC = "0a:58:0a:62:00:02"


def with_mac(namespace: Namespace, container_id: str) -> RuntimeConf:
    return RuntimeConf(container_id, namespace.path, "eth0", capability_args={"mac": SAME_MAC})


def two_networks(node: RealNode) -> tuple[libcni.NetworkConfigList, libcni.NetworkConfigList]:
    """Return two networks whose runtime chooses the hardware addresses."""
    second = node.bridge("10.97.0.0/24", bridge="br-two", capabilities={"mac": True})
    return node.network(node.bridge("10.98.0.0/24", capabilities={"mac": True})), node.network(second, name="two")


@both_clients
def test_the_hardware_address_of_another_container_is_no_moved_interface(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    net, second = two_networks(node)
    node.cni.add_network_list(net, with_mac(container, "c1"))
    node.cni.add_network_list(second, with_mac(other, "c2"))
    container.run("ip", "link", "del", "eth0")
    node.cni.del_network_list(net, with_mac(container, "c1"))
    assert (other.links(), owners(node), node.states()) == (["lo", "eth0"], {"c2"}, ["ready"])


@both_clients
def test_a_record_of_go_with_the_hardware_address_of_another_record(node: RealNode, container: Namespace) -> None:
    net, second = two_networks(node)
    node.cni.add_network_list(net, with_mac(container, "c1"))
    node.strip_record()
    container.run("ip", "link", "del", "eth0")
    node.cni.add_network_list(second, with_mac(container, "c2"))
    node.cni.del_network_list(net, with_mac(container, "c1"))
    assert (container.links(), owners(node), node.states()) == (["lo", "eth0"], {"c2"}, ["ready"])


# the path


@both_clients
@pytest.mark.parametrize("alias", ["/proc/self/fd/{fd}", "/dev/fd/{fd}", "{root}/link", "{root}/bound"])
def test_an_alias_of_the_recorded_namespace(node: RealNode, container: Namespace, alias: str) -> None:
    net = chain(node)
    node.cni.add_network_list(net, conf(container))
    (node.root / "link").symlink_to(container.path)
    (node.root / "bound").touch()
    subprocess.run(["mount", "--bind", container.path, node.root / "bound"], check=True)
    fd = os.open(container.path, os.O_RDONLY)
    try:
        node.cni.del_network_list(net, conf(alias.format(fd=fd, root=node.root)))
    finally:
        os.close(fd)
        subprocess.run(["umount", node.root / "bound"], check=True)
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, [])


# a repeated DEL


@both_clients
def test_a_repeated_del_removes_no_rule_of_the_container_that_has_its_address_now(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    flag = node.root / "busy"
    node.plugin("last", f"[ $CNI_COMMAND = DEL ] && [ -e {flag} ] && exit 1", result={"cniVersion": "1.0.0"})
    # DEL runs in reverse order: firewall removes its rules, bridge frees the address, then "last" fails.
    net = node.network("last", node.bridge("10.98.0.0/24", ipam=ONE_ADDRESS), {"type": "firewall"})
    theirs = node.network(node.bridge("10.98.0.0/24", ipam=ONE_ADDRESS), {"type": "firewall"}, name="theirs")
    node.cni.add_network_list(net, conf(container))
    flag.touch()
    with pytest.raises(PluginError):
        node.cni.del_network_list(net, conf(container))
    node.cni.add_network_list(theirs, conf(other, "c2"))
    before = node.host.rules("filter", "10.98.0.2")
    assert before
    flag.unlink()
    node.cni.del_network_list(net, conf(container))
    assert node.host.rules("filter", "10.98.0.2") == before
    assert node.states() == ["ready"]


@pytest.mark.parametrize("is_go", [False, True], ids=["ours", "Go's"])
def test_a_plugin_that_puts_the_earlier_hardware_address_back_makes_no_other_interface(
    node: RealNode, container: Namespace, *, is_go: bool
) -> None:
    net = chain(node, {"type": "tuning", "mac": "02:11:22:33:44:55"})
    node.cni.add_network_list(net, conf(container))
    if is_go:
        node.strip_record()
    node.cni.del_network_list(net, conf(container))
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, [])
