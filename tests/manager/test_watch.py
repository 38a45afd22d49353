"""Reload when a directory changes, in whatever way it does; told by watchfiles, and by looking alone."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from libcni.errors import ConfigError
from libcni.manager import NetworkManager, networks
from manager.fakes import Place, network_json

PATIENCE = 20.0


@pytest.fixture(params=["polling", "watchfiles"])
def watching(request: pytest.FixtureRequest, place: Place) -> Iterator[NetworkManager]:
    """A manager that watches: by looking every 50 ms, or told by watchfiles, with looks an hour apart."""
    place.network("a")
    manager = place.manager()
    polling = request.param == "polling"
    if not polling:
        pytest.importorskip("watchfiles")
    with manager.watch(0.05 if polling else 3600.0, polling=polling) as watch:
        assert watch.is_polling is polling
        time.sleep(0.5)  # watchfiles begins to watch in its own thread
        yield manager


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"the condition was still false after {PATIENCE} s"
        time.sleep(0.01)


def names(manager: NetworkManager) -> list[str]:
    return [net.name for net in manager.networks]


def test_a_new_file(place: Place, watching: NetworkManager) -> None:
    place.network("b")
    until(lambda: names(watching) == ["a", "b"])


def test_a_file_renamed_into_place(place: Place, watching: NetworkManager) -> None:
    new = place.root / "new"
    new.write_text(network_json("a", "changed"))
    os.replace(new, place.conf / "a.conflist")
    until(lambda: watching.network("a").plugins[0].type == "changed")


def test_a_file_written_over_with_as_many_bytes(place: Place, watching: NetworkManager) -> None:
    (place.conf / "a.conflist").write_text(network_json("a", "z"))
    until(lambda: watching.network("a").plugins[0].type == "z")


def test_a_file_removed(place: Place, watching: NetworkManager) -> None:
    (place.conf / "a.conflist").unlink()
    until(lambda: names(watching) == [])


def test_a_half_written_file_and_its_end(place: Place, watching: NetworkManager) -> None:
    text = network_json("a", "longer")
    with (place.conf / "a.conflist").open("w") as file:
        file.write(text[:20])
        file.flush()
        until(lambda: watching.configuration.kept == ("a",))
        assert watching.network("a").plugins[0].type == "a"
        file.write(text[20:])
    until(lambda: watching.network("a").plugins[0].type == "longer")
    until(lambda: watching.configuration.problems == ())


def test_a_directory_removed_and_made_again_twice(place: Place, watching: NetworkManager) -> None:
    for name in ("b", "c"):
        place.conf.rename(place.root / ("before-" + name))  # at once: a look must not find it there and empty
        until(lambda: watching.configuration.problems)
        assert names(watching)
        place.conf.mkdir()
        place.network(name, "a")
        until(lambda: names(watching) == [name])  # noqa: B023 - called at once
        place.network("later-" + name, "a")
        until(lambda: names(watching) == [name, "later-" + name])  # noqa: B023


def test_a_directory_removed_and_made_again_between_two_looks(place: Place, watching: NetworkManager) -> None:
    """Its inode number is then often the same, but inotify no longer watches it."""
    shutil.rmtree(place.conf)
    place.conf.mkdir()
    place.network("b", "a")
    until(lambda: names(watching) == ["b"])
    time.sleep(1.0)
    place.network("c", "a")
    until(lambda: names(watching) == ["b", "c"])


def test_a_change_while_it_is_read_is_seen_by_the_next_look(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where all is then again as it was before the reading began."""
    place.plugin("a")
    manager = place.manager()

    def load(*args: Any) -> networks.NetworkSet:
        place.network("b", "a")
        found = networks.load(*args)
        (place.conf / "b.conflist").unlink()
        place.network("c", "a")
        return found

    monkeypatch.setattr("libcni.manager.configuration.load", load)
    manager.reload()
    monkeypatch.undo()
    (place.conf / "c.conflist").unlink()
    assert manager._configuration.reload_if_changed()
    assert names(manager) == []


def test_a_directory_replaced_at_once(place: Place, watching: NetworkManager) -> None:
    other = place.root / "other"
    other.mkdir()
    (other / "x.conflist").write_text(network_json("x", "a"))
    place.conf.rename(place.root / "old")
    other.rename(place.conf)
    until(lambda: names(watching) == ["x"])
    place.network("y", "a")
    until(lambda: names(watching) == ["x", "y"])


