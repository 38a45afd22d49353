"""Reload: a container is attached again in place, with its address, ports and rules, by the real plugins."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from nodes import FakeNode, Namespace, NewNamespace, RealNode

import libcni.kernel.system as system
from libcni import (
    AsyncCNIConfig,
    CNIConfig,
    CNIErrorGroup,
    NotAttachedError,
    PluginError,
    PluginNotFoundError,
    RecordError,
    RuntimeConf,
)
from libcni.kernel.rules import masquerade_chain, ports_chain

FLUSHED = "iptables -t nat -F; iptables -t nat -X; iptables -F; iptables -X"


def reload(node: FakeNode, container: str, ifname: str = "eth0") -> Any:
    [one] = [one for one in node.cni.get_cached_attachments(container) if one.ifname == ifname]
    return node.cni.reload_attachment(one)


def published(node: RealNode) -> None:
    """Write a network with published ports and firewall rules."""
    node.configure(
        "net",
        node.bridge("10.234.0.0/24", ipMasq=True),
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "firewall"},
    )


def attach(node: RealNode, container: str, netns: str, number: int = 0, ifname: str = "eth0") -> None:
    ports = {"portMappings": [{"hostPort": 8080 + number, "containerPort": 80, "protocol": "tcp"}]}
    rt = RuntimeConf(container, netns, ifname, args={"IgnoreUnknown": "1", "K8S_POD_NAME": "p"}, capability_args=ports)
    node.client(owner="runtime").add_network_list("net", rt)


def rules(host: Namespace) -> list[str]:
    return sorted(host.rules("nat", "-A") + host.rules("filter", "-A"))


@pytest.mark.real
@pytest.mark.parametrize("kind", [CNIConfig, AsyncCNIConfig])
def test_a_flush_is_mended_in_place(real_node: RealNode, new_namespace: NewNamespace, kind: Any) -> None:
    published(real_node)
    containers = [new_namespace() for _ in range(3)]
    for number, one in enumerate(containers):
        attach(real_node, f"c{number}", one.path, number)
    before = rules(real_node.host)
    leases = real_node.leased()
    seen = [(one.link("eth0")["address"], one.addresses("eth0"), one.routes()) for one in containers]
    subprocess.run(["bash", "-c", FLUSHED], check=True)
    real_node.kind = kind
    for number in range(3):
        reload(real_node, f"c{number}")
    assert rules(real_node.host) == before
    assert real_node.leased() == leases
    assert [(one.link("eth0")["address"], one.addresses("eth0"), one.routes()) for one in containers] == seen
    attached = real_node.cni.get_cached_attachments()
    assert {(one.state, one.owner, dict(one.args)["K8S_POD_NAME"]) for one in attached} == {("ready", "runtime", "p")}
    reload(real_node, "c0")
    assert rules(real_node.host) == before, "a second reload changes nothing"


@pytest.mark.real
@pytest.mark.parametrize("flush", [FLUSHED, "true"])
def test_two_interfaces_of_a_container_share_a_chain(real_node: RealNode, container: Namespace, flush: str) -> None:
    """DEL of bridge fails if a rule of the other interface leads to its chain."""
    real_node.configure("net", real_node.bridge("10.234.0.0/24", ipMasq=True))
    for ifname in ("eth0", "eth1"):
        real_node.cni.add_network_list("net", RuntimeConf("c1", container.path, ifname))
    before = rules(real_node.host)
    subprocess.run(["bash", "-c", flush], check=True)
    for ifname in ("eth0", "eth1"):
        reload(real_node, "c1", ifname)
    # The chain's own rules are of the subnet; each ADD appends them anew.
    assert set(rules(real_node.host)) == set(before)
    assert len(real_node.host.rules("nat", "-A POSTROUTING")) == 2


PORTMAP_OF_NFTABLES = """chain="ip cni_hostport hostports"
case $CNI_COMMAND in
ADD) nft add rule $chain tcp dport 808${CNI_IFNAME#eth} dnat to 10.234.${CNI_IFNAME#eth}.2:80 comment '"c1"';;
DEL) nft -a list chain $chain | sed -n "/dport/s/.*# handle/delete rule $chain handle/p" | nft -f -;;
esac"""


@pytest.mark.real
def test_portmap_removes_the_ports_of_all_interfaces_from_nftables(real_node: RealNode, container: Namespace) -> None:
    """Its rules have the container's ID alone."""
    node = real_node
    subprocess.run(["nft", "add table ip cni_hostport; add chain ip cni_hostport hostports"], check=True)
    node.plugin("portmap", PORTMAP_OF_NFTABLES)
    for ifname in ("eth0", "eth1"):
        bridge = node.bridge(f"10.234.{ifname[3]}.0/24", bridge=f"br-{ifname}")
        node.configure(ifname, "portmap", bridge)
        node.cni.add_network_list(ifname, RuntimeConf("c1", container.path, ifname))
    before = node.host.run("nft", "list", "ruleset").splitlines()
    reload(node, "c1")
    assert sorted(node.host.run("nft", "list", "ruleset").splitlines()) == sorted(before)
    assert '\t\ttcp dport 8081 dnat to 10.234.1.2:80 comment "c1"' in before


