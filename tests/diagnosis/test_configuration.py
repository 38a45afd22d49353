"""The doctor checks the configuration directory."""

from __future__ import annotations

from pathlib import Path

from nodes import FakeNode

from diagnosis.conftest import only
from libcni import CNIConfig
from libcni.diagnosis import diagnose


def test_a_broken_configuration_has_its_file_and_hint(cni: CNIConfig) -> None:
    Path(cni.conf_dir, "bad.conflist").write_text('{"name": "x", "plugins": [{"type": "a",}]}', encoding="utf-8")
    finding = only(cni)
    assert (finding.check, finding.severity) == ("configuration", "error")
    assert finding.subject.endswith("bad.conflist")
    assert finding.remedy == "there is a comma before the closing bracket"


def test_an_empty_and_a_missing_directory_differ(healthy: FakeNode) -> None:
    (healthy.root / "empty").mkdir()
    empty = healthy.client(conf_dir=healthy.root / "empty")
    findings = [one.seen for one in diagnose(empty).findings]
    assert findings[0] == "no usable network configuration"
    assert findings[1].startswith("it has no usable configuration file, and 1 attachment: c1")
    gone = healthy.client(conf_dir=healthy.root / "gone")
    assert diagnose(gone).findings[0].seen == "there is no such directory"
    file = healthy.client(conf_dir=healthy.netns("c1"))
    assert only(file).seen == "it is not a directory"
