"""The report of a conformance check."""

from __future__ import annotations

from plugin.plugins import Recorder

from libcni.testing import check_plugin


def test_findings_read_well() -> None:
    report = check_plugin(Recorder().plugin, {}, versions=["1.0.0"])
    assert "ADD (1.0.0): passed" in map(str, report.findings)
    assert str(report) == f"recorder: 0 of {len(report.findings)} checks failed"
