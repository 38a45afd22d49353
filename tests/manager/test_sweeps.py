"""CHECK, status and GC over all networks or attachments, on over errors."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from libcni import CNIErrorGroup, PluginError
from libcni.manager import Container, NetworkRequest
from manager.fakes import Place, fails


@pytest.fixture
def attached(place: Place) -> Place:
    place.network("a", version="1.1.0")
    place.network("b", version="0.4.0")
    manager = place.manager()
    manager.set_up(Container("c1", "/ns", ["a", "b"]))
    manager.set_up(Container("c2", "/ns", ["b"]))
    place.log.unlink()
    return place


def test_check_goes_over_all_attachments_in_order(attached: Place) -> None:
    report = attached.manager().check("c1")
    assert attached.calls() == ["CHECK a c1 eth0", "CHECK b c1 eth1"]
    assert [(one.network, one.ifname, one.state) for one in report.checks] == [("a", "eth0", "ok"), ("b", "eth1", "ok")]


def test_check_goes_on_over_errors_and_raises_all(attached: Place) -> None:
    attached.plugin("a", fails("CHECK", msg="broken"))
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().check("c1")
    assert "broken" in str(caught.value)
    assert [one.state for one in caught.value.report.checks] == ["failed", "ok"]


def test_check_of_a_version_without_check_is_reported_as_such(place: Place) -> None:
    place.network("old", version="0.3.1")
    place.network("new")
    manager = place.manager()
    manager.set_up(Container("c1", "/ns", ["old", "new"]))
    assert [one.state for one in manager.check("c1").checks] == ["unsupported", "ok"]


def test_check_works_with_loopback_and_without_configurations(place: Place) -> None:
    place.plugin("loopback")
    file = place.network("a")
    place.manager(loopback=True).set_up(Container("c1", "/ns"))
    file.unlink()
    assert [one.state for one in place.manager().check("c1").checks] == ["ok", "ok"]
    assert place.calls("CHECK") == ["CHECK loopback c1 lo", "CHECK a c1 eth0"]


def test_check_of_an_unknown_container_has_nothing_to_check(place: Place) -> None:
    assert place.manager().check("c1").checks == ()


def test_gc_detaches_what_does_not_live_and_tells_each_network_once(attached: Place) -> None:
    summary = attached.manager().gc(["c2"])
    assert attached.calls("DEL", "GC") == ["DEL a c1 eth0", "GC a", "DEL b c1 eth1"]
    assert [(one.network, one.container_id) for one in summary.detached] == [("a", "c1"), ("b", "c1")]
    assert [one.container_id for one in attached.client().get_cached_attachments()] == ["c2"]


def test_gc_tells_plugins_what_is_valid_on_their_network(attached: Place) -> None:
    attached.manager().gc(["c1", "c2", "not-attached"])
    assert attached.stdin("GC", "a")["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]


def test_gc_takes_single_attachments_as_live(attached: Place) -> None:
    attached.manager().gc([("c1", "eth0"), *attached.client().get_cached_attachments("c2")])
    left = sorted((one.network, one.container_id) for one in attached.client().get_cached_attachments())
    assert left == [("a", "c1"), ("b", "c2")]


def test_gc_of_a_network_that_only_records_know(attached: Place) -> None:
    (attached.conf / "a.conflist").unlink()
    summary = attached.manager().gc(["c2"])
    assert attached.calls("DEL", "GC") == ["DEL b c1 eth1", "DEL a c1 eth0", "GC a"]
    assert set(summary.reports) == {"a", "b"}


def test_gc_on_trial_runs_nothing(attached: Place) -> None:
    summary = attached.manager().gc([], dry_run=True)
    assert len(summary.stale) == 3
    assert (summary.detached, attached.calls()) == ((), [])


def test_gc_goes_on_over_errors_and_says_what_was_cleaned(attached: Place) -> None:
    attached.plugin("b", fails("DEL", msg="stuck", when="[ $CNI_CONTAINERID = c1 ]"))
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().gc([])
    assert "stuck" in str(caught.value)
    detached = [(one.network, one.container_id) for one in caught.value.report.detached]
    assert sorted(detached) == [("a", "c1"), ("b", "c2")]
    assert [(one.network, one.container_id) for one in attached.client().get_cached_attachments()] == [("b", "c1")]


@pytest.mark.parametrize("live", [None, "c1", b"c1", lambda: None])
def test_gc_refuses_a_set_that_is_none(attached: Place, live: Any) -> None:
    with pytest.raises(TypeError):
        attached.manager().gc(live)
    assert attached.calls() == []


def test_gc_asks_for_the_live_set_when_no_container_is_being_set_up(place: Place) -> None:
    """Asked any earlier, the runtime would not know yet of the container that is being set up."""
    place.network("a")
    place.plugin("a", "[ $CNI_COMMAND = ADD ] && sleep 0.5")
    manager = place.manager()
    running: list[str] = []
    manager.observe(lambda event: running.append(event.container_id) if event.kind == "attachment-added" else None)
    thread = threading.Thread(target=lambda: manager.set_up(Container("c1", "/ns")))
    thread.start()
    while not place.calls("ADD"):
        time.sleep(0.01)
    place.manager().gc(lambda: list(running))
    thread.join()
    assert place.calls("DEL") == []


def test_gc_tells_events(attached: Place) -> None:
    attached.events.clear()
    attached.manager().gc(["c2"])
    told = [(event.network, event.container_id, event.detail) for event in attached.events if event.container_id]
    assert told == [("a", "c1", "garbage"), ("b", "c1", "garbage")]


def test_status_is_ready_with_a_default_network_that_is(place: Place) -> None:
    place.network("a", version="1.1.0")
    place.network("b")
    status = place.manager().status()
    assert (status.ready, status.reason) == (True, "")
    assert [(one.name, one.is_default, one.ready) for one in status.networks] == [("a", True, True), ("b", False, True)]
    assert place.calls("STATUS") == ["STATUS a"]


def test_status_says_that_there_is_no_configuration_and_where(place: Place) -> None:
    status = place.manager().status()
    assert (status.ready, status.reason) == (False, f"no configuration in {place.conf}")


def test_status_says_which_plugin_is_missing(place: Place) -> None:
    place.network("a")
    (place.bin / "a").unlink()
    status = place.manager().status()
    assert not status.ready
    assert 'plugin "a" not found' in status.reason
    assert status.networks[0].plugins[0].state == "missing"


def test_status_says_what_the_plugin_answers(place: Place) -> None:
    place.network("a", version="1.1.0")
    place.plugin("a", fails("STATUS", 50, "no address left"))
    state = place.manager().status().network("a")
    assert state is not None
    assert "no address left" in state.reason
    error = state.plugins[0].error
    assert isinstance(error, PluginError)
    assert error.code == 50


def test_status_says_that_a_plugin_does_not_support_the_version(place: Place) -> None:
    place.network("a", version="0.3.0")
    assert 'does not support version "0.3.0"' in place.manager().status().reason


def test_status_waits_only_so_long_for_a_plugin(place: Place) -> None:
    place.network("a", version="1.1.0")
    place.plugin("a", "[ $CNI_COMMAND = STATUS ] && sleep 30")
    started = time.monotonic()
    assert "0.2" in place.manager().status(timeout=0.2).reason
    assert time.monotonic() - started < 5


def test_status_is_that_of_the_default_networks_alone(place: Place) -> None:
    place.network("a")
    place.network("b")
    (place.bin / "b").unlink()
    assert place.manager().status().ready
    assert not place.manager(default="b").status().ready
    assert not place.manager(default=["a", "b"]).status().ready
    assert not place.manager(default=2).status().ready


def test_status_of_a_default_network_that_is_not_there(place: Place) -> None:
    place.network("a")
    status = place.manager(default="other").status()
    assert not status.ready
    assert status.reason == f'no network named "other" in {place.conf} (there are: a)'


def test_status_lists_unusable_files(place: Place) -> None:
    place.network("a")
    (place.conf / "00-bad.conflist").write_text("{")
    status = place.manager().status()
    assert status.ready
    assert "00-bad.conflist" in str(status.problems[0])


def test_status_names_unusable_files_where_nothing_else_is_there(place: Place) -> None:
    (place.conf / "00-bad.conflist").write_text("{")
    assert "00-bad.conflist" in place.manager().status().reason


def test_loopback_is_in_the_status_where_every_container_gets_it(place: Place) -> None:
    place.network("a")
    status = place.manager(loopback=True).status()
    assert [(one.name, one.ready) for one in status.networks] == [("cni-loopback", False), ("a", True)]


def test_requests_and_results_are_small_values(place: Place) -> None:
    assert NetworkRequest.parse("a@b") == NetworkRequest("a", "b")
    assert NetworkRequest.parse("a") == NetworkRequest("a")
