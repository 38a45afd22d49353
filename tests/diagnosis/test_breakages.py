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

import libcni
from libcni import RuntimeConf
from libcni.diagnosis.locks import plugin_processes

from .conftest import RealNode

pytestmark = pytest.mark.real


def test_a_healthy_node_has_no_findings_and_says_what_was_not_checked(real_node: RealNode) -> None:
    real_node.attach("c1")
    report = real_node.diagnose()
    assert report.findings == ()
    assert report.status == "ok"
    assert {one.check for one in report.checked} >= {"plugins", "records", "namespaces", "interfaces", "ipam", "disk"}
    assert "STATUS: version 1.0.0 does not have it" in {one.reason for one in report.not_checked}
    assert any("CHECK was not run" in one.reason for one in report.not_checked)


# addresses


def test_a_leaked_reservation(real_node: RealNode) -> None:
    real_node.attach("c1")
    (real_node.leases / "net" / "10.231.0.77").write_text("lost\r\neth0", encoding="utf-8")
    found = real_node.mend("reserved for container lost")
    assert found.commands == ("libcni del net -c lost -i eth0",)
    assert not (real_node.leases / "net" / "10.231.0.77").exists()
    real_node.assert_healthy()


def test_a_leaked_reservation_of_a_network_that_has_no_file(real_node: RealNode) -> None:
    real_node.attach("c1")
    (real_node.net_d / "net.conflist").unlink()
    (real_node.leases / "net" / "10.231.0.77").write_text("lost\r\neth0", encoding="utf-8")
    assert real_node.mend("reserved for container lost").commands[0].startswith("rm ")
    real_node.write()
    real_node.assert_healthy()


def test_a_record_whose_reservation_has_gone(real_node: RealNode) -> None:
    real_node.attach("c1")
    (real_node.leases / "net" / "10.231.0.2").unlink()
    real_node.mend("its address 10.231.0.2 is not reserved")
    real_node.assert_healthy(run_check=True)
    real_node.type("libcni del -c c1")
    assert not (real_node.leases / "net" / "10.231.0.2").exists(), (
        "DEL releases the address that the command of the remedy reserved"
    )


def test_one_address_in_two_records(real_node: RealNode) -> None:
    real_node.attach("c1")
    for path in (real_node.leases / "net").iterdir():
        path.unlink()
    real_node.attach("c2")
    assert real_node.finding("is reserved for container c2").subject == "container c1, net, eth0"
    found = real_node.mend("recorded for several containers: c1 (eth0), c2 (eth0)")
    assert found.commands == ("libcni del -c c2 -i eth0",)
    real_node.mend("is not reserved")
    real_node.assert_healthy()


def test_a_pool_that_is_nearly_full_and_then_full(real_node: RealNode) -> None:
    real_node.write(**real_node.ipam("10.231.0.0/28"))
    for number in range(12):
        real_node.attach(f"c{number}")
    assert real_node.finding("12 of 13 addresses").severity == "warning"
    real_node.attach("c12")
    full = real_node.finding("13 of 13 addresses of the pool 10.231.0.1 to 10.231.0.14")
    assert full.severity == "error"
    with pytest.raises(libcni.PluginError):
        real_node.attach("c13")
    assert "c7" in real_node.type(full.commands[0])
    for number in range(3):
        real_node.type(f"libcni del -c c{number}")
    real_node.assert_healthy()


# interfaces


def test_an_interface_that_has_gone(real_node: RealNode) -> None:
    container = real_node.attach("c1")
    container.run("ip", "link", "del", "eth0")
    assert real_node.diagnose().status != "ok"
    real_node.mend("there is no interface eth0")
    assert "eth0" in container.links()
    real_node.assert_healthy(run_check=True)


def test_arguments_are_given_again(real_node: RealNode) -> None:
    container = real_node.new_namespace()
    rt = RuntimeConf("c1", container.path, "eth0", args={"IgnoreUnknown": "1", "K8S_POD_NAME": "a b"})
    real_node.cni.add_network_list("net", rt)
    container.run("ip", "link", "del", "eth0")
    real_node.mend("there is no interface eth0")
    (one,) = real_node.cni.get_cached_attachments()
    assert dict(one.args)["K8S_POD_NAME"] == "a b"


def test_an_address_that_is_not_on_the_interface(real_node: RealNode) -> None:
    container = real_node.attach("c1")
    container.run("ip", "address", "flush", "dev", "eth0")
    real_node.mend("its address 10.231.0.2 is not on eth0")
    real_node.assert_healthy(run_check=True)


def test_a_bridge_that_has_gone(real_node: RealNode) -> None:
    real_node.attach("c1")
    real_node.attach("c2")
    subprocess.run(["ip", "link", "del", real_node.bridge], check=True)
    bridge = [one for one in real_node.diagnose().findings if one.subject == "bridge oper0"]
    assert len(bridge) == 1, "one finding, however many containers"
    real_node.mend("it has gone")
    real_node.assert_healthy(run_check=True)


