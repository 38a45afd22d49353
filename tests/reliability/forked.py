"""Run a function in a forked child, and make it die at a chosen moment. Nothing of this is in the library."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["Injector", "fork", "kill_after", "wait"]

_OPERATIONS = {
    os: ("open", "write", "fsync", "link", "rename", "unlink", "mkdir", "listdir", "posix_spawn", "waitid"),
    fcntl: ("fcntl",),
}


def fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a child process and return its number; its exit status is 1 where ``work`` raised."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the test process may have threads; none of them is in the library
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - it is a process's main function
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def wait(pid: int) -> int:
    """Return the exit status of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_after(pid: int, seconds: float) -> bool:
    """Kill a child after a while; return whether it still ran."""
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return wait(pid) == -signal.SIGKILL


class Injector:
    """Count the operations of this process, and kill it at a chosen point: before, within or after one of them.

    Each operation has the points before and after it; a write has one in between, when half of the bytes are written.
    """

    def __init__(self, at: int = -1) -> None:
        self.at = at
        self.points = 0
        for module, names in _OPERATIONS.items():
            for name in names:
                setattr(module, name, self._wrapped(name, getattr(module, name)))

    def _point(self) -> None:
        if self.points == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(10)
        self.points += 1

    def _wrapped(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._point()
            if name == "write" and self.points == self.at:
                function(args[0], bytes(args[1])[: len(args[1]) // 2])
            if name == "write":
                self._point()
            result = function(*args, **kwargs)
            self._point()
            return result

        return wrapper
