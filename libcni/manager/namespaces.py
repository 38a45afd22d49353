"""Make and remove named network namespaces, with system calls alone."""

from __future__ import annotations

import os
from collections.abc import Callable

from libcni.config.identifiers import check_container_id
from libcni.errors import CNIError
from libcni.kernel.namespace import make_namespace, unbind

__all__ = ["NamespaceError", "NamespaceIdentity", "Namespaces"]

NamespaceIdentity = tuple[int, ...]
"""Numbers that no two namespaces share in one boot: device, inode, and the time when the kernel made the inode."""


class NamespaceError(CNIError):
    """A network namespace could not be made or removed.

    Attributes:
        name (str): its name.

    Examples:
        >>> try:
        ...     Namespaces("/dev/null/netns").create("blue")
        ... except NamespaceError as error:
        ...     print(error.name)
        blue
    """

    def __init__(self, message: str, *, name: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.name = name


class Namespaces:
    """Make and remove named network namespaces; blocking. ``ip netns`` shows those in ``/run/netns``.

    A method raises InvalidIdentifierError if a name breaks the rule for container IDs.

    Args:
        directory: the directory of the names.

    Examples:
        >>> namespaces = Namespaces("/run/netns")
        >>> namespaces.path("blue")
        '/run/netns/blue'
    """

    def __init__(self, directory: str | os.PathLike[str] = "/run/netns") -> None:
        self.directory: str = os.path.abspath(os.fspath(directory))

    def path(self, name: str) -> str:
        """Return the path of a named namespace, whether it exists or not."""
        return f"{self.directory}/{check_container_id(name)}"

    def identity(self, name: str) -> NamespaceIdentity | None:
        """Return the identity of the namespace of that name, or None if there is none."""
        return namespace_at(self.path(name))

    def exists(self, name: str) -> bool:
        """Return whether there is a namespace of that name."""
        return self.identity(name) is not None

    def create(self, name: str, announce: Callable[[NamespaceIdentity], object] = lambda _: None) -> str:
        """Make a namespace with ``lo`` up, and return its path.

        Args:
            name: its name.
            announce: called with the namespace's identity before the namespace gets its name.

        Raises:
            NamespaceError: the name exists, or the namespace cannot be made; nothing is left behind.
        """
        path = self.path(name)
        if self.exists(name):
            raise NamespaceError(f"{path}: a network namespace of that name already exists", name=name)
        try:
            os.makedirs(self.directory, exist_ok=True)
            make_namespace(path, lambda source: announce(namespace_at(source) or ()))
        except OSError as error:
            raise _failed("created", path, name, error) from error
        return path

    def remove(self, name: str) -> bool:
        """Remove the name of a namespace; return whether it existed. The namespace ends when nothing uses it.

        Raises:
            NamespaceError: it cannot be removed.
        """
        path = self.path(name)
        try:
            return unbind(path)
        except OSError as error:
            raise _failed("removed", path, name, error) from error


def _failed(what: str, path: str, name: str, error: OSError) -> NamespaceError:
    hint = "run this program as root (CAP_SYS_ADMIN)" if isinstance(error, PermissionError) else None
    return NamespaceError(f"{path}: the network namespace cannot be {what}: {error.strerror}", name=name, hint=hint)


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
