"""Tear-down: from the records, the last attached first, on over errors, and again without harm."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from nodes import make_fake_namespace

from libcni import CNIErrorGroup, PluginError, RecordError
from libcni.manager import Container
from manager.fakes import ManagerNode, fails


@pytest.mark.parametrize("configured", [True, False])
def test_neither_configurations_nor_the_caller_are_needed(three_attached: ManagerNode, *, configured: bool) -> None:
    """The latest attachment goes first."""
    if not configured:
        shutil.rmtree(three_attached.conf_dir)
    report = three_attached.manager().tear_down("c1")
    assert three_attached.calls("DEL") == ["DEL a c1 x5", "DEL c c1 x1", "DEL b c1 x9"]
    assert [(one.network, one.ifname) for one in report.of("detached")] == [("a", "x5"), ("c", "x1"), ("b", "x9")]
    assert three_attached.client().get_cached_attachments() == []


def test_interfaces_that_share_a_rule_are_detached_in_two_attempts(node: ManagerNode) -> None:
    flag = node.conf_dir / "first-is-gone"
    shares = f"[ $CNI_IFNAME = x2 ] && [ ! -e {flag} ]"
    node.plugin("a", fails("DEL", when=shares) + f"\n[ $CNI_COMMAND != DEL ] || touch {flag}")
    node.configure("a")
    node.manager().set_up(Container("c1", "/ns", ["a@x1", "a@x2"]))
    report = node.manager().tear_down("c1")
    assert [(one.network, one.ifname) for one in report.of("detached")] == [("a", "x2"), ("a", "x1")]
    assert node.calls("DEL") == ["DEL a c1 x2", "DEL a c1 x1", "DEL a c1 x2"]
    assert node.client().get_cached_attachments() == []


def test_it_goes_on_over_errors_and_reports_all(three_attached: ManagerNode) -> None:
    three_attached.plugin("a", fails("DEL", msg="first"))
    three_attached.plugin("b", fails("DEL", msg="second"))
    manager = three_attached.manager()
    with pytest.raises(CNIErrorGroup) as caught:
        manager.tear_down("c1")
    assert [error.msg for error in caught.value.exceptions if isinstance(error, PluginError)] == ["first", "second"]
    assert [one.network for one in caught.value.report.of("detached")] == ["c"]
    assert sorted(one.network for one in three_attached.client().get_cached_attachments()) == ["a", "b"]
    three_attached.plugin("a")
    three_attached.plugin("b")
    three_attached.manager().tear_down("c1")
    assert three_attached.client().get_cached_attachments() == []


def test_again_or_without_anything_it_is_no_error(three_attached: ManagerNode) -> None:
    manager = three_attached.manager()
    manager.tear_down("c1")
    assert manager.tear_down("c1").of("detached") == ()
    assert manager.tear_down("never-there").of("detached") == ()


@pytest.mark.parametrize("made_by_go", [False, True])
def test_a_namespace_that_has_gone_is_sent_as_empty(node: ManagerNode, tmp_path: Path, *, made_by_go: bool) -> None:
    node.configure("a")
    netns = tmp_path / "ns"
    make_fake_namespace(netns)
    manager = node.manager()
    manager.set_up(Container("c1", str(netns)))
    netns.unlink()
    if made_by_go:
        node.strip_record("c1", "a")
    manager.tear_down("c1")
    assert node.last_call("a", "ADD", "eth0").env["CNI_NETNS"] == str(netns)
    assert node.last_call("a", "DEL", "eth0").env["CNI_NETNS"] == ""


def test_other_containers_are_left_alone(three_attached: ManagerNode) -> None:
    manager = three_attached.manager()
    manager.set_up(Container("c1-x", "/ns", ["a"]))
    manager.tear_down("c1")
    assert [one.container_id for one in three_attached.client().get_cached_attachments()] == ["c1-x"]


@pytest.mark.parametrize("text", ["", '{"cniVersion": "1.0.0"}'], ids=["torn", "a result, as Go once wrote"])
def test_a_record_that_cannot_be_read_is_detached_by_its_file_name_and_the_configuration(
    three_attached: ManagerNode, text: str
) -> None:
    record = three_attached.cache / "results" / "c-c1-x1"
    record.write_text(text)
    three_attached.manager().tear_down("c1")
    assert sorted(three_attached.calls("DEL")) == ["DEL a c1 x5", "DEL b c1 x9", "DEL c c1 x1"]
    assert three_attached.last_call("c", "DEL", "x1").env["CNI_NETNS"] == "/ns", "that of the other records"
    assert not record.exists()


@pytest.mark.parametrize("netns", ["unknown", "gone"])
def test_the_namespace_of_a_record_that_cannot_be_read(node: ManagerNode, tmp_path: Path, netns: str) -> None:
    """Plugins would free the address of an interface that they do not find."""
    node.configure_each("a", "b")
    path = tmp_path / "ns"
    make_fake_namespace(path)
    node.manager().set_up(Container("c1", str(path), ["a", "b"]))
    (node.cache / "results" / "a-c1-eth0").write_bytes(b"")
    if netns == "gone":
        path.unlink()
        node.manager().tear_down("c1")
        assert node.last_call("a", "DEL", "eth0").env["CNI_NETNS"] == ""
        return
    (node.cache / "results" / "b-c1-eth1").unlink()
    with pytest.raises(CNIErrorGroup, match="1 failed") as caught:
        node.manager().tear_down("c1")
    (error,) = caught.value.exceptions
    assert isinstance(error, RecordError)
    assert error.missing == "namespace"
    assert node.calls("DEL") == []


def test_a_record_of_go_without_its_drop_in_is_detached_with_the_configuration_at_hand(node: ManagerNode) -> None:
    node.configure("a")
    (node.conf_dir / "a").mkdir()
    (node.conf_dir / "a" / "10.conf").write_text('{"type": "dropin"}')
    node.plugin("dropin")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns"))
    node.strip_record("c1", "a")
    manager.tear_down("c1")
    assert node.calls("DEL") == ["DEL dropin c1 eth0", "DEL a c1 eth0"]


@pytest.mark.parametrize("name", ["c-c1-x1-x2", "c-c1-x1"])
def test_a_torn_record_that_does_not_say_enough_is_an_error_and_the_rest_is_detached(
    three_attached: ManagerNode, name: str
) -> None:
    """The name of the record's file fits several attachments, or a network that no longer has a configuration."""
    if name == "c-c1-x1":
        (three_attached.conf_dir / "c.conflist").unlink()
    record = three_attached.cache / "results" / name
    record.write_bytes(b"")
    with pytest.raises(CNIErrorGroup) as caught:
        three_attached.manager().tear_down("c1")
    assert str(record) in str(caught.value)
    assert [one.path for one in caught.value.report.of("unreadable")] == [str(record)]
    assert {"a", "b"} <= {one.network for one in caught.value.report.of("detached")}
    assert record.exists()


def test_a_torn_record_of_another_container_is_no_obstacle(three_attached: ManagerNode) -> None:
    (three_attached.cache / "results" / "c-c2-x1").write_bytes(b"")
    assert len(three_attached.manager().tear_down("c1").of("detached")) == 3
