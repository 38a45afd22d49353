"""The system calls of verbs, store and namespaces: the disk, locks, clocks, and the kernel's namespaces.

Call them as attributes of this module, ``system.open(...)``: the simulated node of the tests replaces them there.
"""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import errno
import functools
import os
import struct
import time as _time

# Imported under their own names: type checkers then know that this module offers them.
from fcntl import fcntl as fcntl
from fcntl import ioctl as ioctl
from os import access as access
from os import chmod as chmod
from os import close as close
from os import fchmod as fchmod
from os import fstat as fstat
from os import fstatvfs as fstatvfs
from os import fsync as fsync
from os import ftruncate as ftruncate
from os import getcwd as getcwd
from os import getpid as getpid
from os import link as link
from os import listdir as listdir
from os import lstat as lstat
from os import makedirs as makedirs
from os import mkdir as mkdir
from os import open as open  # noqa: A004 - as in os
from os import pwrite as pwrite
from os import read as read
from os import readlink as readlink
from os import rename as rename
from os import scandir as scandir
from os import stat as stat
from os import unlink as unlink
from os import urandom as urandom
from os.path import exists as exists
from os.path import isdir as isdir
from os.path import islink as islink
from os.path import lexists as lexists
from os.path import realpath as realpath
from time import monotonic as monotonic
from time import monotonic_ns as monotonic_ns
from time import sleep as sleep
from time import time as time
from time import time_ns as time_ns

_CLOCK_REALTIME_COARSE = 5

# Not from typing: a plugin may import this module at every call, and typing would slow down its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from concurrent.futures import Executor
    from typing import Any


class Closing:
    """A context manager that returns a descriptor and closes it at the end of its block."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        close(self._descriptor)


def uptime() -> float:
    """Return the seconds since the boot, including the time in suspend. Nobody can set this clock."""
    return _time.clock_gettime(_time.CLOCK_BOOTTIME)


def file_time_ns() -> int:
    """Return the time, in nanoseconds since 1970, that the kernel gives to a file that is changed now.

    A file's time is that of the last tick of the kernel's clock. A later change has this time or a later one.
    """
    return _time.clock_gettime_ns(_CLOCK_REALTIME_COARSE)


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
    """Return (setns, socket) of the C library, as functions that do not release the interpreter's lock."""
    import ctypes  # takes 10 ms

    library = ctypes.PyDLL(None)
    return library.setns, library.socket


def call_libc(name: str, *arguments: object) -> None:
    """Call a function of the C library for which Python has none; raises OSError if it does not return 0."""
    import ctypes  # takes 10 ms, and few programs need it

    if getattr(_libc(), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_NUMBERS_OF_KCMP = {"x86_64": 312, "i686": 349, "armv7l": 378, "s390x": 343, "ppc64le": 354, "ppc64": 354}
_GENERIC_NUMBER_OF_KCMP = 272  # aarch64, riscv64, loongarch64
_KCMP_FILES = 2
_FD_NSFS_ROOT, _FILEID_NSFS = -10003, 0xF1


def shares_descriptors(thread: int, other: int) -> bool:
    """Return whether two threads certainly have the same table of descriptors; False if this kernel cannot tell."""
    machine = os.uname().machine
    number = _NUMBERS_OF_KCMP.get(machine, _GENERIC_NUMBER_OF_KCMP)
    return bool(_libc().syscall(number, thread, other, _KCMP_FILES, 0, 0) == 0)


_AT_FDCWD, _AT_EMPTY_PATH, _AT_STATX_DONT_SYNC, _STATX_INO = -100, 0x1000, 0x4000, 0x100
_STATX = struct.Struct("=32xQ96xII112x")


def identify(file: str | int) -> tuple[int, int]:
    """Return (device, inode) of a file or a descriptor, as the kernel knows it.

    Unlike ``stat`` it never asks the program behind a FUSE file system, which any user can mount, and which may never
    answer. Raises OSError.
    """
    import ctypes

    path, directory = (os.fsencode(file), _AT_FDCWD) if isinstance(file, str) else (b"", file)
    flags = _AT_STATX_DONT_SYNC | (0 if path else _AT_EMPTY_PATH)
    buffer = ctypes.create_string_buffer(_STATX.size)
    if _libc().statx(directory, path, flags, _STATX_INO, buffer):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    inode, major, minor = _STATX.unpack(buffer.raw)
    return os.makedev(major, minor), inode


def open_namespace_by_handle(inode: int, cookie: int) -> int:
    """Return a descriptor of the network namespace with this inode and cookie, whatever keeps it (Linux 6.18).

    Raises:
        OSError: ESTALE if there is none, or if this program may not see it; another errno if the kernel cannot say.
    """
    import ctypes

    size, newnet = 16, 0x40000000
    try:
        handle = struct.pack("=IiQII", size, _FILEID_NSFS, cookie, newnet, inode)
    except struct.error:  # a damaged record may have any number
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL)) from None
    try:
        function = _libc().open_by_handle_at
    except AttributeError:  # a C library without it
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS)) from None
    descriptor: int = function(
        _FD_NSFS_ROOT, ctypes.create_string_buffer(handle, len(handle)), os.O_RDONLY | os.O_CLOEXEC
    )
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return descriptor


