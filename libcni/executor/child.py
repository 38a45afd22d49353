"""Start, watch, stop and reap one plugin process. The executors wait for it.

An executor polls ``exit_fd`` and the pipes of ``streams``, and calls ``streams.read``, ``has_ended`` and ``finish``.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from libcni.errors import KEPT, LIMIT_HINTS, CNIError, InvalidOutputError, PluginError, PluginTimeoutError
from libcni.executor.baton import Waiting
from libcni.executor.interface import CallOptions
from libcni.executor.spawn import prepare_fork, prepare_spawn
from libcni.executor.streams import OutputLimitError, Streams
from libcni.protocol.invocation import Invocation, Outcome

KILL_WAIT = 1.0
"""Seconds to wait for a process to end after SIGKILL. If it takes longer, a later start reaps it."""

UNWATCHED_WAIT = 0.1
"""Seconds to wait for a killed process that cannot be watched; short, because the wait may block an event loop."""

POLL_SECONDS = 0.02
"""Seconds between two polls of a process whose end no descriptor reports: there is no pidfd, or a tracer keeps the
exit status."""

_INHERITED = 19
"""The number of ``CallOptions.inherit``'s descriptor in the plugin; low, since a host may allow few descriptors."""

_BUSY_SECONDS = 5.0
"""Seconds to retry the start of an executable that another program is writing, every ``_BUSY_DELAY`` seconds."""
_BUSY_DELAY = 0.02
_CANNOT_STOP = (
    "still runs after SIGKILL: the machine is busy, the process hangs in the kernel, or another process traces it"
)
_START_HINTS = {
    **LIMIT_HINTS,
    errno.E2BIG: "one variable has 128 KiB or more, or all exceed the limit (getconf ARG_MAX): shorten args and env",
    errno.ENOEXEC: "install a program for this machine, or a script with #! in its first line",
    errno.ENOENT: "the file or its interpreter (see its first line) is missing: install the plugin again",
    errno.ETXTBSY: "another program writes to the file: try again when it has finished",
    errno.EAGAIN: "there are too many processes or threads: raise the limit (ulimit -u, pids.max)",
    errno.EBADF: f"allow at least {_INHERITED + 1} open files (ulimit -n), and keep the descriptor of inherit open",
}

_running: set[Streams] = set()
"""The streams of the running processes; not the Child objects, which kill their process when nothing refers to them."""

_unreaped: list[Child] = []
"""Released processes that had not ended. The next start of a plugin reaps those that have ended by then."""


