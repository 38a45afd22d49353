"""Make, pin and remove named network namespaces, and bring ``lo`` up, with iproute2 or pyroute2."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Literal, Protocol, runtime_checkable

from libcni._namespace import CLONE_NEWNET, call_libc
from libcni._netlink import call_in_namespace
from libcni.config.identifiers import check_container_id
from libcni.errors import CNIError

__all__ = ["IdentifyingTool", "NamespaceError", "NamespaceIdentity", "NamespaceTool", "Namespaces"]

RUN_DIRECTORY = "/run/netns"
_TIMEOUT = 30.0

NamespaceIdentity = tuple[int, ...]
"""Numbers that no two namespaces share in one boot: device, inode, and the time when the kernel made the inode."""


class NamespaceError(CNIError):
    """A network namespace could not be made, pinned or removed.

    Attributes:
        name (str): its name.
    """

    def __init__(self, message: str, *, name: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.name = name


class NamespaceTool(Protocol):
    """Makes and removes named namespaces; each method raises NamespaceError."""

    def create(self, name: str) -> None:
        """Make a namespace."""
        ...

    def pin(self, name: str, pid: int) -> None:
        """Give the namespace of a process a name, so that it remains after the process."""
        ...

    def remove(self, name: str) -> None:
        """Remove a namespace's name; the namespace ends when nothing uses it."""
        ...

    def lo_up(self, name: str) -> None:
        """Bring ``lo`` up in a namespace."""
        ...


@runtime_checkable
class IdentifyingTool(NamespaceTool, Protocol):
    """A NamespaceTool that returns a namespace's identity itself. For other tools the name's file is examined."""

    def identity(self, name: str) -> NamespaceIdentity | None:
        """Return the identity of the namespace of that name, or None if there is none."""
        ...


class Namespaces:
    """Make and remove named network namespaces; blocking.

    A method raises InvalidIdentifierError if a name breaks the rule for container IDs.

    Args:
        tool: ``iproute2`` (runs ``ip``), ``pyroute2`` (extra ``libcni[netns]``), or your own.
        directory: the directory of the names. Your own tool must use the same one.
    """

    def __init__(
        self,
        tool: Literal["iproute2", "pyroute2"] | NamespaceTool = "iproute2",
        directory: str | os.PathLike[str] = RUN_DIRECTORY,
    ) -> None:
        self.directory: str = os.path.abspath(os.fspath(directory))
        if isinstance(tool, str):
            tool = PyRoute2(self.directory) if tool == "pyroute2" else IPRoute2(self.directory)
        self._tool: NamespaceTool = tool

    def path(self, name: str) -> str:
        """Return the path of a named namespace, whether it exists or not."""
        return f"{self.directory}/{check_container_id(name)}"

    def identity(self, name: str) -> NamespaceIdentity | None:
        """Return the identity of the namespace of that name, or None if there is none."""
        path = self.path(name)
        return self._tool.identity(name) if isinstance(self._tool, IdentifyingTool) else namespace_at(path)

    def exists(self, name: str) -> bool:
        """Return whether there is a namespace of that name."""
        return self.identity(name) is not None

    def create(self, name: str, announce: Callable[[NamespaceIdentity | None], None] = lambda _: None) -> str:
        """Make a namespace with ``lo`` up, and return its path.

        Args:
            name: its name.
            announce: called with the namespace's identity before the namespace gets its name. With your own tool the
                identity is known only afterwards: then the first call has (), and a second one the identity or None.

        Raises:
            NamespaceError: the name exists, or the namespace cannot be made; nothing is left behind.
        """
        path = self.path(name)
        if self.exists(name):
            raise NamespaceError(f"{path}: there is a network namespace of that name already", name=name)
        made: NamespaceIdentity | None
        if isinstance(self._tool, _ThreadTool):
            with _new_namespace(name) as (thread_id, made):
                announce(made)
                # If this process is killed now, the thread ends, and a tool that still runs finds no namespace to pin.
                self._tool.pin(name, thread_id)
        else:
            announce(())
            self._tool.create(name)
            announce(made := self.identity(name))
        try:
            self._tool.lo_up(name)
        except BaseException:
            # Another program may have removed this namespace and made one of its own under the same name.
            if self.identity(name) == made:
                self._tool.remove(name)
            raise
        return path

    def pin(self, name: str, pid: int) -> str:
        """Give the namespace of a running process a name, and return its path.

        Raises:
            NamespaceError: the tool failed.
        """
        path = self.path(name)
        self._tool.pin(name, pid)
        return path

    def lo_up(self, name: str) -> None:
        """Bring ``lo`` up in a namespace.

        Raises:
            NamespaceError: the tool failed.
        """
        self._tool.lo_up(os.path.basename(self.path(name)))

    def remove(self, name: str) -> bool:
        """Remove a namespace; return whether it existed. A tool that is not an IdentifyingTool is always called.

        Raises:
            NamespaceError: the tool failed.
        """
        can_tell = isinstance(self._tool, IdentifyingTool)
        if can_tell and not self.exists(name) and not os.path.lexists(self.path(name)):
            return False
        self._tool.remove(name)
        return True


