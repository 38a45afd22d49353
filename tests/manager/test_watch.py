"""The watch reloads until it is closed."""

from __future__ import annotations

import time
from typing import Any

import pytest

from libcni.manager import NetworkManager, networks
from libcni.testing import wait_until
from manager.fakes import ManagerNode


def names(manager: NetworkManager) -> list[str]:
    return [net.name for net in manager.networks]


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
