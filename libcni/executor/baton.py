"""The baton: one thread at a time runs the Python code of verbs. Threads that wait for a plugin do not count.

Each system call releases the interpreter's lock, and with many threads each release wakes another thread: the threads
wake each other dozens of times for one ADD. With the baton they change only where a verb really waits.

The baton only saves time, and no verb relies on it. A thread that cannot get it within ``_LONGEST_WAIT`` goes on
without it and replaces it. So neither an exception of a signal handler between two lines, nor foreign code that waits
for another verb, can stop a program.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType

_LONGEST_WAIT = 0.5
"""Seconds. Verbs hold the baton for some milliseconds."""


class _Mine(threading.local):
    held: threading.Lock | None = None


_mine = _Mine()
_lock = threading.Lock()


def _take() -> None:
    global _lock  # noqa: PLW0603
    lock = _lock
    if lock.acquire(timeout=_LONGEST_WAIT):
        _mine.held = lock
    elif lock is _lock:
        _lock = threading.Lock()


def _give_up() -> bool:
    """Release the baton if this thread has it; return whether it had it."""
    lock, _mine.held = _mine.held, None
    if lock is None:
        return False
    lock.release()
    return True


class Holding:
    """A context manager whose block holds the baton, the right to run the Python code of a verb. Reentrant."""

    __slots__ = ("_has_taken",)

    def __enter__(self) -> None:
        self._has_taken = _mine.held is None
        if self._has_taken:
            _take()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._has_taken:
            _give_up()


class Waiting:
    """A context manager that gives the baton up during its block, which waits or runs foreign code.

    Its value is whether the thread had the baton.
    """

    __slots__ = ("_had",)

    def __enter__(self) -> bool:
        self._had = _give_up()
        return self._had

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self._had:
            _take()


def _after_fork() -> None:
    # Another thread of the parent may have held it.
    global _lock
    _lock, _mine.held = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)
