"""The system as verbs, store and namespaces see it: the disk, locks, clocks, and the kernel's namespaces.

They call these names as attributes of this module, ``system.open(...)``. The simulated node of the tests puts its world
in place of them, so it runs the code that users run.
"""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import fcntl as _fcntl
import functools
import os
import time as _time

# Not from typing: a plugin may import this module at every call, and typing would slow down its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from concurrent.futures import Executor
    from typing import Any

# The disk, and what is below /proc.
access = os.access
chmod = os.chmod
close = os.close
exists = os.path.exists
fchmod = os.fchmod
fstat = os.fstat
fstatvfs = os.fstatvfs
fsync = os.fsync
isdir = os.path.isdir
islink = os.path.islink
lexists = os.path.lexists
link = os.link
listdir = os.listdir
lstat = os.lstat
makedirs = os.makedirs
mkdir = os.mkdir
open = os.open  # noqa: A001 - as in os
read = os.read
readlink = os.readlink
realpath = os.path.realpath
rename = os.rename
scandir = os.scandir
stat = os.stat
unlink = os.unlink
write = os.write

# Locks and control requests on open files.
fcntl = _fcntl.fcntl
ioctl = _fcntl.ioctl

# The process.
getcwd = os.getcwd
getpid = os.getpid
urandom = os.urandom

# Clocks.
monotonic = _time.monotonic
monotonic_ns = _time.monotonic_ns
sleep = _time.sleep
time = _time.time
time_ns = _time.time_ns


def uptime() -> float:
    """Return the seconds since the boot, including the time in suspend. Nobody can set this clock."""
    return _time.clock_gettime(_time.CLOCK_BOOTTIME)


# Threads.


def event() -> threading.Event:
    """Return an event that a thread can wait for."""
    import threading

    return threading.Event()


def thread_pool(most: int) -> Executor:
    """Return an executor with this number of threads."""
    from concurrent.futures import ThreadPoolExecutor  # takes 5 ms, and few programs sweep

    return ThreadPoolExecutor(most)


# Namespaces.
socket = _socket.socket


@functools.cache
def functions_without_release() -> tuple[Any, Any]:
    """Return setns and socket of the C library, as functions that do not release the interpreter's lock."""
    import ctypes  # takes 10 ms

    library = ctypes.PyDLL(None)
    return library.setns, library.socket


def call_libc(name: str, *arguments: object) -> None:
    """Call a function of the C library for which Python has none; raises OSError if it does not return 0."""
    import ctypes  # takes 10 ms, and most programs never come here

    if getattr(_libc(), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
