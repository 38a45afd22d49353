"""Break a real node, type exactly what the doctor says, and the doctor has nothing more to say."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import document

import libcni
from diagnosis.conftest import OperatorNode
from libcni import InterfaceExistsError, PluginError, RuntimeConf
from libcni.diagnosis.locks import plugin_processes
from libcni.testing import wait_until

pytestmark = pytest.mark.real


def test_a_healthy_node_has_no_findings_and_says_what_was_not_checked(node: OperatorNode) -> None:
    node.attach("c1")
    report = node.diagnose()
    assert report.findings == ()
    assert report.status == "ok"
    assert {one.check for one in report.checked} >= {"plugins", "records", "namespaces", "interfaces", "ipam", "disk"}
    assert "STATUS: version 1.0.0 does not have it" in {one.reason for one in report.not_checked}
    assert any("CHECK was not run" in one.reason for one in report.not_checked)


# addresses


def test_a_leaked_reservation(node: OperatorNode) -> None:
    node.attach("c1")
    (node.leases / "net" / "10.231.0.77").write_text("lost\r\neth0", encoding="utf-8")
    found = node.mend("reserved for container lost")
    assert found.commands == ("libcni del net -c lost -i eth0",)
    assert not (node.leases / "net" / "10.231.0.77").exists()
    node.assert_healthy()


def test_a_leaked_reservation_of_a_network_that_has_no_file(node: OperatorNode) -> None:
    node.attach("c1")
    (node.conf_dir / "net.conflist").unlink()
    (node.leases / "net" / "10.231.0.77").write_text("lost\r\neth0", encoding="utf-8")
    assert node.mend("reserved for container lost").commands[0].startswith("rm ")
    node.write_bridge()
    node.assert_healthy()


def test_a_record_whose_reservation_has_gone(node: OperatorNode) -> None:
    node.attach("c1")
    (node.leases / "net" / "10.231.0.2").unlink()
    node.mend("its address 10.231.0.2 is not reserved")
    node.assert_healthy(run_check=True)
    node.type("libcni del -c c1")
    assert not (node.leases / "net" / "10.231.0.2").exists(), (
        "DEL releases the address that the command of the remedy reserved"
    )


def test_one_address_in_two_records(node: OperatorNode) -> None:
    node.attach("c1")
    for path in (node.leases / "net").iterdir():
        path.unlink()
    node.attach("c2")
    assert node.finding("is reserved for container c2").subject == "container c1, net, eth0"
    found = node.mend("recorded for several containers: c1 (eth0), c2 (eth0)")
    assert found.commands == ("libcni del -c c2 -i eth0",)
    node.mend("is not reserved")
    node.assert_healthy()


def test_a_pool_that_is_nearly_full_and_then_full(node: OperatorNode) -> None:
    node.write_bridge(ipam={"subnet": "10.231.0.0/28"})
    for number in range(12):
        node.attach(f"c{number}")
    assert node.finding("12 of 13 addresses").severity == "warning"
    node.attach("c12")
    full = node.finding("13 of 13 addresses of the pool 10.231.0.1 to 10.231.0.14")
    assert full.severity == "error"
    with pytest.raises(libcni.PluginError):
        node.attach("c13")
    assert "c7" in node.type(full.commands[0])
    for number in range(3):
        node.type(f"libcni del -c c{number}")
    node.assert_healthy()


# interfaces


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


# namespaces


def masquerade_rules() -> str:
    shown = subprocess.run(["iptables", "-t", "nat", "-S"], check=True, capture_output=True, text=True)
    return shown.stdout


def test_a_namespace_that_has_gone_and_the_rules_that_the_plugin_cannot_remove(
    node: OperatorNode, named_namespace: str
) -> None:
    node.write_bridge(ipMasq=True)
    node.attach("other")
    node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    found = node.mend("has gone")
    assert "masquerade rules" in found.meaning
    assert 'id: \\"c1\\"' not in masquerade_rules()
    assert 'id: \\"other\\"' in masquerade_rules(), "a neighbour's rules stay"
    node.assert_healthy()


def test_repair_names_the_rules_that_the_plugin_cannot_remove(node: OperatorNode, named_namespace: str) -> None:
    node.write_bridge(ipMasq=True)
    node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    (action,) = json.loads(node.type("libcni repair --yes -o json"))
    assert 'id: \\"c1\\"' in masquerade_rules()
    for command in action["commands"]:
        node.type(command)
    assert 'id: \\"c1\\"' not in masquerade_rules()
    node.assert_healthy()


def test_another_namespace_at_the_recorded_path(node: OperatorNode, named_namespace: str) -> None:
    node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    # While the first one is open, the kernel cannot give its inode to the second one.
    with open(f"/run/netns/{named_namespace}", "rb"):
        subprocess.run(["ip", "netns", "del", named_namespace], check=True)
        subprocess.run(["ip", "netns", "add", named_namespace], check=True)
        node.mend("was replaced by another one")
    node.assert_healthy()


def test_an_attachment_of_before_the_reboot(node: OperatorNode) -> None:
    node.attach("c1")
    node.change_record("c1", bootId="another")
    node.mend("before the last reboot")
    node.assert_healthy()


# half-done


def configure_hanging(node: OperatorNode, body: str) -> None:
    """Install a plugin that hangs after bridge has made the interface, and write a network with it."""
    node.plugin("oper-hangs", body)
    node.configure("net", node.bridge("10.231.0.0/24"), "oper-hangs")


def test_a_runtime_that_was_killed_within_add_and_its_plugin_that_still_runs(node: OperatorNode) -> None:
    configure_hanging(node, "[ $CNI_COMMAND != ADD ] || exec sleep 300")
    container = node.new_namespace()
    command = ["libcni", "add", "net", container.path, "-c", "c1"]
    with subprocess.Popen(command, env=node.env, stdout=subprocess.DEVNULL) as runtime:
        wait_until(lambda: bool(processes_of(node)))
        assert node.finding("its ADD runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    (plugin,) = processes_of(node)
    found = node.mend("its ADD was interrupted, and a plugin still runs")
    assert found.commands == (f"kill {plugin}", "libcni del -c c1 -i eth0")
    assert "eth0" not in container.links()
    node.assert_healthy()


def test_an_add_that_was_refused_for_an_interface(node: OperatorNode) -> None:
    node.configure("net", node.bridge("10.231.0.0/24"))
    container = node.new_namespace()
    container.run("ip", "link", "add", "eth0", "type", "veth", "peer", "x")
    links = container.ip("address")
    with pytest.raises(InterfaceExistsError):
        node.cni.add_network_list("net", RuntimeConf("c1", container.path, "eth0"))
    node.mend("its ADD found the interface there, and did not succeed")
    assert container.ip("address") == links
    node.assert_healthy()


def test_a_runtime_that_was_killed_within_del(node: OperatorNode) -> None:
    once = node.root / "once"
    pass_on = "import json, sys; print(json.dumps(json.load(sys.stdin)['prevResult']))"
    body = f"""[ $CNI_COMMAND != DEL ] || [ -e {once} ] || {{ touch {once}; exec sleep 300; }}
