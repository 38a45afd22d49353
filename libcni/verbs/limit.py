"""Limit how many verbs of a client run at once: in the order of their calls, and one at a time for each container."""

from __future__ import annotations

import os
import resource
import threading
import weakref
from collections.abc import Callable

from libcni.errors import LockTimeoutError, short_repr

MAX_VERBS = 128

_DESCRIPTORS = 7
"""A verb takes a descriptor in the namespace, two of the lock file, and four while its plugin starts and runs."""

_RESERVED = 64
"""Descriptors that do not depend on the number of verbs: those of the program itself."""


class Turn:
    """The turn of one verb of a client. It ends at the latest when this object is freed.

    Attributes:
        container_id: the verb's container, "" for none.
        has_come: whether the verb may run.
        wake: called when the turn has come; it must not block. It raises RuntimeError if nobody waits any more.
    """

    def __init__(self, limit: VerbLimit, container_id: str) -> None:
        self._limit = limit
        self.container_id = container_id
        self.has_come = False
        self.wake: Callable[[], object] | None = None

    def __del__(self) -> None:
        # An exception from a signal handler can prevent the call of ``leave``.
        self._limit.leave(self)


class VerbLimit:
    """The verbs of a client that run and that wait, for threads and for event loops.

    Args:
        most: how many verbs run at once.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        # A sweep leaves half of the turns to other verbs: an ADD must not wait for hundreds of stale attachments.
        self.of_a_sweep: int = max(1, most // 2)
        self._forget_all()
        _limits.add(self)

    def _forget_all(self) -> None:
        # Reentrant: the garbage collector may free a turn while this thread holds the lock.
        self._lock = threading.RLock()
        self._running: weakref.WeakSet[Turn] = weakref.WeakSet()
        self._containers: weakref.WeakValueDictionary[str, Turn] = weakref.WeakValueDictionary()
        self._waiting: dict[Turn, None] = {}  # a dict keeps the order of arrival

    def enter(self, turn: Turn) -> bool:
        """Let a verb wait for its turn; return whether the turn has come at once."""
        with self._lock:
            self._waiting[turn] = None
            self._admit()
            return turn.has_come

    def call_when_it_comes(self, turn: Turn, wake: Callable[[], object]) -> None:
        """Let ``wake`` be called when the turn comes, or now if it has come."""
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

    def timeout(self, turn: Turn, seconds: float) -> LockTimeoutError:
        """Return the error for a verb whose turn did not come within ``seconds``."""
        what = f"{self.most} verbs of this client (max_verbs)"
        if turn.container_id in self._containers:
            what = f"container {turn.container_id}"
        problem = f"{what}: other verbs of this program ran for {seconds:.1f} s; this verb was not run"
        return LockTimeoutError(problem, what=what, seconds=seconds)

    def _admit(self) -> None:
        """Let the verbs run whose turn has come. One whose container is busy lets others pass."""
        if len(self._running) >= self.most:  # before the copy: a thousand verbs may wait
            return
        for turn in list(self._waiting):
            if len(self._running) >= self.most:
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


_limits: weakref.WeakSet[VerbLimit] = weakref.WeakSet()


def _forget_all() -> None:
    # The verbs of the parent do not run in a forked child, and another thread of the parent may have held a lock.
    for limit in list(_limits):
        limit._forget_all()  # noqa: SLF001 - the module's own class


os.register_at_fork(after_in_child=_forget_all)


def verbs_at_once(max_verbs: int) -> int:
    """Return how many verbs run at once: ``max_verbs``, or fewer if this program may open few files (``ulimit -n``).

    Raises:
        TypeError: ``max_verbs`` is no whole number.
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
