"""Identify, open, enter, create and name network namespaces."""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import errno
import functools
import gc
import operator
import os
import stat
import sys

import libcni.kernel.system as system

# Not from typing: a plugin may import this module at every call, and typing would slow down its start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket as AnySocket  # noqa: N812 - of this module, or of socket
    from collections.abc import Callable
    from typing import Any, TypeVar

    _T = TypeVar("_T")

IP_NETNS_DIRECTORY = "/run/netns"
"""The directory of the names of ``ip netns``."""

CLONE_NEWNET, CLONE_NEWUTS = 0x40000000, 0x04000000
AF_NETLINK = 16
_MS_BIND, _MS_REC, _MS_SHARED, _MNT_DETACH, _UMOUNT_NOFOLLOW = 1 << 12, 1 << 14, 1 << 20, 2, 8
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_SO_NETNS_COOKIE = 71

NamespaceId = tuple[int, int]
"""(device, inode) of a namespace."""


def namespace_identity(netns: str) -> NamespaceId | None:
    """Return (device, inode) of the file at a namespace's path, or None if there is no file."""
    try:
        status = system.stat(netns)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def is_empty_file(path: str) -> bool:
    """Return whether there is an empty file at a path. The names of namespaces are empty files, mounted or not."""
    try:
        status = system.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def open_namespace(netns: str) -> int:
    """Return a descriptor of the file at a namespace's path; raises OSError or ValueError."""
    # O_NONBLOCK: the open of a FIFO would wait for a writer.
    return system.open(netns, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def open_known(path: str, identity: NamespaceId) -> int:
    """Return a descriptor of the expected network namespace at a path that another user can change.

    That user may replace the file at any moment, for example by a FIFO, whose open waits for ever.

    Raises:
        OSError: the path cannot be opened, or another file is there (ESTALE).
    """
    with system.Closing(system.open(path, os.O_PATH | os.O_CLOEXEC)) as found:  # calls no file system
        if system.identify(found) != identity:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)
        return open_namespace(f"/proc/self/fd/{found}")


def enter_namespace(descriptor: int, kind: int = CLONE_NEWNET) -> None:
    """Move the calling thread into the namespace of an open file. Nothing else may run in the thread then.

    Python 3.11 has no ``os.setns``.

    Raises:
        OSError: the file is no such namespace, or this user may not enter it.
    """
    if hasattr(os, "setns"):
        os.setns(descriptor, kind)
        return
    system.call_libc("setns", descriptor, kind)


def new_namespace(*, lo_up: bool = True) -> int:
    """Return a descriptor of a new network namespace. The namespace ends with the descriptor, unless it has a name.

    Raises:
        OSError: this user may not create a namespace.
    """

    def make() -> int:
        system.call_libc("unshare", CLONE_NEWNET)
        if lo_up:
            _bring_lo_up()
        return system.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return call_in_thread(make)


def make_namespace(path: str, announce: Callable[[str], object] | None = None, *, lo_up: bool = True) -> None:
    """Create a network namespace with a name, which must not exist.

    ``announce`` is called with another path of the namespace before it gets its name: a program that is killed earlier
    leaves nothing, because the namespace ends with the descriptor.

    Raises:
        OSError: this user may not create a namespace, or the name exists.
    """
    with system.Closing(new_namespace(lo_up=lo_up)) as descriptor:
        # The descriptor also keeps the inode and its time: the kernel drops unused inodes, and gives them a new time.
        source = f"/proc/self/fd/{descriptor}"
        if announce is not None:
            announce(source)
        if os.path.dirname(path) == IP_NETNS_DIRECTORY:
            _share_ip_netns_directory()
        bind(source, path)


def _share_ip_netns_directory() -> None:
    """Make ``/run/netns`` a shared mount, as the first ``ip netns add`` of a boot does.

    Otherwise that command would mount the directory over the names that exist already, and nobody could remove those:
    unlink(2) of a name whose covered mount still exists fails with EBUSY.
    """
    if _share_mount(IP_NETNS_DIRECTORY):
        return
    import fcntl  # needed once a boot

    with system.Closing(system.open(IP_NETNS_DIRECTORY, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
        # The lock of ``ip netns add``: two mounts of the directory would cover the names in the first.
        fcntl.flock(directory, fcntl.LOCK_EX)
        if not _share_mount(IP_NETNS_DIRECTORY):
            path = os.fsencode(IP_NETNS_DIRECTORY)
            system.call_libc("mount", path, path, b"none", _MS_BIND | _MS_REC, None)
            _share_mount(IP_NETNS_DIRECTORY)


def _share_mount(path: str) -> bool:
    """Make a mount shared; return False if the path is no mount point."""
    try:
        system.call_libc("mount", b"", os.fsencode(path), b"none", _MS_SHARED | _MS_REC, None)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def _bring_lo_up() -> None:
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inside:
        system.ioctl(inside, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))


def bind(source: str, path: str, *, onto: bool = False) -> None:
    """Bind-mount the namespace at ``source`` to ``path``, as a further name. Raises OSError.

    ``onto``: the name exists as an empty file. It is kept: its removal would unmount what others have mounted there.
    """
    if not onto:
        # O_EXCL: a file of another program must be neither mounted over nor removed.
        system.close(system.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400))
    try:
        system.call_libc("mount", os.fsencode(source), os.fsencode(path), None, _MS_BIND, None)
    except OSError:
        if not onto:
            system.unlink(path)
        raise


