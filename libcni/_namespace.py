"""Identify, open and enter network namespaces."""

from __future__ import annotations

import functools
import os
import stat

# Not from typing: a plugin may import this module at every call, and typing would slow down its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLONE_NEWNET = 0x40000000


def namespace_identity(netns: str) -> tuple[int, int] | None:
    """Return (device, inode) of the file at a namespace's path, or None if there is none."""
    try:
        status = os.stat(netns)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def is_empty_file(path: str) -> bool:
    """Return whether a path may be the name of a namespace: a mounted namespace and the file below are empty files."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def open_namespace(netns: str) -> int:
    """Return a descriptor of the file at a namespace's path; raises OSError or ValueError."""
    # O_NONBLOCK: the open of a FIFO would wait for a writer.
    return os.open(netns, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def enter_namespace(descriptor: int) -> None:
    """Move the calling thread into the network namespace of an open file. Nothing else may run in the thread then.

    Python 3.11 has no ``os.setns``.

    Raises:
        OSError: the file is no network namespace, or this user may not enter it.
    """
    if hasattr(os, "setns"):
        os.setns(descriptor, CLONE_NEWNET)
        return
    call_libc("setns", descriptor, CLONE_NEWNET)


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
