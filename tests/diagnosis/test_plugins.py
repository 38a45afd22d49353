"""The doctor looks for plugins, and asks them for VERSION and STATUS."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers import document
from nodes import PLUGINS, FakeNode

from diagnosis.conftest import GOOD, OperatorNode, install, only
from diagnosis.made import BRIDGE, FIREWALL, IPAM, PORTMAP, PORTS, MadeNode, configure
from libcni import CNIConfig, NetworkConfigList, PluginError, RuntimeConf
from libcni._known_faults import FAULTS
from libcni.diagnosis import Checked, NodeFinding, NotChecked, diagnose, needed_programs
from libcni.diagnosis.needed_programs import missing_programs
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.plugins import check_plugins, run_checks
from libcni.diagnosis.reload_mend import reloads
from libcni.reports import CheckReport


@pytest.mark.real
def test_a_plugin_that_is_not_executable(node: OperatorNode) -> None:
    node.write("net.conflist", document("oper-plugin"))
    path = node.bin / "oper-plugin"
    path.write_bytes(GOOD)
    node.type(node.finding("is not executable").remedy.partition(": ")[2])
    node.assert_healthy()


@pytest.mark.real
@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "the file is empty"),
        (b"#!/usr/bin/python9\n", "the interpreter /usr/bin/python9 does not exist"),
        (b"#!/usr/bin/env -S nosuchpython -E\n", "the interpreter nosuchpython is not in PATH"),
        (b"#!/bin/sh\r\n", "CRLF"),
        (b"\x7fELF\x02\x01\x01", "Exec format error"),
    ],
)
def test_an_executable_that_cannot_be_started_is_found_without_an_add(
    node: OperatorNode, content: bytes, seen: str
) -> None:
    path = install(node, content)
    found = node.finding(seen)
    assert found.severity == "error"
    assert found.remedy
    assert "problems:" in node.type("libcni networks --validate", code=1)
    path.unlink()  # "install the plugin again": the good one is found now
    node.assert_healthy()
    node.type("libcni networks --validate")


@pytest.mark.real
def test_a_version_that_hangs_is_ended_after_a_while(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.diagnosis.plugins._SECONDS", 1.0)
    path = install(node, b"#!/bin/sh\nexec sleep 300\n")
    assert node.finding('plugin "bridge" failed (VERSION): it did not end within').remedy
    path.unlink()
    node.assert_healthy()


@pytest.mark.real
def test_a_changed_hardware_address_is_why_a_check_fails(node: OperatorNode) -> None:
    """A reload would be refused: it would take the interface for another one's."""
    container = node.attach("c1")
    node.assert_healthy()
    container.run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:77")
    found = node.finding("eth0 has the hardware address 02:00:00:00:00:77", run_check=True)
    assert (found.name, found.mends) == ("check-failed", ())
    node.type(found.remedy.partition(": ")[2])
    assert node.diagnose(run_check=True).findings == ()


@pytest.mark.real
def test_status_is_asked_from_1_1_0_on(node: OperatorNode) -> None:
    script = """#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}';;
STATUS) [ -e %s/up ] || { echo '{"code": 50, "msg": "the agent is down"}'; exit 1; };;
esac
"""
    install(node, (script % node.root).encode())
    node.configure("net", "bridge", cniVersion="1.1.0")
    found = node.finding("the agent is down")
    (node.root / "up").touch()
    node.type(found.remedy.rpartition("then: ")[2])
    node.assert_healthy()
    assert any(one.what.startswith("STATUS of network net") for one in node.diagnose().checked)