def namespace_at(path: str) -> NamespaceIdentity | None:
    """Return a namespace's identity; None if nothing, or no namespace, is at the path.

    The kernel uses the inode number of a dead namespace again. The inode's time distinguishes the two.
    """
    try:
        status = os.stat(path)
        if status.st_dev != os.stat("/proc/self/ns/net").st_dev:
            return None  # a name that lost its mount is an empty file
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def run_program(command: Sequence[str], failed: Callable[..., CNIError]) -> str:
    """Run a program of iproute2 or util-linux and return its stdout; raises the error that ``failed`` makes."""
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT).stdout  # noqa: S603
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip() or f"exit status {error.returncode}"
        raise failed(f"{' '.join(command)}: {reason}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        hint = "install iproute2" if command[0] == "ip" else "install util-linux"
        raise failed(f"{' '.join(command)}: {error}", hint=hint) from error


@contextmanager
def _new_namespace(name: str) -> Iterator[tuple[int, NamespaceIdentity]]:
    """Make a namespace without a name that exists as long as the context; yield a thread in it and its identity.

    So the caller can record the identity before the namespace gets a name. If the process is killed before that, the
    namespace ends with it.
    """
    ready, done = threading.Event(), threading.Event()
    thread_ids: list[int] = []
    problems: list[OSError] = []

    def hold() -> None:
        try:
            # unshare moves this thread only; the other threads of the process stay in their namespace.
            call_libc("unshare", CLONE_NEWNET)
            thread_ids.append(threading.get_native_id())
        except OSError as error:
            problems.append(error)
        finally:
            ready.set()
        done.wait()

    thread = threading.Thread(target=hold, name="libcni-namespace", daemon=True)
    thread.start()
    descriptor = -1
    try:
        ready.wait()
        if problems:
            reason = problems[0].strerror
            raise NamespaceError(f"network namespace {name}: unshare: {reason}", name=name, hint="it needs root")
        path = f"/proc/{thread_ids[0]}/ns/net"
        # The open descriptor keeps the inode and its time until the name keeps them: the kernel drops unused inodes and
        # gives them a new time later.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise NamespaceError(f"network namespace {name}: {path}: {error.strerror}", name=name) from error
        identity = namespace_at(path)
        if identity is None:
            raise NamespaceError(f"network namespace {name}: {path} cannot be read", name=name)
        yield thread_ids[0], identity
    finally:
        done.set()
        thread.join()
        if descriptor >= 0:
            os.close(descriptor)


class _ThreadTool(IdentifyingTool):
    """Base class of this module's tools. They make a namespace in a thread, and pin it."""

    def __init__(self, directory: str = RUN_DIRECTORY) -> None:
        self._directory = directory

    def create(self, name: str) -> None:
        """Make a namespace in a thread, and pin it."""
        with _new_namespace(name) as (thread_id, _):
            self.pin(name, thread_id)

    def identity(self, name: str) -> NamespaceIdentity | None:
        """Return the identity of the namespace at the name's path."""
        return namespace_at(f"{self._directory}/{name}")


class IPRoute2(_ThreadTool):
    """Works with ``ip`` of iproute2; in another directory than ``/run/netns`` with ``mount`` and ``nsenter``."""

    def pin(self, name: str, pid: int) -> None:
        """Run ``ip netns attach``, or ``mount --bind``."""
        if self._directory == RUN_DIRECTORY:
            self._run(name, "ip", "netns", "attach", name, str(pid))
            return
        path = f"{self._directory}/{name}"
        try:
            # O_EXCL: if two programs make the same name, only one goes on, and it mounts over no other namespace.
            os.makedirs(self._directory, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444))
        except OSError as error:
            raise NamespaceError(f"{path}: cannot be made: {error.strerror}", name=name) from error
        try:
            self._run(name, "mount", "--bind", f"/proc/{pid}/ns/net", path)
        except NamespaceError:
            os.unlink(path)
            raise

    def remove(self, name: str) -> None:
        """Run ``ip netns delete``, or ``umount``."""
        if self._directory == RUN_DIRECTORY:
            self._run(name, "ip", "netns", "delete", name)
            return
        path = f"{self._directory}/{name}"
        if namespace_at(path) is not None:
            # --lazy: otherwise the unmount fails while a process has the file open.
            self._run(name, "umount", "--lazy", path)
        try:
            os.unlink(path)
        except OSError as error:
            raise NamespaceError(f"{path}: cannot be removed: {error.strerror}", name=name) from error

    def lo_up(self, name: str) -> None:
        """Run ``ip link set lo up`` in the namespace."""
        command = ["ip", "link", "set", "lo", "up"]
        if self._directory == RUN_DIRECTORY:
            command[1:1] = ["-netns", name]
        else:
            command[:0] = ["nsenter", f"--net={self._directory}/{name}"]
        self._run(name, *command)

    def _run(self, name: str, *command: str) -> None:
        run_program(command, partial(NamespaceError, name=name))


class PyRoute2(_ThreadTool):
    """Works with pyroute2, without starting a program."""

    def __init__(self, directory: str = RUN_DIRECTORY) -> None:
        super().__init__(directory)
        try:
            self._netns: Any = import_module("pyroute2.netns")
            self._iproute: Any = import_module("pyroute2").IPRoute
        except ImportError as error:
            raise NamespaceError("pyroute2 is not installed", hint="pip install libcni[netns]") from error

    def pin(self, name: str, pid: int) -> None:
        """Bind a process's namespace to a name."""
        self._call(name, lambda: self._netns.attach(f"{self._directory}/{name}", pid))

    def remove(self, name: str) -> None:
        """Remove a namespace."""
        self._call(name, lambda: self._netns.remove(f"{self._directory}/{name}"))

    def lo_up(self, name: str) -> None:
        """Bring ``lo`` up over netlink."""
        # Not pyroute2.NetNS: it forks, and a fork of a program with threads can wait for ever for a lock.
        self._call(name, lambda: call_in_namespace(f"{self._directory}/{name}", self._bring_up))

    def _bring_up(self) -> None:
        with self._iproute() as inside:
            (index,) = inside.link_lookup(ifname="lo")
            inside.link("set", index=index, state="up")

    def _call(self, name: str, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception as error:  # pyroute2 raises errors of many classes
            raise NamespaceError(f"network namespace {name}: {error!r}", name=name) from error