[ $CNI_COMMAND != ADD ] || exec python3 -c "{pass_on}" < "$stdin\""""
    configure_hanging(node, body)
    container = node.attach("c1")
    with subprocess.Popen(["libcni", "del", "-c", "c1"], env=node.env) as runtime:
        wait_until(lambda: bool(processes_of(node)))
        assert node.finding("its DEL runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    found = node.mend("its DEL was interrupted, and a plugin still runs")
    assert found.meaning.startswith("it is detached in part")
    assert "eth0" not in container.links()
    node.assert_healthy()


def test_a_runtime_that_was_killed_and_its_plugin_with_it(node: OperatorNode) -> None:
    container = node.attach("c1")
    node.change_record("c1", state="pending")
    node.mend("its ADD was interrupted, or its roll-back failed")
    assert "eth0" not in container.links()
    node.assert_healthy()


def test_a_del_in_which_a_plugin_failed_is_not_said_to_be_interrupted(node: OperatorNode) -> None:
    fails = node.root / "fails"
    fails.touch()
    configure_hanging(node, f"[ $CNI_COMMAND != DEL ] || [ ! -e {fails} ] || exit 1")
    node.attach("c1")
    with pytest.raises(PluginError):
        node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    fails.unlink()
    node.mend("its DEL was interrupted, or a plugin failed in it")
    node.assert_healthy()


def processes_of(node: OperatorNode) -> list[int]:
    found = node.cni.get_cached_attachments()
    return [one.pid for one in plugin_processes(node.cni, found[0]) if one.command == "sleep 300"] if found else []


# drift


def test_a_configuration_that_has_changed_since(node: OperatorNode) -> None:
    container = node.attach("c1")
    node.write_bridge(mtu=1400)
    assert "plugins[0].mtu" in node.type("libcni diff net", code=1)
    found = node.mend("with another configuration")
    assert "plugins[0].mtu" in found.seen
    assert container.link("eth0")["mtu"] == 1400
    node.assert_healthy(run_check=True)
    assert node.type("libcni diff") == "no differences\n"


def test_a_network_whose_file_has_gone(node: OperatorNode) -> None:
    container = node.attach("c1")
    (node.conf_dir / "net.conflist").unlink()
    node.write_bridge("second", bridge="oper1")
    assert node.mend("it has no configuration file").commands == ("libcni gc net --none-valid",)
    assert "eth0" not in container.links()
    node.assert_healthy()


# disk


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "oper", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk(node: OperatorNode) -> None:
    with small_disk(node.cache, "size=256k"):
        (node.cache / "big").write_bytes(b"x" * 250_000)
        found = node.finding("bytes are free")
        assert (found.severity, found.subject) == ("error", str(node.cache))
        assert "/big" in node.type(found.commands[0])
        (node.cache / "big").unlink()
        node.assert_healthy()


def test_a_disk_without_inodes(node: OperatorNode) -> None:
    with small_disk(node.cache, "size=10m,nr_inodes=40"):
        for number in range(37):
            (node.cache / str(number)).touch()
        found = node.finding("inodes are free")
        assert str(node.cache) in node.type(found.commands[0])
        for number in range(37):
            (node.cache / str(number)).unlink()
        assert [one for one in node.diagnose().findings if one.severity == "error"] == []


def test_a_read_only_disk_is_not_blamed_on_rights(node: OperatorNode) -> None:
    with small_disk(node.cache, "size=10m"):
        subprocess.run(["mount", "-o", "remount,ro", str(node.cache)], check=True)
        assert not any("may not" in one.seen for one in node.diagnose().findings)
        node.mend("the file system is read-only")
        node.assert_healthy()


def test_a_record_directory_of_another_user(node: OperatorNode) -> None:
    node.attach("c1")
    os.chown(node.cache, 65534, 65534)
    node.mend("it belongs to user nobody")
    node.assert_healthy()


def test_records_behind_a_symbolic_link(node: OperatorNode) -> None:
    node.attach("c1")
    (node.cache / "results").rename(node.root / "elsewhere")
    (node.cache / "results").symlink_to(node.root / "elsewhere")
    node.mend("a symbolic link to")
    node.assert_healthy()
    assert len(node.cni.get_cached_attachments()) == 1


def test_locks_that_are_no_file(node: OperatorNode) -> None:
    (node.cache / "locks").mkdir(parents=True)
    node.mend("it is not a regular file")
    node.attach("c1")
    node.assert_healthy()


def test_a_record_directory_that_cannot_be_made(node: OperatorNode) -> None:
    node.cache.write_text("", encoding="utf-8")
    # The path may be a mistake: a command that moves the file could move one of the system.
    assert node.finding("it is not a directory").commands == ()
    node.cache.unlink()
    node.attach("c1")
    (node.cache / "partial").write_text("", encoding="utf-8")
    node.mend("it is not a directory")
    node.assert_healthy()


# plugins


def install(node: OperatorNode, content: bytes, mode: int = 0o755) -> Path:
    """Install a plugin in the place of bridge, found before it."""
    path = node.bin / "bridge"
    path.write_bytes(content)
    path.chmod(mode)
    return path


ELSEWHERE = bytearray(Path("/usr/lib/cni/bridge").read_bytes()[:4096]) if Path("/usr/lib/cni/bridge").exists() else b""


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"", "the file is empty"),
        (b"#!/usr/bin/python9\n", "its interpreter /usr/bin/python9 does not exist"),
        (b"#!/usr/bin/env -S nosuchpython -E\n", "its interpreter nosuchpython is not in PATH"),
        (b"hello", "neither a script"),
        (b"\x7fELF\x02\x01\x01", "the file is cut off"),
        (bytes(ELSEWHERE[:18]) + b"\x16\x00" + bytes(ELSEWHERE[20:]), "it is built for s390x"),
    ],
)
def test_an_executable_that_cannot_be_started_is_found_without_an_add(
    node: OperatorNode, content: bytes, seen: str
) -> None:
    path = install(node, content)
    found = node.finding(seen)
    assert found.severity == "error"
    assert found.remedy
    assert seen in node.type("libcni validate", code=1)
    path.unlink()  # "install the plugin again": the good one is found now
    node.assert_healthy()
    node.type("libcni validate")


