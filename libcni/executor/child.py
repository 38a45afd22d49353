"""One plugin process: spawned, listened to, stopped and reaped, without saying how to wait for it.

stdin is a sealed memfd, stdout and stderr are pipes (a memfd there would break shell plugins that reopen /dev/stdout),
and the end of the process is a readable descriptor. A driver polls these and calls ``read`` and ``finish``.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import select
import signal
import struct
import termios
import threading
import time
from contextlib import suppress
from typing import Any

from libcni.errors import InvalidOutputError, PluginError, PluginTimeoutError
from libcni.executor.protocol import Limits
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure

__all__ = ["Child", "is_busy", "start_problem"]

_INHERITED = 19
"""The descriptor that tells others that a plugin still lives; low, since a host may allow few descriptors."""

_STDERR_KEPT = 64 * 1024
_CHUNK = 64 * 1024
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
# Python ignores SIGPIPE and SIGXFSZ, and hosts may ignore more; a spawned process would inherit that
_DEFAULT_SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("PIPE", "XFSZ", "HUP", "INT", "QUIT", "TERM", "CHLD", "USR1", "USR2", "ALRM", "TSTP", "TTIN", "TTOU")
)
_AFTER_KILL = 1.0


class Child:
    """A plugin process that runs.

    Attributes:
        exit_fd: readable when the process has ended; -1 where somebody else reaped it before it could be watched.
        open_pipes: the read ends of stdout and stderr that are not at their end yet.
    """

    _over = True
    _is_pidfd = False
    _pid = 0
    exit_fd: int = -1

    def __init__(self, invocation: Invocation, limits: Limits, output_limit: int) -> None:
        """Spawn the process; raises OSError if the executable cannot be started."""
        self._invocation = invocation
        self._output_limit = output_limit
        self._started = time.monotonic()
        pipes: list[int] = []
        pids: list[int] = []
        try:
            _spawn(invocation, limits, pipes, pids)
            self._pid = pids[0]
            self._stdout, self._stderr = pipes
            for pipe in pipes:
                os.set_blocking(pipe, False)
            self._buffers = {pipe: bytearray() for pipe in pipes}
            self._totals = dict.fromkeys(pipes, 0)
            self.open_pipes: set[int] = set(pipes)
            self.exit_fd, self._is_pidfd = _watch(self._pid)
            self._over = self.exit_fd < 0
            self.__class__ = _Running
        except BaseException:  # no descriptor is left to watch it with, or a signal handler raised: it must not go on
            self._over = True
            _kill_unwatched(pids)
            _close_all([*pipes, *([self.exit_fd] if self.exit_fd >= 0 else [])])
            raise

    def read(self, pipe: int, size: int = _CHUNK) -> int:
        """Take up to ``size`` bytes from a pipe, return how many; raises InvalidOutputError past the output limit."""
        try:
            data = os.read(pipe, size)
        except BlockingIOError:
            return 0
        if not data:
            self.open_pipes.discard(pipe)
            return 0
        self._buffers[pipe] += data
        self._totals[pipe] += len(data)
        if pipe == self._stderr:
            del self._buffers[pipe][: -2 * _STDERR_KEPT]
        if self._totals[pipe] > self._output_limit:
            name = "stdout" if pipe == self._stdout else "stderr"
            problem = f"it printed more than {self._output_limit} bytes on {name}, and was stopped"
            del self._buffers[self._stdout][_STDERR_KEPT:]
            raise plugin_failure(InvalidOutputError, self._invocation, problem, self._left())
        return len(data)

    def signal(self, number: int) -> None:
        """Send a signal to the process group, unless its leader was reaped: then the number may be somebody else's."""
        if self._over:
            return
        with suppress(ProcessLookupError, PermissionError):
            if self._is_pidfd:
                signal.pidfd_send_signal(self.exit_fd, 0)
            os.killpg(self._pid, number)

    def kill(self) -> None:
        """Kill the group, wait a moment for its leader, and let go of everything; never raises OSError."""
        if self._over:
            return
        self.signal(signal.SIGKILL)
        with suppress(OSError):
            if self.exit_fd >= 0 and _is_readable(self.exit_fd, _AFTER_KILL):
                self._reap()
            else:  # it hangs in the kernel: all that can be done is to reap it whenever it ends
                threading.Thread(target=_reap_later, args=(self._pid,), daemon=True).start()
        self.close()

    def finish(self) -> Outcome:
        """Take what is in the pipes, reap the process and return what it left behind.

        A grandchild may hold the pipes open for ever, so their end is not waited for.

        Raises:
            PluginError: the exit status cannot be known, because the host program ignores SIGCHLD or reaps all.
        """
        try:
            status = self._reap()
        except ChildProcessError:
            status = None
        try:
            for pipe in tuple(self.open_pipes):
                if self.read(pipe) == _CHUNK and (waiting := _bytes_waiting(pipe)):
                    self.read(pipe, waiting)
        finally:
            self.close()
        if status is None:
            raise self.unknown_end()
        exited = status.si_code == os.CLD_EXITED
        return self._left(status.si_status if exited else None, None if exited else status.si_status)

    def unknown_end(self) -> PluginError:
        """Return the error for an exit status that cannot be known. It is never taken for success."""
        hint = "the host program ignores SIGCHLD, or reaps processes that are not its own"
        return plugin_failure(PluginError, self._invocation, "its exit status cannot be known", self._left(), hint=hint)

    def timed_out(self, timeout: float) -> PluginTimeoutError:
        """Return the error for a process that was stopped at its deadline."""
        problem = f"it did not end within {timeout:.3g} s, and was stopped"
        return plugin_failure(PluginTimeoutError, self._invocation, problem, self._left())

    def close(self) -> None:
        """Close all descriptors."""
        for descriptor in (*self._buffers, self.exit_fd):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)
        self.exit_fd = -1
        self.open_pipes = set()
        self._over = True
        self.__class__ = Child

    def _reap(self) -> Any:
        self._over = True  # from here on the process number may be somebody else's
        if self._is_pidfd:
            return os.waitid(os.P_PIDFD, self.exit_fd, os.WEXITED)
        return os.waitid(os.P_PID, self._pid, os.WEXITED)

    def _left(self, exit_status: int | None = None, number: int | None = None) -> Outcome:
        return Outcome(
            exit_status=exit_status,
            signal=number,
            stdout=bytes(self._buffers[self._stdout]),
            stderr=bytes(self._buffers[self._stderr][-_STDERR_KEPT:]),
            seconds=time.monotonic() - self._started,
        )


