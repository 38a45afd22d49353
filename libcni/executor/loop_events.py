"""One epoll instance and one timer for all plugin calls of an event loop.

A reader and two timers of the event loop for each call would take more time than the call itself.
"""

from __future__ import annotations

import asyncio
import math
import select
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary, ref

_TICK = 0.005
"""Seconds between two runs of the timer, at least."""

AT_ONCE = 8
"""The largest number of starts of verbs, and ends of plugins, that one pass of the event loop handles.

Each blocks the loop for half a millisecond; the loop's other tasks run between two passes.
"""

_handled: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
"""The number of starts and ends that the present pass of each loop has handled."""

# Weak references: only the loop's reader keeps the LoopEvents alive. When a closed loop is freed, its calls are freed
# too, and with them the locks of their verbs.
_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[LoopEvents]] = WeakKeyDictionary()


class LoopEvents:
    """One epoll instance and one timer of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], object]] = {}
        self._due: dict[object, tuple[float, Callable[[], object]]] = {}
        self._next_tick = math.inf
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self._epoll.fileno(), self._on_ready)

    def add_reader(self, descriptor: int, call: Callable[[], object]) -> None:
        """Call ``call`` whenever ``descriptor`` is readable; raises OSError. Call ``remove_reader`` before closing it.

        A forked child that has a copy of a closed descriptor would keep it readable for ever.
        """
        self._epoll.register(descriptor, select.EPOLLIN)
        self._readers[descriptor] = call

    def remove_reader(self, descriptor: int) -> None:
        """Stop watching a descriptor, if it is watched. Never call it in a forked child, which shares the epoll."""
        if self._readers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def call_at(self, when: float, owner: object, call: Callable[[], object]) -> None:
        """Call ``call`` at ``when`` (``time.monotonic``) or some milliseconds later; replace an earlier ``call_at``."""
        self._due[owner] = when, call
        if when < self._next_tick:
            if self._timer is not None:
                self._timer.cancel()
            self._next_tick = when
            self._timer = asyncio.get_running_loop().call_later(when - time.monotonic(), self._on_time)

    def cancel(self, owner: object) -> None:
        """Remove the owner's call, if it has one."""
        self._due.pop(owner, None)
        if self._timer is not None and not self._due:
            self._timer.cancel()
            self._next_tick, self._timer = math.inf, None

    def _on_ready(self) -> None:
        # At least one, because verbs may begin in every pass.
        ready = self._epoll.poll(0, max(1, _room()))
        _count(len(ready))
        for descriptor, _ in ready:
            call = self._readers.get(descriptor)
            if call is not None:  # a call before this one may have removed it
                call()

    def _on_time(self) -> None:
        self._next_tick, self._timer = math.inf, None
        moment = time.monotonic()
        for owner, (when, call) in list(self._due.items()):
            if when <= moment and self._due.pop(owner, None) is not None:
                call()
        if self._due:
            owner, (when, call) = min(self._due.items(), key=lambda item: item[1][0])
            self.call_at(max(when, moment + _TICK), owner, call)


def of_running_loop() -> LoopEvents:
    """Return the events of the running event loop. Raises OSError if the system allows no epoll instance."""
    loop = asyncio.get_running_loop()
    known = _of_loops.get(loop)
    events = None if known is None else known()
    if events is None:
        events = LoopEvents(loop)
        _of_loops[loop] = ref(events)
    return events


async def let_others_run() -> None:
    """Suspend this task until its verb may begin: only some verbs begin in one pass of the event loop."""
    while _room() <= 0:  # noqa: ASYNC110 - it waits for the next pass
        await asyncio.sleep(0)
    _count(1)


def _room() -> int:
    """Return how many more starts and ends this pass of the running event loop may handle."""
    return AT_ONCE - _handled.get(asyncio.get_running_loop(), 0)


def _count(number: int) -> None:
    loop = asyncio.get_running_loop()
    if loop not in _handled:
        loop.call_soon(_handled.pop, loop, None)  # in the next pass
    _handled[loop] = _handled.get(loop, 0) + number
