"""Events: passed to the function that the caller gave, in any thread; an exception of it stops nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from libcni.manager import Container, Event, NetworkManager
from manager.fakes import ManagerNode


def test_a_function_gets_the_events(node: ManagerNode, make: Callable[..., Any]) -> None:
    node.configure("a")
    manager = make()
    manager.set_up(Container("c1", "/ns"))
    manager.tear_down("c1")
    assert node.kinds() == ["reload", "network-ready", "attachment-added", "attachment-removed"]


def test_an_exception_of_the_function_undoes_nothing(node: ManagerNode, caplog: pytest.LogCaptureFixture) -> None:
    node.configure("a")

    def fail(_event: Event) -> None:
        raise ValueError

    manager = NetworkManager(node.cni, on_event=fail)
    manager.set_up(Container("c1", "/ns"))
    assert [one.state for one in node.cni.get_cached_attachments()] == ["ready"]
    assert "on_event failed at attachment-added" in caplog.text


def test_what_is_no_function_is_refused_at_once(node: ManagerNode) -> None:
    with pytest.raises(TypeError, match="on_event must be a function, not 1"):
        NetworkManager(node.client(), on_event=1)  # type: ignore[arg-type]


def test_a_queue_passes_the_events_of_any_thread_to_an_event_loop(node: ManagerNode) -> None:
    """As the page shows."""
    node.configure("a")

    async def listen() -> list[str]:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Event]()
        manager = NetworkManager(
            node.client(), on_event=lambda event: loop.call_soon_threadsafe(queue.put_nowait, event)
        )
        await asyncio.to_thread(manager.set_up, Container("c1", "/ns"))
        return [(await queue.get()).kind for _ in range(3)]

    assert asyncio.run(listen()) == ["reload", "network-ready", "attachment-added"]
