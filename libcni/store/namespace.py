"""Identify the network namespace at a path, and look up an interface in it."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import _thread
import errno
import fcntl
import os
import struct
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from libcni._helper_thread import HelperThread
from libcni._namespace import CLONE_NEWNET, enter_namespace, namespace_identity, open_namespace
from libcni.errors import CNIError

_SO_NETNS_COOKIE = 71
_SIOCGIFINDEX, _SIOCGIFHWADDR = 0x8933, 0x8927
_ARPHRD_ETHER = 1
_NS_GET_NSTYPE = 0xB703
_START_FIELD = 19  # of those after the name
_FEW_VERBS = 2


def is_own_namespace(netns: str) -> bool:
    """Return whether a path leads to the network namespace of this process or of the calling thread."""
    given = namespace_identity(netns)
    if given is None:
        return False
    # "self" is the main thread.
    is_main = threading.get_native_id() == os.getpid()
    paths = ("/proc/self/ns/net",) if is_main else ("/proc/thread-self/ns/net", "/proc/self/ns/net")
    return given in map(namespace_identity, paths)


def is_no_namespace(netns: str) -> bool:
    """Return whether something else than a network namespace is at a path, or nothing. If that is unknown: False."""
    try:
        descriptor = open_namespace(netns)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    try:
        return fcntl.ioctl(descriptor, _NS_GET_NSTYPE) != CLONE_NEWNET
    except OSError as error:
        return error.errno == errno.ENOTTY
    finally:
        os.close(descriptor)


def process_start(pid: str) -> float | None:
    """Return when a process started, in seconds since 1970, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name comes before, in parentheses, and may have spaces and parentheses.
            ticks = int(file.read().rpartition(b")")[2].split()[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class InterfaceLookup:
    """What was found under an interface's name in a namespace.

    Attributes:
        ifindex: the number of the interface, 0 if the name does not exist. The kernel counts upwards in each namespace,
            so an interface that was removed and made again has another number.
        cookie: the number of the namespace; unlike an inode number, the kernel does not use it again before a reboot.
            0 if the kernel has none (before 5.14).
    """

    ifindex: int
    cookie: int = 0


class EnteredNamespace:
    """A namespace that was entered once, to look up interfaces in it several times. It cannot end before ``close``.

    A socket stays in the namespace in which it was made, and every thread can use it.
    """

    def __init__(self, socket: _socket.socket, identity: tuple[int, int]) -> None:
        self._socket = socket
        self._identity = identity
        _entered.add(self)

    @classmethod
    def enter(cls, netns: str) -> EnteredNamespace | None:
        """Enter the namespace at a path; return None if that is not possible.

        Raises:
            CNIError: no thread can be started.
        """
        try:
            descriptor = open_namespace(netns)
        except (OSError, ValueError):
            return None
        status = os.fstat(descriptor)
        found: list[_socket.socket] = []
        ended = _thread.allocate_lock()
        ended.acquire()
        try:
            _visit(descriptor, found, ended)
        except RuntimeError as error:
            os.close(descriptor)  # otherwise the thread closes it
            raise CNIError(f"{netns} cannot be entered: {error}", hint="raise the limit of threads") from error
        ended.acquire()
        return cls(found[0], (status.st_dev, status.st_ino)) if found else None

    def is_at(self, netns: str) -> bool:
        """Return whether a path leads to this namespace now."""
        return namespace_identity(netns) == self._identity

    def look_up(self, ifname: str) -> InterfaceLookup | None:
        """Look up an interface; return None if the kernel refuses to answer."""
        cookie = 0
        with suppress(OSError):
            cookie = int.from_bytes(self._socket.getsockopt(_socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)
        request = struct.pack("16si20x", os.fsencode(ifname), 0)
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFINDEX, request)
        except OSError as error:
            return InterfaceLookup(0, cookie) if error.errno == errno.ENODEV else None
        return InterfaceLookup(struct.unpack_from("i", answer, 16)[0], cookie)

    def mac_of(self, ifname: str) -> str:
        """Return the hardware address of an interface, "" if it has none of six bytes."""
        try:
            answer = fcntl.ioctl(self._socket, _SIOCGIFHWADDR, struct.pack("16s24x", os.fsencode(ifname)))
        except OSError:
            return ""
        family, address = struct.unpack_from("=H6s", answer, 16)
        return address.hex(":") if family == _ARPHRD_ETHER else ""

    def close(self) -> None:
        """Leave the namespace."""
        _entered.discard(self)
        self._socket.close()


_entered: weakref.WeakSet[EnteredNamespace] = weakref.WeakSet()


def _leave_all() -> None:
    # A forked worker that lives on would keep the container's namespace, also when all else has left it.
    for entered in list(_entered):
        entered.close()


os.register_at_fork(after_in_child=_leave_all)
_visitor = HelperThread()


def _visit(descriptor: int, found: list[_socket.socket], ended: _thread.LockType) -> None:
    """Let another thread make a socket in a namespace. Raises RuntimeError.

    A namespace belongs to a thread, and nothing else may run in the wrong one. So a thread enters it and ends there.
    When several verbs run, one thread enters the namespaces for all of them: on a busy machine a new thread waits ten
    times as long for a core as one that wakes up.
    """
    if threading.active_count() == 1 and len(_entered) < _FEW_VERBS:
        _thread.start_new_thread(_make_socket, (descriptor, found, ended))
    else:
        _visitor.do(partial(_visit_and_return, descriptor, found, ended))


def _visit_and_return(descriptor: int, found: list[_socket.socket], ended: _thread.LockType) -> bool:
    """Make a socket in a namespace; return whether the thread is in its own namespace again.

    A thread that cannot return must end: it keeps the other namespace alive.
    """
    try:
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, MemoryError):  # not before the visit: a verb waits for it
        home = -1
    _make_socket(descriptor, found, ended)
    if home < 0:
        return False
    try:
        enter_namespace(home)
    except OSError:
        return False
    finally:
        os.close(home)
    return True


def _make_socket(descriptor: int, found: list[_socket.socket], ended: _thread.LockType) -> None:
    try:
        enter_namespace(descriptor)
        found.append(_socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM))
    except OSError:
        return
    finally:
        os.close(descriptor)  # in this thread, because Ctrl-C can end the caller's wait
        ended.release()