@pytest.mark.real
def test_another_runtimes_container_of_the_same_id_is_a_reason_to_refuse(
    real_node: RealNode, container: Namespace
) -> None:
    """The plugins' DEL would remove its ports."""
    node = real_node
    neighbours = 'tcp dport 9090 dnat to 10.99.0.2:80 comment "c1"'
    tables = "add table ip cni_hostport; add chain ip cni_hostport hostports"
    subprocess.run(["nft", f"{tables}; add rule ip cni_hostport hostports {neighbours}"], check=True)
    node.plugin("portmap", PORTMAP_OF_NFTABLES)
    node.configure("net", "portmap", node.bridge("10.234.0.0/24"))
    node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    node.forget_calls()
    with pytest.raises(RecordError, match=r"nft has rules with this ID for 10\.99\.0\.2"):
        reload(node, "c1")
    assert (node.calls(), node.states()) == ([], ["ready"])
    left = node.host.run("nft", "list", "ruleset")
    assert (left.count(neighbours), left.count("dport 8080")) == (1, 1)


@pytest.mark.real
@pytest.mark.parametrize("chain_of", [masquerade_chain, ports_chain])
def test_an_address_of_another_container_in_a_chain_of_this_one_is_a_reason_to_refuse(
    real_node: RealNode, container: Namespace, chain_of: Callable[[str, str], str]
) -> None:
    real_node.configure("net", real_node.bridge("10.234.0.0/24"))
    real_node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    for words in ("-N {}", "-A {} -s 10.99.0.2 -j ACCEPT"):
        real_node.host.run("iptables", "-t", "nat", *words.format(chain_of("net", "c1")).split())
    with pytest.raises(RecordError, match=r"iptables has rules with this ID for 10\.99\.0\.2"):
        reload(real_node, "c1")


@pytest.mark.real
@pytest.mark.parametrize("damage", ["ip link del eth0", "ip address flush dev eth0", "ip route del default"])
def test_an_interface_that_was_changed_by_hand(real_node: RealNode, container: Namespace, damage: str) -> None:
    real_node.configure("net", real_node.bridge("10.234.0.0/24", ipMasq=True, isDefaultGateway=True))
    attach(real_node, "c1", container.path)
    before = rules(real_node.host), container.addresses("eth0"), container.routes()
    container.run(*damage.split())
    reload(real_node, "c1")
    assert (rules(real_node.host), container.addresses("eth0"), container.routes()) == before


