"""What only plugins with spec 1.1.0 do (release 1.9.1): GC, STATUS and nftables. ``scripts/peers plugins`` runs it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest
from nodes import Namespace, NewNamespace, RealNode, both_clients, plugins_know_gc

from libcni import ConfigError, PluginError, RuntimeConf

pytestmark = [pytest.mark.real, pytest.mark.may_skip]


@pytest.fixture(autouse=True)
def newer_plugins(node: RealNode) -> None:
    if not plugins_know_gc():
        pytest.skip("the plugins know no spec 1.1.0: scripts/peers plugins runs these tests with newer ones")


def configure(node: RealNode, *plugins: str | dict[str, Any], **bridge: Any) -> None:
    node.configure("net", node.bridge("10.97.0.0/24", ipMasq=True, **bridge), *plugins, cniVersion="1.1.0")


def attach(node: RealNode, container_id: str, container: Namespace, owner: str = "", **more: Any) -> RuntimeConf:
    rt = RuntimeConf(container_id, container.path, "eth0", **more)
    node.client(owner=owner).add_network_list("net", rt)
    return rt


def kernel_rules() -> str:
    return subprocess.run(["nft", "-s", "list", "ruleset"], check=True, capture_output=True, text=True).stdout


@both_clients
def test_gc_frees_what_is_not_valid_and_leaves_another_owners(node: RealNode, new_namespace: NewNamespace) -> None:
    configure(node, {"type": "portmap", "capabilities": {"portMappings": True}}, {"type": "firewall"})
    containers = {name: new_namespace() for name in ("stale", "valid", "neighbour")}
    ports = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}
    attach(node, "valid", containers["valid"])
    attach(node, "neighbour", containers["neighbour"], "another", capability_args=ports)
    before = kernel_rules()
    seen = [containers[name].links_and_addresses() for name in ("valid", "neighbour")]
    attach(node, "stale", containers["stale"])
    report = node.cni.gc_network_list("net", [("valid", "eth0")])
    assert report.plugins == ("bridge", "portmap", "firewall")
    assert [one.container_id for one in report.detached] == ["stale"]
    assert node.leased() == {"10.97.0.2": "valid\neth0", "10.97.0.3": "neighbour\neth0"}
    assert [containers[name].links_and_addresses() for name in ("valid", "neighbour")] == seen
    assert containers["stale"].links() == ["lo"]
    assert kernel_rules() == before


def test_the_plugins_own_gc_frees_nothing(node: RealNode, container: Namespace) -> None:
    """None of them has a function for it: a lease without a record is freed by a person alone."""
    configure(node)
    attach(node, "lost", container)
    node.record("lost").unlink()
    report = node.cni.gc_network_list("net", [])
    assert report.plugins == ("bridge",)
    assert list(node.leased().values()) == ["lost\neth0"]
    assert "eth0" in container.links()


def test_status_of_a_network_asks_its_ipam_plugin(node: RealNode) -> None:
    configure(node)
    node.cni.status_network_list("net")
    full = json.dumps({"cniVersion": "1.1.0", "code": 50, "msg": "no address is left"})
    node.plugin("full-pool", f"[ $CNI_COMMAND != STATUS ] || {{ echo '{full}'; exit 1; }}")
    configure(node, ipam={"type": "full-pool"})
    with pytest.raises(PluginError, match="no address is left") as caught:
        node.cni.status_network_list("net")
    assert (caught.value.plugin, caught.value.code) == ("bridge", 50)


@both_clients
def test_reload_makes_rules_of_nftables_again(node: RealNode, new_namespace: NewNamespace) -> None:
    configure(
        node,
        {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": True}},
        ipMasqBackend="nftables",
        isDefaultGateway=True,
    )
    containers = [new_namespace(), new_namespace()]
    for number, container in enumerate(containers):
        port = {"hostPort": 8080 + number, "containerPort": 80, "protocol": "tcp"}
        attach(node, f"c{number}", container, capability_args={"portMappings": [port]})
    before = kernel_rules(), node.leased(), [one.addresses("eth0") for one in containers]
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    for one in node.cni.get_cached_attachments():
        node.cni.reload_attachment(one)
    # The table is empty: reload made a chain in it for bridge, whose DEL removed the chain.
    now = kernel_rules().replace("table ip nat {\n}\n", "")
    assert (now, node.leased(), [one.addresses("eth0") for one in containers]) == before


def test_the_first_del_of_masquerade_in_nftables_fails_and_has_removed_all(
    node: RealNode, container: Namespace
) -> None:
    """A fault of bridge: it removes rules of iptables, too, and fails if there are none."""
    configure(node, ipMasqBackend="nftables")
    rt = attach(node, "c1", container)
    with pytest.raises(PluginError, match=r"Chain 'CNI-\w+' does not exist"):
        node.cni.del_network_list("net", rt)
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, ["detaching"])
    assert "c1" not in kernel_rules()
    node.cni.del_network_list("net", rt)
    assert node.states() == []


@both_clients
def test_the_programs_own_namespace(node: RealNode) -> None:
    """Plugins refuse the namespace in which they run themselves, unless CNI_NETNS_OVERRIDE is set."""
    node.configure("own", node.bridge("10.98.0.0/24"), cniVersion="1.1.0")
    rt = RuntimeConf("self", f"/proc/{os.getpid()}/ns/net", "own0")
    with pytest.raises(ConfigError, match="own"):
        node.cni.add_network_list("own", rt)
    node.cni.add_network_list("own", rt, allow_own_netns=True)
    assert node.host.addresses("own0") == ["10.98.0.2/24"]
    assert node.cni.status_network_list("own").ready
    node.cni.check_network_list("own", rt)
    node.cni.gc_network_list("own", [("self", "own0")])
    assert node.host.addresses("own0") == ["10.98.0.2/24"]
    node.cni.del_network_list("own", rt)
    assert "own0" not in node.host.links()
    assert node.leased() == {}
