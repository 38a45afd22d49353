"""The doctor finds namespaces that have gone, and attachments from before the last reboot."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from nodes import FakeNode

from diagnosis.conftest import OperatorNode, only
from diagnosis.made import MadeNode
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import attachment_age, diagnose, find_stale_attachments, stale
from libcni.diagnosis.report import Disruption
from libcni.diagnosis.stale import check_namespaces
from libcni.testing import wait_until


def masquerade_rules() -> str:
    shown = subprocess.run(["iptables", "-t", "nat", "-S"], check=True, capture_output=True, text=True)
    return shown.stdout


@pytest.mark.real
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


@pytest.mark.real
def test_del_says_what_its_plugins_leave_behind(node: OperatorNode, named_namespace: str) -> None:
    node.write_bridge(ipMasq=True)
    for container, netns in (("c1", f"/run/netns/{named_namespace}"), ("c2", node.new_namespace().path)):
        node.cni.add_network_list("net", RuntimeConf(container, netns, "eth0"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    left = [node.cni.del_network_list("net", RuntimeConf(one, None, "eth0")).left for one in ("c1", "c2")]
    assert left == [("the masquerade rules of its addresses",), ()]
    assert 'id: \\"c1\\"' in masquerade_rules()
    node.mend("and the container has no record")
    assert "CNI-" not in masquerade_rules()
    node.assert_healthy()


@pytest.mark.real
def test_the_masquerade_rules_of_the_other_interface_of_a_container_stay(
    node: OperatorNode, named_namespace: str
) -> None:
    """One chain has the rules of all its interfaces on a network."""
    node.write_bridge(ipMasq=True)
    node.cni.add_network_list("net", RuntimeConf("c1", f"/run/netns/{named_namespace}", "eth0"))
    node.cni.add_network_list("net", RuntimeConf("c1", node.new_namespace().path, "eth1"))
    subprocess.run(["ip", "netns", "del", named_namespace], check=True)
    node.mend("has gone")
    assert f"-s {node.net}.2/32" not in masquerade_rules()
    assert f"-s {node.net}.3/32" in masquerade_rules()
    assert "-j MASQUERADE" in masquerade_rules()
    node.assert_healthy()
    node.type("libcni del -c c1")
    assert "CNI-" not in masquerade_rules()


BOOTED = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"bootId": "another"}, "before the last reboot"),
        ({"netnsId": [1, 1]}, "was replaced by another one"),
        ({"state": "pending", "uptime": -700.0, "created": BOOTED - 700}, "its ADD has not ended"),
        ({"state": "pending", "created": None, "uptime": None}, "its ADD has not ended"),
    ],
)
def test_what_is_left_over(healthy: FakeNode, cni: CNIConfig, own: dict[str, Any], reason: str) -> None:
    healthy.change_record(**own)
    (left,) = find_stale_attachments(cni)
    assert left.attachment.container_id == "c1"
    assert left.reason.endswith(reason)
    assert only(cni).commands == ("libcni del -c c1 -i eth0",)


def test_a_namespace_that_has_gone(healthy: FakeNode, cni: CNIConfig) -> None:
    Path(healthy.netns("c1")).unlink()
    assert find_stale_attachments(cni)[0].reason.endswith("has gone")
    healthy.change_record(netnsId=None, cniVersion="")
    assert find_stale_attachments(cni) == (), "a record of Go libcni"
    assert find_stale_attachments(cni, include_go=True)[0].reason.endswith("has gone")


def test_a_namespace_in_which_a_process_lives_has_not_gone(
    healthy: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path may have been unmounted, or lead elsewhere in the mount namespace of a repair."""
    own = os.stat("/proc/self/ns/net")
    healthy.change_record(netnsId=[own.st_dev, own.st_ino])
    assert find_stale_attachments(cni) == ()
    finding = only(cni)
    assert "does not lead to its namespace any more, and process " in finding.seen
    assert f'= "net:[{own.st_ino}]" ] && touch ' in finding.commands[0]
    path = Path(healthy.netns("c1"))
    path.unlink()
    path.symlink_to("/proc/self/ns/net")  # a namespace, as after another container has taken the path
    healthy.change_record(netnsId=[1, 1])
    monkeypatch.setattr(stale, "_process_in", lambda *_: "5")
    finding = only(cni)
    assert (finding.commands, finding.remedy.split(":")[0]) == ((), "another container has the path")
    monkeypatch.undo()
    healthy.change_record(bootId="another")
    assert len(find_stale_attachments(cni)) == 1, "after a reboot the numbers are used again"


