"""Pins: bind mounts that keep containers' network namespaces after the containers' processes have ended.

A hook gets a process number. ``/proc/PID/ns/net`` leads to the container's namespace only while that process lives;
later it leads nowhere, or to another process's namespace. Plugins need the namespace for a complete DEL (bridge removes
its masquerade rules only then), and ``poststop`` comes after the process has ended. So ADD gets a bind mount of the
namespace. A pinned namespace also keeps its inode number, so that comparing (device, inode) is exact.

A pin's name is ``CONTAINER_ID.PID``. The process number distinguishes two successive containers with one ID.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import libcni.kernel.system as system
from libcni._defaults import CACHE_DIR
from libcni.errors import CNIError
from libcni.kernel.namespace import NamespaceId, bind, is_empty_file, namespace_identity, unbind
from libcni.store.files import check_own_directory, make_directory

__all__ = ["OWNER", "Pin"]

DIRECTORY = "/run/libcni/netns"
"""The directory of pins for records in /var/lib/cni. A reboot empties /run, and ends all namespaces."""

OWNER = "oci-hook"
"""The owner of the hook's attachments. ``libcni gc --runtime`` detaches only attachments of this owner."""


class Pin(NamedTuple):
    """A pin: a bind mount of a container's network namespace.

    Attributes:
        path (str): the pin's path, which the plugins receive as CNI_NETNS.
        container_id (str): the container.
        pid (int): the container's first process when the pin was made.

    Examples:
        >>> Pin("/run/libcni/netns/web.4711", "web", 4711).container_id
        'web'
    """

    path: str
    container_id: str
    pid: int

    @property
    def identity(self) -> NamespaceId | None:
        """The pinned namespace, or None if the pin no longer exists."""
        return namespace_identity(self.path)

    @property
    def is_alive(self) -> bool:
        """Whether the container's first process still lives, in the pinned namespace."""
        namespace = namespace_of(self.pid)
        return namespace is not None and namespace == self.identity


class Pins:
    """The pins of one directory, which is created with the first pin."""

    def __init__(self, directory: str) -> None:
        self.directory: str = os.path.abspath(directory)

    def all(self, container_id: str | None = None) -> list[Pin]:
        """Return all pins, or those of one container. This includes names without a namespace, left by killed hooks.

        Raises:
            CNIError: the directory cannot be read.
        """
        try:
            names = sorted(system.listdir(self.directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise CNIError(f"cannot list the pinned namespaces in {self.directory}: {error.strerror}") from error
        pins = [pin for name in names if (pin := self.parse(f"{self.directory}/{name}")) is not None]
        return [pin for pin in pins if container_id in {None, pin.container_id} and is_empty_file(pin.path)]

    def parse(self, path: str) -> Pin | None:
        """Return the Pin at a path, whether it exists or not; None if the path cannot be that of a pin."""
        directory, _, name = path.rpartition("/")
        container_id, _, pid = name.rpartition(".")
        if directory != self.directory or not container_id or not (pid.isascii() and pid.isdigit()):
            return None
        return Pin(path, container_id, int(pid))

    def pin(self, container_id: str, pid: int) -> Pin:
        """Pin (bind-mount) the network namespace of a process, unless it is pinned already; return the pin.

        Raises:
            CNIError: the namespace cannot be pinned.
        """
        pin = Pin(f"{self.directory}/{container_id}.{pid}", container_id, pid)
        source = f"/proc/{pid}/ns/net"
        if pin.identity is not None and pin.identity == namespace_of(pid):
            return pin
        try:
            make_directory(self.directory)
            check_own_directory(self.directory)  # who may rename a pin may exchange a container's namespace
            self.remove(pin)  # an earlier process's pin with this number, or a killed hook's file
            bind(source, pin.path)
        except OSError as error:
            raise CNIError(
                f"cannot pin the network namespace {source} to {pin.path}: {error.strerror}",
                hint=f"run the hook as root (CAP_SYS_ADMIN), with write access to {self.directory}",
            ) from error
        return pin

    def remove(self, pin: Pin) -> None:
        """Remove a pin, if it exists. The kernel removes the namespace when nothing else uses it.

        A file or directory of another program at the path stays.

        Raises:
            CNIError: the pin cannot be removed.
        """
        try:
            unbind(pin.path)
        except OSError as error:
            raise CNIError(f"cannot remove the pinned network namespace {pin.path}: {error.strerror}") from error


def directory_for(cache_dir: str) -> str:
    """Return the directory of pins for a directory of records.

    Hooks with different records must have different pins: a hook removes the pins that its own records do not name.
    """
    cache_dir = system.realpath(cache_dir)
    if cache_dir == system.realpath(CACHE_DIR):
        return DIRECTORY
    from libcni.store.locks import offset_of  # not needed for a container that the hook ignores

    return f"{DIRECTORY}-{offset_of(cache_dir):012x}"


def namespace_of(pid: int | str) -> NamespaceId | None:
    """Return the network namespace of a process, or None if there is no such process."""
    return namespace_identity(f"/proc/{pid}/ns/net")


def host_namespaces() -> set[NamespaceId | None]:
    """Return the network namespaces that no container may be attached in: this process's and the first process's."""
    return {namespace_of("self"), namespace_of(1)}
