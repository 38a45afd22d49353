"""One plugin process: started, watched, stopped and reaped. How to wait for it is the executors' part.

``exit_fd`` becomes readable when the process ends. An executor polls it and the pipes of ``streams``, and calls
``streams.read``, ``has_ended`` and ``finish``.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from libcni.errors import KEPT, LIMIT_HINTS, CNIError, InvalidOutputError, PluginError, PluginTimeoutError
from libcni.executor.protocol import CallOptions
from libcni.executor.reaping import has_pidfd, pipe_until_exit, reap_in_thread, reap_stragglers, unreaped
from libcni.executor.spawn import prepare_spawn
from libcni.executor.streams import OutputLimitError, Streams, close_all
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure

_T = TypeVar("_T")

KILL_WAIT = 1.0
"""Seconds to wait for a process to end after SIGKILL. A thread reaps one that takes longer."""

START_WAIT = 0.1
"""The same for a process that cannot be watched; short, because an event loop waits as well."""

_INHERITED = 19
"""The plugin's number of the descriptor ``CallOptions.inherited``; low, since a host may allow few descriptors."""

_BUSY_SECONDS = 5.0
_HAS_PIDFD = has_pidfd()
_CANNOT_STOP = "has not ended after SIGKILL: the machine is busy, it hangs in the kernel, or another process traces it"
_START_HINTS = {
    **LIMIT_HINTS,
    errno.ENOEXEC: "it is neither a program for this machine nor a script with #! in its first line",
    errno.ENOENT: "the file, or the interpreter that its first line names, is missing",
    errno.ETXTBSY: "another program writes to it",
    errno.EAGAIN: "there are too many processes or threads: raise the limit (ulimit -u, pids.max)",
    errno.EBADF: f"at least {_INHERITED + 1} open files must be allowed (ulimit -n), and the inherited one be open",
}

_running: set[Child] = set()


