"""Tear-down: from the records, the last attached first, on over errors, and again without harm."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from libcni import CNIErrorGroup, DelPolicy, NetworkNotFoundError, PluginError, RuntimeConf
from libcni.manager import Container
from manager.fakes import Place, fails


@pytest.fixture
def attached(place: Place) -> Place:
    """Three networks, attached in an order that is not that of their names."""
    for name in ("b", "c", "a"):
        place.network(name)
    place.manager().set_up(Container("c1", "/ns", ["b@x9", "c@x1", "a@x5"]))
    return place


def strip(record: Path) -> None:
    """Make a record one of Go libcni's."""
    document = json.loads(record.read_text())
    del document["libcni"]
    record.write_text(json.dumps(document))


def test_the_last_attached_goes_first(attached: Place) -> None:
    report = attached.manager().tear_down("c1")
    assert attached.calls("DEL") == ["DEL a c1 x5", "DEL c c1 x1", "DEL b c1 x9"]
    assert [(one.network, one.ifname) for one in report.detached] == [("a", "x5"), ("c", "x1"), ("b", "x9")]
    assert attached.client().get_cached_attachments() == []


def test_neither_configurations_nor_the_caller_are_needed(attached: Place) -> None:
    shutil.rmtree(attached.conf)
    attached.manager().tear_down("c1")
    assert attached.calls("DEL") == ["DEL a c1 x5", "DEL c c1 x1", "DEL b c1 x9"]


def test_what_was_recorded_is_used_after_the_configuration_has_changed(attached: Place) -> None:
    attached.network("a", "b", "c")
    attached.manager().tear_down("c1")
    assert attached.calls("DEL")[0] == "DEL a c1 x5"
    assert len(attached.calls("DEL")) == 3


def test_it_goes_on_over_errors_and_reports_all(attached: Place) -> None:
    attached.plugin("a", fails("DEL", msg="first"))
    attached.plugin("b", fails("DEL", msg="second"))
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().tear_down("c1")
    assert [error.msg for error in caught.value.exceptions if isinstance(error, PluginError)] == ["first", "second"]
    assert [one.network for one in caught.value.report.detached] == ["c"]
    assert sorted(one.network for one in attached.client().get_cached_attachments()) == ["a", "b"]
    attached.plugin("a")
    attached.plugin("b")
    attached.manager().tear_down("c1")
    assert attached.client().get_cached_attachments() == []


def test_again_or_without_anything_it_is_no_error(attached: Place) -> None:
    manager = attached.manager()
    manager.tear_down("c1")
    assert manager.tear_down("c1").detached == ()
    assert manager.tear_down("never-there").detached == ()


@pytest.mark.parametrize("made_by_go", [False, True])
def test_a_namespace_that_has_gone_is_sent_as_empty(place: Place, tmp_path: Path, *, made_by_go: bool) -> None:
    place.network("a")
    netns = tmp_path / "ns"
    netns.touch()
    manager = place.manager()
    manager.set_up(Container("c1", str(netns)))
    netns.unlink()
    if made_by_go:
        strip(next(place.cache.glob("results/*")))
    manager.tear_down("c1")
    assert place.variable("netns", "ADD", "a", "eth0") == str(netns)
    assert place.variable("netns", "DEL", "a", "eth0") == ""


def test_only_some_interfaces(attached: Place) -> None:
    attached.manager().tear_down("c1", ifnames=["x1"])
    assert attached.calls("DEL") == ["DEL c c1 x1"]
    assert len(attached.client().get_cached_attachments("c1")) == 2


def test_other_containers_are_left_alone(attached: Place) -> None:
    manager = attached.manager()
    manager.set_up(Container("c1-x", "/ns", ["a"]))
    manager.tear_down("c1")
    assert [one.container_id for one in attached.client().get_cached_attachments()] == ["c1-x"]


def test_a_container_given_whole_is_detached_also_where_there_is_no_record(place: Place) -> None:
    place.network("a")
    place.network("b")
    manager = place.manager()
    container = Container("c1", "/ns", ["a", "b"])
    manager.set_up(container)
    next(place.cache.glob("results/b-*")).unlink()
    manager.tear_down(container)
    assert place.calls("DEL") == ["DEL b c1 eth1", "DEL a c1 eth0"]


def test_a_container_given_whole_with_a_network_that_has_gone_is_detached_from_the_records(place: Place) -> None:
    place.network("a")
    file = place.network("b")
    manager = place.manager()
    container = Container("c1", "/ns", ["a", "b"])
    manager.set_up(container)
    file.unlink()
    manager.reload()
    manager.tear_down(container)
    assert place.calls("DEL") == ["DEL b c1 eth1", "DEL a c1 eth0"]


def test_a_record_that_cannot_be_read_is_detached_by_its_file_name_and_the_configuration(attached: Place) -> None:
    record = attached.cache / "results" / "c-c1-x1"
    record.write_bytes(b"")
    attached.manager().tear_down("c1")
    assert sorted(attached.calls("DEL")) == ["DEL a c1 x5", "DEL b c1 x9", "DEL c c1 x1"]
    assert not record.exists()