@pytest.mark.real
def test_an_address_that_another_container_has_by_now(
    real_node: RealNode, container: Namespace, other: Namespace
) -> None:
    real_node.configure("net", real_node.bridge("10.234.0.0/24"))
    real_node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    lease = real_node.leases / "net" / "10.234.0.2"
    lease.write_text("c2\r\neth0", encoding="utf-8")
    result = reload(real_node, "c1")
    assert [ip.address for ip in result.ips] == container.addresses("eth0") == ["10.234.0.3/24"]
    assert "c2" in lease.read_text(encoding="utf-8")


@pytest.mark.real
def test_after_a_failure_the_record_stays_and_a_further_reload_mends(real_node: RealNode, container: Namespace) -> None:
    published(real_node)
    attach(real_node, "c1", container.path)
    before = rules(real_node.host), container.addresses("eth0")
    (real_node.bin / "firewall").write_text(
        '#!/bin/sh\n[ "$CNI_COMMAND" = ADD ] || exec /usr/lib/cni/firewall\n'
        'echo \'{"cniVersion": "1.0.0", "code": 100, "msg": "broken"}\'; exit 1\n'
    )
    (real_node.bin / "firewall").chmod(0o755)
    with pytest.raises(PluginError, match="broken") as caught:
        reload(real_node, "c1")
    assert "before that, the ADD with the same addresses failed: " in "".join(caught.value.__notes__)
    assert "reload the container again" in str(caught.value.hint)
    assert f"--cache-dir {real_node.cni.cache_dir}" in str(caught.value.hint)
    [one] = real_node.cni.get_cached_attachments()
    assert (one.state, one.owner) == ("pending", "runtime")
    (real_node.bin / "firewall").unlink()
    reload(real_node, "c1")
    assert (rules(real_node.host), container.addresses("eth0")) == before
    assert real_node.states() == ["ready"]


def of(node: FakeNode) -> Callable[[], Any]:
    [listed] = node.cni.get_cached_attachments("c1")
    return lambda: node.cni.reload_attachment(listed)


def test_nothing_runs_for_an_attachment_that_is_not_there(node: FakeNode) -> None:
    node.configure("net")
    netns = node.netns("c1")
    node.cni.add_network_list("net", RuntimeConf("c1", netns, "eth0"))
    again = of(node)
    node.forget_calls()
    node.change_record(state="pending")
    with pytest.raises((NotAttachedError, RecordError)):
        again()
    with pytest.raises(NotAttachedError, match="the ADD has not ended"):
        of(node)()
    assert node.calls() == []


def test_nothing_runs_without_the_namespace_or_a_plugin(node: FakeNode, tmp_path: Any) -> None:
    node.configure("net", {"type": "a", "ipam": {"type": "ipam"}}, "b")
    node.plugin("ipam")
    node.cni.add_network_list("net", RuntimeConf("c1", node.netns("c1"), "eth0"))
    node.forget_calls()
    for plugin in ("b", "ipam"):
        (node.bin / plugin).rename(tmp_path / plugin)
        with pytest.raises(PluginNotFoundError, match=plugin):
            of(node)()
        (tmp_path / plugin).rename(node.bin / plugin)
    (tmp_path / "ns" / "c1").unlink()
    with pytest.raises(NotAttachedError, match="the namespace no longer exists"):
        of(node)()
    assert node.calls() == []
    assert len(node.states()) == 1


def test_the_interface_of_another_network_too_is_not_reloaded(node: FakeNode) -> None:
    """A plugin such as Multus attaches to another network under its own interface name. DEL would detach that, too."""
    node.configure("net")
    node.configure("inner")
    netns = node.netns("c1")
    node.cni.add_network_list("inner", RuntimeConf("c1", netns, "eth0"))
    node.cni.add_network_list("net", RuntimeConf("c1", netns, "eth0"), on_existing="allow")
    node.forget_calls()
    for one in node.cni.get_cached_attachments("c1"):
        with pytest.raises(RecordError, match="names the same interface"):
            node.cni.reload_attachment(one)
    assert node.calls() == []


