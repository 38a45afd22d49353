"""Reap processes that outlive their call, and find the end of a process without a pidfd."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from typing import Any

unreaped: list[int] = []
"""Processes that no thread could wait for. The next plugin's start calls ``reap_stragglers``."""

os.register_at_fork(after_in_child=unreaped.clear)


def has_pidfd() -> bool:
    """Return whether this kernel can wait for a pidfd (5.4 and later)."""
    try:
        descriptor = os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return False
    try:
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
    except ChildProcessError:  # we are no child of ourselves; kernel 5.3 answers EINVAL
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def pipe_until_exit(pid: int) -> int:
    """Return the read end of a pipe that a thread closes when a process ends: the watch for kernels without pidfd.

    Raises:
        OSError: no pipe can be made, or no thread be started.
    """
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    try:
        _start_thread(_close_at_exit, pid, write_end)
    except BaseException:
        os.close(read_end)
        os.close(write_end)
        raise
    return read_end


def _close_at_exit(pid: int, write_end: int) -> None:
    with suppress(OSError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.close(write_end)


def reap_in_thread(pid: int, pidfd: int) -> None:
    """Let a thread wait for a process that hangs in the kernel, or whose tracer keeps its status.

    ``pidfd``: the process's, which is closed then, or -1.
    """
    try:
        _start_thread(_reap, pid, pidfd)
    except OSError:
        _close(pidfd)
        unreaped.append(pid)


def _reap(pid: int, pidfd: int) -> None:
    try:
        # by pidfd: the host program may reap the process first, and then the number may be another child's
        if pidfd >= 0:
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
        else:
            os.waitpid(pid, 0)
    except ChildProcessError:
        pass
    except OSError:
        with suppress(OSError):
            os.waitpid(pid, 0)
    finally:
        _close(pidfd)


def reap_stragglers() -> None:
    """Reap those of ``unreaped`` that have ended."""
    for _ in range(len(unreaped)):
        try:
            # Out of the list first: two threads that reap the same number could reap a new process with it.
            pid = unreaped.pop(0)
        except IndexError:  # another thread has it
            return
        try:
            is_reaped = os.waitpid(pid, os.WNOHANG)[0] == pid
        except OSError:
            is_reaped = True
        if not is_reaped:
            unreaped.append(pid)


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        with suppress(OSError):
            os.close(descriptor)


def _start_thread(work: Any, *args: Any) -> None:
    """Start a daemon thread; raises OSError if none can be started."""
    try:
        threading.Thread(target=work, args=args, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread can be started") from error
