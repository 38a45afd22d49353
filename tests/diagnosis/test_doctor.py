"""diagnose on a node of fake plugins, and once on a real one."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
from nodes import FakeNode

from diagnosis.conftest import OperatorNode
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import diagnose
from libcni.diagnosis.node_state import NodeState, read_node
from libcni.diagnosis.report import FAILED
from libcni.kernel import system


def test_one_check_that_fails_does_not_hide_the_others(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr("libcni.diagnosis.disk.os.statvfs", fail)
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    report = diagnose(cni)
    assert [one.check for one in report.findings] == ["records"]
    assert any("no such luck" in one.reason for one in report.not_checked if one.check == "disk")


def test_a_bug_in_one_check_is_said_and_the_others_go_on(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr("libcni.diagnosis.lost_packets._losses", fail)
    monkeypatch.setattr("libcni.diagnosis.reading.saved_rules", fail)
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    report = diagnose(cni)
    assert "corrupt-record" in [one.name for one in report.findings]
    reasons = [one.reason for one in report.not_checked if one.check == "rules"]
    reasons.append(read_node(cni).unread["the rules of iptables"])
    assert len(reasons) > 1
    assert all(
        reason.startswith(f"{FAILED}: ValueError: not enough values to unpack (test_doctor.py, line ")
        and reason.endswith("; please report it")
        for reason in reasons
    )


def test_a_reading_is_freed_before_the_next_one(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair reads the node after each group of mends. An error with its traceback would keep all readings."""
    stat = system.stat

    def hide(path: object, *args: Any, **options: Any) -> Any:
        if str(path).startswith("/proc/1/") and str(path).endswith("/ns/net"):
            raise PermissionError(13, "hidden", str(path))
        return stat(path, *args, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(system, "stat", hide)
    gc.collect()
    gc.disable()
    try:
        assert read_node(cni).life.spaces is not None
        assert [one for one in gc.get_objects() if isinstance(one, NodeState)] == []
    finally:
        gc.enable()


@pytest.mark.real
def test_a_healthy_node_has_no_findings_and_says_what_was_not_checked(node: OperatorNode) -> None:
    node.attach("c1")
    report = node.diagnose()
    assert report.findings == ()
    assert report.status == "ok"
    assert {one.check for one in report.checked} >= {"plugins", "records", "namespaces", "interfaces", "ipam", "disk"}
    assert "spec version 1.0.0 has no STATUS" in {one.reason for one in report.not_checked}
    assert any("CHECK was not run" in one.reason for one in report.not_checked)


CHECK_FAILS = 'echo \'{"cniVersion": "1.0.0", "code": 999, "msg": "eth0 has gone"}\'; exit 1'


@pytest.mark.parametrize(
    ("body", "is_answer"),
    [(CHECK_FAILS, True), (CHECK_FAILS.replace("999", "11"), False), ("exit 2", False), ("kill -KILL $$", False)],
)
def test_a_failed_check_alone_is_no_reason_to_interrupt_a_container(
    healthy: FakeNode, cni: CNIConfig, body: str, *, is_answer: bool
) -> None:
    healthy.plugin("a", f"[ $CNI_COMMAND != CHECK ] || {{ {body}; }}", result={"cniVersion": "1.0.0"})
    report = diagnose(cni, run_check=True)
    mends = [(mend.kind, mend.interrupts) for found in report.findings for mend in found.mends]
    assert mends == ([("reload", ("c1:eth0",))] if is_answer else [])
    unanswered = [one.subject for one in report.not_checked if one.reason.startswith("CHECK: ")]
    assert unanswered == ([] if is_answer else ["container c1, net, eth0"])


@pytest.mark.usefixtures("firewall_programs")
def test_a_known_fault_of_a_plugin_is_a_note_about_the_plugin(healthy: FakeNode) -> None:
    message = CHECK_FAILS.replace("eth0 has gone", "could not check ipv6 dnat: chain not found")
    healthy.plugin("portmap", f"[ $CNI_COMMAND != CHECK ] || {{ {message}; }}", result={"cniVersion": "1.0.0"})
    healthy.configure("ports", "portmap")
    for container in ("c2", "c3"):
        healthy.cni.add_network_list("ports", RuntimeConf(container, healthy.netns(container), "eth0"))
    report = diagnose(healthy.cni, run_check=True)
    [found] = report.findings
    assert (found.subject, found.severity, report.status) == ("plugin portmap", "note", "ok")
    assert found.containers == ("c2:eth0", "c3:eth0")
    assert found.mends == ()


@pytest.mark.real
def test_what_check_says_about_a_container_with_a_finding_is_no_second_finding(node: OperatorNode) -> None:
    container = node.attach("c1")
    container.run("ip", "link", "del", "eth0")
    assert [one.seen for one in node.diagnose(run_check=True).findings] == [
        f"there is no interface eth0 in {container.path}"
    ]
