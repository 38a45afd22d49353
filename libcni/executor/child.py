"""One plugin process: started, watched, stopped and reaped. How to wait for it is the executors' part.

stdin is a sealed memfd, or a pipe: for a plugin that is started ahead, and if this program may not write files.
stdout and stderr are pipes: a memfd there would break shell plugins that reopen /dev/stdout. ``exit_fd`` becomes
readable when the process ends. An executor polls these descriptors and calls ``read``, ``has_ended`` and ``finish``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import struct
import termios
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

from libcni.errors import LIMIT_HINTS, CNIError, InvalidOutputError, PluginError, PluginTimeoutError
from libcni.executor.protocol import CallOptions
from libcni.executor.spawn import prepare_spawn
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure

__all__ = ["KILL_WAIT", "START_WAIT", "Child", "is_busy", "running_plugins"]

_T = TypeVar("_T")

KILL_WAIT = 1.0
"""Seconds to wait for a process to end after SIGKILL. A thread reaps one that takes longer."""

START_WAIT = 0.1
"""The same for a process that cannot be watched; short, because an event loop waits as well."""

_INHERITED = 19
"""The plugin's number of the descriptor ``CallOptions.inherit``; low, since a host may allow few descriptors."""

_STDERR_KEPT = 64 * 1024
_CHUNK = 64 * 1024
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
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
_unreaped: list[int] = []