GOOD = b"""#!/bin/sh
echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
"""


def test_a_script_with_crlf_line_ends(node: OperatorNode) -> None:
    install(node, GOOD.replace(b"\n", b"\r\n"))
    node.mend("CRLF")
    node.assert_healthy()


def test_a_plugin_that_is_not_executable(node: OperatorNode) -> None:
    node.write("net.conflist", document("oper-plugin"))
    path = node.bin / "oper-plugin"
    path.write_bytes(GOOD)
    node.mend("is not executable")
    node.assert_healthy()


def test_an_ipam_plugin_that_is_misspelt(node: OperatorNode) -> None:
    node.write_bridge(ipam={"type": "host-locl"})
    assert 'plugin "host-locl" not found' in node.finding("host-locl").seen
    assert "host-locl" in node.type("libcni validate net", code=4)
    node.write_bridge()
    node.assert_healthy()
    node.type("libcni validate net")


def test_a_version_that_hangs_is_ended_after_a_while(node: OperatorNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.diagnosis.plugins._SECONDS", 1.0)
    path = install(node, b"#!/bin/sh\nexec sleep 300\n")
    found = node.finding("did not answer VERSION within 1 s")
    assert "install the plugin again" in found.remedy
    node.type(found.commands[0], code=124)
    path.unlink()
    node.assert_healthy()


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
    node.type(found.commands[0])
    node.assert_healthy()
    assert any(one.what.startswith("STATUS of network net") for one in node.diagnose().checked)


# records


def test_a_corrupt_record_is_detached_by_its_name_and_then_removed(node: OperatorNode) -> None:
    node.attach("c1")
    node.record("c1").write_bytes(b"")
    found = node.mend("it is empty")
    assert found.commands == ("libcni del net -c c1 -i eth0",)
    assert list((node.leases / "net").glob("10.*")) == []
    aside = node.mend("a corrupt record that was set aside")
    assert "container c1, net, eth0" in aside.meaning
    node.assert_healthy()


def test_a_record_that_repair_set_aside_is_shown_until_it_is_removed(node: OperatorNode) -> None:
    node.attach("c1")
    node.record("c1").write_bytes(b"{")
    node.type("libcni repair --yes")
    node.finding("a corrupt record that was set aside")
    node.mend("a corrupt record that was set aside")
    node.assert_healthy()


# clocks


def test_a_clock_that_was_set_back(node: OperatorNode) -> None:
    node.attach("c1")
    node.change_record("c1", created=time.time() + 86400)
    report = node.diagnose()
    assert [one.check for one in report.findings] == ["clock"]
    assert report.status == "ok"
