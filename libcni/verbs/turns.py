"""Turns of a client's operations: at most ``max_verbs`` run at once, in order, and for each container only one.

Fewer run at once while they keep the processor busy, so that each completes soon after its start. An operation is a
verb that a caller runs, or an operation of a manager with all of its verbs: once it has begun, it waits for no turn.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

import libcni.kernel.system as system
from libcni.errors import LockTimeoutError, short_repr

_DESCRIPTORS = 8
"""File descriptors of a verb: 1 for its namespace, 1 for its record, 2 for the lock file, 4 for a plugin."""

_AT_FIRST_PER_CORE = 8
"""How many operations per core begin at once. More begin if these use little processor time.

If all began at once, they would share the processor and end late: of 200 set-ups with time for half of them, few would
complete.
"""

_IDLE_SECONDS = 0.05
"""Seconds in which cores must have been idle before more operations begin."""

_IDLE, _SATURATED = 0.2, 0.8
"""More operations begin if this share of the machine was idle, and this program used less than this share.

Measured with 64 threads and three plugins that sleep, on two cores: ADDs a second, and the 99th percentile in ms.

| a plugin sleeps | without this rule | with it | all begin at once | Go libcni |
|---|---|---|---|---|
| 0 ms | 505, 162 | 481, 212 | 452, 354 | 766, 139 |
| 5 ms | 397, 224 | 412, 314 | 437, 340 | 760, 129 |
| 20 ms | 237, 308 | 360, 337 | 383, 346 | 681, 117 |
| 100 ms | 178, 609 | 200, 363 | 182, 581 | 193, 355 |

Of 160 ADDs with plugins that compute for 20 ms, 100 complete within 3 s; if all begin at once, 73 to 89.
"""

_PACE_SECONDS = 0.25
"""Seconds to wait before the processor time is measured: the time of a plugin is counted when the plugin has ended."""

_BUSY = 0.7
"""The share of all cores' time that this program and its plugins may use before fewer operations begin.

So operations that do not need the processor still begin on a machine that other programs keep busy. There, on two cores
with 64 threads and three plugins that sleep for 20 ms, 370 ADDs a second complete; with 0.4 it was 240, with the same
99th percentile. Of 160 ADDs with plugins that compute for 20 ms, 88 complete within 3 s with both, 71 to 88 with 0.8.
"""

_KEPT = 0.75
"""After the processor was busy, only this share of the additional operations runs at once."""

_RESERVED = 64
"""File descriptors reserved for the program itself."""


class Turn:
    """The turn of one operation of a client. It ends at the latest when this object is freed.

    Attributes:
        container_id: the operation's container, "" for none.
        has_come: whether the operation may run.
        wake: called when the turn has come; it must not block. It raises RuntimeError if its event loop is closed.
    """

    def __init__(self, turns: Turns, container_id: str) -> None:
        self._turns = turns
        self.container_id = container_id
        self.has_come = False
        self.wake: Callable[[], object] | None = None

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # An exception from a signal handler can prevent the call of ``leave``. At the end of the interpreter the values
        # of this module may be gone, and nobody waits for a turn any more.
        if not is_finalizing():
            self._turns.leave(self)


class Turns:
    """The running and waiting operations of a client, in threads and on event loops.

    Args:
        most: how many operations run at once.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._forget_all()
        _every.add(self)

    def _forget_all(self) -> None:
        # Reentrant: the garbage collector may free a turn while this thread holds the lock.
        self._lock = threading.RLock()
        self._running: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._containers: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
        self._waiting: dict[Turn, None] = {}  # a dict keeps the order of arrival
        self._timer: threading.Timer | None = None
        self._extra = 0  # how many additional operations may run, because the running ones do not use the processor

    def enter(self, turn: Turn) -> bool:
        """Add an operation to the queue; return whether its turn has come at once."""
        with self._lock:
            self._waiting[turn] = None
            self._admit()
            return turn.has_come

    def call_when_it_comes(self, turn: Turn, wake: Callable[[], object]) -> None:
        """Call ``wake`` when the turn comes, or now if it has come."""
        with self._lock:
            turn.wake = wake
            if turn.has_come:
                wake()

    def leave(self, turn: Turn) -> None:
        """End a turn, or give up the wait for it. Does nothing if the turn was never entered."""
        with self._lock:
            self._waiting.pop(turn, None)
            self._running.discard(turn)
            if self._containers.get(turn.container_id) is turn:
                del self._containers[turn.container_id]
            turn.has_come = False
            self._admit()

    def has_idle_cores(self) -> bool:
        """Return whether a core is idle, so that a plugin that starts ahead takes no time from running operations."""
        return len(self._running) < max(2, len(os.sched_getaffinity(0)))

    def timeout(self, turn: Turn, seconds: float) -> LockTimeoutError:
        """Return the error for an operation whose turn did not come within ``seconds``."""
        with self._lock:
            # The turn may have come after the wait failed: then the operation itself is not the reason.
            is_behind = self._containers.get(turn.container_id, turn) is not turn
        if is_behind:
            what = f"container {turn.container_id}"
            problem = f"{what}: another operation of this client worked on it"
        else:
            what = "max_verbs"
            problem = f"the limit of running operations (max_verbs={self.most}) was reached"
        return LockTimeoutError(f"{problem} for {seconds:.1f} s; nothing was run", what=what, seconds=seconds)

    def _admit(self) -> None:
        """Start the operations whose turn has come. Operations of busy containers do not delay others."""
        if not self._has_room():  # before the copy: a thousand operations may wait
            return
        for turn in list(self._waiting):
            if not self._has_room():
                return
            if turn.container_id in self._containers or turn not in self._waiting:
                continue
            del self._waiting[turn]
            if turn.wake is not None:
                try:
                    turn.wake()
                except RuntimeError:  # its event loop was closed while it waited
                    continue
            turn.has_come = True
            self._running.add(turn)
            if turn.container_id:
                self._containers[turn.container_id] = turn

    def _has_room(self) -> bool:
        running = len(self._running)
        if running >= self.most or running < _AT_FIRST_PER_CORE:
            return running < self.most
        if running < _AT_FIRST_PER_CORE * len(os.sched_getaffinity(0)) + self._extra:
            return True
        if self._timer is None and self._waiting:
            now = _Usage.now()
            self._look_later(now, now)
        return False

    def _look_later(self, first: _Usage, last: _Usage) -> None:
        # No other event triggers the next decision, so measure the processor time after a while.
        self._timer = threading.Timer(_IDLE_SECONDS, self._look_again, (first, last))
        self._timer.daemon = True
        self._timer.start()

    def _look_again(self, first: _Usage, last: _Usage) -> None:
        """Let more operations begin if the processor was idle since ``last``, or little used since ``first``."""
        now = _Usage.now()
        has_idle_cores = now.idle_since(last) > _IDLE and now.used_since(last) < _SATURATED
        with self._lock:
            self._timer = None
            if not self._waiting:
                self._extra = 0
            elif has_idle_cores or (now.at - first.at >= _PACE_SECONDS and now.used_since(first) <= _BUSY):
                # Running operations that do not use the processor must not delay others.
                self._extra = len(self._running)
            elif now.at - first.at < _PACE_SECONDS:
                self._look_later(first, now)
                return
            else:
                self._extra = int(_KEPT * self._extra)
            self._admit()