_NUMBER_OF_OPEN_TREE, _OPEN_TREE_CLONE = 428, 1


def open_without_mounts(directory: str) -> int:
    """Return a descriptor of a directory without the mounts in it, to see what they hide (Linux 5.2). Mounts stay.

    Raises:
        OSError: this program may not do that, for example in a user namespace.
    """
    import ctypes

    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
    descriptor: int = _libc().syscall(_NUMBER_OF_OPEN_TREE, _AT_FDCWD, os.fsencode(directory), flags)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), directory)
    return descriptor


_KNOWN_FILE_SYSTEMS = {
    *{0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630},  # ext4, XFS, btrfs, tmpfs, overlayfs
    *{0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x858458F6},  # F2FS, ZFS, bcachefs, ramfs
}
_LONG = struct.Struct("l")
_STATFS_BYTES = 256
_MOST_EVENT_BYTES = 1 << 16


def watch_directory(directory: int, mask: int) -> int:
    """Return a descriptor from which ``read_events`` reads the changes in a directory (inotify).

    Raises:
        OSError: ENOTSUP if a file system may change without this kernel, such as NFS; another errno if the kernel
            refuses, for example because this user has too many watches.
    """
    import ctypes

    buffer = ctypes.create_string_buffer(_STATFS_BYTES)
    call_libc("fstatfs", directory, buffer)
    # Some architectures have a negative number in the field.
    if _LONG.unpack_from(buffer)[0] & 0xFFFFFFFF not in _KNOWN_FILE_SYSTEMS:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    descriptor: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    # By the descriptor: the path may lead to another directory now.
    if descriptor < 0 or _libc().inotify_add_watch(descriptor, b"/proc/self/fd/%d" % directory, mask) < 0:
        number = ctypes.get_errno()
        if descriptor >= 0:
            close(descriptor)
        raise OSError(number, os.strerror(number))
    fcntl(descriptor, _F_SETSIG, _MARK_OF_WATCH)
    return descriptor


# The kernel keeps this number for each open file, 0 by default. It sends a signal only to those who ask for one.
_F_SETSIG, _F_GETSIG, _MARK_OF_WATCH = 10, 11, 47


def is_watch(descriptor: int) -> bool:
    """Return whether a descriptor is one of ``watch_directory``: daemons close all, and numbers are used again."""
    try:
        return fcntl(descriptor, _F_GETSIG) == _MARK_OF_WATCH
    except (OSError, ValueError):  # ValueError: a negative number
        return False


def read_events(descriptor: int) -> bytes:
    """Return the next changes that ``watch_directory`` reports, in the kernel's format; b"" if there is none now.

    Raises:
        OSError: something has closed the descriptor. If another file has its number, nothing is read from it.
    """
    if not is_watch(descriptor):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        return read(descriptor, _MOST_EVENT_BYTES)
    except BlockingIOError:
        return b""


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