def test_a_host_interface_that_left_the_bridge(real_node: RealNode) -> None:
    real_node.attach("c1")
    (veth,) = [link for link in os.listdir("/sys/class/net") if link.startswith("veth")] or _veths()
    subprocess.run(["ip", "link", "set", veth, "nomaster"], check=True)
    assert real_node.mend("is not on bridge oper0").commands == (f"ip link set {veth} master oper0",)
    real_node.assert_healthy(run_check=True)


def _veths() -> list[str]:
    shown = subprocess.run(["ip", "-j", "link", "show", "type", "veth"], check=True, capture_output=True, text=True)
    return [link["ifname"] for link in json.loads(shown.stdout)]


def test_a_master_that_has_gone(real_node: RealNode) -> None:
    subprocess.run(["ip", "link", "add", "opermaster", "type", "veth", "peer", "name", "operpeer"], check=True)
    subprocess.run(["ip", "link", "set", "opermaster", "up"], check=True)
    plugin = {"type": "macvlan", "master": "opermaster", **real_node.ipam("10.232.0.0/24")}
    real_node.write_list("vlans", plugin)
    real_node.attach("c1", "vlans")
    subprocess.run(["ip", "link", "del", "opermaster"], check=True)
    found = real_node.finding("it has gone; container c1 needs it")
    assert found.subject == "master opermaster"
    assert "bring opermaster back" in found.remedy
    subprocess.run(["ip", "link", "add", "opermaster", "type", "veth", "peer", "name", "operpeer"], check=True)
    subprocess.run(["ip", "link", "set", "opermaster", "up"], check=True)
    real_node.type(found.commands[0])
    real_node.assert_healthy()


def test_what_only_check_sees(real_node: RealNode) -> None:
    real_node.write(mtu=1400)
    container = real_node.attach("c1")
    real_node.assert_healthy()
    container.run("ip", "link", "set", "eth0", "down")
    path = real_node.record("c1")
    record = json.loads(path.read_text(encoding="utf-8"))
    for interface in record["result"]["interfaces"]:
        if interface["name"] == "eth0":
            interface["mac"] = "02:00:00:00:00:01"
    path.write_text(json.dumps(record), encoding="utf-8")
    real_node.assert_healthy()
    real_node.mend("CHECK failed", run_check=True)
    real_node.assert_healthy(run_check=True)


# namespaces


def masquerade_rules() -> str:
    shown = subprocess.run(["iptables", "-t", "nat", "-S"], check=True, capture_output=True, text=True)
    return shown.stdout


def test_a_namespace_that_has_gone_and_the_rules_that_the_plugin_cannot_remove(
    real_node: RealNode, named_namespace: str
) -> None:
    real_node.write(ipMasq=True)
    real_node.attach("other")
    real_node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    found = real_node.mend("has gone")
    assert "masquerade rules" in found.meaning
    assert 'id: \\"c1\\"' not in masquerade_rules()
    assert 'id: \\"other\\"' in masquerade_rules(), "a neighbour's rules stay"
    real_node.assert_healthy()


def test_repair_names_the_rules_that_the_plugin_cannot_remove(real_node: RealNode, named_namespace: str) -> None:
    real_node.write(ipMasq=True)
    real_node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    (action,) = json.loads(real_node.type("libcni repair --yes -o json"))
    assert 'id: \\"c1\\"' in masquerade_rules()
    for command in action["commands"]:
        real_node.type(command)
    assert 'id: \\"c1\\"' not in masquerade_rules()
    real_node.assert_healthy()


def test_another_namespace_at_the_recorded_path(real_node: RealNode, named_namespace: str) -> None:
    real_node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    subprocess.run(["ip", "netns", "add", named_namespace], check=True)
    real_node.mend("was replaced by another one")
    real_node.assert_healthy()


def test_an_attachment_of_before_the_reboot(real_node: RealNode) -> None:
    real_node.attach("c1")
    real_node.change_record("c1", bootId="another")
    real_node.mend("before the last reboot")
    real_node.assert_healthy()


# half-done


def hanging_plugin(real_node: RealNode) -> None:
    """Install a plugin whose ADD hangs after bridge has made the interface."""
    script = """#!/bin/sh
cat > /dev/null
case $CNI_COMMAND in
ADD) exec sleep 300;;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}';;
esac
"""
    path = real_node.bin / "oper-hangs"
    path.write_text(script, encoding="utf-8")
    path.chmod(0o755)
    bridge = {"type": "bridge", "bridge": real_node.bridge, "isGateway": True, **real_node.ipam("10.231.0.0/24")}
    real_node.write_list("net", bridge, {"type": "oper-hangs"})


