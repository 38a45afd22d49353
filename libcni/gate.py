"""One thread at a time does what takes microseconds, and no thread holds up others for long.

Many threads that each do a few microseconds between two system calls hand the interpreter lock over at every call, and
get slower the more they are. Threads that wait at the gate leave it alone.
"""

from __future__ import annotations

import os
import threading
from typing import Self

__all__ = ["Passage"]

_PATIENCE = 0.05
"""Seconds after which whoever is inside is taken to wait for something, and no longer waited for."""


class Passage:
    """One thread's way in and out. Nothing depends on being alone inside."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: threading.Lock | None = None

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Go in, when there is nobody or they take too long; nothing if in already."""
        if self._lock is not None:
            return
        gate = _Gate.lock
        if gate.acquire(timeout=_PATIENCE):
            self._lock = gate
        elif _Gate.lock is gate:
            _Gate.lock = threading.Lock()

    def leave(self) -> None:
        """Go out, if in."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()


class _Gate:
    lock = threading.Lock()


def _renew() -> None:
    _Gate.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)
