"""The doctor's checks of interfaces and addresses: each test breaks a node and types the commands that it prints."""

from __future__ import annotations

import json
import subprocess

import pytest

from diagnosis.conftest import OperatorNode

pytestmark = pytest.mark.real


def _veths() -> list[str]:
    shown = subprocess.run(["ip", "-j", "link", "show", "type", "veth"], check=True, capture_output=True, text=True)
    return [link["ifname"] for link in json.loads(shown.stdout)]


def test_a_master_that_has_gone_is_brought_back_before_its_containers_are(node: OperatorNode) -> None:
    make = "ip link add opermaster type veth peer name operpeer && ip link set opermaster up"
    node.type(make)
    ipam = node.bridge("10.232.0.0/24")["ipam"]
    node.configure("vlans", {"type": "macvlan", "master": "opermaster", "ipam": ipam})
    container = node.attach("c1", "vlans")
    addresses = container.addresses("eth0")
    node.type("ip link set opermaster down")
    node.mend("it is down")
    node.assert_healthy()
    node.type("ip link del opermaster")
    [found] = node.diagnose().findings
    assert (found.subject, found.commands, found.containers) == ("master opermaster", (), ("c1:eth0",))
    assert "bring opermaster back" in found.remedy
    node.type(make)
    node.mend("there is no interface eth0")
    assert container.addresses("eth0") == addresses
    node.assert_healthy()


def test_what_only_check_sees_interrupts_nobody_by_itself(node: OperatorNode) -> None:
    node.attach("c1")
    path = node.record("c1")
    record = json.loads(path.read_text(encoding="utf-8"))
    for interface in record["result"]["interfaces"]:
        if interface["name"] == "eth0":
            interface["mac"] = "02:00:00:00:00:01"
    path.write_text(json.dumps(record), encoding="utf-8")
    node.assert_healthy()
    found = node.finding("CHECK failed", run_check=True)
    assert found.commands == ()
    [other] = found.disrupts
    assert other.containers == ("c1:eth0",)
    node.type(other.command)
    node.assert_healthy(run_check=True)


def test_another_address_is_not_taken_away(node: OperatorNode) -> None:
    """Somebody gave it to the container by hand, and may use it."""
    container = node.attach("c1")
    container.run("ip", "address", "flush", "dev", "eth0")
    container.run("ip", "address", "add", "10.231.0.99/24", "dev", "eth0")
    found = node.finding("is not on eth0")
    assert found.commands == ()
    assert [one.command for one in found.disrupts] == ["libcni reload c1:eth0"]


def test_an_interface_that_was_renamed_is_told_from_one_that_has_gone(node: OperatorNode) -> None:
    container = node.attach("c1")
    for command in ("down", "name net7", "up"):
        container.run("ip", "link", "set", "net7" if command == "up" else "eth0", *command.split())
    found = node.finding("eth0 is called net7")
    assert found.commands == ()


def test_a_name_that_a_shell_would_read_as_a_command_is_one_word(node: OperatorNode) -> None:
    node.attach("c1")
    (veth,) = _veths()
    subprocess.run(["ip", "link", "set", veth, "down"], check=True)
    subprocess.run(["ip", "link", "set", veth, "name", "veth;touch", "nomaster"], check=True)
    subprocess.run(["ip", "link", "set", "veth;touch", "up"], check=True)
    text = node.record("c1").read_text(encoding="utf-8")
    node.record("c1").write_text(text.replace(veth, "veth;touch"), encoding="utf-8")
    assert node.mend("is not on bridge").commands == ("ip link set dev 'veth;touch' master br-node",)
    node.assert_healthy()
