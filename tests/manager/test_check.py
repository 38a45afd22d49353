"""CHECK of all attachments of a container, on over errors."""

from __future__ import annotations

import pytest

from libcni import CNIErrorGroup, NotAttachedError, PluginError, RecordError
from libcni.manager import Container
from manager.fakes import ManagerNode, fails


def test_check_goes_on_over_errors_and_raises_all(attached: ManagerNode) -> None:
    attached.plugin("a", fails("CHECK", msg="broken"))
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().check("c1")
    assert "broken" in str(caught.value)
    assert [one.outcome for one in caught.value.report.items] == ["failed", "ok"]


def test_check_of_a_version_without_check_is_reported_as_such(node: ManagerNode) -> None:
    node.configure("old", cniVersion="0.3.1")
    node.configure("new")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns", ["old", "new"]))
    assert [one.outcome for one in manager.check("c1").items] == ["unsupported", "ok"]


def test_check_of_a_configuration_that_forbids_it_is_not_ok(node: ManagerNode) -> None:
    """No plugin runs, so nothing is known of the attachment."""
    node.configure("quiet", disableCheck=True)
    node.configure("new")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns", ["quiet", "new"]))
    assert [one.outcome for one in manager.check("c1").items] == ["unsupported", "ok"]


def test_a_disk_on_which_no_lock_can_be_made_stops_neither_check_nor_tear_down(
    attached: ManagerNode, caplog: pytest.LogCaptureFixture
) -> None:
    locks = attached.cache / "locks"
    locks.unlink()
    locks.mkdir()
    assert [one.outcome for one in attached.manager().check("c1").items] == ["ok", "ok"]
    assert "container c1: going on without the container's lock" in caplog.text
    assert [one.outcome for one in attached.manager().tear_down("c1").items] == ["detached", "detached"]


def test_a_known_fault_of_a_plugin_is_an_outcome_of_its_own_and_no_error(node: ManagerNode) -> None:
    node.plugin("portmap", fails("CHECK", msg="could not check ipv6 dnat"))
    node.configure("ports", "portmap")
    node.configure("b")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns", ["ports", "b"]))
    known, passed = manager.check("c1").items
    assert (known.outcome, passed.outcome) == ("known-fault", "ok")
    assert isinstance(known.error, PluginError)
    assert known.error.known_fault
    node.plugin("portmap", fails("CHECK", msg="the rule is missing"))
    with pytest.raises(CNIErrorGroup):
        manager.check("c1")


def test_check_works_with_loopback_and_without_configurations(node: ManagerNode) -> None:
    node.plugin("loopback")
    file = node.configure("a")
    node.manager(loopback=True).set_up(Container("c1", "/ns"))
    file.unlink()
    report = node.manager().check("c1")
    assert [(one.ifname, one.outcome) for one in report.items] == [("lo", "ok"), ("eth0", "ok")]
    assert node.calls("CHECK") == ["CHECK loopback c1 lo", "CHECK a c1 eth0"]


def test_check_of_a_container_that_was_never_attached_is_an_error(node: ManagerNode) -> None:
    with pytest.raises(NotAttachedError, match="container c1") as caught:
        node.manager().check("c1")
    assert caught.value.container_id == "c1"


def test_check_fails_if_a_record_is_torn(attached: ManagerNode) -> None:
    (attached.cache / "results" / "a-c1-eth0").write_bytes(b"")
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().check("c1")
    (error,) = caught.value.exceptions
    assert isinstance(error, RecordError)
    assert (error.path.rpartition("/")[2], error.missing) == ("a-c1-eth0", "attachment")
    assert {(one.ifname, one.outcome) for one in caught.value.report.items} == {("", "unreadable"), ("eth1", "ok")}


def test_a_torn_record_that_may_be_any_containers_fails_no_check(attached: ManagerNode) -> None:
    """A hashed file name does not show its container."""
    (attached.cache / "results" / "~0123456789abcdef").write_bytes(b"")
    assert "" in [one.container_id for one in attached.client().get_cached_attachments("c1")]
    assert [one.outcome for one in attached.manager().check("c1").items] == ["ok", "ok"]


def test_the_hint_has_the_clients_directories(node: ManagerNode) -> None:
    with pytest.raises(NotAttachedError, match=rf"libcni attachments --cache-dir {node.cache}\)"):
        node.manager().check("c1")
