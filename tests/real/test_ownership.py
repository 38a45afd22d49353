"""Real plugins touch only what is one's own: a neighbour's interface, rules and record stay as they are."""

from __future__ import annotations

import os
import subprocess
from importlib import import_module
from typing import Any

import pytest
from nodes import Namespace, RealNode, both_clients, plugins_know_gc
from processes import wait

import libcni
from libcni import (
    AttachmentExistsError,
    ConfigError,
    InterfaceExistsError,
    NetworkConfigList,
    PluginError,
    RuntimeConf,
)
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.netlink import links
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
        assert states(node) == [("c1", "refused")]
    node.cni.del_network_list(bridged(node), conf("c1", container))
    assert everything_of(node, container) == before
    assert node.host.links() == ["lo"]


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
    container.run("ip", "link", "add", "d0", "type", "veth", "peer", "name", "d1")
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
            node.cni.add_network_list(net, conf("c2", container, "d0"))
            os._exit(0)
        finally:
            os._exit(1)
    assert wait(child) == 0


# DEL and CHECK


# an interface is not one's own because of its name


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
    # The record is a new file with the same facts.
    assert (everything_of(node, container)[:-1], states(node)) == (before[:-1], [("c1", "ready")])
    node.cni.check_network_list(net, conf("c1", container))
    node.cni.del_network_list(net, conf("c1", container))
    assert (container.links(), states(node)) == (["lo"], [])


# roll-back and ways out


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
    assert "libcni forget c1 -i eth0 -n net" in str(caught.value)
    (left,) = node.cni.get_cached_attachments()
    assert node.cni.forget_attachment(left).plugins == ("macvlan",)
    node.cni.add_network_list(bridged(node), conf("c1", container))


@pytest.mark.parametrize("way", ["del", "gc", "replaced"])
def test_a_living_container_whose_path_was_lost(node: RealNode, container: Namespace, way: str) -> None:
    """DEL finds another way to its interface: with an empty CNI_NETNS the address of a living one would be freed."""
    net = bridged(node, "net", {"type": "firewall"})
    node.cni.add_network_list(net, conf("c1", container))
    with subprocess.Popen(["nsenter", f"--net={container.path}", "cat"], stdin=subprocess.PIPE) as inhabitant:
        inside = f"/proc/{inhabitant.pid}/ns/net"
        wait_until(lambda: namespace_identity(inside) == namespace_identity(container.path))
        subprocess.run(["umount", "--lazy", container.path], check=True)
        if way == "replaced":
            os.unlink(container.path)
            subprocess.run(["ip", "netns", "add", container.name], check=True)
        assert states(node) == [("c1", "lost-path")]
        # The file that is left at the path is no namespace.
        with pytest.raises(AttachmentExistsError if way == "replaced" else ConfigError):
            node.cni.add_network_list(net, conf("c1", container))
        assert len(node.leased()) == 1
        assert "eth0" in links(inside)
        if way == "gc":
            node.cni.gc_network_list(net, [])
        else:
            node.cni.del_network_list(net, conf("c1", container) if way == "del" else RuntimeConf("c1", None, "eth0"))
        assert "eth0" not in links(inside)
        inhabitant.communicate()
    assert (states(node), node.leased()) == ([], {})
    assert "10.98.0" not in rules(node)


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