def test_all_above_the_directory_removed_and_made_again(place: Place) -> None:
    deep = place.root / "etc" / "cni" / "net.d"
    manager = place.manager(conf_dirs=[deep])
    pytest.importorskip("watchfiles")
    with manager.watch(3600.0, polling=False):
        time.sleep(0.5)
        (place.root / "etc").mkdir()
        time.sleep(0.3)
        deep.mkdir(parents=True)
        time.sleep(0.3)
        (deep / "x.conflist").write_text(network_json("x", "a"))
        until(lambda: names(manager) == ["x"])


def test_a_symbolic_link_that_leads_elsewhere(place: Place, watching: NetworkManager) -> None:
    """Kubernetes mounts a ConfigMap so: files are links through ``..data``, which is replaced as a whole."""
    for version, plugin in (("v1", "one"), ("v2", "two")):
        (place.conf / version).mkdir()
        (place.conf / version / "l.conflist").write_text(network_json("linked", plugin))
    (place.conf / "..data").symlink_to("v1")
    (place.conf / "l.conflist").symlink_to("..data/l.conflist")
    until(lambda: "linked" in names(watching))
    (place.conf / "..new").symlink_to("v2")
    (place.conf / "..new").rename(place.conf / "..data")
    until(lambda: watching.network("linked").plugins[0].type == "two")


def test_a_drop_in(place: Place, watching: NetworkManager) -> None:
    (place.conf / "a").mkdir()
    time.sleep(0.3)
    (place.conf / "a" / "x.conf").write_text('{"type": "dropped"}')
    until(lambda: [plugin.type for plugin in watching.network("a").plugins] == ["a", "dropped"])
    (place.conf / "a" / "x.conf").write_text('{"type": "other"}')
    until(lambda: [plugin.type for plugin in watching.network("a").plugins] == ["a", "other"])


def test_a_plugin_that_goes_and_comes(place: Place, watching: NetworkManager) -> None:
    (place.bin / "a").unlink()
    until(lambda: watching.configuration.missing)
    until(lambda: place.kinds()[-1] == "problem")
    place.plugin("a")
    until(lambda: not watching.configuration.missing)
    until(lambda: place.kinds()[-1] == "network-ready")


def test_what_changes_before_the_watch_has_begun_is_seen(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(*_paths: str, **_options: Any) -> Iterator[set[str]]:
        place.network("late")
        while True:
            time.sleep(0.01)
            yield set()

    monkeypatch.setitem(sys.modules, "watchfiles", SimpleNamespace(watch=watch))
    manager = place.manager()
    with manager.watch(3600.0):
        until(lambda: names(manager) == ["late"])


def test_a_watch_is_begun_once_while_the_directories_stay_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def watch(*_paths: str, **_options: Any) -> Iterator[set[str]]:
        begun.append(1)
        while True:
            time.sleep(0.01)
            yield set()

    monkeypatch.setitem(sys.modules, "watchfiles", SimpleNamespace(watch=watch))
    with place.manager().watch(0.01):
        time.sleep(0.3)
    assert begun == [1]


def test_a_watch_that_fails_is_begun_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def watch(*_paths: str, **_options: Any) -> Iterator[set[str]]:
        begun.append(1)
        if len(begun) == 1:
            raise FileNotFoundError
        place.network("late")
        while True:
            time.sleep(0.01)
            yield set()

    monkeypatch.setitem(sys.modules, "watchfiles", SimpleNamespace(watch=watch))
    manager = place.manager()
    with manager.watch(0.05):
        until(lambda: names(manager) == ["late"])


def test_nothing_is_read_while_nothing_changes(place: Place) -> None:
    place.network("a")
    manager = place.manager()
    with manager.watch(0.02, polling=True):
        time.sleep(0.3)
    assert place.kinds() == ["reload", "network-ready"]


def test_a_closed_watch_watches_no_more(place: Place) -> None:
    manager = place.manager()
    manager.watch(0.02, polling=True).close()
    place.network("a")
    time.sleep(0.2)
    assert names(manager) == []


def test_closing_does_not_wait_for_the_next_look(place: Place) -> None:
    for polling in (True, None):
        watch = place.manager().watch(3600.0, polling=polling)
        time.sleep(0.2)
        started = time.monotonic()
        watch.close()
        assert time.monotonic() - started < 2


def test_without_watchfiles_it_looks_or_says_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with place.manager().watch() as watch:
        assert watch.is_polling
    with pytest.raises(ConfigError, match=r"libcni\[watch\]"):
        place.manager().watch(polling=False)


def test_an_error_while_looking_is_not_the_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = place.manager()
    real = manager._configuration.reload_if_changed
    tries: list[int] = []

    def look() -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return real()

    monkeypatch.setattr(manager._configuration, "reload_if_changed", look)
    with manager.watch(0.02, polling=True):
        place.network("a")
        until(lambda: names(manager) == ["a"])
