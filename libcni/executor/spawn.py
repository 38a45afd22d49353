"""Start a process with libc's posix_spawn, so that other threads can run during the start.

``os.posix_spawn`` holds the interpreter's lock until the new program runs. On a busy machine that takes milliseconds,
and no other thread of this program runs meanwhile.
"""

from __future__ import annotations

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
_SIGNAL_SET_BYTES = 128

# Python ignores SIGPIPE and SIGXFSZ, and host programs may ignore more signals. A spawned process would inherit that.
_DEFAULT_SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("PIPE", "XFSZ", "HUP", "INT", "QUIT", "TERM", "CHLD", "USR1", "USR2", "ALRM", "TSTP", "TTIN", "TTOU")
)


def prepare_spawn(path: str, env: Mapping[str, str], moves: Sequence[tuple[int, int]]) -> Callable[[array[int]], None]:
    """Prepare the start of an executable without arguments, in a process group of its own, with default signals.

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
    variables = os.fsencode("\0".join(map("=".join, env.items()))).split(b"\0") if env else []
    # C would end a text at a NUL, and a name at its first "=". The errors are those of os.posix_spawn, the fallback.
    if b"\0" in program or len(variables) != len(env):
        raise ValueError("embedded null byte")
    if "" in env or "=" in "".join(env):
        raise ValueError("illegal environment variable name")
    try:
        ctypes, libc, quick, attributes = _libc()
    except ImportError:  # this Python has no ctypes, or shuts down
        return partial(_spawn_with_os, path, env, moves)
    sys.audit("os.posix_spawn", path, [path], env)
    argv = (ctypes.c_char_p * 2)(program, None)
    envp = (ctypes.c_char_p * (len(variables) + 1))(*variables, None)

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


def _spawn_with_os(path: str, env: Mapping[str, str], moves: Sequence[tuple[int, int]], pid: array[int]) -> None:
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in moves]
    pid[0] = os.posix_spawn(
        path, [path], env, file_actions=actions, setpgroup=0, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
    )


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
    for number in _DEFAULT_SIGNALS:
        quick.sigaddset(signals, number)
    quick.posix_spawnattr_setsigdefault(attributes, signals)
    return ctypes, ctypes.CDLL(None), quick, attributes
