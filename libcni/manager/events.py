"""What happens, told to observers and to async iterators."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Self

from libcni.errors import CNIError

__all__ = ["Event", "EventStream", "Events", "Kind"]

logger: logging.Logger = logging.getLogger("libcni")

Kind = Literal[
    "network-ready", "network-gone", "attachment-added", "attachment-removed", "reload", "problem", "events-lost"
]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Attributes:
        kind: what it was. ``network-ready``: a network came, or changed, or its last missing plugin did.
        network: the network that it happened to, "" where that does not apply.
        container_id: the container, likewise.
        ifname: the interface's name, likewise.
        detail: in words.
        error: for a problem, or None.
        when: UTC.
    """

    kind: Kind
    network: str = ""
    container_id: str = ""
    ifname: str = ""
    detail: str = ""
    error: CNIError | None = None
    when: datetime = field(default_factory=lambda: datetime.now(UTC), compare=False)


class Events:
    """Pass events on to all who listen; safe to share between threads."""

    def __init__(self) -> None:
        self._observers: list[Callable[[Event], object]] = []
        self._lock = threading.Lock()

    def observe(self, observer: Callable[[Event], object]) -> Callable[[], None]:
        """Call ``observer`` for every event from now on; return what ends that. What it raises is only logged."""
        with self._lock:
            self._observers.append(observer)
        return lambda: self._forget(observer)

    def _forget(self, observer: Callable[[Event], object]) -> None:
        with self._lock:
            self._observers = [known for known in self._observers if known is not observer]

    def tell(self, event: Event) -> None:
        """Pass an event on."""
        with self._lock:
            observers = tuple(self._observers)
        for observer in observers:
            try:
                observer(event)
            except Exception:  # an observer must not undo what it is told of
                logger.exception("an observer failed at %s", event.kind)

    def stream(self, limit: int = 1000) -> EventStream:
        """Return an async iterator over the events from now on, for the running event loop."""
        return EventStream(self, limit)


class EventStream:
    """Iterate over events as they come. Close it, or use ``async with``.

    Who is slow loses the oldest beyond the limit; an ``events-lost`` event says how many. It comes from
    ``NetworkManager.events``.
    """

    def __init__(self, events: Events, limit: int) -> None:
        self._waiting: deque[Event] = deque(maxlen=limit)
        self._lost = 0
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._stop = events.observe(self._from_any_thread)

    def _from_any_thread(self, event: Event) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: Event) -> None:
        self._lost += len(self._waiting) == self._waiting.maxlen
        self._waiting.append(event)
        self._news.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._closed:
            if self._lost:
                lost, self._lost = self._lost, 0
                return Event("events-lost", detail=str(lost))
            if self._waiting:
                return self._waiting.popleft()
            self._news.clear()
            await self._news.wait()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration, also one that waits."""
        self._stop()
        self._closed = True
        self._news.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
