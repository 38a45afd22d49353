"""Start a process with libc's posix_spawn, so that other threads can run during the start.

``os.posix_spawn`` holds the interpreter's lock until the new program runs. On a busy machine that takes milliseconds,
and no other thread of this program runs meanwhile.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import signal
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

# These values are the same in glibc and musl. Each of the two structures is smaller than _BYTES in both.
_SETPGROUP, _SETSIGDEF, _SETSIGMASK = 0x02, 0x04, 0x08
_BYTES = 1024
_PR_SET_PDEATHSIG = 1
_SIGNAL_SET_BYTES = 128

# Python ignores SIGPIPE and SIGXFSZ, and host programs may ignore more signals. A spawned process would inherit that.
_DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


def prepare_spawn(path: str, env: Mapping[str, str], moves: Sequence[tuple[int, int]]) -> Callable[[array[int]], None]:
    """Return a function that starts an executable without arguments, in its own process group, with default signals.

    Args:
        path: the executable.
        env: its environment.
        moves: (number, descriptor) pairs: the process gets this program's ``descriptor`` as ``number``.

    Returns:
        A function that starts the process once. It sets the first element of its argument to the process ID before it
        returns or raises, even if a signal handler raises, so no process is lost. It raises OSError if the process
        cannot be started. Another thread may call it. It holds the interpreter's lock for a few microseconds only.

    Raises:
        ValueError: the path or a variable has a character that the kernel does not accept.
    """
    program = os.fsencode(path)
    if b"\0" in program:  # C would end the path there. The error is that of os.posix_spawn, the fallback.
        raise ValueError("embedded null byte")
    try:
        ctypes, libc, quick, attributes = _libc()
        envp = _envp(tuple(env.items()))
    except ImportError:  # this Python has no ctypes, or shuts down
        return partial(_spawn_with_os, path, env, moves)
    sys.audit("os.posix_spawn", path, [path], env)
    argv = (ctypes.c_char_p * 2)(program, None)

    def start(pid: array[int]) -> None:
        actions = ctypes.create_string_buffer(_BYTES)
        address = ctypes.c_void_p(pid.buffer_info()[0])
        error = quick.posix_spawn_file_actions_init(actions)
        if not error:
            try:
                for number, descriptor in moves:
                    error = error or quick.posix_spawn_file_actions_adddup2(actions, descriptor, number)
                error = error or libc.posix_spawn(address, program, actions, attributes, argv, envp)
            finally:
                quick.posix_spawn_file_actions_destroy(actions)
        if error:
            raise OSError(error, os.strerror(error), path)

    return start


def prepare_fork(path: str, env: Mapping[str, str], moves: Sequence[tuple[int, int]]) -> Callable[[array[int]], None]:
    """Return a function like that of ``prepare_spawn``, whose process gets SIGKILL when this program ends.

    posix_spawn cannot ask for that signal, so this function forks. The program must have only one thread: the kernel
    sends the signal when the thread that has forked ends.
    """
    try:
        _, libc, quick, _ = _libc()
    except ImportError:
        return partial(_spawn_with_os, path, env, moves)

    def start(pid: array[int]) -> None:
        parent, (reading, writing) = os.getpid(), os.pipe()
        with open(reading, "rb") as report:
            try:
                # libc's fork, without Python's hooks: they would close descriptors that the plugin needs.
                pid[0] = quick.fork()
                if not pid[0]:
                    _become(path, env, moves, parent, writing, libc)
            finally:
                os.close(writing)
            number = int(report.read() or 0)  # empty once the new program runs
        if pid[0] < 0 or number:
            if pid[0] > 0:
                os.waitpid(pid[0], 0)
            pid[0], number = 0, number or errno.EAGAIN
            raise OSError(number, os.strerror(number), path)

    return start


def _become(  # noqa: PLR0913, PLR0917 - all that a start needs
    path: str, env: Mapping[str, str], moves: Sequence[tuple[int, int]], parent: int, report: int, libc: Any
) -> None:
    """Turn this forked process into a plugin, or write the number of the error to ``report`` and end."""
    try:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it has ended before the call above
            os.kill(os.getpid(), signal.SIGKILL)
        os.setpgid(0, 0)
        for ignored in _DEFAULT_SIGNALS:
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Each move below closes its target, and the report's own number may be one of them: move it above them all.
        report = fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, 1 + max(number for number, _ in moves))
        for number, descriptor in moves:
            os.dup2(descriptor, number)
        os.execve(path, [path], {**env})  # noqa: S606 - a plugin has no shell
    except BaseException as error:  # noqa: BLE001 - this process must end here, whatever happens
        os.write(report, str(getattr(error, "errno", None) or errno.EINVAL).encode())
    finally:
        os._exit(127)


def _spawn_with_os(path: str, env: Mapping[str, str], moves: Sequence[tuple[int, int]], pid: array[int]) -> None:
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in moves]
    pid[0] = os.posix_spawn(
        path, [path], env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
    )


@functools.lru_cache(128)  # the plugins of a verb have the same variables
def _envp(env: tuple[tuple[str, str], ...]) -> Any:
    """Return an environment for C. Raises ValueError and ImportError like ``prepare_spawn`` and ``_libc``."""
    variables = os.fsencode("\0".join(map("=".join, env))).split(b"\0") if env else []
    # C would end a text at a NUL, and a name at its first "=". The errors are those of os.posix_spawn, the fallback.
    if len(variables) != len(env):
        raise ValueError("embedded null byte")
    if any(not name or "=" in name for name, _ in env):
        raise ValueError("illegal environment variable name")
    c_char_p = _libc()[0].c_char_p
    return (c_char_p * (len(variables) + 1))(*variables, None)


@functools.cache
def _libc() -> tuple[Any, Any, Any, Any]:
    """Return ctypes, libc, libc whose calls keep the interpreter's lock (for quick calls), and the spawn attributes.

    Raises:
        ImportError: there is no ctypes.
    """
    import ctypes  # it takes 2 ms, and not every command starts a process

    quick = ctypes.PyDLL(None)
    attributes = ctypes.create_string_buffer(_BYTES)
    signals = ctypes.create_string_buffer(_SIGNAL_SET_BYTES)
    quick.posix_spawnattr_init(attributes)
    quick.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETPGROUP | _SETSIGDEF | _SETSIGMASK))
    quick.posix_spawnattr_setpgroup(attributes, 0)
    quick.sigemptyset(signals)
    quick.posix_spawnattr_setsigmask(attributes, signals)
    quick.sigfillset(signals)
    quick.posix_spawnattr_setsigdefault(attributes, signals)
    return ctypes, ctypes.CDLL(None), quick, attributes
