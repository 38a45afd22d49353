"""Identify the network namespace at a path, and look for an interface in it."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import _thread
import errno
import fcntl
import functools
import os
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from libcni.errors import CNIError

__all__ = ["Look", "enter_namespace", "is_own_namespace", "look"]

_CLONE_NEWNET = 0x40000000
_SO_NETNS_COOKIE = 71
_SIOCGIFINDEX = 0x8933


def is_own_namespace(netns: str) -> bool:
    """Return whether a path leads to the network namespace of this process or of the calling thread."""
    try:
        given = os.stat(netns)
        own = os.stat("/proc/thread-self/ns/net"), os.stat("/proc/self/ns/net")
    except (OSError, ValueError):
        return False
    return (given.st_dev, given.st_ino) in [(one.st_dev, one.st_ino) for one in own]


@dataclass(frozen=True, slots=True)
class Look:
    """The interface and the namespace that ``look`` found.

    Attributes:
        ifindex: the number of the interface, 0 if the name does not exist. The kernel counts upwards in each namespace,
            so an interface that was removed and made again has another number.
        cookie: the number of the namespace; unlike an inode number, the kernel does not use it again before a reboot.
            0 if the kernel has none (before 5.14).
    """

    ifindex: int
    cookie: int = 0


def look(netns: str, ifname: str) -> Look | None:
    """Look for an interface in a namespace.

    Return None if this program has no privilege to enter the namespace, or if the path leads to no namespace.
    """
    try:
        descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    found: list[Look] = []
    ended = _thread.allocate_lock()
    ended.acquire()
    try:
        # setns changes the namespace of one thread only. A new thread enters it and ends there, so no other work runs
        # in the wrong namespace. threading.Thread would take twice as long to start.
        _thread.start_new_thread(_look, (descriptor, ifname, found, ended))
    except RuntimeError as error:
        os.close(descriptor)
        raise CNIError(f"cannot look for {ifname} in {netns}: {error}", hint="raise the limit of threads") from error
    ended.acquire()
    return found[0] if found else None


def _look(descriptor: int, ifname: str, found: list[Look], ended: _thread.LockType) -> None:
    try:
        enter_namespace(descriptor)
        any_socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)  # a socket belongs to its namespace
        try:
            cookie = 0
            with suppress(OSError):
                cookie = int.from_bytes(any_socket.getsockopt(_socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)
            request = struct.pack("16si20x", os.fsencode(ifname), 0)
            try:
                answer = fcntl.ioctl(any_socket, _SIOCGIFINDEX, request)
                found.append(Look(struct.unpack_from("i", answer, 16)[0], cookie))
            except OSError as error:
                if error.errno == errno.ENODEV:
                    found.append(Look(0, cookie))
        finally:
            any_socket.close()
    except OSError:
        return
    finally:
        os.close(descriptor)  # in this thread, because Ctrl-C can end the caller's wait
        ended.release()


def enter_namespace(descriptor: int) -> None:
    """Move the calling thread into the namespace of an open file; raises OSError. Nothing else may run in it then."""
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
