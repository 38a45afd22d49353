"""The world in place of the system: what verbs and store see as ``libcni._system``.

A name of that module that is not here raises an AssertionError, so that nothing of the real system is used. Every
function is a point at which others may run, and then one effect.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import fcntl
import importlib
import itertools
import logging
import os
import posixpath
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import libcni._system
from libcni.store import files
from libcni.store.lock_file import ALL_CONTAINERS, CONTAINER, NETWORK
from libcni.store.place import Place
from sim.disk import Directory, File, OpenFile, failure, has_conflict, set_lock
from sim.schedule import Code, Killed, Sim
from sim.world import Namespace

_REGION = NETWORK - CONTAINER
_running: list[Sim] = []


def sim() -> Sim:
    """Return the simulation that runs."""
    return _running[-1]


class SimSystem:
    """In place of ``libcni._system``. No symbolic links."""

    realpath = staticmethod(posixpath.normpath)

    def __getattr__(self, name: str) -> Any:
        def fail(*_: object, **__: object) -> None:
            raise AssertionError(f"{name} is not simulated")

        return fail

    def exists(self, path: str) -> bool:
        """Return whether something is there."""
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    lexists = exists

    def isdir(self, path: str) -> bool:
        """Return whether a directory is there."""
        try:
            return isinstance(sim().world.disk.find(path), Directory)
        except OSError:
            return False

    def _file(self, descriptor: int) -> OpenFile:
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

    def open(self, path: str, flags: int, _mode: int = 0, *, dir_fd: int | None = None) -> int:
        """Open a file, a directory or a namespace."""
        world = sim().world
        if (namespace := world.namespaces.get(path)) is not None:
            sim().point()
            namespace.hold()
            return sim().me().put(OpenFile(namespace, path, on_close=namespace.release))
        if not flags & os.O_DIRECTORY:
            sim().point(f"creates {path}" if flags & os.O_CREAT and not self._is_there(path, dir_fd) else "")
        return sim().me().put(world.disk.open(path, flags, self._directory(dir_fd), sim().now))

    def _is_there(self, path: str, dir_fd: int | None) -> bool:
        try:
            sim().world.disk.find(path, self._directory(dir_fd))
        except OSError:
            return False
        return True

    def close(self, descriptor: int) -> None:
        """Close a descriptor."""
        self._file(descriptor).close()
        del sim().me().descriptors[descriptor]

    def read(self, descriptor: int, size: int) -> bytes:
        """Read."""
        file = self._file(descriptor)
        sim().point()
        assert isinstance(file.inode, File)
        data = file.inode.data[file.at : file.at + size]
        file.at += len(data)
        return data

    def write(self, descriptor: int, data: memoryview | bytes) -> int:
        """Write everything."""
        file = self._file(descriptor)
        sim().point(f"writes {len(data)} bytes of {file.path}")
        assert isinstance(file.inode, File)
        file.inode.data = file.inode.data[: file.at] + bytes(data)
        file.at += len(data)
        return len(data)

    def fsync(self, descriptor: int) -> None:
        """Make bytes safe, or all names."""
        file = self._file(descriptor)
        sim().point(f"syncs {file.path}")
        if isinstance(file.inode, File):
            file.inode.synced = file.inode.data
        else:
            sim().world.disk.commit()

    def fstat(self, descriptor: int) -> SimpleNamespace:
        """Return the status of an open file."""
        return _status(self._file(descriptor).inode)

    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> SimpleNamespace:
        """Return the status of what is at a path now."""
        del follow_symlinks
        world = sim().world
        if path == "/proc/self/ns/pid":
            return SimpleNamespace(st_ino=7, st_dev=4)
        if path in {"/proc/self/ns/net", "/proc/thread-self/ns/net"}:
            return _status(world.host)
        if path.startswith("/proc/"):
            process = world.processes.get(int(path.split("/")[2]))
            if process is None or not process.alive:
                raise failure(errno.ENOENT, path)
            return SimpleNamespace(st_mode=0o040555)
        sim().point()
        return _status(world.namespaces.get(path) or world.disk.find(path, self._directory(dir_fd)))

    lstat = stat

    def mkdir(self, path: str, _mode: int = 0) -> None:
        """Make a directory."""
        sim().point(f"makes the directory {path}")
        sim().world.disk.make_directory(path)

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """Rename in one step."""
        sim().point(f"renames {source} to {target}")
        old, new = self._directory(src_dir_fd), self._directory(dst_dir_fd)
        assert old is not None
        assert new is not None
        sim().world.disk.change((new, target, sim().world.disk.find(source, old)), (old, source, None))

    def link(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, follow_symlinks: bool = True) -> None:
        """Give a file a second name, unless the name is taken."""
        del follow_symlinks
        sim().point(f"links {source} as {target}")
        new = self._directory(dst_dir_fd)
        assert new is not None
        inode = sim().world.disk.find(source, self._directory(src_dir_fd))
        if target in new.entries:
            raise failure(errno.EEXIST, target)
        sim().world.disk.change((new, target, inode))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """Remove a name."""
        sim().point(f"removes {name}")
        directory = self._directory(dir_fd)
        assert directory is not None
        sim().world.disk.find(name, directory)
        sim().world.disk.change((directory, name, None))

    def listdir(self, path: str | int) -> list[str]:
        """Return the names in a directory."""
        sim().point()
        directory = self._directory(path) if isinstance(path, int) else sim().world.disk.directory(path)
        assert directory is not None
        return list(directory.entries)

    @contextmanager
    def scandir(self, descriptor: int) -> Iterator[list[SimpleNamespace]]:
        """Return the entries of a directory."""
        yield [SimpleNamespace(name=name) for name in self.listdir(descriptor)]

    def getpid(self) -> int:
        """Return the number of the process."""
        return sim().me().pid

    def urandom(self, size: int) -> bytes:
        """Return the same bytes in each run of a schedule."""
        return sim().random.randbytes(size)

    def chmod(self, *_: object) -> None:
        """Do nothing."""

    fchmod = chmod

    def fstatvfs(self, _descriptor: int) -> SimpleNamespace:
        """Fail: no journal orders bytes and names, so bytes have to be synced."""
        raise failure(errno.ENOSYS)

    def monotonic(self) -> float:
        """Return the simulated time."""
        return sim().now

    time = uptime = monotonic

    def monotonic_ns(self) -> int:
        """Return the simulated time."""
        return int(sim().now * 1e9)

    time_ns = monotonic_ns

    def sleep(self, seconds: float) -> None:
        """Let simulated time pass."""
        sim().wait(None, seconds)

    def event(self) -> SimEvent:
        """Return an event in simulated time."""
        return SimEvent()

    def thread_pool(self, _most: int) -> SimThreads:
        """Return threads of the process that runs."""
        return SimThreads()


def _status(inode: object) -> SimpleNamespace:
    if isinstance(inode, Namespace):
        return SimpleNamespace(st_dev=4, st_ino=inode.ino, st_mode=0o100444, st_size=0, st_mtime=0.0)
    assert isinstance(inode, (File, Directory))
    return SimpleNamespace(
        st_dev=8, st_ino=inode.ino, st_mode=inode.mode, st_size=len(inode.data), st_mtime=inode.mtime
    )


class SimLockFile:
    """In place of LockFile: an open file with locks of bytes."""

    def __init__(self, path: str, cache_dir: str, mode: int = os.O_RDWR) -> None:
        self._process = sim().me()
        self.closed = True
        try:
            self._descriptor = self._open(path, cache_dir, mode)
        except OSError as error:
            raise files.record_error("cannot be opened", path, error) from error
        self.closed = False
        self._file = self._process.descriptors[self._descriptor]
        status = _status(self._file.inode)
        self.identity = f"{status.st_dev}:{status.st_ino}"

    def _open(self, path: str, cache_dir: str, mode: int) -> int:
        try:
            return SYSTEM.open(path, mode | os.O_CREAT)
        except FileNotFoundError:
            files.make_directory(cache_dir, durable=False)
            return SYSTEM.open(path, mode | os.O_CREAT)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def lock(self, kind: int, offset: int) -> bool:
        """Lock or unlock a byte."""
        sim().point()
        start, length = (CONTAINER, _REGION) if offset == ALL_CONTAINERS else (offset, 1)
        exclusive = {fcntl.F_UNLCK: None, fcntl.F_WRLCK: True, fcntl.F_RDLCK: False}[kind]
        return set_lock(self._file, start, start + length, exclusive=exclusive)

    def is_locked(self, offset: int) -> bool:
        """Return whether another open file holds a byte."""
        sim().point()
        return has_conflict(self._file, offset, offset + 1, exclusive=True)

    def release(self) -> None:
        """Unlock everything and close."""
        if not self.closed and self._process.alive:
            set_lock(self._file, 0, 1 << 62, exclusive=None)
        self.close()

    def close(self) -> None:
        """Close the descriptor. A finaliser may run in the turn of another process."""
        if not self.closed and self._process.alive:
            self._process.descriptors.pop(self._descriptor).close()
        self.closed = True


class SimEntered:
    """In place of EnteredNamespace: a socket that keeps a namespace alive."""

    has_cookies = True  # since Linux 5.14

    def __init__(self, namespace: Namespace) -> None:
        self._namespace, self._process = namespace, sim().me()
        self._process.hold(namespace)
        self._cookie = namespace.cookie if self.has_cookies else 0

    @classmethod
    def enter(cls, path: str) -> Self | None:
        """Enter the namespace that is at the path now: a look begins."""
        sim().point()
        sim().me().look(sim().world.steps)
        namespace = sim().world.namespaces.get(path)
        return None if namespace is None else cls(namespace)

    def is_at(self, path: str) -> bool:
        """Return whether the path leads to this namespace, as far as inode numbers tell: a look begins."""
        sim().point()
        self._process.look(sim().world.steps)
        there = sim().world.namespaces.get(path)
        return there is not None and there.ino == self._namespace.ino

    @property
    def namespace(self) -> Place:
        """The namespace, as a place without an interface."""
        return Place((4, self._namespace.ino), self._cookie)

    def look(self, ifname: str) -> Place:
        """Return the place of an interface."""
        sim().point()
        found = self._namespace.interfaces.get(ifname)
        index, mac = (found.index, found.mac) if found else (0, "")
        return Place((4, self._namespace.ino), self._cookie, index, mac)

    def find(self, made: Place, *, everywhere: bool = False) -> Iterator[Place]:
        """Yield where an interface of a number and a hardware address is."""
        for path, namespace in sim().world.namespaces.items():
            if namespace is self._namespace or (everywhere and made.mac):
                for one in namespace.interfaces.values():
                    if one.mac == made.mac or (namespace is self._namespace and one.index == made.ifindex):
                        name = one.name if namespace is self._namespace else f"{one.name} in {path}"
                        cookie = namespace.cookie if self.has_cookies else 0
                        yield Place((4, namespace.ino), cookie, one.index, one.mac, name)

    def close(self) -> None:
        """Leave the namespace."""
        if self._process.alive and self._namespace in self._process.held:
            self._process.held.remove(self._namespace)
            self._namespace.release()


class SimEvent:
    """In place of ``threading.Event``."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Wake who waits."""
        self._is_set = True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait in simulated time."""
        sim().wait(lambda: self._is_set, timeout)
        return self._is_set


class SimThreads(contextlib.AbstractContextManager["SimThreads"]):
    """In place of a pool of threads: each work runs in a thread of its own of the process that runs."""

    def submit(self, work: Callable[..., Any], *args: Any) -> concurrent.futures.Future[Any]:
        """Start a thread."""
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
        """Wait in simulated time."""
        sim().wait(self.done, timeout)
        return super().result(0)


SYSTEM = SimSystem()


def _boot_id() -> str:
    return f"boot-{sim().world.boots}"


def _identity(netns: str | None) -> tuple[int, int] | None:
    sim().point()
    found = sim().world.namespaces.get(netns or "")
    return None if found is None else (4, found.ino)


def _is_no_namespace(netns: str) -> bool:
    return _identity(netns) is None


SEAM: dict[str, dict[str, object]] = {
    "libcni._system": {name: getattr(SYSTEM, name) for name, one in vars(libcni._system).items() if callable(one)},
    "libcni.store.attachments": {"namespace_identity": _identity},
    "libcni.store.locks": {"LockFile": SimLockFile},
    "libcni.store.record": {"boot_id": _boot_id, "pid_namespace": lambda: 7},
    "libcni.store.records": {"boot_id": _boot_id},
    "libcni.verbs.node": {
        "boot_id": _boot_id, "pid_namespace": lambda: 7, "EnteredNamespace": SimEntered,
        "namespace_identity": _identity, "is_own_namespace": lambda _: False, "is_no_namespace": _is_no_namespace,
    },
    "libcni.store.place": {"namespace_identity": _identity},
    "libcni.verbs.ownership": {"namespace_identity": _identity},
}  # fmt: skip
"""Module to the names that it sees differently."""


class _ToStory(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        one = sim()
        one.log(one.current.name if one.current else "-", f"log: {record.getMessage()}")


@contextmanager
def in_place_of_the_system() -> Iterator[None]:
    """Let the library see the world of the simulation that runs."""
    log, handler = logging.getLogger("libcni"), _ToStory(logging.WARNING)
    propagate, log.propagate = log.propagate, False
    log.addHandler(handler)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda one: None if one.exc_type is Killed else hook(one)
    patches = [patch.dict(vars(importlib.import_module(module)), names) for module, names in SEAM.items()]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
        log.removeHandler(handler)
        log.propagate = propagate
        sys.unraisablehook = hook


@contextmanager
def running(one: Sim) -> Iterator[None]:
    """Make a simulation the one that runs."""
    _running.append(one)
    files._serial = itertools.count()
    try:
        yield
    finally:
        _running.pop()
