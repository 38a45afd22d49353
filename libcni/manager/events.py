"""Events of a manager, for observers and for async iterators."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, Self

from libcni.errors import CNIError

__all__ = ["Event", "EventStream"]

logger: logging.Logger = logging.getLogger("libcni")

Kind = Literal[
    "network-ready", "network-gone", "attachment-added", "attachment-removed", "reload", "problem", "events-lost"
]


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a manager.

    Attributes:
        kind: the kind of event. ``network-ready``: a network is new, has changed, or its last missing plugin appeared.
        network: the network's name, or "".
        container_id: the container's ID, or "".
        ifname: the interface's name, or "".
        detail: a text for people.
        error: the error of a problem, or None.
        when: the time, UTC.
    """

    kind: Kind
    network: str = ""
    container_id: str = ""
    ifname: str = ""
    detail: str = ""
    error: CNIError | None = None
    when: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)


def problem_event(error: CNIError, network: str = "", container_id: str = "", ifname: str = "") -> Event:
    """Return the event for an error."""
    return Event("problem", network, container_id, ifname, str(error), error)


class Events:
    """Distributes events to observers; safe to share between threads."""

    def __init__(self) -> None:
        self._observers: list[Callable[[Event], object]] = []
        self._lock = threading.Lock()

    def observe(self, observer: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``observer`` for every event from now on; return a function that ends this.

        If the observer raises an exception, it is logged and not raised.
        """
        with self._lock:
            self._observers.append(observer)
        return lambda: self._forget(observer)

    def _forget(self, observer: Callable[[Event], object]) -> None:
        with self._lock:
            self._observers = [known for known in self._observers if known is not observer]

    def emit(self, event: Event) -> None:
        """Call all observers with an event."""
        with self._lock:
            observers = tuple(self._observers)
        # Outside the lock: an observer may add or remove observers, or run an operation of the manager.
        for observer in observers:
            try:
                observer(event)
            except Exception:  # an observer must not stop the operation that it watches
                logger.exception("an observer failed at %s", event.kind)

    def stream(self, limit: int = 1000) -> EventStream:
        """Return an async iterator over the events from now on, for the running event loop."""
        return EventStream(self, limit)


class EventStream:
    """An async iterator over events, from ``NetworkManager.events``. Close it, or use ``async with``.

    If the reader is too slow, the oldest events beyond the limit are lost. An ``events-lost`` event gives their number.
    """

    def __init__(self, events: Events, limit: int) -> None:
        import asyncio  # only here: blocking callers do without

        self._waiting: deque[Event] = deque(maxlen=limit)
        self._lost = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._stop = events.observe(self._from_any_thread)

    def _from_any_thread(self, event: Event) -> None:
        # The blocking manager emits in any thread, and asyncio objects are not thread-safe. After its end the loop
        # would raise RuntimeError into the operation.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._append, event)

    def _append(self, event: Event) -> None:
        # The deque drops its oldest event itself when it is full. Only the count is kept here.
        self._lost += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(event)
        self._arrived.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            if self._lost:
                lost, self._lost = self._lost, 0
                return Event("events-lost", detail=str(lost))
            if self._waiting:
                return self._waiting.popleft()
            # No await between the test and this line, so no event can arrive in between and be missed.
            self._arrived.clear()
            await self._arrived.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration, also if a reader waits for an event."""
        self._stop()
        self._closed = True
        self._arrived.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
