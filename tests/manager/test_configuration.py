"""The networks in force: their order, the default, a reload, and what stays where a file cannot be used."""

from __future__ import annotations

import os
import shutil

import pytest

from libcni import NetworkConfigList
from libcni.errors import NetworkNotFoundError
from libcni.manager import Container
from manager.fakes import Place, network_json


def names(place_manager: object) -> list[str]:
    return [net.name for net in place_manager.networks]  # type: ignore[attr-defined]


def test_the_default_is_the_first_valid_by_order(place: Place) -> None:
    (place.conf / "00-bad.conflist").write_text("{")
    place.network("z", file="10-z.conflist")
    place.network("a", file="20-a.conflist")
    manager = place.manager()
    assert [net.name for net in manager.default_networks()] == ["z"]
    place.network("y", file="05-y.conflist")
    manager.reload()
    assert [net.name for net in manager.default_networks()] == ["y"]


def test_the_default_may_be_named_several_or_a_number(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.network(name)
    assert [net.name for net in place.manager(default="b").default_networks()] == ["b"]
    assert [net.name for net in place.manager(default=["c", "a"]).default_networks()] == ["c", "a"]
    assert [net.name for net in place.manager(default=2).default_networks()] == ["a", "b"]
    assert [net.name for net in place.manager(default=9, minimum=1).default_networks()] == ["a", "b", "c"]


def test_the_default_can_be_changed_at_run_time(place: Place) -> None:
    place.network("a")
    place.network("b")
    manager = place.manager()
    manager.set_default("b")
    manager.set_up(Container("c1", "/ns"))
    assert place.calls("ADD") == ["ADD b c1 eth0"]


def test_no_configuration_at_all_names_the_directories(place: Place) -> None:
    with pytest.raises(NetworkNotFoundError, match=f"no configuration in {place.conf}"):
        place.manager().set_up(Container("c1", "/ns"))


def test_several_directories_the_first_wins(place: Place) -> None:
    place.network("a", file="99-a.conflist")
    place.network("b")
    other = place.root / "other"
    other.mkdir()
    (other / "00-a.conflist").write_text(network_json("a", "else"))
    (other / "01-c.conflist").write_text(network_json("c", "a"))
    manager = place.manager(conf_dirs=[place.conf, other, place.root / "none"])
    assert names(manager) == ["a", "b", "c"]
    assert manager.network("a").plugins[0].type == "a"
    assert "already in" in str(manager.configuration.problems[0])


def test_configurations_given_in_code_come_first(place: Place) -> None:
    place.network("a")
    given = [NetworkConfigList.from_bytes(network_json(name, "own")) for name in ("z", "a")]
    manager = place.manager(networks=given)
    assert names(manager) == ["z", "a"]
    assert manager.network("a").plugins[0].type == "own"
    assert place.manager(networks=given, conf_dirs=[]).configuration.problems == ()


def test_a_half_written_file_leaves_the_last_good_network_in_force(place: Place) -> None:
    place.network("a", file="10-a.conflist")
    place.network("b", file="20-b.conflist")
    manager = place.manager()
    good = manager.network("a")
    for half in ("", '{"cniVersion": "1.0.0", "na'):
        (place.conf / "10-a.conflist").write_text(half)
        manager.reload()
        assert names(manager) == ["a", "b"]
        assert manager.network("a") == good
        assert manager.configuration.kept == ("a",)
        assert "10-a.conflist" in str(manager.configuration.problems[0])
        state = manager.status().network("a")
        assert state is not None
        assert state.kept
    place.network("a", "b", file="10-a.conflist")
    manager.reload()
    assert manager.network("a").plugins[0].type == "b"
    assert (manager.configuration.kept, manager.configuration.problems) == ((), ())


def test_a_bad_drop_in_leaves_the_last_good_network_in_force(place: Place) -> None:
    place.network("a")
    manager = place.manager()
    (place.conf / "a").mkdir()
    (place.conf / "a" / "x.conf").write_text("{")
    manager.reload()
    assert manager.configuration.kept == ("a",)
    assert [plugin.type for plugin in manager.network("a").plugins] == ["a"]


def test_a_file_that_is_removed_takes_its_network_along(place: Place) -> None:
    path = place.network("a")
    place.network("b")
    manager = place.manager()
    path.unlink()
    manager.reload()
    assert names(manager) == ["b"]


def test_a_network_that_gets_another_name_in_the_same_file_is_gone_under_the_old_one(place: Place) -> None:
    place.network("a", file="x.conflist")
    manager = place.manager()
    place.network("b", file="x.conflist")
    manager.reload()
    assert names(manager) == ["b"]


def test_a_file_whose_network_comes_twice_is_not_kept_under_the_old_name(place: Place) -> None:
    place.network("a")
    place.network("b", file="x.conflist")
    manager = place.manager()
    place.network("a", file="x.conflist")
    manager.reload()
    assert names(manager) == ["a"]


def test_a_directory_that_has_gone_leaves_its_last_good_networks_in_force(place: Place) -> None:
    place.network("a")
    manager = place.manager()
    shutil.rmtree(place.conf)
    manager.reload()
    assert names(manager) == ["a"]
    assert "the directory is gone" in str(manager.configuration.problems[0])
    assert names(place.manager()) == []
    place.conf.mkdir()
    place.network("b")
    manager.reload()
    assert names(manager) == ["b"]


def test_what_is_kept_can_be_given_up(place: Place) -> None:
    place.network("a")
    manager = place.manager()
    shutil.rmtree(place.conf)
    manager.reload(keep=False)
    assert names(manager) == []


def test_an_empty_directory_has_no_networks(place: Place) -> None:
    path = place.network("a")
    manager = place.manager()
    path.unlink()
    manager.reload()
    assert names(manager) == []
    assert manager.status().reason == f"no configuration in {place.conf}"


def test_a_directory_that_is_none_is_a_problem(place: Place) -> None:
    file = place.root / "file"
    file.touch()
    manager = place.manager(conf_dirs=[place.conf, file])
    assert str(file) in str(manager.configuration.problems[0])


def test_events_of_reloads(place: Place) -> None:
    place.network("a")
    manager = place.manager()
    assert [(one.kind, one.network) for one in place.events] == [("reload", ""), ("network-ready", "a")]
    place.events.clear()
    manager.reload()
    assert place.kinds() == ["reload"]
    place.events.clear()
    (place.conf / "bad.conflist").write_text("{")
    place.network("b")
    (place.conf / "a.conflist").unlink()
    manager.reload()
    manager.reload()
    assert place.kinds(without="reload") == ["network-ready", "network-gone", "problem"]
    assert [one.network for one in place.events if one.network] == ["b", "a"]


def test_a_network_is_ready_only_with_its_plugins(place: Place) -> None:
    place.network("a")
    os.unlink(place.bin / "a")
    manager = place.manager()
    assert place.kinds() == ["reload", "problem"]
    assert 'plugin "a" not found' in place.events[-1].detail
    place.events.clear()
    place.plugin("a")
    manager.reload()
    assert place.kinds() == ["reload", "network-ready"]


def test_a_network_that_changes_emits_ready_again(place: Place) -> None:
    place.network("a")
    place.network("b")
    manager = place.manager()
    place.events.clear()
    place.network("a", mtu=1400)
    manager.reload()
    assert [(one.kind, one.network) for one in place.events] == [("reload", ""), ("network-ready", "a")]