@pytest.mark.parametrize("name", ["c-c1-x1-x2", "c-c1-x1"])
def test_a_torn_record_that_does_not_say_enough_is_an_error_and_the_rest_is_detached(
    attached: Place, name: str
) -> None:
    """Its name may mean several attachments, or a network that has gone: nobody could say that all is detached."""
    if name == "c-c1-x1":
        (attached.conf / "c.conflist").unlink()
    record = attached.cache / "results" / name
    record.write_bytes(b"")
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().tear_down("c1")
    assert str(record) in str(caught.value)
    assert [one.path for one in caught.value.report.unreadable] == [str(record)]
    assert {"a", "b"} <= {one.network for one in caught.value.report.detached}
    assert record.exists()


def test_a_torn_record_of_another_container_is_no_obstacle(attached: Place) -> None:
    (attached.cache / "results" / "c-c2-x1").write_bytes(b"")
    assert len(attached.manager().tear_down("c1").detached) == 3


def test_a_bare_result_as_go_once_wrote_it_is_detached_with_the_configuration(attached: Place) -> None:
    (attached.cache / "results" / "c-c1-x1").write_text('{"cniVersion": "1.0.0"}')
    attached.manager().tear_down("c1")
    assert "DEL c c1 x1" in attached.calls("DEL")
    assert attached.client().get_cached_attachments() == []


def test_a_record_of_go_without_its_drop_in_is_detached_with_the_configuration_at_hand(place: Place) -> None:
    place.network("a")
    (place.conf / "a").mkdir()
    (place.conf / "a" / "10.conf").write_text('{"type": "dropin"}')
    place.plugin("dropin")
    manager = place.manager()
    manager.set_up(Container("c1", "/ns"))
    record = next(place.cache.glob("results/*"))
    strip(record)
    manager.tear_down("c1")
    assert place.calls("DEL") == ["DEL dropin c1 eth0", "DEL a c1 eth0"]


def test_records_without_a_time_are_ordered_by_their_files(attached: Place) -> None:
    for network in ("b", "a", "c"):
        record = next(attached.cache.glob(f"results/{network}-*"))
        strip(record)
        time.sleep(0.02)
    attached.manager().tear_down("c1")
    assert [call.split()[1] for call in attached.calls("DEL")] == ["c", "a", "b"]


def test_a_pending_attachment_is_detached_too(place: Place) -> None:
    place.network("a")
    place.plugin("a", fails("ADD"))
    with pytest.raises(PluginError):
        place.client().add_network_list("a", RuntimeConf("c1", "/ns", "eth0"), rollback=False)
    place.manager().tear_down("c1")
    assert place.calls("DEL") == ["DEL a c1 eth0"]


def test_a_missing_plugin_is_reported_or_passed_over_as_the_policy_says(attached: Place) -> None:
    (attached.bin / "c").unlink()
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().tear_down("c1")
    assert 'plugin "c" not found' in str(caught.value)
    attached.manager().tear_down("c1", policy=DelPolicy(skip_missing=True))
    assert attached.client().get_cached_attachments() == []


def test_a_tear_down_emits_an_event_for_each_attachment(attached: Place) -> None:
    attached.plugin("c", fails("DEL"))
    attached.events.clear()
    with pytest.raises(CNIErrorGroup):
        attached.manager().tear_down("c1")
    told = [(event.kind, event.network, event.ifname) for event in attached.events if event.container_id]
    assert told == [
        ("attachment-removed", "a", "x5"),
        ("problem", "c", "x1"),
        ("attachment-removed", "b", "x9"),
    ]


def test_networks_without_any_record_get_del_with_the_given_configuration(
    place: Place, make: Callable[..., Any]
) -> None:
    place.network("a")
    place.network("b")
    netns = place.root / "ns"
    netns.touch()
    report = make().tear_down(Container("c1", str(netns), ["a", "b@net7"]))
    assert place.calls() == ["DEL b c1 net7", "DEL a c1 eth0"]
    assert place.variable("netns", "DEL", "b", "net7") == str(netns)
    assert [(one.network, one.report.record) for one in report.detached] == [("b", "missing"), ("a", "missing")]


def test_a_network_that_nobody_knows_is_an_error_and_the_others_are_detached(
    place: Place, make: Callable[..., Any]
) -> None:
    place.network("a")
    with pytest.raises(CNIErrorGroup) as caught:
        make().tear_down(Container("c1", "/ns", ["none", "a"]))
    assert [type(error) for error in caught.value.exceptions] == [NetworkNotFoundError]
    assert place.calls() == ["DEL a c1 eth1"]  # the name that a set-up would have given it


@pytest.mark.parametrize("given_to", ["manager", "call"])
def test_a_policy_keeps_what_it_does_not_mention(place: Place, make: Callable[..., Any], given_to: str) -> None:
    place.network("a", "a", "b")
    netns = place.root / "ns"
    netns.touch()
    policy = DelPolicy(skip_missing=True)
    manager = make(policy=policy) if given_to == "manager" else make()
    manager.set_up(Container("c1", str(netns)))
    netns.unlink()
    strip(next(place.cache.glob("results/*")))  # of a record that has no namespace's identity only the policy decides
    (place.bin / "b").unlink()
    manager.tear_down("c1", policy=policy if given_to == "call" else None)
    assert place.variable("netns", "DEL", "a", "eth0") == ""