def test_a_runtime_that_was_killed_within_add_and_its_plugin_that_still_runs(real_node: RealNode) -> None:
    hanging_plugin(real_node)
    container = real_node.new_namespace()
    command = ["libcni", "add", "net", container.path, "-c", "c1"]
    with subprocess.Popen(command, env=real_node.env, stdout=subprocess.DEVNULL) as runtime:
        wait_until(lambda: bool(processes_of(real_node)))
        assert real_node.finding("its ADD runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    (plugin,) = processes_of(real_node)
    found = real_node.mend("its ADD was interrupted, and a plugin still runs")
    assert found.commands == (f"kill {plugin}", "libcni del -c c1 -i eth0")
    assert "eth0" not in container.links()
    real_node.assert_healthy()


def test_a_runtime_that_was_killed_within_del(real_node: RealNode) -> None:
    script = """#!/bin/sh
case $CNI_COMMAND in
ADD) python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["prevResult"]))';;
DEL) cat > /dev/null; [ -e %s/once ] || { touch %s/once; exec sleep 300; };;
VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}';;
esac
"""
    path = real_node.bin / "oper-hangs"
    path.write_text(script.replace("%s", str(real_node.root)), encoding="utf-8")
    path.chmod(0o755)
    bridge = {"type": "bridge", "bridge": real_node.bridge, "isGateway": True, **real_node.ipam("10.231.0.0/24")}
    real_node.write_list("net", {**bridge}, {"type": "oper-hangs"})
    container = real_node.attach("c1")
    with subprocess.Popen(["libcni", "del", "-c", "c1"], env=real_node.env) as runtime:
        wait_until(lambda: bool(processes_of(real_node)))
        assert real_node.finding("its DEL runs now").severity == "note"
        runtime.kill()
        runtime.wait()
    found = real_node.mend("its DEL was interrupted, and a plugin still runs")
    assert found.meaning.startswith("it is detached in part")
    assert "eth0" not in container.links()
    real_node.assert_healthy()


def test_a_runtime_that_was_killed_and_its_plugin_with_it(real_node: RealNode) -> None:
    container = real_node.attach("c1")
    real_node.change_record("c1", state="pending")
    real_node.mend("its ADD was interrupted")
    assert "eth0" not in container.links()
    real_node.assert_healthy()


def processes_of(real_node: RealNode) -> list[int]:
    found = real_node.cni.get_cached_attachments()
    return [one.pid for one in plugin_processes(real_node.cni, found[0]) if one.command == "sleep 300"] if found else []


def wait_until(condition: object, seconds: float = 20.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


# drift


def test_a_configuration_that_has_changed_since(real_node: RealNode) -> None:
    container = real_node.attach("c1")
    real_node.write(mtu=1400)
    assert "plugins[0].mtu" in real_node.type("libcni diff net", code=1)
    found = real_node.mend("with another configuration")
    assert "plugins[0].mtu" in found.seen
    assert container.link("eth0")["mtu"] == 1400
    real_node.assert_healthy(run_check=True)
    assert real_node.type("libcni diff") == "no differences\n"


def test_a_network_whose_file_has_gone(real_node: RealNode) -> None:
    container = real_node.attach("c1")
    (real_node.net_d / "net.conflist").unlink()
    real_node.write("second", bridge="oper1")
    assert real_node.mend("it has no configuration file").commands == ("libcni gc net --none-valid",)
    assert "eth0" not in container.links()
    real_node.assert_healthy()


# disk


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "oper", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk(real_node: RealNode) -> None:
    with small_disk(real_node.cache, "size=256k"):
        (real_node.cache / "big").write_bytes(b"x" * 250_000)
        found = real_node.finding("bytes are free")
        assert (found.severity, found.subject) == ("error", str(real_node.cache))
        assert "/big" in real_node.type(found.commands[0])
        (real_node.cache / "big").unlink()
        real_node.assert_healthy()


def test_a_disk_without_inodes(real_node: RealNode) -> None:
    with small_disk(real_node.cache, "size=10m,nr_inodes=40"):
        for number in range(37):
            (real_node.cache / str(number)).touch()
        found = real_node.finding("inodes are free")
        assert str(real_node.cache) in real_node.type(found.commands[0])
        for number in range(37):
            (real_node.cache / str(number)).unlink()
        assert [one for one in real_node.diagnose().findings if one.severity == "error"] == []


def test_a_read_only_disk_is_not_blamed_on_rights(real_node: RealNode) -> None:
    with small_disk(real_node.cache, "size=10m"):
        subprocess.run(["mount", "-o", "remount,ro", str(real_node.cache)], check=True)
        assert not any("may not" in one.seen for one in real_node.diagnose().findings)
        real_node.mend("the file system is read-only")
        real_node.assert_healthy()


def test_a_record_directory_of_another_user(real_node: RealNode) -> None:
    real_node.attach("c1")
    os.chown(real_node.cache, 65534, 65534)
    real_node.mend("it belongs to user nobody")
    real_node.assert_healthy()


def test_records_behind_a_symbolic_link(real_node: RealNode) -> None:
    real_node.attach("c1")
    (real_node.cache / "results").rename(real_node.root / "elsewhere")
    (real_node.cache / "results").symlink_to(real_node.root / "elsewhere")
    real_node.mend("a symbolic link to")
    real_node.assert_healthy()
    assert len(real_node.cni.get_cached_attachments()) == 1


def test_a_record_directory_that_cannot_be_made(real_node: RealNode) -> None:
    real_node.cache.write_text("", encoding="utf-8")
    real_node.mend("it is not a directory")
    real_node.attach("c1")
    real_node.assert_healthy()


# plugins


def install(real_node: RealNode, content: bytes, mode: int = 0o755) -> Path:
    """Install a plugin in the place of bridge, found before it."""
    path = real_node.bin / "bridge"
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
    real_node: RealNode, content: bytes, seen: str
) -> None:
    path = install(real_node, content)
    found = real_node.finding(seen)
    assert found.severity == "error"
    assert found.remedy
    assert seen in real_node.type("libcni validate", code=1)
    path.unlink()  # "install the plugin again": the good one is found now
    real_node.assert_healthy()
    real_node.type("libcni validate")


GOOD = b"""#!/bin/sh
echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
"""


def test_a_script_with_crlf_line_ends(real_node: RealNode) -> None:
    install(real_node, GOOD.replace(b"\n", b"\r\n"))
    real_node.mend("CRLF")
    real_node.assert_healthy()


def test_a_plugin_that_is_not_executable(real_node: RealNode) -> None:
    real_node.write_list("net", {"type": "oper-plugin"})
    path = real_node.bin / "oper-plugin"
    path.write_bytes(GOOD)
    real_node.mend("is not executable")
    real_node.assert_healthy()


def test_an_ipam_plugin_that_is_misspelt(real_node: RealNode) -> None:
    ipam = {"type": "host-locl", "subnet": "10.231.0.0/24"}
    real_node.write(ipam=ipam)
    assert 'plugin "host-locl" not found' in real_node.finding("host-locl").seen
    assert "host-locl" in real_node.type("libcni validate net", code=4)
    real_node.write()
    real_node.assert_healthy()
    real_node.type("libcni validate net")


def test_a_version_that_hangs_is_ended_after_a_while(real_node: RealNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("libcni.diagnosis.plugins._SECONDS", 1.0)
    path = install(real_node, b"#!/bin/sh\nexec sleep 300\n")
    found = real_node.finding("did not answer VERSION within 1 s")
    assert "install the plugin again" in found.remedy
    real_node.type(found.commands[0], code=124)
    path.unlink()
    real_node.assert_healthy()


def test_status_is_asked_from_1_1_0_on(real_node: RealNode) -> None:
    script = """#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}';;
STATUS) [ -e %s/up ] || { echo '{"code": 50, "msg": "the agent is down"}'; exit 1; };;
esac
"""
    install(real_node, (script % real_node.root).encode())
    real_node.write_list("net", {"type": "bridge"}, version="1.1.0")
    found = real_node.finding("the agent is down")
    (real_node.root / "up").touch()
    real_node.type(found.commands[0])
    real_node.assert_healthy()
    assert any(one.what.startswith("STATUS of network net") for one in real_node.diagnose().checked)


# records


def test_a_corrupt_record_is_detached_by_its_name_and_then_removed(real_node: RealNode) -> None:
    real_node.attach("c1")
    real_node.record("c1").write_bytes(b"")
    found = real_node.mend("it is empty")
    assert found.commands == ("libcni del net -c c1 -i eth0",)
    assert list((real_node.leases / "net").glob("10.*")) == []
    aside = real_node.mend("a corrupt record that was set aside")
    assert "container c1, net, eth0" in aside.meaning
    real_node.assert_healthy()


def test_a_record_that_repair_set_aside_is_shown_until_it_is_removed(real_node: RealNode) -> None:
    real_node.attach("c1")
    real_node.record("c1").write_bytes(b"{")
    real_node.type("libcni repair --yes")
    real_node.finding("a corrupt record that was set aside")
    real_node.mend("a corrupt record that was set aside")
    real_node.assert_healthy()


# clocks


def test_a_clock_that_was_set_back(real_node: RealNode) -> None:
    real_node.attach("c1")
    real_node.change_record("c1", created=time.time() + 86400)
    report = real_node.diagnose()
    assert [one.check for one in report.findings] == ["clock"]
    assert report.status == "ok"