def test_a_process_in_another_pid_namespace_cannot_be_seen(healthy: FakeNode, cni: CNIConfig) -> None:
    """The agent's pod has no hostPID, for example: it sees no process of a container that runs."""
    healthy.change_record(netnsId=[1, 1], pidNamespace=1)
    assert find_stale_attachments(cni) == ()
    report = diagnose(cni)
    assert report.findings == ()
    assert ["another PID namespace" in one.reason for one in report.not_checked if one.check == "namespaces"] == [True]
    healthy.change_record(bootId="another")
    assert len(find_stale_attachments(cni)) == 1, "no process survives a reboot"


def test_an_attachment_whose_namespace_never_existed_stays(cni: CNIConfig) -> None:
    """Some plugins need no namespace: ``netns`` is any text that the plugins understand."""
    cni.add_network_list("net", RuntimeConf("c2", "/nowhere/c2", "eth0"))
    assert [one.state for one in cni.get_cached_attachments("c2")] == ["ready"]
    assert find_stale_attachments(cni) == ()
    report = diagnose(cni)
    assert report.findings == ()
    (skipped,) = [one for one in report.not_checked if one.check == "namespaces"]
    assert skipped.reason == "/nowhere/c2 did not exist at its ADD"


def test_another_owners_attachments_are_not_stale(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(bootId="another", owner="podman")
    assert find_stale_attachments(cni) == ()
    assert "before the last reboot" in only(cni).seen


def test_a_path_is_not_restored_from_another_process_of_that_number(node: OperatorNode) -> None:
    inner = node.attach("c1")
    with subprocess.Popen(["ip", "netns", "exec", inner.name, "sleep", "600"]) as sleeper:
        wait_until(lambda: os.readlink(f"/proc/{sleeper.pid}/exe").endswith("sleep"))
        subprocess.run(["umount", inner.path], check=True)
        (command,) = node.finding("does not lead to its namespace any more").commands
        sleeper.kill()
    node.type(command.replace(f"/proc/{sleeper.pid}/", f"/proc/{os.getpid()}/"), code=1)
    assert not os.path.ismount(inner.path)


def test_an_age_is_never_negative(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() + 1000)
    (one,) = cni.get_cached_attachments()
    assert attachment_age(one) is not None
    assert attachment_age(one) >= 0  # type: ignore[operator]


def test_an_age_is_measured_with_the_boot_clock(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() - 86400)
    (one,) = cni.get_cached_attachments()
    age = attachment_age(one)
    assert age is not None
    assert age < 3600, "the wall clock was set forward by a day since"


def test_what_seems_to_have_ended_and_whose_address_an_interface_has_is_not_detached(made: MadeNode) -> None:
    """Its record is of another boot, or its path leads elsewhere. DEL would free the address."""
    inside = made.attach("c1", boot="another", state="stale-boot")
    found = made.finding(check_namespaces)
    assert (found.commands, found.disrupts) == ((), (Disruption("libcni del -c c1 -i eth0", ("c1:eth0",)),))
    assert found.meaning.startswith("its address 10.1.0.2 is on eth0 in ")
    made.attach("c2", address="10.1.0.2")
    inside.links.clear()
    assert made.finding(check_namespaces).commands == ("libcni del -c c1 -i eth0",), "it is that of c2 by now"
