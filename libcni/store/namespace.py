"""Network namespaces by their paths: which one it is, and which number an interface has in it."""

from __future__ import annotations

import _thread
import functools
import os
from typing import Any

from libcni.errors import CNIError
from libcni.store.record import namespace_identity

__all__ = ["interface_index", "is_own_namespace"]

_CLONE_NEWNET = 0x40000000


def is_own_namespace(netns: str) -> bool:
    """Return whether a path leads to the network namespace of this process or of the calling thread."""
    identity = namespace_identity(netns)
    own = (namespace_identity("/proc/self/ns/net"), namespace_identity("/proc/thread-self/ns/net"))
    return identity is not None and identity in own


def interface_index(netns: str, ifname: str) -> int | None:
    """Return the number of an interface in a namespace, 0 if it has none of that name; None if that cannot be seen.

    It cannot be seen without the privilege to enter the namespace, or if the path leads to no namespace. The kernel
    counts the numbers of a namespace upwards, so an interface that was removed and made again has another one.
    """
    try:
        descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    found: list[int] = []
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


def _look(descriptor: int, ifname: str, found: list[int], ended: _thread.LockType) -> None:
    import socket

    try:
        _setns(descriptor)
        found.append(0)
        found[0] = socket.if_nametoindex(ifname)
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
