"""Events: told to observers and to async iterators, from any thread, and to those who are slow."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from libcni.manager import Container, Event
from libcni.manager.events import Events
from manager.fakes import ManagerNode


def test_an_observer_gets_events_until_it_is_removed(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    told: list[str] = []
    stop = manager.observe(lambda event: told.append(event.kind))
    manager.set_up(Container("c1", "/ns"))
    stop()
    manager.tear_down("c1")
    assert told == ["attachment-added"]


def test_an_observer_that_fails_undoes_nothing(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()

    def fail(_event: Event) -> None:
        raise ValueError

    told: list[str] = []
    manager.observe(fail)
    manager.observe(lambda event: told.append(event.kind))
    manager.set_up(Container("c1", "/ns"))
    assert told == ["attachment-added"]


def test_an_async_iterator_over_events_of_a_blocking_manager_in_other_threads(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()

    async def listen() -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        async with manager.events() as events:
            await asyncio.to_thread(manager.set_up, Container("c1", "/ns"))
            await asyncio.to_thread(manager.tear_down, "c1")
            async for event in events:
                found.append((event.kind, event.container_id))
                if event.kind == "attachment-removed":
                    break
        return found

    assert asyncio.run(listen()) == [("attachment-added", "c1"), ("attachment-removed", "c1")]


def test_events_from_before_the_first_step_of_the_iteration_are_not_lost() -> None:
    async def go() -> str:
        events = Events()
        stream = events.stream()
        events.emit(Event("reload"))
        return (await anext(stream)).kind

    assert asyncio.run(go()) == "reload"


def test_an_event_from_another_thread_wakes_a_loop_that_sleeps() -> None:
    async def go() -> float:
        events = Events()
        stream = events.stream()
        threading.Timer(0.1, events.emit, [Event("reload")]).start()
        started = time.monotonic()
        await asyncio.wait_for(anext(stream), 5)
        return time.monotonic() - started

    assert asyncio.run(go()) < 2


def test_a_slow_reader_loses_the_oldest_events_and_learns_how_many() -> None:
    async def go() -> list[tuple[str, str]]:
        events = Events()
        stream = events.stream(limit=2)
        for number in range(5):
            events.emit(Event("problem", detail=str(number)))
        await asyncio.sleep(0)
        return [((event := await anext(stream)).kind, event.detail) for _ in range(3)]

    assert asyncio.run(go()) == [("events-lost", "3"), ("problem", "3"), ("problem", "4")]


def test_closing_ends_an_iteration_that_waits() -> None:
    async def go() -> list[Event]:
        stream = Events().stream()
        asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(stream.aclose()))
        return [event async for event in stream]

    assert asyncio.run(asyncio.wait_for(go(), 5)) == []


def test_a_stream_of_a_loop_that_has_ended_disturbs_nobody(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()

    async def go() -> Any:
        return events.stream()

    stream = asyncio.run(go())
    thread = threading.Thread(target=events.emit, args=(Event("reload"),))
    thread.start()
    thread.join()
    assert stream is not None
    assert caplog.records == []