class Child:
    """A plugin process.

    The object exists before the process does. So an executor can enter its ``try`` first and stop the process in every
    case: an exception out of a signal handler can come between any two steps, also between a call and the assignment
    of what it returns.

    Attributes:
        invocation: the call that it runs.
        options: the options of the call.
        streams: its stdin, stdout and stderr.
        exit_fd: readable when the process has ended; -1 if none runs, or the host program reaped it at once.
    """

    def __init__(self, invocation: Invocation, options: CallOptions, output_limit: int) -> None:
        self.invocation = invocation
        self.options = options
        self.streams: Streams = Streams(output_limit)
        self.exit_fd: int = -1
        # A fork copies this object. Only the process that started the plugin may signal and reap it.
        self._owner = os.getpid()
        self._pid = array("i", [0])  # 0 before the start and after the end: then it may be another process's
        self._is_pidfd = False
        self._lock = threading.Lock()  # for the next three
        self._is_killed = False
        self._spawner = 0  # the thread that starts the process now
        self._is_left = False
        self._launch: Callable[[array[int]], None]
        self._delays: Iterator[float] | None = None
        self._status: Any = None
        self._is_abandoned = False
        self._began = 0.0

    def start(self, *, ahead: bool = False) -> None:
        """Start the process. If it fails, it can be called again after ``retry_delay``.

        Args:
            ahead: give the process an empty pipe for stdin, for ``feed``.

        Raises:
            OSError: the executable cannot be started, or the process cannot be watched.
            ValueError: the path or a variable has a character that the kernel does not take.
        """
        try:
            self.set_up(ahead=ahead)
            self.spawn()
            self.watch()
        except BaseException:
            self.kill(START_WAIT)
            raise

    def start_ahead(self, waiting: Callable[[Child], _T], kill_wait: float = KILL_WAIT) -> _T | None:
        """Start the process with an empty pipe for stdin, and return what ``waiting`` makes of it.

        Returns None if it cannot be started, or has ended already. ``kill_wait``: as for ``kill``.
        """
        try:
            self.start(ahead=True)
            if self.exit_fd >= 0:
                return waiting(self)
            self.release()  # it has ended, and the host program has reaped it
        except BaseException as error:
            # A signal handler can raise after the start: then the process runs, and only this object knows it.
            self.kill(kill_wait)
            if not isinstance(error, OSError | ValueError) or (isinstance(error, OSError) and error.errno is None):
                raise
        return None

    def retry_delay(self, error: OSError | ValueError, deadline: float) -> float:
        """Allow another start after one that failed; return the seconds to sleep before it.

        Raises:
            PluginError: the executable cannot be started, or has been open for writing for 5 s or until the deadline.
        """
        self._delays = self._delays or busy_delays(deadline)
        delay = next(self._delays, None) if isinstance(error, OSError) and error.errno == errno.ETXTBSY else None
        if delay is None:
            raise self._start_error(error) from error
        self._is_killed = self._is_left = False
        return delay

    def _start_error(self, error: OSError | ValueError) -> BaseException:
        """Return the PluginError for an executable that cannot be started; an OSError without errno stays as it is."""
        path = self.invocation.path
        if not isinstance(error, OSError):  # such as a NUL, or a "=" in a variable's name
            return plugin_failure(PluginError, self.invocation, f"{path} cannot be started: {error}")
        if error.errno is None:
            return error
        problem = f"{path} cannot be started: {error.strerror}"
        return plugin_failure(PluginError, self.invocation, problem, hint=_START_HINTS.get(error.errno))

    # The steps of a start. If one fails, the caller kills the child.

    def set_up(self, *, ahead: bool = False) -> None:
        """Make the process's descriptors, and prepare its start. Raises as ``start``."""
        if unreaped:
            reap_stragglers()
        _running.add(self)  # first: a thread may fork at any time, and the copy must close the plugin's stdin
        moves = self.streams.make(None if ahead else self.invocation.stdin)
        inherited = self.options.inherited()
        if inherited >= 0:
            moves.append((_INHERITED, inherited))
        env = {**(self.options.env or {}), **self.invocation.env}
        self._launch = prepare_spawn(self.invocation.path, env, moves)

    def spawn(self) -> None:
        """Start the process, unless the child was killed before. Another thread may call this. Raises as ``start``.

        It makes one system call. While another thread has the interpreter's lock, the event loop waits after each call.
        """
        try:
            with self._lock:
                # After a kill the verb's locks are released, and the plugin must not act any more.
                if self._is_killed:
                    return
                self._spawner = threading.get_ident()
            self._began = time.monotonic()
            self._launch(self._pid)
        finally:
            with self._lock:
                # As long as it is this thread, no other one releases the process and closes the descriptors as well.
                if not self._is_left:
                    self._spawner = 0
            if self._is_left:
                self.kill()

    def watch(self) -> None:
        """Make ``exit_fd``; it stays -1 if the host program has reaped the process already. Raises OSError."""
        theirs = self.streams.theirs
        while theirs:
            os.close(theirs.pop())
        if _HAS_PIDFD:
            try:
                self.exit_fd = os.pidfd_open(self._pid[0])
                self._is_pidfd = True
            except ProcessLookupError:
                self._pid[0] = 0
            return
        self.exit_fd = pipe_until_exit(self._pid[0])

    def feed(self, stdin: bytes) -> bool:
        """Send the configuration; return False if it does not fit. The plugin's seconds are counted from here."""
        self._began = time.monotonic()
        return self.streams.feed(stdin)

    def has_ended(self) -> bool:
        """Return whether the process has ended and its exit status can be read.

        Call it also when ``exit_fd`` is readable: if another process traces the plugin, the tracer gets the exit
        status first, and a wait without WNOHANG would block until the tracer lets go.
        """
        if self._status is None and self._pid[0]:
            try:
                # WNOWAIT: as long as nobody reaps the process, its number, and its group's, is nobody else's
                self._status = self._waitid(os.WNOWAIT)
            except ChildProcessError:
                self._pid[0] = 0
        return self._status is not None or not self._pid[0]

    def finish(self) -> Outcome:
        """Read what is left in the pipes, reap the process and return its outcome. It must have ended.

        If the plugin failed, its process group is killed: a helper that it left behind would work on during the
        roll-back. If it succeeded, its group is left alone, because some plugins start a daemon on purpose.

        Raises:
            OutputLimitError: the plugin printed more than the output limit.
            PluginError: the exit status is unknown, because the host program ignores SIGCHLD or reaps all processes.
        """
        self.streams.read_rest()
        status = self._status
        if status is None:
            raise self.unknown_status()
        exited = status.si_code == os.CLD_EXITED
        outcome = self._outcome(status.si_status if exited else None, None if exited else status.si_status)
        # A result is a JSON object; whether it is a valid one is found out later.
        text = outcome.stdout.strip()
        is_document = text.startswith(b"{") and text.endswith(b"}")
        if outcome.exit_status != 0 or (self.invocation.verb in {"ADD", "VERSION"} and not is_document):
            self.signal(signal.SIGKILL)
        self.release()
        return outcome

    def is_owned(self) -> bool:
        """Return whether this process started the plugin, rather than being forked from that one."""
        return os.getpid() == self._owner

    def signal(self, number: int) -> None:
        """Send a signal to the plugin's process group, and to the plugin itself if it has left that group.

        Nothing is sent after the process was reaped, or in a forked child of the process that started it.
        """
        if not self._pid[0] or not self.is_owned():
            return
        pid = self._pid[0]
        with suppress(OSError):
            # A plugin in its group must get one TERM: many programs take a second one for "at once, do not clean up".
            # A second KILL is harmless, and catches a plugin that leaves its group after this test.
            alone = number if number == signal.SIGKILL or os.getpgid(pid) != pid else 0
            try:
                if self._is_pidfd:
                    signal.pidfd_send_signal(self.exit_fd, alone)
                else:
                    os.kill(pid, alone)
            except ProcessLookupError:  # the host program reaped it: the number may be another group's by now
                return
            except PermissionError:  # it runs as another user; others of its group may not
                pass
            os.killpg(pid, number)

    def kill(self, wait: float = KILL_WAIT) -> None:
        """Kill the plugin with its group, wait up to ``wait`` seconds for its end, and release it.

        Never raises OSError. Does nothing in a forked child of the process that started the plugin.
        """
        deadline, delay = time.monotonic() + wait, 0.0005
        if not self._may_release(deadline):
            return
        self.signal(signal.SIGKILL)
        while self._pid[0] and self.is_owned() and not self._reap() and time.monotonic() < deadline:
            time.sleep(delay)
            delay = min(2 * delay, 0.02)
        self.release()

    def kill_unused(self, wait: float = KILL_WAIT) -> None:
        """Kill the plugin as ``kill`` does, for an object that is freed.

        Python drops an exception that a signal handler raises there, and nobody calls again: so this kills twice.
        """
        try:
            self.kill(wait)
        finally:
            self.kill(wait)

    def _may_release(self, deadline: float) -> bool:
        """Wait until the process has started, if another thread starts it now; return whether it may be released.

        If a file system hangs, the start takes longer than ``deadline``. Then the other thread kills the process.
        """
        if not self.is_owned():
            return False
        while True:
            with self._lock:
                self._is_killed = True
                # If it is this thread, an exception out of a signal handler has ended the start.
                if self._spawner in {0, threading.get_ident()}:
                    return True
                if time.monotonic() >= deadline:
                    self._is_left = True
                    return False
            time.sleep(0.0005)

    def release(self) -> None:
        """Reap the process, in a thread if it has not ended yet, and close all descriptors. Does not block."""
        # A forked child may have closed these descriptors and opened files with the same numbers: leave them alone.
        if not self.is_owned():
            return
        if self._pid[0] and not self._reap():
            self._is_abandoned = True
            pid, self._pid[0] = self._pid[0], 0
            pidfd, self.exit_fd = (self.exit_fd, -1) if self._is_pidfd else (-1, self.exit_fd)
            reap_in_thread(pid, pidfd)
        descriptor, self.exit_fd = self.exit_fd, -1
        self.streams.open_pipes.clear()
        # If a signal handler raises meanwhile, the caller's ``kill`` closes those that are left.
        close_all([descriptor] if descriptor >= 0 else [], *self.streams.descriptors)
        _running.discard(self)

    def unknown_status(self) -> PluginError:
        """Return the error for an exit status that is unknown. It is never taken for success."""
        hint = "the host program ignores SIGCHLD, or reaps processes that it did not start"
        text = "its exit status cannot be known"
        return plugin_failure(PluginError, self.invocation, text, self._outcome(), hint=hint)

    def timed_out(self, timeout: float | None) -> PluginTimeoutError:
        """Return the error for a process that was at its deadline; call ``kill`` first."""
        problem = f"it did not end within {timeout or 0.0:.3g} s, and "
        problem += _CANNOT_STOP if self._is_abandoned else "was stopped"
        return plugin_failure(PluginTimeoutError, self.invocation, problem, self._outcome())

    def raise_translated(self, error: BaseException) -> NoReturn:
        """Raise ``error``; one of a system call, or of too much output, becomes an error of this library."""
        if isinstance(error, OutputLimitError):
            raise plugin_failure(InvalidOutputError, self.invocation, str(error), self._outcome()) from None
        # An OSError without a number is no system call's: a signal handler of the host program raised it.
        if not isinstance(error, OSError) or error.errno is None or isinstance(error, CNIError):
            raise error
        problem = f"it was stopped, because it cannot be watched: {error.strerror}"
        raise plugin_failure(PluginError, self.invocation, problem, self._outcome()) from error

    def _waitid(self, flag: int = 0) -> Any:
        kind, target = (os.P_PIDFD, self.exit_fd) if self._is_pidfd else (os.P_PID, self._pid[0])
        return os.waitid(kind, target, os.WEXITED | os.WNOHANG | flag)

    def _reap(self) -> bool:
        """Reap the process if it has ended; return whether it is reaped."""
        try:
            is_reaped = self._waitid() is not None
        except ChildProcessError:
            is_reaped = True
        except OSError:
            return False
        if is_reaped:
            self._pid[0] = 0
        return is_reaped

    def _outcome(self, exit_status: int | None = None, number: int | None = None) -> Outcome:
        return Outcome(
            exit_status=exit_status,
            signal=number,
            stdout=bytes(self.streams.stdout),
            stderr=bytes(self.streams.stderr[-KEPT:]),
            seconds=time.monotonic() - self._began,
        )


def running_plugins() -> int:
    """Return how many plugins this process runs now, those that wait for their configuration included."""
    return len(_running)


def busy_delays(deadline: float) -> Iterator[float]:
    """Yield the seconds to wait between tries to start an executable that is being written; at most 5 s in all."""
    deadline = min(deadline, time.monotonic() + _BUSY_SECONDS)
    delay = 0.01
    while time.monotonic() + delay < deadline:
        yield delay
        delay = min(2 * delay, 0.5)


def _after_fork() -> None:
    # The plugin reads the end of its stdin only when the last copy of the write end is closed: a forked worker that
    # lives on would keep every plugin that is started ahead waiting, also after this runtime's death.
    for child in _running:
        child.streams.forget_stdin()
    _running.clear()


os.register_at_fork(after_in_child=_after_fork)