class Child:
    """A plugin process.

    The object exists before the process does, so an executor can enter its ``try`` first. If the object is freed, it
    kills its process.

    ``_state`` begins as "new". ``spawn`` sets "starting" and then "running". ``release`` sets "released": the process
    is reaped and its descriptors are closed. ``kill_and_release`` sets "left" if another thread takes too long to start
    the process: that thread then kills the process.

    Attributes:
        invocation: the call that it runs.
        options: the options of the call.
        streams: its stdin, stdout and stderr.
        exit_fd: readable when the process has ended; -1: call ``has_ended`` every ``POLL_SECONDS``.
    """

    def __init__(self, invocation: Invocation, options: CallOptions, output_limit: int) -> None:
        self.invocation = invocation
        self.options = options
        self.streams: Streams = Streams(output_limit)
        self.exit_fd: int = -1
        # A fork copies this object. Only the process that started the plugin may signal and reap it.
        self._owner = os.getpid()
        # The process ID; 0 before the start, and after the end, when another process may have it.
        self._pid = array("i", [0])
        # Protects _state. If a signal handler raises between the acquisition and the block of "with", this thread keeps
        # the lock for ever: its own clean-up must not wait for it.
        self._lock = threading.RLock()
        self._state: str = "new"
        self._starter = 0  # the thread that starts the process
        self._launch: Callable[[array[int]], None]
        self._last_try = math.inf
        self._status: Any = None
        self._began = 0.0

    def __del__(self) -> None:
        if self._state != "released":
            self.kill_and_release(UNWATCHED_WAIT)

    def start(self, *, ahead: bool = False) -> None:
        """Start the process. After a failure, call ``retry_delay`` before another ``start``.

        Args:
            ahead: give the process an empty pipe for stdin, for ``feed``.

        Raises:
            OSError: the executable cannot be started, or the process cannot be watched.
            ValueError: the path or a variable has a character that the kernel does not accept.
        """
        try:
            self.set_up(ahead=ahead)
            self.spawn()
            self.watch()
        except BaseException:
            self.kill_and_release(UNWATCHED_WAIT)
            raise

    def start_ahead(self) -> bool:
        """Start the process with an empty pipe for stdin; return False if it cannot be started, or has ended."""
        try:
            self.start(ahead=True)
        except (OSError, ValueError) as error:
            if is_foreign(error):
                raise
            return False
        if self._pid[0]:
            return True
        self.release()  # the host program has reaped it
        return False

    def retry_delay(self, error: OSError | ValueError, deadline: float) -> float:
        """Allow another start after a failed one; return the seconds to sleep before it.

        Raises:
            PluginError: the executable cannot be started, or has been open for writing for 5 s or until the deadline.
        """
        if is_foreign(error):
            raise error
        self._last_try = min(self._last_try, deadline, time.monotonic() + _BUSY_SECONDS)
        # A ValueError reports, for example, a NUL, or a "=" in a variable's name.
        reason, number = (error.strerror, error.errno) if isinstance(error, OSError) else (error, None)
        if number != errno.ETXTBSY or time.monotonic() + _BUSY_DELAY >= self._last_try:
            problem = f"{self.invocation.path} cannot be started: {reason}"
            hint = _START_HINTS.get(number or 0)
            raise PluginError(problem, self.invocation, was_run=False, hint=hint) from error
        self._state = "new"
        return _BUSY_DELAY

    # The steps of a start. If one fails, the caller kills the child.

    def set_up(self, *, ahead: bool = False) -> None:
        """Open the process's descriptors, and prepare its start. Raises the errors of ``start``."""
        if _unreaped:
            _reap_unreaped()
        # First: another thread may fork at any time, and the child must close the plugin's stdin.
        _running.add(self.streams)
        moves = self.streams.make(None if ahead else self.invocation.stdin)
        inherited = self.options.inherit() if self.options.inherit is not None else -1
        if inherited >= 0:
            moves.append((_INHERITED, inherited))
        env = {**(self.options.env or {}), **self.invocation.env}
        launch = prepare_fork if self.options.ends_with_caller and threading.active_count() == 1 else prepare_spawn
        self._launch = launch(self.invocation.path, env, self.streams.above_stdio(moves))

    def spawn(self) -> None:
        """Start the process, unless ``kill_and_release`` was called. Raises the errors of ``start``.

        Another thread may call this. Make only one system call: after each, the event loop may have to wait for the
        interpreter's lock.
        """
        with self._lock:
            # After a kill the verb's locks are released, and the plugin must not act any more.
            if self._state != "new":
                return
            self._state, self._starter = "starting", threading.get_ident()
        self._began = time.monotonic()
        try:
            with Waiting():  # the system needs a millisecond for it
                self._launch(self._pid)
        finally:
            with self._lock:
                is_left = self._state == "left"
                self._state = "left" if is_left else "running"
            if is_left:
                self.kill_and_release()

    def watch(self) -> None:
        """Open ``exit_fd``, a pidfd that shows the end of the process, if the system has one. Raises OSError."""
        while self.streams.theirs:
            os.close(self.streams.theirs.pop())
        try:
            self.exit_fd = os.pidfd_open(self._pid[0])
        except ProcessLookupError:  # the host program has reaped it
            self._pid[0] = 0
        except (AttributeError, OSError):
            pass  # an old kernel or Python, a filter of system calls, or too many open files: poll instead

    def feed(self, stdin: bytes) -> bool:
        """Send the configuration; return False if it does not fit. The plugin's run time begins here."""
        self._began = time.monotonic()
        return self.streams.feed(stdin)

    def has_ended(self) -> bool:
        """Return whether the process has ended and its exit status can be read. Raises OSError.

        Call it even when ``exit_fd`` is readable: if another process traces the plugin, the tracer gets the exit
        status first, and a wait without WNOHANG would block until the tracer lets go.
        """
        if self._pid[0]:
            try:
                # WNOWAIT: no other process or group can get the number until the process is reaped.
                self._status = self._waitid(os.WNOWAIT)
            except ChildProcessError:
                self._pid[0] = 0
        return self._status is not None or not self._pid[0]

    def finish(self) -> Outcome:
        """Read the rest of the pipes, reap the process, which must have ended, and return its outcome.

        If the plugin failed, its process group is killed: a helper process that it left would go on during the
        roll-back. If it succeeded, its group is not killed, because some plugins start a daemon on purpose.

        Raises:
            OutputLimitError: the plugin printed more than the output limit.
            PluginError: the exit status is unknown, because the host program ignores SIGCHLD or reaps all processes.
        """
        self.streams.read_rest()
        status = self._status
        if status is None:
            hint = "change this program: it ignores SIGCHLD, or reaps processes that it did not start"
            text = "its exit status is unknown"
            raise PluginError(text, self.invocation, self._outcome(), hint=hint)
        exited = status.si_code == os.CLD_EXITED
        outcome = self._outcome(status.si_status if exited else None, None if exited else status.si_status)
        # A result is a JSON object. Its content is checked later.
        printed = outcome.stdout.strip()
        is_document = printed.startswith(b"{") and printed.endswith(b"}")
        if outcome.exit_status != 0 or (self.invocation.verb in {"ADD", "VERSION"} and not is_document):
            self.signal(signal.SIGKILL)
        self.release()
        return outcome

    def is_owned(self) -> bool:
        """Return whether this process started the plugin; False in a forked child of that process."""
        return os.getpid() == self._owner

    def signal(self, number: int) -> None:
        """Send a signal to the plugin's process group, and to the plugin itself if it has left that group.

        Nothing is sent after the process was reaped, or in a forked child of the process that started it.
        """
        with suppress(OSError):
            self.has_ended()  # notices a process that the host program has reaped: another group may have its number
        pid = self._pid[0]
        # A forked child that has closed the pidfd would not notice that the process is its parent's.
        if not pid or not self.is_owned():
            return
        with suppress(OSError):
            # A plugin in its group must get one TERM: many programs stop without cleaning up at the second.
            # A second KILL is harmless, and catches a plugin that leaves its group after this test.
            if number == signal.SIGKILL or os.getpgid(pid) != pid:
                os.kill(pid, number)
        with suppress(OSError):
            os.killpg(pid, number)

    def kill_and_release(self, wait: float = KILL_WAIT) -> None:
        """Kill the plugin with its group, wait up to ``wait`` seconds for its end, and release it.

        Never raises OSError. Does nothing if it was released, or in a forked child of the process that started it.
        """
        if self._state == "released":
            return
        deadline, delay = time.monotonic() + wait, 0.0005
        if not self.is_owned() or not self._may_release(deadline):
            return
        self.signal(signal.SIGKILL)
        try:
            while not self._reap() and time.monotonic() < deadline:
                with Waiting():
                    time.sleep(delay)
                delay = min(2 * delay, POLL_SECONDS)
        finally:
            self.release()

    def _may_release(self, deadline: float) -> bool:
        """Return whether this thread may release the process. If another thread is starting it, wait for the start."""
        while True:
            with self._lock:
                if self._state == "new":
                    self._state = "running"  # so that no other thread starts it
                # If this thread starts it, an exception of a signal handler has ended the start.
                if self._state == "running" or self._starter == threading.get_ident():
                    return True
                if self._state != "starting":
                    return False
                if time.monotonic() >= deadline:
                    self._state = "left"
                    return False
            time.sleep(0.0005)

    def release(self) -> None:
        """Reap the process if it has ended, and close its descriptors. Does not block."""
        # A forked child may have closed these descriptors and opened files with the same numbers: leave them alone.
        if not self.is_owned():
            return
        self.streams.close()
        _running.discard(self.streams)
        # A second call: the first may have failed, although the process has ended.
        if not self._reap() and not self._reap():
            _unreaped.append(self)
        elif self.exit_fd >= 0:
            exit_fd, self.exit_fd = self.exit_fd, -1
            os.close(exit_fd)
        self._state = "released"

    def timed_out(self, timeout: float | None) -> PluginTimeoutError:
        """Return the error for a process that reached its deadline. Call ``kill_and_release`` before this."""
        problem = f"it did not end within {timeout or 0.0:.3g} s, and {_CANNOT_STOP if self._pid[0] else 'was stopped'}"
        return PluginTimeoutError(problem, self.invocation, self._outcome())

    def unwatchable(self, error: OSError | OutputLimitError) -> PluginError:
        """Return the error for a process that cannot be watched, or that printed too much."""
        if isinstance(error, OutputLimitError):
            return InvalidOutputError(str(error), self.invocation, self._outcome())
        problem = f"it was stopped, because its process cannot be watched: {error.strerror}"
        return PluginError(problem, self.invocation, self._outcome())

    def _waitid(self, flag: int = 0) -> Any:
        # P_PIDFD always means this process. If the host program has reaped it, another child may have its process ID.
        kind, target = (os.P_PIDFD, self.exit_fd) if self.exit_fd >= 0 else (os.P_PID, self._pid[0])
        return os.waitid(kind, target, os.WEXITED | os.WNOHANG | flag)

    def _reap(self) -> bool:
        """Reap the process if it has ended; return whether nothing is left to reap."""
        if self._pid[0]:
            try:
                if self._waitid() is None:
                    return False
            except ChildProcessError:
                pass
            except OSError:
                return False
            self._pid[0] = 0
        return True

    def _outcome(self, exit_status: int | None = None, number: int | None = None) -> Outcome:
        return Outcome(
            exit_status=exit_status,
            signal=number,
            stdout=bytes(self.streams.stdout),
            stderr=bytes(self.streams.stderr[-KEPT:]),
            seconds=time.monotonic() - self._began,
        )


def is_foreign(error: Exception) -> bool:
    """Return whether an error is an OSError that no system call raised, but this library or a signal handler."""
    return isinstance(error, OSError) and (error.errno is None or isinstance(error, CNIError))


def _reap_unreaped() -> None:
    for _ in range(len(_unreaped)):
        try:
            # First remove it from the list: two threads must not close the same descriptor.
            child = _unreaped.pop(0)
        except IndexError:
            return
        child.release()


def _after_fork() -> None:
    # A plugin sees the end of its stdin only when the last copy of the write end is closed. A forked worker that keeps
    # running would keep the plugins waiting that were started ahead, even after this runtime's death.
    for streams in _running:
        streams.forget_stdin()
    _running.clear()
    _unreaped.clear()


os.register_at_fork(after_in_child=_after_fork)
