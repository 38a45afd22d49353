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
"""Seconds after which one who is still inside is taken to wait for something, and no longer waited for."""

_ROUNDS = 20
"""How many times to wait so long for others who do go in and out, before going in beside them."""


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
        for _ in range(_ROUNDS):
            gate, passed = _Gate.lock, _Gate.passed
            if gate.acquire(timeout=_PATIENCE):
                self._lock = gate
                return
            if _Gate.lock is gate and _Gate.passed == passed:
                _Gate.lock = threading.Lock()
                return

    def leave(self) -> None:
        """Go out, if in."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _Gate.passed += 1
            lock.release()


class _Gate:
    lock = threading.Lock()
    passed = 0


def _renew() -> None:
    _Gate.lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)
