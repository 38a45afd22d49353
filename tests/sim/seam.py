"""The world in place of the system: what verbs and store see as ``libcni.kernel.system``.

A name of that module that is not here raises an AssertionError, so that nothing of the real system is used. Every
function that others could notice is a point at which others may run, and then one effect.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import itertools
import logging
import os
import posixpath
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import libcni.kernel.system
from libcni._defaults import MAX_VERBS
from libcni.kernel import foreign, life, netlink
from libcni.kernel.namespace import CLONE_NEWNET
from libcni.kernel.netlink_messages import (
    ATTRIBUTE,
    HEADER,
    INT,
    NLM_F_REQUEST_DUMP,
    NLMSG_DONE,
    NLMSG_ERROR,
    attribute,
)
from libcni.store import boot, files, present_interfaces
from libcni.store.locks import _FLOCK, _GETLK
from sim.disk import Directory, File, OpenFile, Watch, failure, has_conflict, set_lock
from sim.proc import _THREADS, Other, Proc
from sim.schedule import Code, Killed, Sim
from sim.world import Interface, Namespace

_running: list[Sim] = []


def sim() -> Sim:
    """Return the simulation that runs."""
    return _running[-1]


RESERVATIONS = "/var/lib/cni/networks/"


class SimSystem:
    """In place of ``libcni.kernel.system``. There are no symbolic links."""

    realpath = staticmethod(posixpath.normpath)

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> None:
            raise AssertionError(f"{name} is not simulated")

        return fail

    def _file(self, descriptor: int) -> OpenFile:
        # A finaliser may run when no process does, or in the turn of another one.
        if not _running or sim().current is None or sim().current.process is None:  # type: ignore[union-attr]
            raise failure(errno.EBADF)
        try:
            return sim().me().descriptors[descriptor]
        except KeyError:
            raise failure(errno.EBADF) from None

    def _directory(self, descriptor: int | None) -> Directory | None:
        if descriptor is None:
            return None
        inode = self._file(descriptor).inode
        assert isinstance(inode, Directory)
        return inode

    def _find(self, path: str, dir_fd: int | None = None) -> Namespace | Other | File | Directory:
        world = sim().world
        if not path.startswith("/proc/"):
            return world.namespaces.get(path) or world.disk.find(path, self._directory(dir_fd))
        if path.endswith("boot_id"):
            return File(9, data=f"boot-{world.boots}".encode())
        return Proc(world, sim().me()).find(path)

    def _names(self, path: str, dir_fd: int | None = None) -> list[str]:
        """Return the names of a file and of its directory, for steps that read or change them."""
        if path.startswith(("/proc", "/run")):
            return ["network"]
        directory, _, name = path.rpartition("/")
        return [name, f"{posixpath.basename(directory if dir_fd is None else self._file(dir_fd).path)}/"]

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    lexists = exists

    def isdir(self, path: str) -> bool:
        try:
            return isinstance(self._find(path), Directory)
        except OSError:
            return False

    def open(self, path: str, flags: int, _mode: int = 0, *, dir_fd: int | None = None) -> int:
        """Open a file, a directory or a namespace."""
        me, world, is_proc = sim().me(), sim().world, path.startswith("/proc/")
        if path.startswith(RESERVATIONS):
            sim().point("", "network")
            return me.put(OpenFile(world.reservation(path), path))
        if not is_proc and not flags & os.O_DIRECTORY:
            is_new = flags & os.O_CREAT and not self._is_there(path, dir_fd)
            sim().point(f"creates {path}" if is_new else "", *self._names(path, dir_fd))
        if is_proc or (path in world.namespaces and not flags & os.O_EXCL):
            inode = self._find(path)
            if isinstance(inode, Namespace):
                me.glance()
                inode.hold()
                return me.put(OpenFile(inode, path, on_close=inode.release))
            return me.put(OpenFile(inode, path))
        return me.put(world.disk.open(path, flags, self._directory(dir_fd), sim().now))

    def _is_there(self, path: str, dir_fd: int | None) -> bool:
        try:
            self._find(path, dir_fd)
        except OSError:
            return False
        return True

    @contextmanager
    def Closing(self, descriptor: int) -> Iterator[int]:  # noqa: N802 - the module's name
        try:
            yield descriptor
        finally:
            self.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a descriptor, once."""
        actor = sim().current if _running else None
        if actor is None or actor.process is None or descriptor not in sim().me().given:
            return  # the finaliser of a killed process, whose descriptors the kernel has closed
        file = self._file(descriptor)
        if isinstance(file.inode, File) and file.inode.locks:
            sim().touch("locks", change=True)
        file.close()
        del sim().me().descriptors[descriptor]

    def read(self, descriptor: int, size: int) -> bytes:
        file = self._file(descriptor)
        sim().point("", posixpath.basename(file.path))
        assert isinstance(file.inode, File)
        data = file.inode.data[file.at : file.at + size]
        file.at += len(data)
        return data

    def write(self, descriptor: int, data: memoryview | bytes) -> int:
        """Write everything at the file's position; what is behind it stays."""
        file = self._file(descriptor)
        self.pwrite(descriptor, data, file.at)
        file.at += len(data)
        return len(data)

    def pwrite(self, descriptor: int, data: memoryview | bytes, at: int) -> int:
        """Write everything; what is behind it stays. A kill, or a reader, may come between some of the bytes."""
        file, data = self._file(descriptor), bytes(data)
        name = posixpath.basename(file.path)
        sim().point(f"writes {len(data)} bytes of {file.path}", name)
        assert isinstance(file.inode, File)
        cut = 0
        if file.inode.synced is not None:  # its bytes count: it has a name
            cut = (1, len(data) // 2, len(data) - 1)[len(file.inode.unsynced) % 3]
            file.inode.write(data[:cut], at, sim().now)
            sim().world.disk.tell(file)
            sim().written(file.inode, whole=not cut)
            sim().point("", name, change=True)
        file.inode.write(data[cut:], at + cut, sim().now)
        sim().world.disk.tell(file)
        sim().written(file.inode, whole=True)
        return len(data)

    def ftruncate(self, descriptor: int, size: int) -> None:
        file = self._file(descriptor)
        sim().point(f"cuts {file.path} off after {size} bytes", posixpath.basename(file.path))
        assert isinstance(file.inode, File)
        file.inode.truncate(size, sim().now)
        sim().world.disk.tell(file)
        sim().written(file.inode, whole=False)

    def fsync(self, descriptor: int) -> None:
        """Make bytes safe, or all names."""
        file = self._file(descriptor)
        sim().point(f"syncs {file.path}", "safe", change=False)
        if isinstance(file.inode, File):
            file.inode.sync()
        else:
            sim().world.disk.commit()

    def fstat(self, descriptor: int) -> SimpleNamespace:
        return _status(self._file(descriptor).inode)

    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> SimpleNamespace:
        """Return the status of what is at a path now."""
        del follow_symlinks
        if not path.startswith("/proc/"):
            sim().point("", *self._names(path, dir_fd)[:1])
            sim().me().glance()
        return _status(self._find(path, dir_fd))

    lstat = stat

    def mkdir(self, path: str, _mode: int = 0) -> None:
        sim().point(f"makes the directory {path}", *self._names(path))
        sim().world.disk.make_directory(path)

    def makedirs(self, path: str, mode: int, *, exist_ok: bool) -> None:
        """Make a directory, and those above it."""
        assert exist_ok
        if not self.isdir(path):
            self.makedirs(posixpath.dirname(path), mode, exist_ok=True)
            self.mkdir(path)

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Rename in one step."""
        sim().point(f"renames {source} to {target}", *self._names(source, src_dir_fd), *self._names(target, dst_dir_fd))
        old, new = self._directory(src_dir_fd), self._directory(dst_dir_fd)
        assert old is not None
        assert new is not None
        inode = sim().world.disk.find(source, old)
        sim().world.disk.change((new, target, inode), (old, source, None), now=sim().now)
        for process in sim().world.processes.values():
            for file in process.descriptors.values():
                if file.place == (old, source):
                    file.place = new, target
        if isinstance(inode, File):
            sim().written(inode, whole=True)

    def link(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool = True) -> None:
        """Give a file a second name, unless the name is taken."""
        del follow_symlinks
        sim().point(f"links {source} as {target}", *self._names(target, dst_dir_fd))
        new = self._directory(dst_dir_fd)
        assert new is not None
        inode = sim().world.disk.find(source, self._directory(src_dir_fd))
        if target in new.entries:
            raise failure(errno.EEXIST, target)
        sim().world.disk.change((new, target, inode), now=sim().now)
        if isinstance(inode, File):
            sim().written(inode, whole=True)

    def unlink(self, path: str, *, dir_fd: int | None = None) -> None:
        """Remove a name, unless a namespace is mounted there."""
        sim().point(f"removes {path}", *self._names(path, dir_fd))
        disk, start, (parent, _, name) = sim().world.disk, self._directory(dir_fd), path.rpartition("/")
        if path in sim().world.namespaces:
            raise failure(errno.EBUSY, path)
        disk.find(path, start)
        disk.change((disk.directory(parent, start), name, None), now=sim().now)

    def listdir(self, path: str | int) -> list[str]:
        name = self._file(path).path if isinstance(path, int) else path
        sim().point("", *self._names(f"{name}/"))
        if path == "/proc":
            return [str(pid) for pid in sim().world.processes]
        if isinstance(path, str) and path.startswith("/proc/"):
            return Proc(sim().world, sim().me()).listdir(path)
        if path == "/run/netns":
            return [posixpath.basename(one) for one in sim().world.namespaces if posixpath.dirname(one) == path]
        if path == "/run/runc":
            return list(sim().world.containers)
        directory = self._directory(path) if isinstance(path, int) else sim().world.disk.directory(path)
        assert directory is not None
        return list(directory.entries)

    def watch_directory(self, directory: int, _mask: int) -> int:
        """Watch a directory, in every second process: else each look examines all files."""
        inode = self._directory(directory)
        assert inode is not None
        if sim().me().pid % 2:
            raise failure(errno.ENOTSUP)
        disk, made = sim().world.disk, Watch(inode)
        disk.watches.append(made)
        return sim().me().put(OpenFile(made, "a watch", on_close=lambda: disk.watches.remove(made)))

    def is_watch(self, descriptor: int) -> bool:
        try:
            return isinstance(self._file(descriptor).inode, Watch)
        except OSError:
            return False

    def read_events(self, descriptor: int) -> bytes:
        """Return what has changed. Nobody else runs meanwhile: the caller has a lock of its threads."""
        watch = self._file(descriptor).inode
        assert isinstance(watch, Watch)
        sim().touch("results/", *watch.directory.entries, *(name for name, _ in watch.names), change=False)
        data = b"".join(
            struct.pack("=iIII", 1, kind, 0, len(name) + 1) + name.encode() + b"\0" for name, kind in watch.names
        )
        watch.names.clear()
        return data

    def readlink(self, path: str) -> str:
        return Proc(sim().world, sim().me()).readlink(path)

    @contextmanager
    def scandir(self, descriptor: int) -> Iterator[list[SimpleNamespace]]:
        yield [SimpleNamespace(name=name) for name in self.listdir(descriptor)]

    def chmod(self, *_: object) -> None:
        """Do nothing: modes are not simulated."""

    fchmod = chmod

    def fstatvfs(self, _descriptor: int) -> SimpleNamespace:
        """Fail: no journal orders bytes and names, so bytes have to be synced."""
        raise failure(errno.ENOSYS)

    def fcntl(self, descriptor: int, command: int, argument: bytes) -> bytes:
        """Lock or unlock a range of bytes, or ask whether another open file has it."""
        file, (kind, _, start, length, _) = self._file(descriptor), _FLOCK.unpack(argument)
        end = start + length if length else 1 << 62
        if length:  # not to unlock everything, as finalisers do
            sim().point("", "locks", change=command != _GETLK)
        else:
            sim().touch("locks", change=True)
        if command == _GETLK:
            is_free = not has_conflict(file, start, end, exclusive=True)
            return _FLOCK.pack(fcntl.F_UNLCK if is_free else fcntl.F_WRLCK, 0, 0, 0, 0)
        exclusive = {fcntl.F_UNLCK: None, fcntl.F_WRLCK: True, fcntl.F_RDLCK: False}[kind]
        if not set_lock(file, start, end, exclusive=exclusive):
            raise failure(errno.EAGAIN)
        return argument

    def ioctl(self, file: int | SimSocket, request: int, argument: bytes = b"") -> Any:
        """Return the type of a namespace; of a socket, the hardware address or the number of an interface."""
        if isinstance(file, SimSocket):
            found = file.find(argument[:16])
            if request == present_interfaces._SIOCGIFHWADDR:
                return (
                    argument[:16]
                    + present_interfaces._SHORT.pack(present_interfaces._ARPHRD_ETHER)
                    + _packed(found.mac)
                )
            return argument[:16] + present_interfaces._INT.pack(found.index)
        inode = self._file(file).inode
        if request == foreign._NS_GET_USERNS and isinstance(inode, (Namespace, Other)):
            return sim().me().put(OpenFile(Other(inode.owner), "a user namespace"))
        if not isinstance(inode, Namespace):
            raise failure(errno.ENOTTY)
        return inode.cookie.to_bytes(8, sys.byteorder) if request == life._NS_GET_ID else CLONE_NEWNET

    def identify(self, file: str | int) -> tuple[int, int]:
        status = self.fstat(file) if isinstance(file, int) else _status(self._find(file))
        return status.st_dev, status.st_ino

    def shares_descriptors(self, thread: int, other: int) -> bool:
        """Return whether two threads are of one process."""
        return thread % _THREADS == other % _THREADS

    def open_namespace_by_handle(self, inode: int, cookie: int) -> int:
        """Open a namespace, whatever holds it."""
        sim().point("", "network")
        found = sim().world.by_handle(inode, cookie)
        found.hold()
        return sim().me().put(OpenFile(found, "a handle", on_close=found.release))

    def open_without_mounts(self, directory: str) -> int:
        raise failure(errno.EPERM)

    def call_libc(self, name: str, *paths: Any) -> None:
        """Mount a process's namespace at a path, or unmount it there."""
        work: dict[str, Callable[..., None]] = {"mount": self._mount, "umount2": self._unmount}
        work[name](*(os.fsdecode(one) for one in paths if isinstance(one, bytes)))

    def _mount(self, source: str, path: str) -> None:
        sim().point(f"mounts {source} at {path}", "network")
        namespace = self._find(source)
        assert isinstance(namespace, Namespace)
        sim().world.disk.find(path)
        if path in sim().world.namespaces:
            sim().violate(f"{path} is mounted over the namespace of {sim().world.namespaces[path].maker}")
        sim().world.mount(namespace, path)

    def _unmount(self, path: str) -> None:
        sim().point(f"unmounts {path}", "network")
        if path not in sim().world.namespaces:
            raise failure(errno.EINVAL, path)
        maker = sim().world.namespaces[path].maker
        if maker != posixpath.basename(path).partition(".")[0]:
            sim().violate(f"the namespace of {maker} is unmounted")
        sim().world.remove_namespace(path)

    def islink(self, _path: str) -> bool:
        return False

    def getcwd(self) -> str:
        return "/"

    def getpid(self) -> int:
        return sim().me().pid

    def urandom(self, size: int) -> bytes:
        """Return the same bytes in each run of a schedule."""
        return sim().random.randbytes(size)

    def monotonic(self) -> float:
        return sim().now

    time = uptime = monotonic

    def monotonic_ns(self) -> int:
        return int(sim().now * 1e9)

    time_ns = file_time_ns = monotonic_ns

    def sleep(self, seconds: float) -> None:
        sim().wait(None, seconds)

    def event(self) -> SimEvent:
        return SimEvent()

    def thread_pool(self, _most: int) -> SimThreads:
        return SimThreads()

    def functions_without_release(self) -> tuple[Callable[..., int], Callable[..., int]]:
        """Return setns and socket. Nobody else runs between two calls of them."""
        return self._setns, self._socket

    def _setns(self, descriptor: int, _kind: int) -> int:
        inode = self._file(descriptor).inode if descriptor != -1 else None
        if not isinstance(inode, Namespace):
            return -1
        self._inside = inode
        return 0

    def _socket(self, *_: int) -> int:
        self._inside.hold()
        return sim().me().put(OpenFile(self._inside, "a socket", on_close=self._inside.release))

    def socket(self, _family: int, _kind: int, _protocol: int, descriptor: int) -> SimSocket:
        return SimSocket(descriptor)


def _status(inode: object) -> SimpleNamespace:
    if isinstance(inode, (Namespace, Other)):
        return SimpleNamespace(st_dev=4, st_ino=inode.ino, st_mode=0o100444, st_size=0, st_mtime=0.0, st_ctime_ns=0)
    assert isinstance(inode, (File, Directory))
    return SimpleNamespace(
        st_dev=8,
        st_ino=inode.ino,
        st_mode=inode.mode,
        st_uid=os.geteuid(),
        st_nlink=1,
        st_size=len(inode.data),
        st_mtime=inode.mtime,
        st_ctime_ns=int(inode.mtime * 1e9),
    )


class SimSocket:
    """A netlink socket in a namespace, which keeps that alive."""

    has_cookies = True  # since Linux 5.14

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        inode = SYSTEM._file(descriptor).inode
        assert isinstance(inode, Namespace)
        self._namespace = inode
        self._answers: list[bytes] = []

    def getsockopt(self, *_: int) -> bytes:
        """Return the cookie of the namespace."""
        return (self._namespace.cookie if self.has_cookies else 0).to_bytes(8, sys.byteorder)

    def setsockopt(self, _level: int, _option: int, name: bytes) -> None:
        """Fail if there is no interface of this name."""
        self.find(name)

    def find(self, name: bytes) -> Interface:
        """Return an interface: the process looks at it now."""
        sim().point("", "network")
        sim().me().look()
        try:
            return self._namespace.interfaces[name.rstrip(b"\0").decode()]
        except KeyError:
            raise failure(errno.ENODEV) from None

    def send(self, request: bytes) -> None:
        """Answer a request for all interfaces, addresses or routes, or for one interface: there is none on the host."""
        sim().point("", "network")
        _, kind, flags, serial, _ = HEADER.unpack_from(request)
        interfaces, self._answers = self._namespace.interfaces.values(), []
        if flags != NLM_F_REQUEST_DUMP:
            number = errno.ENODEV if kind == netlink._RTM_GETLINK else errno.ENOENT
            self._answers = [_message(NLMSG_ERROR, serial, INT.pack(-number) + bytes(16))]
            return
        if kind == netlink._RTM_GETLINK:
            self._answers = [_link(one, serial) for one in interfaces]
        elif kind == netlink._RTM_GETADDR:
            self._answers = [_address(one, serial) for one in interfaces if one.address]
        self._answers.append(_message(NLMSG_DONE, serial, bytes(4)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self, _kernel: tuple[int, int]) -> None:
        """Do nothing: nobody else sends messages."""

    def settimeout(self, _seconds: float) -> None:
        """Do nothing: the kernel answers at once."""

    def recvfrom_into(self, buffer: bytearray) -> tuple[int, tuple[int, int]]:
        answer = self._answers.pop(0)
        buffer[: len(answer)] = answer
        return len(answer), (0, 0)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            SYSTEM.close(self._descriptor)


def _packed(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _message(kind: int, serial: int, body: bytes) -> bytes:
    return HEADER.pack(16 + len(body), kind, 0, serial, 0) + body


def _link(one: Interface, serial: int) -> bytes:
    body = netlink._LINK.pack(0, 0, one.index, 0, 0)
    for kind, value in ((netlink._IFLA_IFNAME, one.name.encode()), (netlink._IFLA_ADDRESS, _packed(one.mac))):
        body += ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)
    return _message(netlink._RTM_NEWLINK, serial, body)


def _address(one: Interface, serial: int) -> bytes:
    packed = attribute(netlink._IFA_LOCAL, socket.inet_aton(one.address))
    return _message(netlink._RTM_NEWADDR, serial, netlink._ADDRESS.pack(socket.AF_INET, 24, 0, 0, one.index) + packed)


def _open_netlink(netns: str | None = None) -> SimSocket:
    """Return a netlink socket in the namespace at a path, or in the process's own."""
    descriptor = SYSTEM.open("/proc/self/ns/net" if netns is None else netns, os.O_RDONLY)
    if not isinstance(SYSTEM._file(descriptor).inode, Namespace):
        SYSTEM.close(descriptor)
        raise failure(errno.EINVAL, str(netns))
    return SimSocket(descriptor)


class SimEvent:
    """In place of ``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        sim().touch("memory", change=True)
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        sim().touch("memory", change=False)
        sim().wait(lambda: self._is_set, timeout)
        return self._is_set


class SimThreads(contextlib.AbstractContextManager["SimThreads"]):
    """In place of a pool of threads: each work runs in a thread of its own of the process that runs."""

    def submit(self, work: Callable[..., Any], *args: Any) -> concurrent.futures.Future[Any]:
        caller, future = sim().current, SimFuture()
        assert isinstance(caller, Code)

        def run() -> None:
            try:
                future.set_result(work(*args))
            except Exception as error:  # noqa: BLE001 - the caller raises it
                future.set_exception(error)

        sim().run_code(f"{caller.name}.thread", run, caller)
        return future

    def shutdown(self, **_: object) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        pass


class SimFuture(concurrent.futures.Future[Any]):
    """The value of a thread's work."""

    def result(self, timeout: float | None = None) -> Any:
        sim().wait(self.done, timeout)
        return super().result(0)


SYSTEM = SimSystem()


class _ToStory(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        one = sim()
        one.log(one.current.name if one.current else "-", f"log: {record.getMessage()}")


def _no_program(command: list[str], *_: object) -> str:
    raise failure(errno.ENOENT, command[0])


@contextmanager
def in_place_of_the_system() -> Iterator[None]:
    """Let the library see the world of the simulation that runs."""
    log, handler = logging.getLogger("libcni"), _ToStory(logging.WARNING)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda one: None if one.exc_type is Killed else hook(one)
    names = {name: getattr(SYSTEM, name) for name, one in vars(libcni.kernel.system).items() if callable(one)}
    # A reload asks for the firewall's rules. There is none of its programs.
    no_firewall = patch("libcni.kernel.rules._run", _no_program)
    # A client watches its records from its first question on.
    watches = patch("libcni.store.record_index._FEW_QUESTIONS", 0)
    # All turns of a client come at once: the pace is measured in real time, by a thread that no schedule controls.
    no_pace = patch("libcni.verbs.turns._AT_FIRST_PER_CORE", MAX_VERBS)
    try:
        with ExitStack() as stack:
            for one in (patch.multiple(libcni.kernel.system, **names), no_firewall, watches, no_pace):
                stack.enter_context(one)
            for module in (netlink, life, foreign):
                stack.enter_context(patch.object(module, "open_netlink", _open_netlink))
            # To see that the kernel finds what only a socket keeps, the library makes a namespace in a thread.
            stack.enter_context(patch.object(life, "_finds_what_a_socket_keeps", lambda: sim().world.knows_handles))
            yield
    finally:
        forget_the_boot()
        log.removeHandler(handler)
        log.propagate = propagate
        sys.unraisablehook = hook


def forget_the_boot() -> None:
    """Drop what the library keeps as long as the machine runs."""
    boot.boot_id.cache_clear()


@contextmanager
def running(one: Sim) -> Iterator[None]:
    """Make a simulation the one that runs."""
    _running.append(one)
    files._serial = itertools.count()
    forget_the_boot()
    try:
        yield
    finally:
        _running.pop()
