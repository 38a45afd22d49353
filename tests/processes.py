"""Processes: a function in a forked child, and whether one runs."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from libcni.executor import child


async def until(condition: Callable[[], object], *tasks: asyncio.Future[Any], seconds: float = 60) -> None:
    """Wait on asyncio until other processes have made a condition true.

    Raises:
        AssertionError: one of ``tasks``, which the condition needs, has ended; or ``seconds`` have passed.
    """
    end = time.monotonic() + seconds
    while not condition():
        for task in tasks:
            if task.done():
                task.result()  # raises what it raised
                raise AssertionError(f"{task} has ended, and nothing else makes the condition true")
        assert time.monotonic() < end, f"not true after {seconds} s"
        await asyncio.sleep(0.01)


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


def wait(pid: int, seconds: float = 60) -> int:
    """Return the exit status of a child, negative for a signal. Kill it after ``seconds``: a test must not hang."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()  # select() refuses high descriptors
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(seconds * 1000):
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_after(pid: int, seconds: float) -> bool:
    """Kill a child after a while; return whether it still ran."""
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    return wait(pid) == -signal.SIGKILL


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def children(pid: int | None = None) -> list[int]:
    """Return the child processes of a process's main thread; by default of this process."""
    pid = pid or os.getpid()
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def descriptors() -> set[int]:
    """Return this process's descriptors, without those with which clients may watch their records."""
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    found = {name: os.readlink(name) for name in names if os.path.lexists(name)}
    return {int(os.path.basename(name)) for name, link in found.items() if link != "anon_inode:inotify"}


def no_child_is_left() -> bool:
    """Return whether all plugins have ended; on a busy machine one may end some time after its SIGKILL."""
    child._reap_unreaped()
    return children() == []
