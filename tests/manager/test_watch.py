"""The watch reloads until it is closed."""

from __future__ import annotations

import json
import os
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


def test_a_file_renamed_into_place(node: ManagerNode, watching: NetworkManager) -> None:
    new = node.root / "new"
    node.configure("a", "changed", file=new)
    os.replace(new, node.conf_dir / "a.conflist")
    wait_until(lambda: watching.network("a").plugins[0].type == "changed")


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


def test_a_plugin_that_goes_and_comes(node: ManagerNode, watching: NetworkManager) -> None:
    (node.bin / "a").unlink()
    wait_until(lambda: watching.configuration.missing)
    node.plugin("a")
    wait_until(lambda: not watching.configuration.missing)


def test_a_closed_watch_ends(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    manager.watch(0.02).close()
    node.configure("b", "a")
    time.sleep(0.2)
    assert names(manager) == ["a"]


def test_an_error_while_it_reloads_is_not_the_end(node: ManagerNode, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = node.manager()
    tries: list[int] = []

    def load(*args: Any) -> networks.NetworkSet:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("once")
        return networks.load(*args)

    monkeypatch.setattr("libcni.manager.manager_base.load", load)
    with manager.watch(0.02):
        node.configure("a")
        wait_until(lambda: names(manager) == ["a"])