class _Usage(NamedTuple):
    """The seconds of processor time at a moment: used by this program and its ended children, and idle ones."""

    at: float
    used: float
    idle: float

    @classmethod
    def now(cls) -> _Usage:
        """Return the present usage."""
        return cls(system.monotonic(), _processor_seconds(), _idle_seconds())

    def used_since(self, earlier: _Usage) -> float:
        """Return the share of this program's cores that it has used."""
        return (self.used - earlier.used) / ((self.at - earlier.at) * len(os.sched_getaffinity(0)) or 1.0)

    def idle_since(self, earlier: _Usage) -> float:
        """Return the share of the machine's cores that were idle."""
        return (self.idle - earlier.idle) / ((self.at - earlier.at) * (os.cpu_count() or 1) or 1.0)


def _processor_seconds() -> float:
    """Return the processor time of this program and of all its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _idle_seconds() -> float:
    """Return the idle seconds of all cores of the machine, 0 if that is unknown."""
    try:
        with open("/proc/uptime", encoding="ascii") as file:
            return float(file.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0


_every: weakref.WeakSet[Turns] = weakref.WeakSet()


def _forget_all() -> None:
    # The parent's operations do not run in a forked child, and another thread of the parent may have held the lock.
    for turns in list(_every):
        turns._forget_all()  # noqa: SLF001 - the module's own class


os.register_at_fork(after_in_child=_forget_all)


def verbs_at_once(max_verbs: int) -> int:
    """Return how many operations run at once: ``max_verbs``, or fewer if this program may open few files.

    Raises:
        TypeError: ``max_verbs`` is not a whole number.
        ValueError: it is below 1.
    """
    if isinstance(max_verbs, bool) or not isinstance(max_verbs, int):
        raise TypeError(f"max_verbs must be a whole number, not {short_repr(max_verbs)}")
    if max_verbs < 1:
        raise ValueError(f"max_verbs must be 1 or more, not {max_verbs}")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return max_verbs
    return max(1, min(max_verbs, (soft - _RESERVED) // _DESCRIPTORS))