def test_attachments_that_share_rules_are_reloaded_once_and_together(node: FakeNode) -> None:
    """DEL of all in reverse order, then ADD of all in order: bridge has one chain for both interfaces."""
    node.configure("net", {"type": "a", "ipMasq": True})
    for container in ("c1", "c2"):
        netns = node.netns(container)
        for ifname in ("eth0", "eth1"):
            node.cni.add_network_list("net", RuntimeConf(container, netns, ifname))
    node.forget_calls()
    listed = [one for one in node.cni.get_cached_attachments() if (one.container_id, one.ifname) != ("c2", "eth1")]
    assert len(node.cni.reload_attachments(listed)) == 3
    for container in ("c1", "c2"):
        assert [call for call in node.calls() if container in call] == [
            *(f"DEL a {container} eth1", f"DEL a {container} eth0"),
            *(f"ADD a {container} eth0", f"ADD a {container} eth1"),
        ]
    assert node.states() == ["ready"] * 4


@pytest.mark.parametrize("problem", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()], ids=["full", "interrupted"])
def test_if_one_of_the_records_cannot_be_written_the_others_are_as_before(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    node.configure("net")
    for ifname in ("eth0", "eth1"):
        node.cni.add_network_list("net", RuntimeConf("c1", node.netns("c1"), ifname))
    node.forget_calls()
    rename, renamed = system.rename, []

    def rename_one(*names: Any, **options: Any) -> None:
        renamed.append(names)
        if len(renamed) == 2:
            raise problem
        rename(*names, **options)

    monkeypatch.setattr(system, "rename", rename_one)
    with pytest.raises(RecordError if isinstance(problem, OSError) else KeyboardInterrupt):
        reload(node, "c1")
    assert (node.calls(), node.states()) == ([], ["ready", "ready"])
    reload(node, "c1")
    assert node.states() == ["ready", "ready"]


def test_an_attachment_that_cannot_be_reloaded_stops_no_other(node: FakeNode) -> None:
    node.configure("net")
    for container in ("c1", "c2"):
        node.cni.add_network_list("net", RuntimeConf(container, node.netns(container), "eth0"))
    listed = node.cni.get_cached_attachments()
    node.change_record(state="pending")
    with pytest.raises(CNIErrorGroup, match="1 of 2 attachments could not be reloaded") as caught:
        node.cni.reload_attachments(listed)
    assert isinstance(caught.value.report, list)
    assert [isinstance(one, RecordError) for one in caught.value.report] == [True, False]


def test_a_record_of_go_stays_gos(node: FakeNode) -> None:
    node.configure("net")
    node.cni.add_network_list("net", RuntimeConf("c1", node.netns("c1"), "eth0"))
    node.strip_record()
    [listed] = node.cni.get_cached_attachments()
    node.cni.reload_attachment(listed)
    [after] = node.cni.get_cached_attachments()
    assert (after.state, after.made_by_go, after.owner) == ("ready", True, "")
    assert [one.container_id for one in node.cni.gc_network_list("net", []).made_by_go] == ["c1"]


def test_a_del_that_fails_is_repeated_once(node: FakeNode) -> None:
    """bridge fails once, after it has removed everything, if its masquerade chain was flushed."""
    node.configure("net")
    node.cni.add_network_list("net", RuntimeConf("c1", node.netns("c1"), "eth0"))
    node.forget_calls()
    node.plugin("net", "[ $CNI_COMMAND = DEL ] && exit 1")
    with pytest.raises(CNIErrorGroup, match="DEL of network net"):
        reload(node, "c1")
    assert node.verbs() == ["DEL net", "DEL net"]
    assert node.states() == ["pending"]
    node.plugin("net")
    reload(node, "c1")
    assert node.states() == ["ready"]


def test_an_attachment_without_a_namespace_is_not_reloaded_and_the_words_say_why(node: FakeNode) -> None:
    node.configure("net", {"type": "a"})
    node.cni.add_network_list("net", RuntimeConf("c1", "", "eth0"))
    with pytest.raises(NotAttachedError, match="the container was attached without a namespace"):
        reload(node, "c1")
    assert node.verbs() == ["ADD a"]
