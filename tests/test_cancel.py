"""A blocking verb that another thread cancels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from nodes import FakeNode

from libcni import Cancelled, CancelScope, CNIConfig, RuntimeConf
from libcni.manager import Container, NetworkManager
from libcni.testing import RecordingExecutor, wait_until

HANGS = "touch $0.began; exec sleep 60"


class Cancellable:
    """A call in a thread of its own, with its scope and its exception."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.scope = CancelScope()
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self.scope:
                self._call()
        except BaseException as error:  # noqa: BLE001 - the test examines it
            self.error = error

    def cancel(self) -> None:
        """Cancel the call; it must raise Cancelled soon."""
        before = time.monotonic()
        self.scope.cancel()
        self._thread.join(30)
        assert not self._thread.is_alive()
        assert isinstance(self.error, Cancelled), self.error
        assert time.monotonic() - before < 20


@pytest.fixture
def node(node: FakeNode) -> FakeNode:
    node.configure("net", "a", "hangs")
    node.plugin("hangs", f'[ "$CNI_COMMAND" = ADD ] && {{ {HANGS}; }}')
    return node


def conf(container: str = "c1") -> RuntimeConf:
    return RuntimeConf(container, "/ns", "eth0")


def has_begun(node: FakeNode) -> bool:
    return (node.bin / "hangs.began").exists()


@pytest.mark.parametrize(
    ("options", "states", "calls"),
    [
        ({}, ["pending"], ["ADD a", "ADD hangs"]),
        ({"on_cancel": "rollback"}, [], ["ADD a", "ADD hangs", "DEL hangs", "DEL a"]),
    ],
)
def test_a_cancelled_add_kills_its_plugin_and_does_what_it_was_told(
    node: FakeNode, options: Any, states: list[str], calls: list[str]
) -> None:
    running = Cancellable(lambda: node.cni.add_network_list("net", conf(), **options))
    wait_until(lambda: has_begun(node))
    running.cancel()
    assert (node.states(), node.verbs()) == (states, calls)
    node.cni.del_network_list("net", conf(), timeout=20)  # no plugin runs any more
    assert node.states() == []


def test_a_wait_for_a_lock_is_cancelled(node: FakeNode) -> None:
    first = Cancellable(lambda: node.cni.add_network_list("net", conf(), timeout=None))
    wait_until(lambda: has_begun(node))
    waiting = Cancellable(lambda: node.client().del_network_list("net", conf(), timeout=None))
    waiting.cancel()
    first.cancel()
    assert (node.states(), node.verbs()) == (["pending"], ["ADD a", "ADD hangs"])


def test_a_wait_for_a_turn_is_cancelled_and_the_next_has_its_turn(node: FakeNode) -> None:
    cni: CNIConfig = node.client(max_verbs=1)
    node.configure("other", "b")
    first = Cancellable(lambda: cni.add_network_list("net", conf(), timeout=None))
    wait_until(lambda: has_begun(node))
    second = Cancellable(lambda: cni.add_network_list("other", conf("c2"), timeout=None))
    second.cancel()
    first.cancel()
    cni.add_network_list("other", conf("c3"), timeout=20)
    assert sorted(node.states()) == ["pending", "ready"]


def test_a_sweep_ends_instead_of_going_on(node: FakeNode) -> None:
    node.configure("slow", "s")
    for number in range(3):
        node.cni.add_network_list("slow", conf(f"c{number}"))
    node.plugin("s", f"touch {node.bin}/hangs.began; exec sleep 60")
    sweep = Cancellable(lambda: node.cni.del_attachments(node.cni.get_cached_attachments(), timeout=None))
    wait_until(lambda: has_begun(node))
    sweep.cancel()
    assert node.states() == ["detaching"] * 3


def test_a_manager_rolls_back_what_it_attached(node: FakeNode) -> None:
    node.configure("first", "a")
    manager = NetworkManager(node.cni)
    container = Container("c1", "/ns", ["first", "net"])
    running = Cancellable(lambda: manager.set_up(container, on_cancel="rollback"))
    wait_until(lambda: has_begun(node))
    running.cancel()
    assert node.states() == []


def test_a_scope_that_is_cancelled_before_stops_the_next_verb_before_its_plugins() -> None:
    executor = RecordingExecutor()
    scope = CancelScope()
    scope.cancel()
    scope.cancel()
    with pytest.raises(Cancelled), scope:
        CNIConfig("/bin", executor=executor).get_version_info("a")
    assert executor.calls == []
    CNIConfig("/bin", executor=executor).get_version_info("a")  # outside of the scope
    with pytest.raises(RuntimeError, match="can be entered once"), scope:
        pass
