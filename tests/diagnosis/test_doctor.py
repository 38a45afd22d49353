"""diagnose and find_stale_attachments on a node of fake plugins, and once on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from nodes import FakeNode

from diagnosis.conftest import OperatorNode
from libcni import CNIConfig, diagnose, find_stale_attachments


def test_a_healthy_node_has_no_findings(cni: CNIConfig) -> None:
    report = diagnose(cni)
    assert report.findings == ()
    assert [one.what for one in report.checked if one.check == "configuration"] == [f"1 network in {cni.conf_dir}"]
    assert find_stale_attachments(cni) == ()


def test_one_check_that_fails_does_not_hide_the_others(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr("libcni.diagnosis.disk.os.statvfs", fail)
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    report = diagnose(cni)
    assert [one.check for one in report.findings] == ["records"]
    assert any("no such luck" in one.reason for one in report.not_checked if one.check == "disk")


@pytest.mark.real
def test_a_healthy_node_has_no_findings_and_says_what_was_not_checked(node: OperatorNode) -> None:
    node.attach("c1")
    report = node.diagnose()
    assert report.findings == ()
    assert report.status == "ok"
    assert {one.check for one in report.checked} >= {"plugins", "records", "namespaces", "interfaces", "ipam", "disk"}
    assert "STATUS: version 1.0.0 does not have it" in {one.reason for one in report.not_checked}
    assert any("CHECK was not run" in one.reason for one in report.not_checked)


@pytest.mark.parametrize(
    ("body", "is_damage"),
    [
        ('echo \'{"code": 999, "msg": "eth0 has gone"}\'; exit 1', True),
        ('echo \'{"code": 11, "msg": "later"}\'; exit 1', False),
        ("exit 2", False),
        ("kill -KILL $$", False),
    ],
)
def test_a_check_without_an_answer_attaches_nothing_again(
    healthy: FakeNode, cni: CNIConfig, body: str, *, is_damage: bool
) -> None:
    healthy.plugin("a", f"[ $CNI_COMMAND != CHECK ] || {{ {body}; }}", result={"cniVersion": "1.0.0"})
    found = [one for one in diagnose(cni, run_check=True).findings if one.seen.startswith("CHECK")]
    assert [one.severity for one in found] == ["error" if is_damage else "warning"]
    assert found[0].commands[0].startswith("libcni add" if is_damage else "libcni check")