def unbind(path: str) -> bool:
    """Remove the name of a namespace; return whether it existed. Any other file or mount stays. Raises OSError."""
    # More than once: two programs may each have mounted a namespace on the name before they were killed.
    while _is_namespace(path):
        # MNT_DETACH: a plugin may still have the file open.
        system.call_libc("umount2", os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW)
    if not is_empty_file(path):
        return False
    system.unlink(path)
    return True


def _is_namespace(path: str) -> bool:
    try:
        # lstat: a symbolic link leads to a mount of another program.
        return system.lstat(path).st_dev == system.stat("/proc/self/ns/net").st_dev
    except OSError:
        return False


def call_in_thread(function: Callable[[], _T]) -> _T:
    """Call a function in a new thread, whose namespace it may change; return its value or raise its exception.

    The caller's thread must stay in its namespace: it may start a plugin next.
    """
    import threading

    answers: list[_T] = []
    problems: list[BaseException] = []

    def call() -> None:
        try:
            answers.append(function())
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that asked
            problems.append(error)

    thread = threading.Thread(target=call, name="libcni-namespace", daemon=True)
    thread.start()
    thread.join()
    for problem in problems:
        raise problem
    return answers[0]


def netlink_socket(namespace: int) -> int:
    """Return the descriptor of a netlink socket in an open network namespace, or -1 if that is not possible."""
    return socket_in(namespace, AF_NETLINK, _socket.SOCK_RAW, 0)


def socket_in(namespace: int, family: int, kind: int, protocol: int) -> int:
    """Return the descriptor of a new socket in an open network namespace, or -1 if that is not possible.

    A socket belongs to the namespace in which it was opened, so later requests need not enter the namespace.
    """
    try:
        home = system.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    try:
        # Each time: a program may drop privileges, or enter a user namespace, between two calls.
        # From Python 3.14 on a signal handler may run between two C functions of one map, but only in the main thread.
        can_return = sys.version_info < (3, 14) and system.functions_without_release()[0](home, CLONE_NEWNET) == 0
        if can_return:
            socket_fd, came_back = _visit(namespace, home, family, kind, protocol)
            if not came_back:
                raise AssertionError("this thread is in another network namespace and cannot return")
            return socket_fd
    finally:
        system.close(home)
    # In a thread that ends: a rootless program may enter a namespace of its own and not return, and no signal handler
    # runs in it.
    return call_in_thread(lambda: _visit(namespace, -1, family, kind, protocol)[0])


def cookie_of(connection: AnySocket) -> int:
    """Return the kernel's cookie of a socket's network namespace; 0 before Linux 5.14."""
    try:
        return int.from_bytes(connection.getsockopt(_socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)
    except OSError:
        return 0


def _visit(namespace: int, home: int, family: int, kind: int, protocol: int) -> tuple[int, bool]:
    """Make a socket in a namespace; return its descriptor, or -1, and whether the thread is at home again."""
    setns, socket = system.functions_without_release()
    # One map over C functions, which keep the interpreter's lock: no other Python code, signal handler or finaliser
    # runs in the wrong namespace, and nothing can prevent the return.
    steps: tuple[Callable[[], Any], ...] = (
        gc.disable,
        functools.partial(setns, namespace, CLONE_NEWNET),
        functools.partial(socket, family, kind | _socket.SOCK_CLOEXEC, protocol),
        functools.partial(setns, home, CLONE_NEWNET),
        *([gc.enable] if gc.isenabled() else []),
    )
    failed, socket_fd, lost = list(map(operator.call, steps))[1:4]
    if failed:  # the thread never left its own namespace, so the socket belongs to that
        if socket_fd >= 0:
            system.close(socket_fd)
        return -1, True
    return socket_fd, not lost