class _Running(Child):
    """A process that nobody has waited for yet.

    An exception out of a signal handler can come between any two steps, so losing the object has to be enough to end
    the process. One that has ended is no _Running any more: what is raised inside ``__del__`` is lost, and an interrupt
    must not fall into it on the ordinary way.
    """

    def __del__(self) -> None:
        self.kill()


def is_busy(error: OSError | ValueError) -> bool:
    """Return whether the executable was open for writing: somebody installs it just now."""
    return isinstance(error, OSError) and error.errno == errno.ETXTBSY


def start_problem(invocation: Invocation, error: OSError | ValueError) -> PluginError:
    """Return the error for an executable that cannot be started."""
    if not isinstance(error, OSError):  # such as a NUL, or a "=" in a variable's name
        return plugin_failure(PluginError, invocation, f"{invocation.path} cannot be started: {error}")
    hints = {
        errno.ENOEXEC: "it is neither a program for this machine nor a script with #! in its first line",
        errno.ENOENT: "it has gone, or the interpreter that it names is missing",
        errno.ETXTBSY: "somebody writes to it",
    }
    problem = f"{invocation.path} cannot be started: {error.strerror}"
    return plugin_failure(PluginError, invocation, problem, hint=hints.get(error.errno or 0))


def _spawn(invocation: Invocation, limits: Limits, pipes: list[int], pids: list[int]) -> None:
    """Start the process; append its number to ``pids``, and the read ends of its stdout and stderr to ``pipes``."""
    theirs: list[int] = []
    try:
        theirs.append(_stdin_of(invocation.stdin))
        for _ in range(2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            pipes.append(read_end)
            theirs.append(write_end)
        for index, descriptor in enumerate(theirs):
            theirs[index] = _above_stdio(descriptor)
        moves = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(theirs)]
        if limits.inherit >= 0:
            moves.append((os.POSIX_SPAWN_DUP2, limits.inherit, _INHERITED))
        spawn = functools.partial(
            os.posix_spawn,
            file_actions=moves,
            setpgroup=0,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
        # not pids.append(spawn(...)): a handler of a signal that comes while the process starts runs right after that
        # call, and what it raises would lose the number of a process that runs. Within extend no handler runs.
        environment = {**(limits.env or {}), **invocation.env}
        pids.extend(map(spawn, [invocation.path], [[invocation.path]], [environment]))
    finally:
        _close_all(theirs)


def _kill_unwatched(pids: list[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _stdin_of(data: bytes) -> int:
    descriptor = os.memfd_create("cni-stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        written = os.pwrite(descriptor, data, 0)
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _above_stdio(descriptor: int) -> int:
    """Move a descriptor out of the way of the child's own 0 to 2, where the host has closed those."""
    if descriptor > 2:  # noqa: PLR2004 - stderr
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _close_all(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _bytes_waiting(pipe: int) -> int:
    answer: bytes = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


def _watch(pid: int) -> tuple[int, bool]:
    """Return a descriptor that is readable when the process has ended, and whether it is a pidfd; -1: it is gone."""
    if _HAS_PIDFD:
        try:
            return os.pidfd_open(pid), True
        except ProcessLookupError:
            return -1, True
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    threading.Thread(target=_watch_in_thread, args=(pid, write_end), daemon=True).start()
    return read_end, False


def _watch_in_thread(pid: int, write_end: int) -> None:
    with suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.close(write_end)


def _is_readable(descriptor: int, seconds: float) -> bool:
    poll = select.poll()  # select() cannot look at descriptors from 1024 on
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _reap_later(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _has_pidfd() -> bool:
    """Find out once whether this kernel has pidfd_open (5.3 and later)."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


_HAS_PIDFD = _has_pidfd()
