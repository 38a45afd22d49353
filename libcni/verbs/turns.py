"""Turns of a client's operations: at most ``max_verbs`` run at once, in order, and one at a time for each container.

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

import libcni.kernel.system as system
from libcni.errors import LockTimeoutError, short_repr

_DESCRIPTORS = 8
"""File descriptors of a verb: 1 for its namespace, 1 for its record, 2 for the lock file, 4 for a plugin."""

_AT_FIRST_PER_CORE = 8
"""How many operations per core begin at once. More begin if these use little processor time.

If all began at once, they would share the processor and end late: of 200 set-ups with time for half of them, few would
complete.
"""

_PACE_SECONDS = 0.25
"""Seconds before the processor time is measured. By then plugins have ended, and the system has counted their time."""

_BUSY = 0.25
"""The share of all cores' time that this program and its plugins may use before no more operations begin."""

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
        """End a turn, or give it up. Does nothing if the turn was never entered."""
        with self._lock:
            self._waiting.pop(turn, None)
            self._running.discard(turn)
            if self._containers.get(turn.container_id) is turn:
                del self._containers[turn.container_id]
            turn.has_come = False
            self._admit()

    def has_idle_cores(self) -> bool:
        """Return whether so few operations run that a plugin that starts ahead takes no core from one that works."""
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
            problem = f"as many operations of this client as max_verbs={self.most} allows ran"
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
            # No other event triggers the next decision, so measure the processor time after a while.
            self._timer = threading.Timer(_PACE_SECONDS, self._look_again, (system.monotonic(), _processor_seconds()))
            self._timer.daemon = True
            self._timer.start()
        return False

    def _look_again(self, began: float, used: float) -> None:
        """Let more operations begin if this program used little of the processor since ``began``."""
        available = (system.monotonic() - began) * len(os.sched_getaffinity(0))
        needs_processor = _processor_seconds() - used > _BUSY * available
        with self._lock:
            self._timer = None
            # Running operations that do not use the processor must not delay others.
            self._extra = len(self._running) if self._waiting and not needs_processor else 0
            self._admit()


def _processor_seconds() -> float:
    """Return the processor time of this program and of all its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


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
