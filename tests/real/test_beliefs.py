"""What the simulated world takes for granted about Linux and the plugins, shown with real ones.

Each test names the place in ``tests/sim`` that models it. What a power cut leaves on ext4 (``sim.disk``) is in
``tests/store/test_power_cut.py``.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from typing import Any

import pytest
from nodes import PLUGINS, Namespace, NewNamespace, RealNode

from libcni.store.locks import LockFile
from libcni.store.place import Place
from libcni.store.present_interfaces import EnteredNamespace
from libcni.testing import wait_until

pytestmark = pytest.mark.real

SUBNET = "10.97.0.0/24"


def enter(namespace: Namespace) -> EnteredNamespace:
    entered = EnteredNamespace.enter(namespace.path)
    assert entered is not None
    return entered


def place(namespace: Namespace, ifname: str = "eth0") -> Place:
    entered = enter(namespace)
    try:
        return entered.look(ifname)
    finally:
        entered.close()


def call(node: RealNode, verb: str, netns: str, plugin: str = "bridge") -> dict[str, Any]:
    """Run a plugin itself, and return what it prints."""
    conf = {"cniVersion": "1.0.0", "name": "net", **node.bridge(SUBNET), "type": plugin}
    env = {"CNI_COMMAND": verb, "CNI_CONTAINERID": "c1", "CNI_NETNS": netns, "CNI_IFNAME": "eth0", "CNI_PATH": PLUGINS}
    command = ["ip", "netns", "exec", node.host.name, f"{PLUGINS}/{plugin}"]
    done = subprocess.run(
        command,
        input=json.dumps(conf),
        env={**env, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    printed: dict[str, Any] = json.loads(done.stdout or "{}")
    return printed


def test_the_inode_of_a_namespace_is_used_again_and_its_cookie_is_not(new_namespace: NewNamespace) -> None:
    """World.add_namespace."""
    made = new_namespace()
    first, seen = place(made), []

    def comes_again() -> bool:
        subprocess.run(["ip", "netns", "del", made.name], check=True)
        subprocess.run(["ip", "netns", "add", made.name], check=True)
        seen.append(place(made))
        return seen[-1].netns in {first.netns, *(one.netns for one in seen[:-1])}

    wait_until(comes_again, 60)
    assert len({first.cookie, *(one.cookie for one in seen)}) == len(seen) + 1


def test_a_socket_keeps_a_namespace_with_its_interfaces(new_namespace: NewNamespace) -> None:
    """Namespace.hold."""
    made = new_namespace()
    made.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
    entered = enter(made)
    try:
        before = entered.look("eth0")
        subprocess.run(["ip", "netns", "del", made.name], check=True)
        assert entered.look("eth0") == before
        assert before.number
    finally:
        entered.close()
        subprocess.run(["ip", "netns", "add", made.name], check=True)


def test_numbers_begin_anew_in_each_namespace_and_a_number_is_not_used_again(new_namespace: NewNamespace) -> None:
    """Namespace.make."""
    found = []
    for made in (new_namespace(), new_namespace()):
        made.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
        found.append(place(made).number)
    made.run("ip", "link", "del", "eth0")
    made.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
    assert found[0] == found[1]
    assert place(made).number not in found


def test_two_interfaces_may_have_one_hardware_address(new_namespace: NewNamespace) -> None:
    """Stage.replace_namespace. vlan and ipvlan have their parent's, and a person can choose it."""
    made = new_namespace()
    made.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "peer0")
    made.run("ip", "link", "set", "peer0", "address", place(made).mac)
    assert place(made).mac == place(made, "peer0").mac != ""


def test_bridge_deletes_an_interface_by_its_name_whoever_made_it(real_node: RealNode, container: Namespace) -> None:
    """sim.plugins.bridge."""
    call(real_node, "ADD", container.path)
    container.run("ip", "link", "del", "eth0")
    container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "theirs")
    assert call(real_node, "DEL", container.path) == {}
    assert "eth0" not in container.links()


@pytest.mark.parametrize("netns", ["", "/run/netns/no-such-namespace"])
def test_bridge_without_a_namespace_frees_the_address_alone(
    real_node: RealNode, container: Namespace, netns: str
) -> None:
    """sim.plugins.bridge."""
    call(real_node, "ADD", container.path)
    assert len(real_node.leased()) == 1
    assert call(real_node, "DEL", netns) == {}
    assert real_node.leased() == {}
    assert "eth0" in container.links()


def test_bridge_refuses_a_name_that_exists(real_node: RealNode, container: Namespace) -> None:
    """sim.plugins.bridge."""
    container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "theirs")
    assert "eth0" in call(real_node, "ADD", container.path)["msg"]
    assert "theirs" in container.links()


def test_host_local_refuses_a_second_address_for_one_interface(real_node: RealNode, container: Namespace) -> None:
    """World.allocate."""
    assert call(real_node, "ADD", container.path, "host-local")["ips"]
    assert "duplicate allocation" in call(real_node, "ADD", container.path, "host-local")["msg"]
    assert len(real_node.leased()) == 1


def test_a_lock_ends_with_the_last_process_that_has_the_open_file(tmp_path: Any) -> None:
    """OpenFile.close, and the descriptor that a plugin inherits (SimExecutor)."""
    path = f"{tmp_path}/locks"
    file, other = LockFile(path, str(tmp_path)), LockFile(path, str(tmp_path))
    assert file.lock(fcntl.F_WRLCK, 5)
    with subprocess.Popen(["sleep", "60"], pass_fds=[file.descriptor]) as plugin:
        file.close()
        assert not other.lock(fcntl.F_WRLCK, 5)
        plugin.send_signal(signal.SIGKILL)
    assert other.lock(fcntl.F_WRLCK, 5)
    other.close()
