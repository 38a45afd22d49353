"""GC of all networks: what is detached, what the plugins are told, and what is never touched."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from libcni import CNIErrorGroup
from libcni.manager import Container
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


def test_gc_detaches_what_does_not_live_and_tells_each_network_once(attached: Place) -> None:
    summary = attached.manager().gc(["c2"])
    assert attached.calls("DEL", "GC") == ["DEL a c1 eth0", "GC a", "DEL b c1 eth1"]
    assert [(one.network, one.container_id) for one in summary.detached] == [("a", "c1"), ("b", "c1")]
    assert [one.container_id for one in attached.client().get_cached_attachments()] == ["c2"]


def told(place: Place, plugin: str) -> set[tuple[str, str]]:
    """Return the pairs that a plugin's last GC got as valid."""
    rows = place.stdin("GC", plugin)["cni.dev/valid-attachments"]
    return {(row["containerID"], row["ifname"]) for row in rows}


def test_gc_tells_plugins_every_pair_of_the_live_containers(attached: Place) -> None:
    """Pairs of other networks, and of a container without record, protect what does not exist. That does no harm."""
    attached.manager().gc(["c1", "c2", "not-attached"])
    assert told(attached, "a") == {("c1", "eth0"), ("c1", "eth1"), ("c2", "eth0"), ("not-attached", "eth0")}


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
