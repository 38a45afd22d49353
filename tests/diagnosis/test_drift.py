"""The check of recorded configurations alone, on a reading that is made by hand; and once on a real node."""

from __future__ import annotations

import pytest

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, MadeNode, configure
from libcni.diagnosis.drift import check_drift


def test_a_configuration_that_has_changed_since(made: MadeNode) -> None:
    """To attach the containers again would interrupt them, and could fail: nothing does it but their next start."""
    made.attach("c1")
    configure(made)
    assert made.findings(check_drift) == []
    configure(made, {**BRIDGE, "mtu": 1400})
    found = made.finding(check_drift)
    assert "changed keys: plugins[0].mtu" in found.seen
    assert found.mends == ()
    assert found.remedy.endswith(": libcni show c1:eth0 -n net --config")


def test_records_of_go_have_no_drop_in_plugins(made: MadeNode) -> None:
    configure(made)
    (made.root / "net.d" / "net").mkdir()
    (made.root / "net.d" / "net" / "50-more.conf").write_text('{"type": "more"}', encoding="utf-8")
    made.attach("go", version="")
    assert made.findings(check_drift) == []
    made.attach("ours")
    assert made.finding(check_drift).containers == ("ours:eth0",)


def test_a_file_that_has_gone_is_in_the_newest_record(made: MadeNode) -> None:
    made.attach("c1", created=2.0)
    made.attach("c2", created=1.0)
    assert made.finding(check_drift).remedy.endswith(": libcni show c1:eth0 -n net --config")


def test_a_directory_that_cannot_be_read_is_not_one_without_files(made: MadeNode) -> None:
    made.attach("c1")
    made.more["directory"] = None
    assert made.findings(check_drift) == []
    assert made.not_checked(check_drift) == [(made.cni.conf_dir, "the configurations cannot be read")]


@pytest.mark.real
def test_a_network_whose_file_has_gone_is_put_back_as_it_was(node: OperatorNode) -> None:
    node.attach("c1")
    file = node.conf_dir / "net.conflist"
    content = file.read_bytes()
    file.unlink()
    command = node.finding("it has no usable configuration file").remedy.rpartition(": ")[2]
    node.type(f"{command} > {file}")
    assert file.read_bytes() == content
