"""A neighbour who comes while a verb runs: each plugin that removes something is asked about it just before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from nodes import PASS_ON, Namespace, NewNamespace, RealNode, both_clients

import libcni
from libcni import InterfaceExistsError, NamespaceMismatchError, PluginError, RuntimeConf

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


@replaced
def test_the_same_in_gc_and_repair_of_a_half_done_del(node: RealNode, container: Namespace, how: str) -> None:
    swap = node.root / "swap"
    node.plugin("slow", when("DEL", f"if [ -e {swap} ]; then {how.format(name=container.name)}; fi"))
    net = chain(node, "slow", cniVersion="0.4.0")
    node.cni.add_network_list(net, conf(container))
    swap.touch()
    node.cni.gc_network_list(net, [])
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


# while an ADD runs


@both_clients
@replaced
def test_a_neighbour_who_comes_while_an_add_fails_keeps_its_interface(
    node: RealNode, container: Namespace, how: str
) -> None:
    node.plugin("fails", f"if [ $CNI_COMMAND = ADD ]; then {how.format(name=container.name)}; exit 1; fi")
    with pytest.raises(PluginError) as caught:
        node.cni.add_network_list(chain(node, "fails"), conf(container))
    assert caught.value.rollback_errors == ()
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


@contextmanager
def killed_in_the_second_plugin(node: RealNode, net: Any, rt: RuntimeConf) -> Iterator[None]:
    child = os.fork()
    if child == 0:  # pragma: no cover - it is killed
        node.cni.add_network_list(net, rt)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    yield


@pytest.mark.parametrize("way", ["DEL", "GC", "ADD"])
@replaced
def test_what_a_killed_runtime_had_made_is_known(node: RealNode, container: Namespace, how: str, way: str) -> None:
    once = node.root / "once"
    node.plugin("killer", when("ADD", f"if mkdir {once} 2>/dev/null; then kill -KILL $PPID; exit 1; fi"))
    net = chain(node, "killer")
    with killed_in_the_second_plugin(node, net, conf(container)):
        subprocess.run(["sh", "-c", how.format(name=container.name)], check=True)
    if way == "DEL":
        node.cni.del_network_list(net, conf(container))
    elif way == "GC":
        node.cni.gc_network_list(net, [])
    else:
        with pytest.raises(InterfaceExistsError):
            node.cni.add_network_list(net, conf(container))
        node.cni.del_network_list(net, conf(container))
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


def test_without_a_neighbour_what_a_killed_runtime_had_made_is_removed(node: RealNode, container: Namespace) -> None:
    once = node.root / "once"
    node.plugin("killer", when("ADD", f"if mkdir {once} 2>/dev/null; then kill -KILL $PPID; exit 1; fi"))
    net = chain(node, "killer")
    with killed_in_the_second_plugin(node, net, conf(container)):
        node.cni.del_network_list(net, conf(container))
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, [])


@both_clients
def test_a_neighbour_between_the_look_and_the_plugin_that_makes_the_interface(
    node: RealNode, container: Namespace
) -> None:
    """The first plugin makes nothing, the neighbour comes while it runs, and bridge fails: the interface exists."""
    node.plugin("slow", when("ADD", f"ip -n {container.name} link add eth0 type veth peer name theirs"))
    net = node.network("slow", node.bridge("10.98.0.0/24"))
    with pytest.raises(PluginError):
        node.cni.add_network_list(net, conf(container))
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


@both_clients
def test_a_neighbour_who_comes_while_the_record_is_written(
    node: RealNode, container: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = libcni.store.records.RecordStore.begin  # type: ignore[attr-defined]

    def slow_begin(store: Any, record: Any) -> Any:
        written = begin(store, record)
        container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "theirs")
        return written

    monkeypatch.setattr("libcni.store.records.RecordStore.begin", slow_begin)
    net = chain(node)
    with pytest.raises(InterfaceExistsError):
        node.cni.add_network_list(net, conf(container))
    monkeypatch.undo()
    node.cni.del_network_list(net, conf(container))
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


@both_clients
def test_what_the_first_plugin_leaves_when_it_fails_is_removed(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    """Bridge leaves eth0 when its IPAM plugin fails. The interface appeared while bridge ran."""
    net = node.network(node.bridge("10.98.0.0/24", ipam=ONE_ADDRESS))
    node.cni.add_network_list(net, conf(other, "c2"))
    with pytest.raises(PluginError, match="no IP addresses available"):
        node.cni.add_network_list(net, conf(container))
    assert (container.links(), node.states(), owners(node)) == (["lo"], ["ready"], {"c2"})


# records of Go libcni


@both_clients
@pytest.mark.parametrize("way", ["DEL", "GC"])
@replaced
def test_a_record_of_go_is_compared_by_its_hardware_address(
    node: RealNode, container: Namespace, how: str, way: str
) -> None:
    net = chain(node)
    node.cni.add_network_list(net, conf(container))
    node.strip_record()
    subprocess.run(["sh", "-c", how.format(name=container.name)], check=True)
    if way == "DEL":
        node.cni.del_network_list(net, conf(container))
    else:
        node.cni.gc_network_list(net, [], include_go=True)
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


@both_clients
@pytest.mark.parametrize("kind", ["gc", "dry run"])
def test_records_of_go_are_swept_only_if_asked(node: RealNode, container: Namespace, kind: str) -> None:
    net = chain(node, cniVersion="0.4.0")
    node.cni.add_network_list(net, conf(container))
    node.strip_record()
    report = node.cni.gc_network_list(net, [], dry_run=kind == "dry run")
    assert ([one.container_id for one in report.made_by_go], report.stale, report.detached) == (["c1"], (), ())
    assert (container.links(), owners(node)) == (["lo", "eth0"], {"c1"})
    assert node.cni.gc_network_list(net, [], include_go=True).made_by_go == ()
    assert (container.links(), node.leased()) == (["lo"], {})


# the interface


def test_the_same_number_with_another_hardware_address_is_another_interface(
    node: RealNode, container: Namespace
) -> None:
    net = chain(node)
    node.cni.add_network_list(net, conf(container))
    index = str(container.link("eth0")["ifindex"])
    container.run("ip", "link", "del", "eth0")
    container.run("ip", "link", "add", "eth0", "index", index, "type", "veth", "peer", "name", "theirs")
    node.cni.del_network_list(net, conf(container))
    assert is_theirs(container)
    assert (node.leased(), node.states()) == ({}, [])


@both_clients
@pytest.mark.parametrize("is_go", [False, True], ids=["ours", "Go's"])
def test_a_renamed_interface_of_ones_own_keeps_its_address(
    node: RealNode, container: Namespace, *, is_go: bool
) -> None:
    net = chain(node)
    node.cni.add_network_list(net, conf(container))
    if is_go:
        node.strip_record()
    container.run("ip", "link", "set", "eth0", "name", "lan0")
    calls = node.verbs()
    with pytest.raises(NamespaceMismatchError, match="eth0 is now lan0"):
        node.cni.del_network_list(net, conf(container))
    with pytest.raises(NamespaceMismatchError, match="eth0 is now lan0"):
        node.cni.del_attachment(node.cni.get_cached_attachments()[0])
    with pytest.raises(libcni.NotAttachedError, match="eth0 is now lan0"):
        node.cni.check_network_list(net, conf(container))
    with pytest.raises(libcni.CNIErrorGroup) as caught:
        node.cni.gc_network_list(net, [], include_go=True)
    assert "eth0 is now lan0" in str(caught.value.exceptions[0])
    assert node.verbs() == calls
    assert (container.links(), owners(node)) == (["lo", "lan0"], {"c1"})
    container.run("ip", "link", "set", "lan0", "name", "eth0")
    node.cni.del_network_list(net, conf(container))
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, [])


def test_a_moved_interface_of_ones_own_keeps_its_address(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    net = chain(node)
    node.cni.add_network_list(net, conf(container))
    container.run("ip", "link", "set", "eth0", "netns", other.name)
    with pytest.raises(NamespaceMismatchError, match=f"eth0 is now eth0 in {other.path}"):
        node.cni.del_network_list(net, conf(container))
    assert owners(node) == {"c1"}
    node.cni.del_network_list(net, conf(other), policy=libcni.DelPolicy(use_given=True))
    assert (other.links(), node.leased(), node.states()) == (["lo"], {}, [])


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
@pytest.mark.parametrize("given", ["", "/run/netns/libcni-missing"])
@pytest.mark.parametrize("is_go", [False, True], ids=["ours", "Go's"])
def test_a_del_without_a_namespace_frees_no_address_of_an_interface_that_lives(
    node: RealNode, container: Namespace, given: str, *, is_go: bool
) -> None:
    node.cni.add_network_list(chain(node), conf(container))
    if is_go:
        node.strip_record()
    node.cni.del_network_list(chain(node), conf(given))
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, [])


@both_clients
def test_a_record_of_go_whose_path_no_longer_exists_is_gone_for_every_verb(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    net = chain(node)
    node.cni.add_network_list(net, conf(container))
    node.strip_record()
    subprocess.run(["ip", "netns", "del", container.name], check=True)
    assert node.states() == ["gone"]
    with pytest.raises(libcni.NotAttachedError) as caught:
        node.cni.check_network_list(net, conf(container))
    assert caught.value.state == "gone"
    node.cni.add_network_list(net, conf(other))
    assert (len(node.leased()), other.links(), node.states()) == (1, ["lo", "eth0"], ["ready"])


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


def test_add_by_a_descriptor_of_this_program(node: RealNode, container: Namespace) -> None:
    fd = os.open(container.path, os.O_RDONLY)
    try:
        node.cni.add_network_list(chain(node), conf(f"/proc/self/fd/{fd}"))
        assert container.links() == ["lo", "eth0"]
        node.cni.del_network_list(chain(node), conf(f"/proc/self/fd/{fd}"))
    finally:
        os.close(fd)
    assert (container.links(), node.leased(), node.states()) == (["lo"], {}, [])


def test_a_container_that_starts_again_in_a_new_namespace_at_its_path(node: RealNode, container: Namespace) -> None:
    """The kernel gives the inode number of a removed namespace to the next one, mostly; here always."""
    net = chain(node)
    for _ in range(4):
        node.cni.add_network_list(net, conf(container))
        subprocess.run(["ip", "netns", "del", container.name], check=True)
        subprocess.run(["ip", "netns", "add", container.name], check=True)
        status = os.stat(container.path)
        node.change_record(netnsId=[status.st_dev, status.st_ino])
    node.cni.add_network_list(net, conf(container))
    node.cni.check_network_list(net, conf(container))
    assert (len(node.leased()), node.states()) == (1, ["ready"])


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
    record = json.loads(node.record("c2", "theirs").read_text(encoding="utf-8"))
    assert record["libcni"]["state"] == "ready"


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
