"""diagnose and find_stale_attachments on a node of fake plugins, and once on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

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
