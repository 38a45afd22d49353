"""The client's observer sees a set-up and a tear-down as operations around their verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from libcni import NetworkNotFoundError, PluginError
from libcni.manager import Container
from libcni.observe.observer import Observer, Operation
from manager.fakes import ManagerNode, fails


class Noting(Observer):
    """Notes the begin and the end of each operation."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def begin(self, operation: Operation) -> None:
        self.seen.append(f"{operation.verb} {operation.network or operation.container_id}")

    def end(self, operation: Operation, error: BaseException | None) -> None:
        self.seen.append(f"end {operation.verb}" + (f" {type(error).__name__}" if error else ""))


def test_a_set_up_and_a_tear_down_surround_their_verbs(node: ManagerNode, make: Callable[..., Any]) -> None:
    node.configure_each("a", "b")
    observer = Noting()
    manager = make(client={"observer": observer})
    manager.set_up(Container("c1", "/ns", ["a", "b"]))
    manager.check("c1")
    manager.tear_down("c1")
    assert observer.seen == [
        "SET-UP c1", "ADD a", "end ADD", "ADD b", "end ADD", "end SET-UP",
        "CHECK a", "end CHECK", "CHECK b", "end CHECK",
        "TEAR-DOWN c1", "DEL b", "end DEL", "DEL a", "end DEL", "end TEAR-DOWN",
    ]  # fmt: skip


def test_a_set_up_that_fails_ends_with_its_error(node: ManagerNode, make: Callable[..., Any]) -> None:
    node.configure("a")
    node.plugin("a", fails("ADD"))
    observer = Noting()
    manager = make(client={"observer": observer})
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", "/ns"))
    with pytest.raises(NetworkNotFoundError):
        manager.set_up(Container("c1", "/ns", ["none"]))
    assert observer.seen == [
        "SET-UP c1", "ADD a", "end ADD PluginError", "end SET-UP PluginError",
        "SET-UP c1", "end SET-UP NetworkNotFoundError",
    ]  # fmt: skip