class Child:
    """A plugin process.

    The object exists before the process does. So an executor can enter its ``try`` first and stop the process in every
    case: an exception out of a signal handler can come between any two steps, also between a call and the assignment
    of what it returns.

    Attributes:
        invocation: the call that it runs.
        options: the options of the call.
        exit_fd: readable when the process has ended; -1 if none runs, or the host program reaped it at once.
        open_pipes: the read ends of stdout and stderr that are not at their end yet.
    """

    def __init__(self, invocation: Invocation, options: CallOptions, output_limit: int) -> None:
        self.invocation = invocation
        self.options = options
        self.exit_fd: int = -1
        self.open_pipes: set[int] = set()
        self._output_limit = output_limit
        # A fork copies this object. Only the process that started the plugin may signal and reap it.
        self._owner = os.getpid()
        self._pid = array("i", [0])  # 0 before the start and after the end: then it may be another process's
        self._is_pidfd = False
        self._lock = threading.Lock()  # for the next three
        self._is_killed = False
        self._spawner = 0  # the thread that starts the process now
        self._is_left = False
        self._pipes: list[int] = []
        self._stdin: list[int] = []  # both ends of the pipe of a plugin that is started ahead
        self._theirs: list[int] = []  # the process's ends, until it has them
        self._launch: Callable[[array[int]], None]
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._buffers: dict[int, bytearray] = {}
        self._totals: dict[int, int] = {}
        self._status: Any = None
        self._is_abandoned = False
        self._began = 0.0

    def start(self, *, ahead: bool = False) -> None:
        """Start the process. If it fails, it can be called again after ``allow_retry``.

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

    def allow_retry(self) -> None:
        """Allow another start after one that failed."""
        self._is_killed = self._is_left = False

    # The steps of a start. If one fails, the caller kills the child.

    def set_up(self, *, ahead: bool = False) -> None:
        """Make the process's descriptors, and prepare its start. Raises as ``start``."""
        if _unreaped:
            _reap_stragglers()
        _running.add(self)  # first: a thread may fork at any time, and the copy must close the plugin's stdin
        theirs = self._theirs
        if ahead:
            self._stdin.extend(os.pipe2(os.O_CLOEXEC))
        else:
            theirs.append(_stdin(self.invocation.stdin, self._stdin))
        for _ in range(2):
            read_end, write_end = os.pipe2(os.O_CLOEXEC)
            self._pipes.append(read_end)
            theirs.append(write_end)
        # dup2 onto 0, 1 and 2 must not overwrite a source, if the host has closed its own stdio
        for descriptors in (self._stdin, theirs):
            for index, descriptor in enumerate(descriptors):
                if descriptor <= 2:  # noqa: PLR2004 - stderr
                    descriptors[index] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
                    os.close(descriptor)
        moves = [*enumerate(self._stdin[:1] + theirs)]
        if self.options.inherit >= 0:
            moves.append((_INHERITED, self.options.inherit))
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
        while self._theirs:
            os.close(self._theirs.pop())
        self._buffers = dict(zip(self._pipes, (self._stdout, self._stderr), strict=True))
        self._totals = dict.fromkeys(self._pipes, 0)
        self.open_pipes = set(self._pipes)
        for pipe in self._pipes:
            os.set_blocking(pipe, False)
        if _HAS_PIDFD:
            try:
                self.exit_fd = os.pidfd_open(self._pid[0])
                self._is_pidfd = True
            except ProcessLookupError:
                self._pid[0] = 0
            return
        self.exit_fd, write_end = os.pipe2(os.O_CLOEXEC)
        try:
            _start_thread(_close_at_exit, self._pid[0], write_end)
        except BaseException:
            os.close(write_end)
            raise

    def feed(self, stdin: bytes) -> bool:
        """Write the configuration into the pipe and close it; return False if the configuration does not fit.

        The time that the plugin has taken is counted from here.
        """
        write_end = self._stdin[1]
        if len(stdin) > fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ):
            return False
        self._began = time.monotonic()
        # The plugin can have made its pipe smaller: the write does not block, and writes less then.
        os.set_blocking(write_end, False)
        # We hold the read end until now: without a reader, SIGPIPE would kill a host that has reset it to its default.
        is_complete = os.write(write_end, stdin) == len(stdin)
        _close_all(self._stdin)
        return is_complete

    def read(self, pipe: int, size: int = _CHUNK) -> int:
        """Read up to ``size`` bytes from a pipe, return how many; raises InvalidOutputError past the output limit."""
        try:
            data = os.read(pipe, size)
        except BlockingIOError:
            return 0
        if not data:
            self.open_pipes.discard(pipe)
            return 0
        buffer = self._buffers[pipe]
        buffer += data
        self._totals[pipe] += len(data)
        if buffer is self._stderr:
            del buffer[: -2 * _STDERR_KEPT]
        if self._totals[pipe] > self._output_limit:
            name = "stderr" if buffer is self._stderr else "stdout"
            problem = f"it printed more than {self._output_limit} bytes on {name}, and was stopped"
            del self._stdout[_STDERR_KEPT:]
            raise plugin_failure(InvalidOutputError, self.invocation, problem, self._outcome())
        return len(data)

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
            InvalidOutputError: the plugin printed more than the output limit.
            PluginError: the exit status is unknown, because the host program ignores SIGCHLD or reaps all processes.
        """
        # A grandchild may hold the pipes open for ever: read what they hold now, and do not wait for their end.
        for pipe in tuple(self.open_pipes):
            if self.read(pipe) == _CHUNK and (waiting := _bytes_waiting(pipe)):
                self.read(pipe, waiting)
        status = self._status
        if status is None:
            raise self.unknown_status()
        exited = status.si_code == os.CLD_EXITED
        outcome = self._outcome(status.si_status if exited else None, None if exited else status.si_status)
        if _has_failed(self.invocation.verb, outcome):
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
            self._reap_in_thread()
        descriptor, self.exit_fd, self.open_pipes = self.exit_fd, -1, set()
        # If a signal handler raises meanwhile, the caller's ``kill`` closes those that are left.
        _close_all([descriptor] if descriptor >= 0 else [], self._pipes, self._stdin, self._theirs)
        _running.discard(self)

    def forget_stdin(self) -> None:
        """Close this process's copies of the plugin's stdin; call it in a forked child."""
        _close_all(self._stdin, self._theirs)

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
        """Raise ``error``; an OSError of a system call becomes a PluginError."""
        # An OSError without a number is no system call's: a signal handler of the host program raised it.
        if not isinstance(error, OSError) or error.errno is None or isinstance(error, CNIError):
            raise error
        problem = f"it was stopped, because it cannot be watched: {error.strerror}"
        raise plugin_failure(PluginError, self.invocation, problem, self._outcome()) from error

    def start_error(self, error: OSError | ValueError) -> BaseException:
        """Return the PluginError for an executable that cannot be started; an OSError without errno stays as it is."""
        path = self.invocation.path
        if not isinstance(error, OSError):  # such as a NUL, or a "=" in a variable's name
            return plugin_failure(PluginError, self.invocation, f"{path} cannot be started: {error}")
        if error.errno is None:
            return error
        problem = f"{path} cannot be started: {error.strerror}"
        return plugin_failure(PluginError, self.invocation, problem, hint=_START_HINTS.get(error.errno))

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

    def _reap_in_thread(self) -> None:
        """Let a thread wait for a process that hangs in the kernel, or whose tracer keeps its status."""
        self._is_abandoned = True
        pid, self._pid[0] = self._pid[0], 0
        pidfd, self.exit_fd = (self.exit_fd, -1) if self._is_pidfd else (-1, self.exit_fd)
        try:
            _start_thread(_reap_later, pid, pidfd)
        except OSError:  # no thread can be started: the next plugin's start tries again
            if pidfd >= 0:
                _close_all([pidfd])
            _unreaped.append(pid)

    def _outcome(self, exit_status: int | None = None, number: int | None = None) -> Outcome:
        return Outcome(
            exit_status=exit_status,
            signal=number,
            stdout=bytes(self._stdout),
            stderr=bytes(self._stderr[-_STDERR_KEPT:]),
            seconds=time.monotonic() - self._began,
        )


def running_plugins() -> int:
    """Return how many plugins this process runs now, those that wait for their configuration included."""
    return len(_running)


def is_busy(error: OSError | ValueError) -> bool:
    """Return whether the executable is open for writing, as during an installation."""
    return isinstance(error, OSError) and error.errno == errno.ETXTBSY


def _has_failed(verb: str, outcome: Outcome) -> bool:
    """Return whether a plugin failed, as far as that can be seen before its output is decoded."""
    text = outcome.stdout.strip()
    is_document = text.startswith(b"{") and text.endswith(b"}")
    return outcome.exit_status != 0 or (verb in {"ADD", "VERSION"} and not is_document)


def _stdin(data: bytes, pipe: list[int]) -> int:
    """Return the descriptor of a file in memory with ``data``, or of a pipe if this program may not write so much."""
    try:
        return _memfd(data)
    except OSError as error:
        # The limit of a file's size (ulimit -f) applies to files in memory, too, and must not stop a DEL.
        if error.errno != errno.EFBIG or not _fill(pipe, data):
            raise
        return pipe.pop()


def _fill(pipe: list[int], data: bytes) -> bool:
    """Make a pipe that holds ``data`` and then ends, and put its read end in ``pipe``; return False if it cannot.

    Both ends are in ``pipe`` until then: so a forked copy of this program closes the write end, and the plugin's stdin
    has an end.
    """
    pipe.extend(os.pipe2(os.O_CLOEXEC))
    write_end = pipe[1]
    try:
        if len(data) > fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ):
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, len(data))
        # The plugin has not started, so nobody reads the pipe: a blocking write would never end.
        os.set_blocking(write_end, False)
        fits = os.write(write_end, data) == len(data)
    except OSError:
        return False
    pipe.remove(write_end)  # before it is closed: a number must not be closed twice
    os.close(write_end)
    return fits


def _memfd(data: bytes) -> int:
    """Return the descriptor of a sealed file in memory with ``data``."""
    descriptor = os.memfd_create("cni-stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # pwrite leaves the offset at 0, where the plugin begins to read
        written = os.pwrite(descriptor, data, 0)
        while written < len(data):
            written += os.pwrite(descriptor, data[written:], written)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _close_all(*lists: list[int]) -> None:
    """Close the descriptors in lists, the last one of a list first, and empty the lists."""
    for descriptors in lists:
        while descriptors:
            try:  # noqa: SIM105 - suppress() takes longer than the close
                os.close(descriptors.pop())  # out of the list first: a number must not be closed twice
            except OSError:
                pass


def _bytes_waiting(pipe: int) -> int:
    answer: bytes = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", answer)[0])


def _start_thread(work: Any, *args: Any) -> None:
    """Start a daemon thread; raises OSError if none can be started."""
    try:
        threading.Thread(target=work, args=args, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, "no thread can be started") from error


def _close_at_exit(pid: int, write_end: int) -> None:
    """Close a pipe when a process ends: the watch for kernels without pidfd."""
    with suppress(OSError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.close(write_end)


def _reap_later(pid: int, pidfd: int) -> None:
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
        if pidfd >= 0:
            _close_all([pidfd])


def _reap_stragglers() -> None:
    for _ in range(len(_unreaped)):
        try:
            # Out of the list first: two threads that reap the same number could reap a new process with it.
            pid = _unreaped.pop(0)
        except IndexError:  # another thread has it
            return
        try:
            is_reaped = os.waitpid(pid, os.WNOHANG)[0] == pid
        except OSError:
            is_reaped = True
        if not is_reaped:
            _unreaped.append(pid)


def _has_pidfd() -> bool:
    """Find out once whether this kernel can wait for a pidfd (5.4 and later)."""
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


def _after_fork() -> None:
    # The plugin reads the end of its stdin only when the last copy of the write end is closed: a forked worker that
    # lives on would keep every plugin that is started ahead waiting, also after this runtime's death.
    for child in _running:
        child.forget_stdin()
    _running.clear()
    _unreaped.clear()


os.register_at_fork(after_in_child=_after_fork)
_HAS_PIDFD = _has_pidfd()
