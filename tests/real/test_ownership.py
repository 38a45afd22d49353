"""Real plugins touch only what is one's own: a neighbour's interface, rules and record stay as they are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from nodes import Namespace, RealNode, both_clients, plugins_know_gc
from processes import wait

import libcni
from libcni import (
    ConfigError,
    DelPolicy,
    InterfaceExistsError,
    NamespaceMismatchError,
    NetworkConfigList,
    PluginError,
    RuntimeConf,
)
from libcni.testing import wait_until

pytestmark = pytest.mark.real


# Both clients run the same verbs. With asyncio another thread enters namespaces and reads records, and the roll-back
# is a task of its own: these are the tests in which that could matter.


def bridged(
    node: RealNode, name: str = "net", *plugins: str | dict[str, Any], bridge: Any = (), **keys: Any
) -> NetworkConfigList:
    """Return a network with a bridge of its own; ``bridge``: further keys of that plugin."""
    first = node.bridge("10.98.0.0/24", bridge=f"br-{name}", **dict(bridge))
    return node.network(first, *plugins, name=name, **keys)


def rules(node: RealNode) -> str:
    return "\n".join(node.host.rules("nat") + node.host.rules("filter"))


def everything_of(node: RealNode, namespace: Namespace) -> Any:
    """Return all that a neighbour could lose: interfaces, addresses, rules and records."""
    links = [(link["ifname"], link.get("address")) for link in namespace.ip("link")]
    records = {path.name: path.read_bytes() for path in node.results.glob("*")}
    return links, namespace.links_and_addresses(), node.leased(), rules(node), records


def add_link(namespace: Namespace) -> None:
    """Make an eth0 that nobody recorded."""
    namespace.run("ip", "link", "add", "eth0", "type", "veth", "peer", "x")


def conf(container_id: str, namespace: Namespace | str, ifname: str = "eth0", **more: Any) -> RuntimeConf:
    return RuntimeConf(container_id, namespace if isinstance(namespace, str) else namespace.path, ifname, **more)


def states(node: RealNode) -> list[tuple[str, str]]:
    return [(one.container_id, one.state) for one in node.cni.get_cached_attachments()]


# before the first plugin


@both_clients
def test_an_interface_that_a_person_made_is_refused_and_stays(node: RealNode, container: Namespace) -> None:
    add_link(container)
    before = everything_of(node, container)
    for _ in range(2):
        with pytest.raises(InterfaceExistsError) as caught:
            node.cni.add_network_list(bridged(node), conf("c1", container))
        assert (caught.value.ifname, caught.value.netns) == ("eth0", container.path)
        assert 'on_existing="allow"' in str(caught.value)
        assert states(node) == [("c1", "pending")]
    node.cni.del_network_list(bridged(node), conf("c1", container))
    assert everything_of(node, container) == before
    assert node.host.links() == ["lo"]


@pytest.mark.parametrize("before", ["an ADD that was refused", "an ADD that was refused, and a DEL", "nothing"])
def test_del_without_a_record_leaves_the_interface_until_it_is_told(
    node: RealNode, container: Namespace, before: str
) -> None:
    net, rt = bridged(node), RuntimeConf("c1", container.path, "eth0")
    container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "theirs")
    if before != "nothing":
        with pytest.raises(InterfaceExistsError):
            node.cni.add_network_list(net, rt)
    if before.endswith("a DEL"):
        node.cni.del_network_list(net, rt)
    for _ in range(2):  # runtimes repeat a DEL
        report = node.cni.del_network_list(net, rt)
        assert report.netns == ""
        assert "eth0" in container.links()
    node.cni.del_network_list(net, rt, policy=DelPolicy(use_given=True))
    assert "eth0" not in container.links()


def test_allow_lets_a_plugin_work_on_an_interface_that_exists(node: RealNode, container: Namespace) -> None:
    add_link(container)
    node.plugin("mtu", 'ip -n "$(basename "$CNI_NETNS")" link set "$CNI_IFNAME" mtu 1400')
    net = node.network("mtu")
    with pytest.raises(InterfaceExistsError):
        node.cni.add_network_list(net, conf("c1", container))
    node.cni.add_network_list(net, conf("c1", container), on_existing="allow")
    assert container.link("eth0")["mtu"] == 1400


@both_clients
@pytest.mark.parametrize("path", ["/proc/self/ns/net", "/proc/thread-self/ns/net"])
def test_the_programs_own_namespace_is_refused_and_keeps_its_interfaces(node: RealNode, path: str) -> None:
    add_link(node.host)
    before = everything_of(node, node.host)
    with pytest.raises(ConfigError, match="of this program itself"):
        node.cni.add_network_list(bridged(node), conf("c1", path))
    node.cni.del_network_list(bridged(node), conf("c1", path))
    assert everything_of(node, node.host) == before
    assert states(node) == []


@both_clients
def test_without_the_privilege_to_look_add_goes_on(node: RealNode, container: Namespace) -> None:
    """As a user who may not enter namespaces, with a plugin that needs no privilege."""
    net = node.network("fake")
    for directory in (node.root, node.bin, node.bin / ".fake/calls"):
        directory.chmod(0o777)
    for directory in node.root.parents:
        if directory.owner() == "root" and str(directory).startswith("/tmp/"):
            directory.chmod(directory.stat().st_mode | 0o755)
    node.cache.mkdir(mode=0o777)
    node.cache.chmod(0o777)
    for name in ("concurrent.futures.thread", "ctypes"):
        import_module(name)  # this user may not be able to read Python's modules
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            os.setuid(65534)
            node.cni.add_network_list(net, conf("c1", container, "lo0"))
            node.cni.add_network_list(net, conf("c2", container, "lo"))
            os._exit(0)
        finally:
            os._exit(1)
    assert wait(child) == 0


# DEL and CHECK


def test_del_in_the_namespace_of_another_container_is_refused(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    net = bridged(node)
    node.cni.add_network_list(net, conf("one", container))
    node.cni.add_network_list(net, conf("two", other))
    before = everything_of(node, container), everything_of(node, other)
    for verb in ("del_network_list", "check_network_list"):
        with pytest.raises(NamespaceMismatchError) as caught:
            getattr(node.cni, verb)(net, conf("one", other))
        assert (caught.value.netns, caught.value.recorded_netns) == (other.path, container.path)
    assert (everything_of(node, container), everything_of(node, other)) == before
    node.cni.del_network_list(net, conf("one", other), policy=DelPolicy(use_given=True))
    assert "eth0" not in other.links()


def test_a_path_that_leads_to_a_neighbour_by_now_is_not_entered(
    node: RealNode, container: Namespace, other: Namespace, tmp_path: Path
) -> None:
    net = bridged(node)
    path = tmp_path / "ns"
    path.symlink_to(container.path)
    node.cni.add_network_list(net, conf("one", str(path)))
    path.unlink()
    path.symlink_to(other.path)
    node.cni.add_network_list(net, conf("two", other))
    links = other.links()
    assert dict(states(node)) == {"one": "gone", "two": "ready"}
    node.cni.del_network_list(net, conf("one", str(path)))
    assert other.links() == links
    assert dict(states(node)) == {"two": "ready"}
    node.cni.check_network_list(net, conf("two", other))


# an interface is not one's own because of its name


@pytest.fixture
def process_in() -> Iterator[Callable[[Namespace], str]]:
    """Return a function that starts a process in a namespace, and returns the path by which it leads there."""
    with ExitStack() as stack:

        def start(namespace: Namespace) -> str:
            words = ["nsenter", f"--net={namespace.path}", "sleep", "600"]
            process = stack.enter_context(subprocess.Popen(words))
            stack.callback(process.kill)
            path = f"/proc/{process.pid}/ns/net"
            wait_until(lambda: os.path.samefile(path, namespace.path))
            return path

        yield start


@both_clients
@pytest.mark.parametrize("way", ["DEL", "GC"])
@pytest.mark.parametrize("mac", ["as the kernel has it", "in another notation"])
def test_a_path_of_go_that_leads_to_another_containers_process_by_now(
    node: RealNode,
    container: Namespace,
    other: Namespace,
    process_in: Callable[[Namespace], str],
    way: str,
    mac: str,
) -> None:
    net = bridged(node)
    node.cni.add_network_list(net, conf("c1", container))
    add_link(other)
    node.strip_record("c1")
    document = json.loads(node.record("c1").read_text(encoding="utf-8"))
    is_known = mac == "as the kernel has it"
    document["netns"] = process_in(other if is_known else container)
    if not is_known:
        document["result"]["interfaces"][2]["mac"] = "02-00-00-00-00-01"
    node.record("c1").write_text(json.dumps(document), encoding="utf-8")
    before = other.links_and_addresses()

    def detach() -> None:
        if way == "DEL":
            node.cni.del_network_list(net, conf("c1", document["netns"]))
        else:
            node.cni.gc_network_list(net, [], include_go=True)

    if is_known:
        # The container lives, and so its address must not be freed.
        with pytest.raises(libcni.CNIError) as caught:
            detach()
        errors = caught.value.exceptions if isinstance(caught.value, libcni.CNIErrorGroup) else [caught.value]
        assert f"is now eth0 in {container.path}" in str(errors[0])
        assert (container.links(), len(node.leased())) == (["lo", "eth0"], 1)
        container.run("ip", "link", "del", "eth0")
    detach()
    assert other.links_and_addresses() == before
    assert container.links() == ["lo"]
    assert (states(node), node.leased()) == ([], {})


@both_clients
@pytest.mark.parametrize("rollback", [True, False], ids=["rolled back", "detached later"])
@pytest.mark.parametrize("maker", ["a person", "another container", "the same container"])
def test_allow_that_fails_leaves_the_interface_that_was_there(
    node: RealNode, container: Namespace, maker: str, *, rollback: bool
) -> None:
    if maker == "a person":
        add_link(container)
    else:
        name = "two" if maker == "another container" else "one"
        node.client(owner="theirs").add_network_list(bridged(node, "theirs"), conf(name, container))
    before = everything_of(node, container)
    net = bridged(node)
    with pytest.raises(PluginError):
        node.cni.add_network_list(net, conf("one", container), on_existing="allow", rollback=rollback)
    if not rollback:
        node.cni.del_network_list(net, conf("one", container))
    assert everything_of(node, container) == before


def test_allow_that_fails_leaves_an_earlier_attachment_of_the_same_network(
    node: RealNode, container: Namespace
) -> None:
    net = bridged(node)
    node.cni.add_network_list(net, conf("c1", container))
    before = everything_of(node, container)
    with pytest.raises(PluginError) as caught:
        node.client(owner="theirs").add_network_list(net, conf("c1", container), on_existing="allow")
    assert caught.value.rollback_errors == ()
    assert everything_of(node, container) == before
    node.cni.check_network_list(net, conf("c1", container))
    node.cni.del_network_list(net, conf("c1", container))
    assert (container.links(), states(node)) == (["lo"], [])


# roll-back and ways out


@both_clients
def test_the_roll_back_removes_the_rules_of_the_firewall(
    node: RealNode, container: Namespace, other: Namespace
) -> None:
    net = bridged(node, "net", {"type": "firewall"}, {"type": "tuning", "mac": "nonsense"})
    neighbour = bridged(node, "other", {"type": "firewall"}, bridge={"ipam": {"subnet": "10.99.0.0/24"}})
    node.cni.add_network_list(neighbour, conf("c0", other))
    before = rules(node), other.links_and_addresses()
    with pytest.raises(PluginError) as caught:
        node.cni.add_network_list(net, conf("c1", container))
    assert caught.value.rollback_errors == ()
    assert (rules(node), other.links_and_addresses()) == before
    assert "10.98" not in rules(node)
    assert "10.99" in rules(node)
    assert container.links() == ["lo"]


MISTAKES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a wrong subnet": ({"bridge": {"ipam": {"subnet": "10.98.0.0/99"}}}, {}),
    "an address outside": ({}, {"args": {"IP": "192.168.77.7"}}),
    "a misspelt ipam": ({"bridge": {"ipam": {"type": "host-locl"}}}, {}),
    "a version that a plugin does not know": ({"cniVersion": "0.3.1", "plugins": [{"type": "firewall"}]}, {}),
    "a bad port": (
        {"plugins": [{"type": "portmap", "capabilities": {"portMappings": True}}]},
        {"capability_args": {"portMappings": [{"hostPort": "abc", "containerPort": 80, "protocol": "tcp"}]}},
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_mended_by_mending_it(node: RealNode, container: Namespace, mistake: str) -> None:
    keys, arguments = MISTAKES[mistake]
    plugins = keys.get("plugins", [])
    wrong = bridged(node, "net", *plugins, **{**keys, "plugins": ()})
    with pytest.raises(libcni.CNIError):
        node.cni.add_network_list(wrong, conf("c1", container, **arguments))
    right = bridged(node, "net", *plugins)
    if "br-net" in node.host.links():
        # Debian's bridge plugin cannot use a bridge whose first ADD failed: it sets the MAC, which is zero then.
        subprocess.run(["ip", "link", "del", "br-net"], check=True)
    node.cni.add_network_list(right, conf("c1", container))
    assert states(node) == [("c1", "ready")]
    node.cni.del_network_list(right, conf("c1", container))
    assert container.links() == ["lo"]


def test_macvlan_whose_master_has_gone(node: RealNode, container: Namespace) -> None:
    subprocess.run(["ip", "link", "add", "up0", "type", "veth", "peer", "up1"], check=True)
    ipam = node.bridge("10.97.0.0/24")["ipam"]
    net = node.network({"type": "macvlan", "master": "up0", "ipam": ipam})
    node.cni.add_network_list(net, conf("c1", container))
    subprocess.run(["ip", "link", "del", "up0"], check=True)
    if plugins_know_gc():  # their macvlan takes it as detached
        node.cni.del_network_list(net, conf("c1", container))
        assert (states(node), node.leased()) == ([], {})
        return
    with pytest.raises(PluginError, match="Link not found"):
        node.cni.del_network_list(net, conf("c1", container))
    assert states(node) == [("c1", "detaching")]
    with pytest.raises(PluginError) as caught:
        node.cni.add_network_list(bridged(node), conf("c1", container))
    assert "libcni forget c1:eth0" in str(caught.value)
    (left,) = node.cni.get_cached_attachments()
    assert node.cni.forget_attachment(left).plugins == ("macvlan",)
    node.cni.add_network_list(bridged(node), conf("c1", container))


@pytest.mark.parametrize("way", ["del", "gc", "add again"])
def test_a_namespace_that_has_gone(node: RealNode, container: Namespace, way: str) -> None:
    net = bridged(node, "net", {"type": "firewall"})
    node.cni.add_network_list(net, conf("c1", container))
    subprocess.run(["ip", "netns", "del", container.name], check=True)
    assert states(node) == [("c1", "gone")]
    if way == "del":
        node.cni.del_network_list(net, conf("c1", container))
    elif way == "gc":
        node.cni.gc_network_list(net, [])
    subprocess.run(["ip", "netns", "add", container.name], check=True)
    if way == "add again":
        node.cni.add_network_list(net, conf("c1", container))
        node.cni.del_network_list(net, conf("c1", container))
    assert (states(node), node.leased()) == ([], {})
    assert "10.98.0" not in rules(node)