def test_a_status_that_hangs_says_nothing(healthy: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.diagnosis.plugins._SECONDS", 1.0)
    healthy.plugin("slow", "[ $CNI_COMMAND != STATUS ] || exec sleep 300", versions=("1.1.0",))
    healthy.write("m.conflist", document("slow", name="m", cniVersion="1.1.0"))
    assert only(cni).seen.startswith("STATUS: ")


def test_plugins_are_looked_for_and_asked(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.plugin("a", versions=("1.0.0", "1.1.0"))
    healthy.write("m.conflist", document("missing", name="m"))
    healthy.write("n.conflist", document("a", name="n", cniVersion="0.4.0"))
    missing, version = diagnose(cni).findings
    assert (missing.check, missing.subject) == ("plugins", "network m, plugin missing")
    assert 'plugin "missing" not found' in missing.seen
    assert "does not support spec version 0.4.0" in version.seen
    assert version.remedy == "it supports 1.0.0, 1.1.0"


def test_no_plugin_directory_at_all(healthy: FakeNode) -> None:
    nowhere = healthy.client(path=["/nowhere"])
    assert (only(nowhere).check, only(nowhere).seen) == ("plugins", "there is no such directory")
    assert only(healthy.client(path=[])).seen == "it is empty"


def test_the_plugin_of_a_network_for_loopback_is_looked_for_although_it_has_no_file(
    healthy: FakeNode, cni: CNIConfig
) -> None:
    """containerd has the configuration in its program, and runs the plugin for each pod."""
    plugin = healthy.plugin("loopback")
    net = NetworkConfigList.from_dict(
        {"cniVersion": "1.0.0", "name": "cni-loopback", "plugins": [{"type": "loopback"}]}
    )
    cni.add_network_list(net, RuntimeConf("c1", healthy.netns("c1"), "lo"))
    assert [one.name for one in diagnose(cni).findings] == []
    plugin.unlink()
    found = only(cni)
    assert (found.name, found.subject) == ("unusable-plugin", "network cni-loopback, plugin loopback")


def test_a_plugin_that_crashes_at_version_is_to_be_installed_again(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.plugin("a", "[ $CNI_COMMAND != VERSION ] || kill -SEGV $$")
    assert only(cni).remedy == "install the plugin again: its file may be damaged"


@pytest.mark.parametrize(("releases", "is_newer_better"), [("1.1.1", True), ("to 1.9.1", False)])
def test_a_known_fault_says_whether_a_newer_plugin_helps(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch, releases: str, *, is_newer_better: bool
) -> None:
    """A CHECK that fails for containers in order is a note; nobody attaches them again."""
    fault = next(one for one in FAULTS if one.cure == "none" and one.releases == releases)
    made.attach("c1")

    def check_attachment(*_: object) -> None:
        raise PluginError("failed")

    monkeypatch.setattr(CNIConfig, "check_attachment", check_attachment)
    for module in ("_known_faults", "diagnosis.plugins"):
        monkeypatch.setattr(f"libcni.{module}.fault_of", lambda _: fault)
    [found] = [one for one in run_checks(made.reading(), set(), None) if isinstance(one, NodeFinding)]
    assert (found.severity, found.name, found.subject) == ("note", "known-fault", f"plugin {fault.plugin}")
    assert found.remedy.endswith(". A newer plugin does not have the fault") is is_newer_better


PTP = {"type": "ptp", "ipMasq": True, "ipam": IPAM}
TWO_FAMILIES = ("10.1.0.2", "fd00::2")


@pytest.mark.parametrize(
    ("document", "addresses", "versions", "gone", "missing"),
    [
        (BRIDGE, ("10.1.0.2",), "1.0.0", "iptables", "iptables"),
        (BRIDGE, ("10.1.0.2",), "1.1.0", "iptables", ""),
        (BRIDGE, ("10.1.0.2",), "1.1.0", "iptables nft", "nft"),
        (BRIDGE, ("10.1.0.2",), "1.0.0", "ip6tables", ""),
        (BRIDGE, TWO_FAMILIES, "1.0.0", "ip6tables", "ip6tables"),
        ({**BRIDGE, "ipMasqBackend": "nftables"}, TWO_FAMILIES, "1.0.0", "iptables ip6tables", ""),
        ({**BRIDGE, "ipMasqBackend": "iptables"}, TWO_FAMILIES, "1.1.0", "iptables", "iptables"),
        ({**BRIDGE, "ipMasq": False}, TWO_FAMILIES, "1.0.0", "iptables nft", ""),
        ({**BRIDGE, "ipMasq": False, "macspoofchk": True}, (), "1.0.0", "iptables nft", "nft"),
        (PTP, (), "1.0.0", "iptables", "iptables"),
        (PORTMAP, ("10.1.0.2",), "1.0.0", "iptables", "iptables"),
        ({**PORTMAP, "backend": "nftables"}, ("10.1.0.2",), "1.0.0", "iptables", ""),
        (FIREWALL, ("10.1.0.2",), "1.1.0", "iptables", "iptables"),
        ({**FIREWALL, "backend": "firewalld"}, ("10.1.0.2",), "1.0.0", "iptables", ""),
        ({**FIREWALL, "backend": "firewalld", "ingressPolicy": "same-bridge"}, (), "1.0.0", "iptables", "iptables"),
        ({"type": "tuning"}, ("10.1.0.2",), "1.0.0", "iptables nft", ""),
    ],
)
def test_the_programs_that_a_plugin_needs(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch, document: dict[str, Any], addresses: tuple[str, ...],
    versions: str, gone: str, missing: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(needed_programs, "FIREWALLD", "/nowhere")
    script = f"""#!/bin/sh\necho '{{"cniVersion": "1.0.0", "supportedVersions": ["{versions}"]}}'\n"""
    (made.root / "bin" / document["type"]).write_text(script, encoding="utf-8")
    assert missing_programs(made.reading(), [document], addresses, has_ports=True) == {}
    for name in gone.split():
        (made.root / "sbin" / name).unlink()
    found = missing_programs(made.reading(), [document], addresses, has_ports=True)
    assert found == ({missing: [document["type"]]} if missing else {})


def test_no_ports_need_no_program_of_portmap(made: MadeNode) -> None:
    (made.root / "sbin" / "iptables").unlink()
    assert missing_programs(made.reading(), [PORTMAP], ["10.1.0.2"], has_ports=False) == {}


@pytest.mark.parametrize(
    ("place", "severity", "seen", "remedy"),
    [
        ("", "error", "it is not in the plugins' PATH", "install iptables"),
        ("broken", "error", "{}/iptables cannot be executed", "install iptables again"),
        ("elsewhere", "note", "{}/iptables is not in its PATH", "add {} to PATH"),
    ],
)
def test_a_program_of_the_plugins_that_is_missing_is_said_before_an_add_fails(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch, place: str, severity: str, seen: str, remedy: str
) -> None:
    configure(made, BRIDGE, PORTMAP, FIREWALL)
    usual = made.root / "usual"
    usual.mkdir()
    monkeypatch.setattr("libcni.diagnosis.plugins._USUAL_PATH", str(usual))
    assert [one for one in made.findings(check_plugins) if one.name == "program-missing"] == []
    (made.root / "sbin" / "iptables").unlink()
    if place:
        (usual / "iptables").touch(0o755 if place == "elsewhere" else 0o644)
    [found] = [one for one in made.findings(check_plugins) if one.name == "program-missing"]
    assert (found.severity, found.subject) == (severity, "program iptables")
    assert found.seen == f"bridge, portmap, firewall of net need it, and {seen.format(usual)}"
    assert found.remedy == remedy.format(usual)
    assert found.meaning.startswith("no container can be attached")


def test_a_check_that_asks_no_plugin_has_not_passed(made: MadeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    made.attach("c1")
    made.attach("c2")
    asked = iter([("bridge",), ()])
    monkeypatch.setattr(CNIConfig, "check_attachment", lambda *_: CheckReport(next(asked)))
    seen = list(run_checks(made.reading(), set(), None))
    assert NotChecked("interfaces", "container c2, net, eth0", "CHECK: the configuration has disableCheck") in seen
    assert Checked("interfaces", "CHECK of 2 attachments, 1 passed") in seen


def test_a_check_that_did_not_find_a_program_says_nothing_of_the_container(
    made: MadeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reload would detach a container that works, and its ADD would not find the program either."""
    made.attach("c1", {"type": "own"})
    error = PluginError("failed", msg='could not list: exec: "ipset": executable file not found in $PATH', code=999)

    def check_attachment(*_: object) -> None:
        raise error

    monkeypatch.setattr(CNIConfig, "check_attachment", check_attachment)
    [found] = [one for one in run_checks(made.reading(), set(), None) if isinstance(one, NodeFinding)]
    assert (found.name, found.subject, found.mends) == ("program-missing", "program ipset, for CHECK", ())
    assert found.containers == ("c1:eth0",)
    # A program that the doctor misses already is one finding, not two.
    made.attach("c2", BRIDGE)
    (made.root / "sbin" / "iptables").unlink()
    error = PluginError("failed", msg="neither iptables nor ip6tables usable", code=999)
    answers = list(run_checks(made.reading(), set(), ["/cache/results/net-c2-eth0"]))
    assert [type(one) for one in answers[:1]] == [NotChecked]
    assert not any(isinstance(one, NodeFinding) for one in answers)


def no_program(made: MadeNode) -> None:
    (made.root / "sbin" / "iptables").unlink()


def no_plugin(made: MadeNode) -> None:
    (made.root / "bin" / "portmap").unlink()


def other_address(made: MadeNode) -> None:
    made.host.links["br0"].addresses = ["10.9.0.1/24"]


def no_address_left(made: MadeNode) -> None:
    small = {**IPAM, "rangeStart": "10.1.0.2", "rangeEnd": "10.1.0.3"}
    config = json.loads(made.records[0].config)
    config["plugins"][0]["ipam"] = small
    made.records[0] = made.records[0].with_fields(config=json.dumps(config).encode())
    made.reservations.clear()
    made.reserve("10.1.0.2", "c7")
    made.reserve("10.1.0.3", "c8")


def no_file(made: MadeNode) -> None:
    config = json.loads(made.records[0].config)
    config["plugins"].append({"type": "tuning", "kubeconfig": "/nowhere/kubeconfig"})
    made.records[0] = made.records[0].with_fields(config=json.dumps(config).encode())


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (no_program, "needs iptables, which is not in the plugins' PATH: install it"),
        (no_plugin, 'plugin "portmap" not found'),
        (other_address, "br0 has the address 10.9.0.1/24, so the plugin refuses this bridge"),
        (no_address_left, "no other address is free"),
        (no_file, "/nowhere/kubeconfig does not exist"),
    ],
)
def test_nobody_is_attached_again_as_long_as_the_add_would_fail(made: MadeNode, break_it: Any, words: str) -> None:
    made.attach("c1", BRIDGE, PORTMAP, capability_args=json.dumps(PORTS))

    def answer() -> tuple[str, Any]:
        state: NodeState = made.reading()
        return reloads(state, state.attachments[0])

    assert [one.kind for one in answer()[1]] == ["reload"]
    break_it(made)
    remedy, mends = answer()
    assert mends == ()
    assert remedy.startswith("do not attach the container again yet, because the ADD would fail: ")
    assert words in remedy


@pytest.mark.real
def test_a_directory_that_is_mounted_noexec_is_one_finding_whose_command_helps(node: OperatorNode) -> None:
    """The modes of the files are in order: chmod changes nothing."""
    for name in ("bridge", "host-local"):
        (node.bin / name).write_bytes(Path(PLUGINS, name).read_bytes())
        (node.bin / name).chmod(0o755)
    node.cni = node.client(path=[node.bin])
    subprocess.run(["mount", "--bind", node.bin, node.bin], check=True)
    try:
        node.assert_healthy()
        subprocess.run(["mount", "-o", "remount,bind,noexec", node.bin], check=True)
        [found] = node.diagnose().findings
        assert (found.name, found.subject) == ("unusable-plugin", str(node.bin))
        assert found.seen.endswith("is mounted noexec; there: bridge, host-local")
        node.type(found.remedy.rpartition(": ")[2])
        node.assert_healthy()
    finally:
        subprocess.run(["umount", node.bin], check=True)
