"""What a plan asks its driver to do, as plain values. A plan is to many networks what a flow is to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from libcni.manager.events import Event
from libcni.store.locks import LockRequest, LockSet

__all__ = ["Ask", "Call", "Plan", "Step", "Turn", "Turns", "Work"]

Method = Literal[
    "add_network_list",
    "check_network_list",
    "del_attachment",
    "del_network_list",
    "gc_network_list",
    "get_cached_attachments",
    "network_status",
    "validate_network_list",
]


@dataclass(frozen=True, slots=True)
class Call:
    """Call a method of CNIConfig or AsyncCNIConfig; answer: what it returns."""

    method: Method
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """Wait until nobody else works on this container, or ("") on any; it is held until the plan ends.

    ``timeout``: seconds to wait at most, None: no limit.
    """

    container_id: str
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """Do what blocks, such as running ``ip``: in a thread where the driver must not block."""

    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Call a function of the user, which may be a coroutine function for the asyncio driver; answer: its answer."""

    function: Callable[[], Any]


Step = Call | Turn | Work | Ask | Event

_Answer = TypeVar("_Answer")
Plan = Generator[Step, Any, _Answer]
"""An operation: yields steps, is sent their answers or thrown their CNIErrors, and returns the operation's answer."""

_ALL = "//manager"  # no network's name, so never the lock of one


class Turns:
    """The turns that one plan holds, between threads, tasks and processes alike.

    A container's turn is its own; all turns share one more lock, and GC takes that for itself. Both come before any
    lock of a verb, so the order stays: turns, network, container.
    """

    def __init__(self, cache_dir: str) -> None:
        self._cache_dir = cache_dir
        self._holds: list[LockSet] = []

    def take(self, turn: Turn, now: Callable[[], float]) -> Iterator[float]:
        """Take a turn; yield seconds to sleep until it is there. Raises LockTimeoutError. ``now``: a clock."""
        requests = [LockRequest((_ALL,), exclusive=not turn.container_id)]
        if turn.container_id:
            requests.append(LockRequest((f"{_ALL}/{turn.container_id}",), exclusive=True))
        deadline = math.inf if turn.timeout is None else now() + turn.timeout
        for request in requests:
            hold = LockSet(self._cache_dir, request)
            self._holds.append(hold)
            yield from hold.retry_delays(deadline)

    def close(self) -> None:
        """Give all turns back."""
        while self._holds:
            self._holds.pop().close()
