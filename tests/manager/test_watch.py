"""Reload when a directory changes, in whatever way it does."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import document

from libcni.manager import NetworkManager, networks
from libcni.testing import wait_until
from manager.fakes import ManagerNode


@pytest.fixture
def watching(node: ManagerNode) -> Iterator[NetworkManager]:
    """A manager that watches, with a poll every 50 ms."""
    node.configure("a")
    manager = node.manager()
    with manager.watch(0.05):
        yield manager


def names(manager: NetworkManager) -> list[str]:
    return [net.name for net in manager.networks]


def test_a_new_file(node: ManagerNode, watching: NetworkManager) -> None:
    node.configure("b")
    wait_until(lambda: names(watching) == ["a", "b"])


def test_a_file_renamed_into_place(node: ManagerNode, watching: NetworkManager) -> None:
    new = node.root / "new"
    node.configure("a", "changed", file=new)
    os.replace(new, node.conf_dir / "a.conflist")
    wait_until(lambda: watching.network("a").plugins[0].type == "changed")


def test_a_file_written_over_with_as_many_bytes(node: ManagerNode, watching: NetworkManager) -> None:
    node.configure("a", "z")
    wait_until(lambda: watching.network("a").plugins[0].type == "z")


def test_a_file_removed(node: ManagerNode, watching: NetworkManager) -> None:
    (node.conf_dir / "a.conflist").unlink()
    wait_until(lambda: names(watching) == [])


def test_a_half_written_file_and_its_end(node: ManagerNode, watching: NetworkManager) -> None:
    text = json.dumps(document("longer", name="a"))
    with (node.conf_dir / "a.conflist").open("w") as file:
        file.write(text[:20])
        file.flush()
        wait_until(lambda: watching.configuration.kept == ("a",))
        assert watching.network("a").plugins[0].type == "a"
        file.write(text[20:])
    wait_until(lambda: watching.network("a").plugins[0].type == "longer")
    wait_until(lambda: watching.configuration.problems == ())


def test_a_directory_removed_and_made_again_twice(node: ManagerNode, watching: NetworkManager) -> None:
    for name in ("b", "c"):
        node.conf_dir.rename(node.root / ("before-" + name))  # at once: a look must not find it there and empty
        wait_until(lambda: watching.configuration.problems)
        assert names(watching)
        node.conf_dir.mkdir()
        node.configure(name, "a")
        wait_until(lambda: names(watching) == [name])  # noqa: B023 - called at once
        node.configure("later-" + name, "a")
        wait_until(lambda: names(watching) == [name, "later-" + name])  # noqa: B023


def test_a_directory_removed_and_made_again_between_two_looks(node: ManagerNode, watching: NetworkManager) -> None:
    """Its inode number is then often the same."""
    shutil.rmtree(node.conf_dir)
    node.conf_dir.mkdir()
    node.configure("b", "a")
    wait_until(lambda: names(watching) == ["b"])
    time.sleep(1.0)
    node.configure("c", "a")
    wait_until(lambda: names(watching) == ["b", "c"])


def test_a_change_while_it_is_read_is_seen_by_the_next_look(node: ManagerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where all is then again as it was before the reading began."""
    node.plugin("a")
    manager = node.manager()

    def load(*args: Any) -> networks.NetworkSet:
        node.configure("b", "a")
        found = networks.load(*args)
        (node.conf_dir / "b.conflist").unlink()
        node.configure("c", "a")
        return found

    monkeypatch.setattr("libcni.manager.configuration.load", load)
    manager.reload()
    monkeypatch.undo()
    (node.conf_dir / "c.conflist").unlink()
    assert manager._configuration.reload_if_changed()
    assert names(manager) == []


def test_a_directory_replaced_at_once(node: ManagerNode, watching: NetworkManager) -> None:
    other = node.root / "other"
    other.mkdir()
    node.configure("x", "a", file=other / "x.conflist")
    node.conf_dir.rename(node.root / "old")
    other.rename(node.conf_dir)
    wait_until(lambda: names(watching) == ["x"])
    node.configure("y", "a")
    wait_until(lambda: names(watching) == ["x", "y"])


def test_a_symbolic_link_that_leads_elsewhere(node: ManagerNode, watching: NetworkManager) -> None:
    """Kubernetes mounts a ConfigMap so: files are links through ``..data``, which is replaced as a whole."""
    for version, plugin in (("v1", "one"), ("v2", "two")):
        (node.conf_dir / version).mkdir()
        node.configure("linked", plugin, file=node.conf_dir / version / "l.conflist")
    (node.conf_dir / "..data").symlink_to("v1")
    (node.conf_dir / "l.conflist").symlink_to("..data/l.conflist")
    wait_until(lambda: "linked" in names(watching))
    (node.conf_dir / "..new").symlink_to("v2")
    (node.conf_dir / "..new").rename(node.conf_dir / "..data")
    wait_until(lambda: watching.network("linked").plugins[0].type == "two")


def test_a_drop_in(node: ManagerNode, watching: NetworkManager) -> None:
    (node.conf_dir / "a").mkdir()
    time.sleep(0.3)
    (node.conf_dir / "a" / "x.conf").write_text('{"type": "dropped"}')
    wait_until(lambda: [plugin.type for plugin in watching.network("a").plugins] == ["a", "dropped"])
    (node.conf_dir / "a" / "x.conf").write_text('{"type": "other"}')
    wait_until(lambda: [plugin.type for plugin in watching.network("a").plugins] == ["a", "other"])


def test_a_plugin_that_goes_and_comes(node: ManagerNode, watching: NetworkManager) -> None:
    (node.bin / "a").unlink()
    wait_until(lambda: watching.configuration.missing)
    wait_until(lambda: node.kinds()[-1] == "problem")
    node.plugin("a")
    wait_until(lambda: not watching.configuration.missing)
    wait_until(lambda: node.kinds()[-1] == "network-ready")


def test_nothing_is_read_while_nothing_changes(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    with manager.watch(0.02):
        time.sleep(0.3)
    assert node.kinds() == ["reload", "network-ready"]


def test_a_closed_watch_watches_no_more(node: ManagerNode) -> None:
    manager = node.manager()
    manager.watch(0.02).close()
    node.configure("a")
    time.sleep(0.2)
    assert names(manager) == []


def test_an_error_while_looking_is_not_the_end(node: ManagerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = node.manager()
    real = manager._configuration.reload_if_changed
    tries: list[int] = []

    def look() -> bool:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return real()

    monkeypatch.setattr(manager._configuration, "reload_if_changed", look)
    with manager.watch(0.02):
        node.configure("a")
        wait_until(lambda: names(manager) == ["a"])


def test_the_first_poll_comes_at_once_and_closing_waits_for_none(node: ManagerNode) -> None:
    manager = node.manager()
    node.configure("late")
    with manager.watch(3600.0):
        wait_until(lambda: names(manager) == ["late"])
        started = time.monotonic()
    assert time.monotonic() - started < 2


def test_a_change_is_found_within_seconds_without_any_setting(node: ManagerNode) -> None:
    manager = node.manager()
    with manager.watch():
        time.sleep(0.2)
        node.configure("late")
        wait_until(lambda: names(manager) == ["late"])
