"""Network namespaces by their paths: which one it is, and whether an interface exists in it."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import _thread
import functools
import os
from typing import Any

from libcni.errors import CNIError

__all__ = ["has_interface", "is_own_namespace"]

_CLONE_NEWNET = 0x40000000


def is_own_namespace(netns: str) -> bool:
    """Return whether a path leads to the network namespace of this process or of the calling thread."""
    try:
        given = os.stat(netns)
        own = os.stat("/proc/thread-self/ns/net"), os.stat("/proc/self/ns/net")
    except (OSError, ValueError):
        return False
    return (given.st_dev, given.st_ino) in [(one.st_dev, one.st_ino) for one in own]


def has_interface(netns: str, ifname: str) -> bool | None:
    """Return whether an interface exists in a namespace; None if that cannot be seen.

    It cannot be seen without the privilege to enter the namespace, or if the path leads to no namespace.
    """
    try:
        descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    found: list[bool] = []
    ended = _thread.allocate_lock()
    ended.acquire()
    try:
        # A namespace belongs to a thread. This one enters it and ends there, so no other work can run in the wrong one.
        # It is started without threading.Thread, which takes twice as long.
        _thread.start_new_thread(_look, (descriptor, ifname, found, ended))
    except RuntimeError as error:
        os.close(descriptor)
        raise CNIError(f"cannot look for {ifname} in {netns}: {error}", hint="raise the limit of threads") from error
    ended.acquire()
    return found[0] if found else None


def _look(descriptor: int, ifname: str, found: list[bool], ended: _thread.LockType) -> None:
    try:
        _setns(descriptor)
        found.append(False)
        _socket.if_nametoindex(ifname)
        found[0] = True
    except OSError:
        return
    finally:
        os.close(descriptor)  # here, because Ctrl-C can end the wait for this thread
        ended.release()


def _setns(descriptor: int) -> None:
    if hasattr(os, "setns"):
        os.setns(descriptor, _CLONE_NEWNET)
        return
    import ctypes  # Python 3.11 has no os.setns

    if _libc().setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@functools.cache
def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
