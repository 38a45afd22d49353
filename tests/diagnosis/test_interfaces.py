"""The doctor's checks of interfaces and addresses: each test breaks a node and types the commands that it prints."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf

pytestmark = pytest.mark.real


def test_an_interface_that_has_gone(node: OperatorNode) -> None:
    container = node.attach("c1")
    container.run("ip", "link", "del", "eth0")
    assert node.diagnose().status != "ok"
    node.mend("there is no interface eth0")
    assert "eth0" in container.links()
    node.assert_healthy(run_check=True)


@pytest.mark.parametrize(
    ("command", "seen"),
    [(("link", "del", "eth0"), "there is no interface eth0"), (("address", "flush", "dev", "eth0"), "is not on eth0")],
)
def test_no_masquerade_rule_is_left_that_would_let_every_later_del_fail(
    node: OperatorNode, command: tuple[str, ...], seen: str
) -> None:
    node.write_bridge(ipMasq=True)
    container = node.new_namespace()
    node.client(owner="pod").add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    container.run("ip", *command)
    node.mend(seen)
    assert [one.owner for one in node.cni.get_cached_attachments()] == ["pod"]
    node.type("libcni del -c c1")
    node.assert_healthy()


def test_arguments_are_given_again(node: OperatorNode) -> None:
    container = node.new_namespace()
    rt = RuntimeConf("c1", container.path, "eth0", args={"IgnoreUnknown": "1", "K8S_POD_NAME": "a b"})
    node.cni.add_network_list("net", rt)
    container.run("ip", "link", "del", "eth0")
    node.mend("there is no interface eth0")
    (one,) = node.cni.get_cached_attachments()
    assert dict(one.args)["K8S_POD_NAME"] == "a b"


def test_an_address_that_is_not_on_the_interface(node: OperatorNode) -> None:
    container = node.attach("c1")
    container.run("ip", "address", "flush", "dev", "eth0")
    node.mend("its address 10.231.0.2 is not on eth0")
    node.assert_healthy(run_check=True)


def test_a_bridge_that_has_gone(node: OperatorNode) -> None:
    node.attach("c1")
    node.attach("c2")
    subprocess.run(["ip", "link", "del", "br-node"], check=True)
    bridge = [one for one in node.diagnose().findings if one.subject == "bridge br-node"]
    assert len(bridge) == 1, "one finding, however many containers"
    node.mend("it has gone")
    node.assert_healthy(run_check=True)


def test_a_host_interface_that_left_the_bridge(node: OperatorNode) -> None:
    node.attach("c1")
    (veth,) = [link for link in os.listdir("/sys/class/net") if link.startswith("veth")] or _veths()
    subprocess.run(["ip", "link", "set", veth, "nomaster"], check=True)
    assert node.mend("is not on bridge br-node").commands == (f"ip link set {veth} master br-node",)
    node.assert_healthy(run_check=True)


def _veths() -> list[str]:
    shown = subprocess.run(["ip", "-j", "link", "show", "type", "veth"], check=True, capture_output=True, text=True)
    return [link["ifname"] for link in json.loads(shown.stdout)]


def test_a_master_that_has_gone(node: OperatorNode) -> None:
    subprocess.run(["ip", "link", "add", "opermaster", "type", "veth", "peer", "name", "operpeer"], check=True)
    subprocess.run(["ip", "link", "set", "opermaster", "up"], check=True)
    ipam = node.bridge("10.232.0.0/24")["ipam"]
    node.configure("vlans", {"type": "macvlan", "master": "opermaster", "ipam": ipam})
    node.attach("c1", "vlans")
    subprocess.run(["ip", "link", "del", "opermaster"], check=True)
    found = node.finding("it has gone; container c1 needs it")
    assert found.subject == "master opermaster"
    assert "bring opermaster back" in found.remedy
    subprocess.run(["ip", "link", "add", "opermaster", "type", "veth", "peer", "name", "operpeer"], check=True)
    subprocess.run(["ip", "link", "set", "opermaster", "up"], check=True)
    node.type(found.commands[0])
    node.assert_healthy()


def test_what_only_check_sees(node: OperatorNode) -> None:
    node.write_bridge(mtu=1400)
    container = node.attach("c1")
    node.assert_healthy()
    container.run("ip", "link", "set", "eth0", "down")
    path = node.record("c1")
    record = json.loads(path.read_text(encoding="utf-8"))
    for interface in record["result"]["interfaces"]:
        if interface["name"] == "eth0":
            interface["mac"] = "02:00:00:00:00:01"
    path.write_text(json.dumps(record), encoding="utf-8")
    node.assert_healthy()
    node.mend("CHECK failed", run_check=True)
    node.assert_healthy(run_check=True)


def test_a_name_that_a_shell_would_read_as_a_command_is_one_word(node: OperatorNode) -> None:
    node.attach("c1")
    (veth,) = _veths()
    subprocess.run(["ip", "link", "set", veth, "down"], check=True)
    subprocess.run(["ip", "link", "set", veth, "name", "veth;touch", "nomaster"], check=True)
    subprocess.run(["ip", "link", "set", "veth;touch", "up"], check=True)
    text = node.record("c1").read_text(encoding="utf-8")
    node.record("c1").write_text(text.replace(veth, "veth;touch"), encoding="utf-8")
    assert node.mend("is not on bridge").commands == ("ip link set 'veth;touch' master br-node",)
    node.assert_healthy()
