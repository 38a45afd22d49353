"""Named network namespaces: make, pin, remove, and bring ``lo`` up, by iproute2 or pyroute2."""

from __future__ import annotations

import os
import subprocess
from importlib import import_module
from typing import Any, Literal, Protocol

from libcni.config.identifiers import check_container_id
from libcni.errors import CNIError

__all__ = ["IPRoute2", "NamespaceError", "NamespaceTool", "Namespaces", "PyRoute2"]

_RUN_DIR = "/run/netns"


class NamespaceError(CNIError):
    """Report a network namespace that could not be made, pinned or removed.

    Attributes:
        name (str): its name.
    """

    def __init__(self, message: str, *, name: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.name = name


class NamespaceTool(Protocol):
    """Do the work on named namespaces; each method raises NamespaceError."""

    def create(self, name: str) -> None:
        """Make a namespace."""
        ...

    def pin(self, name: str, pid: int) -> None:
        """Give the namespace of a process a name, so that it stays when the process ends."""
        ...

    def remove(self, name: str) -> None:
        """Remove a namespace's name; the namespace ends when nothing uses it."""
        ...

    def lo_up(self, name: str) -> None:
        """Bring ``lo`` up in a namespace."""
        ...


class Namespaces:
    """Make and remove named network namespaces, where ``ip netns`` keeps them; blocking.

    Args:
        tool: ``iproute2`` (runs ``ip``), ``pyroute2`` (extra ``libcni[netns]``), or your own.
    """

    def __init__(self, tool: Literal["iproute2", "pyroute2"] | NamespaceTool = "iproute2") -> None:
        self._tool: NamespaceTool = IPRoute2() if tool == "iproute2" else PyRoute2() if tool == "pyroute2" else tool

    def path(self, name: str) -> str:
        """Return the path of a named namespace, whether it exists or not.

        Raises:
            InvalidIdentifierError: ``name`` is none for a container.
        """
        return f"{_RUN_DIR}/{check_container_id(name)}"

    def exists(self, name: str) -> bool:
        """Return whether there is a namespace of that name.

        Raises:
            InvalidIdentifierError: ``name`` is none for a container.
        """
        return os.path.exists(self.path(name))

    def create(self, name: str) -> str:
        """Make a namespace with ``lo`` up, and return its path.

        Raises:
            NamespaceError: there is one of that name, or it cannot be made; then nothing is left behind.
        """
        path = self.path(name)
        if self.exists(name):
            raise NamespaceError(f"{path}: there is a namespace of that name", name=name)
        self._tool.create(name)
        try:
            self._tool.lo_up(name)
        except BaseException:
            self._tool.remove(name)
            raise
        return path

    def pin(self, name: str, pid: int) -> str:
        """Give the namespace of a running process a name, and return its path.

        Raises:
            NamespaceError: it cannot be done.
            InvalidIdentifierError: ``name`` is none for a container.
        """
        path = self.path(name)
        self._tool.pin(name, pid)
        return path

    def lo_up(self, name: str) -> None:
        """Bring ``lo`` up in a namespace.

        Raises:
            NamespaceError: it cannot be done.
        """
        self._tool.lo_up(os.path.basename(self.path(name)))

    def remove(self, name: str) -> bool:
        """Remove a namespace; return whether there was one.

        Raises:
            NamespaceError: it cannot be done.
        """
        if not self.exists(name):
            return False
        self._tool.remove(name)
        return True


class IPRoute2:
    """Work with iproute2's ``ip``."""

    def __init__(self, program: str = "ip", timeout: float = 30.0) -> None:
        self._program = program
        self._timeout = timeout

    def create(self, name: str) -> None:
        """Run ``ip netns add``."""
        self._ip(name, "netns", "add", name)

    def pin(self, name: str, pid: int) -> None:
        """Run ``ip netns attach``."""
        self._ip(name, "netns", "attach", name, str(pid))

    def remove(self, name: str) -> None:
        """Run ``ip netns delete``."""
        self._ip(name, "netns", "delete", name)

    def lo_up(self, name: str) -> None:
        """Run ``ip link set lo up``."""
        self._ip(name, "-netns", name, "link", "set", "lo", "up")

    def _ip(self, name: str, *arguments: str) -> None:
        command = [self._program, *arguments]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=self._timeout)  # noqa: S603
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip() or f"exit status {error.returncode}"
            raise NamespaceError(f"{' '.join(command)}: {said}", name=name) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NamespaceError(f"{' '.join(command)}: {error}", name=name, hint="is iproute2 there?") from error


class PyRoute2:
    """Work with pyroute2, without a process."""

    def __init__(self) -> None:
        try:
            self._netns: Any = import_module("pyroute2.netns")
            self._namespace: Any = import_module("pyroute2").NetNS
        except ImportError as error:
            raise NamespaceError("pyroute2 is not installed", hint="pip install libcni[netns]") from error

    def create(self, name: str) -> None:
        """Make a namespace."""
        self._do(name, lambda: self._netns.create(name))

    def pin(self, name: str, pid: int) -> None:
        """Bind a process's namespace to a name."""
        self._do(name, lambda: self._netns.attach(name, pid))

    def remove(self, name: str) -> None:
        """Remove a namespace."""
        self._do(name, lambda: self._netns.remove(name))

    def lo_up(self, name: str) -> None:
        """Bring ``lo`` up over netlink."""
        self._do(name, lambda: self._bring_up(name))

    def _bring_up(self, name: str) -> None:
        with self._namespace(name) as inside:
            (index,) = inside.link_lookup(ifname="lo")
            inside.link("set", index=index, state="up")

    def _do(self, name: str, work: Any) -> None:
        try:
            work()
        except Exception as error:  # netlink's errors are of many classes
            raise NamespaceError(f"network namespace {name}: {error!r}", name=name) from error
