"""Make and remove the network namespaces of containers.

Each namespace has a record in ``<cache_dir>/namespaces``, with its identity. Only recorded namespaces are removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from libcni.config import jsontext
from libcni.config.identifiers import validate_container_id
from libcni.errors import CNIError, InvalidIdentifierError
from libcni.kernel.namespace import is_empty_file, make_namespace, namespace_identity, unbind
from libcni.kernel.netlink import links
from libcni.kernel.regular_file import UnusableFileError
from libcni.store.attachments import may_belong_to
from libcni.store.boot import boot_id
from libcni.store.files import Directory, make_directory, read_file, record_error, remove, replace_file
from libcni.store.model import REFUSED, STALE_BOOT, Ours, Record, Unreadable
from libcni.store.records import RecordStore

__all__ = ["NamespaceError", "NamespaceMaker"]

logger: logging.Logger = logging.getLogger("libcni")

DatedNamespaceId = tuple[int, ...]
"""Numbers that no two namespaces share in one boot: device, inode, and the time when the kernel made the inode.

The record of an attachment has the kernel's cookie instead of the time. Neither can replace the other: the cookie needs
Linux 5.14, and a namespace of the same name and inode number must not be removed on older kernels either. The time only
identifies a namespace with a name, which keeps the inode in use. An attachment's path may be ``/proc/PID/ns/net``: the
kernel may drop that inode, and give it a new time.
"""


class NamespaceMaker(Protocol):
    """An object that makes and removes network namespaces, for tests without root.

    Examples:
        >>> class InMemory:
        ...     names: dict = {}
        ...     def make(self, path, announce):
        ...         self.names["new"] = (len(self.names), 0, 0)
        ...         announce("new")
        ...         self.names[path] = self.names.pop("new")
        ...     def remove(self, path):
        ...         return self.names.pop(path, None) is not None
        ...     def identity(self, path):
        ...         return self.names.get(path)
        >>> manager = NetworkManager(cni, namespaces="/run/netns", namespace_maker=InMemory())
        >>> manager.set_up(Container("c1")).netns
        '/run/netns/c1'
    """

    def make(self, path: str, announce: Callable[[str], object], /) -> None:
        """Make a namespace; call ``announce`` with a temporary path of it before ``path`` exists. Raises OSError."""
        ...

    def remove(self, path: str, /) -> bool:
        """Remove the name ``path``, and the namespace if it has no other name; return whether the name existed.

        Raises OSError.
        """
        ...

    def identity(self, path: str, /) -> DatedNamespaceId | None:
        """Return numbers that no other namespace has; None if there is no namespace at the path."""
        ...


class KernelNamespaces:
    """The NamespaceMaker for namespaces of the kernel."""

    def make(self, path: str, announce: Callable[[str], object]) -> None:
        """Make a namespace, and the directory of its path."""
        make_directory(os.path.dirname(path), mode=0o755)  # as ip netns add makes it
        make_namespace(path, announce)

    def remove(self, path: str) -> bool:
        """Unmount a namespace's path, and remove the file; return whether it existed."""
        return unbind(path)

    def identity(self, path: str) -> DatedNamespaceId | None:
        """Return (device, inode, ctime) of a namespace; None if there is no namespace at the path."""
        return identity_of(path)


class NamespaceError(CNIError):
    """The network namespace of a container could not be made or removed.

    Examples:
        >>> try:
        ...     NetworkManager(cni, namespaces="/dev/null/netns").set_up(Container("c1"))
        ... except NamespaceError as error:
        ...     print(error)
        /dev/null/netns/c1: the network namespace cannot be created: Not a directory
    """


class ContainerNamespaces:
    """Creates, adopts and removes the namespaces of containers; blocking.

    The caller holds the container's lock during every method that changes something.

    Args:
        directory: the directory of the namespaces, each under its container's ID.
        cache_dir: the directory of the records.
        owner: only namespaces that a manager of this owner made are adopted or removed.
        maker: makes, identifies and removes the namespaces; None: the kernel.
    """

    def __init__(
        self, directory: str | os.PathLike[str], cache_dir: str, owner: str, maker: NamespaceMaker | None = None
    ) -> None:
        self._maker: NamespaceMaker = KernelNamespaces() if maker is None else maker
        self._names = os.path.abspath(os.fspath(directory))
        self._owner = owner
        self._directory = f"{cache_dir}/namespaces"
        self._drafts = f"{cache_dir}/tmp"  # noqa: S108 - not the system's
        self._attachments = RecordStore(cache_dir)

    def path(self, container_id: str) -> str:
        """Return the path of a container's namespace, whether it exists or not."""
        return f"{self._names}/{validate_container_id(container_id)}"

    def exists(self, container_id: str) -> bool:
        """Return whether a namespace of the container's name exists, created by any program."""
        return self._maker.identity(self.path(container_id)) is not None

    def ensure(self, container_id: str) -> str:
        """Return the path of the container's namespace: a new namespace, or the namespace that an earlier set-up left.

        Raises NamespaceError if another program created a namespace of that name, or the namespace cannot be created.
        Raises RecordError if the record cannot be written; then no namespace was created.
        """
        path = self.path(container_id)
        recorded = self._read(container_id)
        current = self._maker.identity(path)
        if recorded is not None and current == recorded:
            return path
        if current is not None:
            raise NamespaceError(
                f"{path}: a network namespace of that name exists, and this manager did not create it",
                hint=f"to use it, give the container netns={path!r}; to remove it: ip netns delete {container_id}",
            )
        # Not unbind alone: if another program has mounted a namespace here since the look, unbind would detach it.
        if recorded is not None and is_empty_file(path):
            self._unbind(path)  # a name without a namespace, left by a removal that was killed
        try:
            # Order: first the record gets its name, then the namespace. So no namespace of this manager is without
            # a record.
            self._maker.make(path, lambda source: self._write(container_id, self._maker.identity(source) or ()))
        except OSError as error:
            # A namespace that exists in spite of the error keeps its record, so that a tear-down can remove it.
            if self._maker.identity(path) is None:
                self._forget(container_id)
            raise _failed("created", path, error) from error
        return path

    def remove_if_unused(self, container_id: str) -> str:
        """Remove the namespace that a set-up made if nothing is recorded as attached in it; return its path or "".

        Other containers may be attached in the namespace. Then the first GC after the last of them removes it.

        Raises NamespaceError if it cannot be removed, and RecordError if the records cannot be read.
        """
        recorded = self._read(container_id)
        if recorded is None or self._is_attached(container_id):
            return ""
        path = self.path(container_id)
        if self._maker.identity(path) == recorded and (other := self._other_in(path)) is not None:
            logger.warning(
                "%s is kept: container %s may be attached in this namespace (%s)", path, other.container_id, other.path
            )
            return ""
        # Compare again, the identity, not the name: after a reboot, by hand, or in the second of reading thousands of
        # records, another program may have given the name to another namespace. That one stays.
        current = self._maker.identity(path)
        is_removed = current == recorded and self._unbind(path)
        if current is None and is_empty_file(path):
            # The name of a removal that was killed. Only an empty file: a namespace mounted here since is another's.
            self._unbind(path)
        # The record goes last: after a kill in between, the next call finds a record without a namespace.
        self._forget(container_id)
        return path if is_removed else ""

    def _unbind(self, path: str) -> bool:
        try:
            return self._maker.remove(path)
        except OSError as error:
            raise _failed("removed", path, error) from error

    def recorded(self) -> list[str]:
        """Return the container IDs of all recorded namespaces that this manager may remove; raises RecordError."""
        with _as_record_error("listed", self._directory):
            try:
                names = sorted(os.listdir(self._directory))
            except FileNotFoundError:
                return []
        return [name for name in names if self._read(name) is not None]

    def _is_attached(self, container_id: str) -> bool:
        """Return whether the container has a record of any owner. A torn record counts if its file name fits."""
        records = self._attachments.records(container_id)
        return any(record.container_id or may_belong_to(record.path, container_id) for record in records)

    def _other_in(self, path: str) -> Record | None:
        """Return a record whose attachment is in a namespace, or None. A torn record may be in any namespace."""
        try:
            # Usually only lo is left. Then do not read thousands of records, which takes a second.
            if links(path).keys() <= {"lo"}:
                return None
        except OSError:
            pass
        here = namespace_identity(path)
        for record in self._attachments.iter_records():
            # If an ADD of this library found no namespace, its record has no identity of a namespace.
            identity = record.netns_id if isinstance(record, Ours) else namespace_identity(record.netns)
            is_here = identity is not None and identity == here and record.state != STALE_BOOT
            if isinstance(record, Unreadable) or (is_here and record.state != REFUSED):
                return record
        return None

    def _read(self, container_id: str) -> DatedNamespaceId | None:
        """Return the recorded identity of a namespace, or None if no manager of this owner and directory made one.

        Two managers may share the directory of the records.
        """
        path = f"{self._directory}/{container_id}"
        try:
            validate_container_id(container_id)
            with _as_record_error("read", path), Directory(self._directory) as directory:
                document = jsontext.parse(read_file(container_id, directory).decode())
            identity = tuple(int(number) for number in document["identity"])
            maker = (document["owner"], document["path"])
            boot = document["bootId"]
        except (FileNotFoundError, InvalidIdentifierError):
            return None
        except (ValueError, KeyError, TypeError, OverflowError, UnusableFileError) as error:
            logger.warning("%s: this record of a namespace cannot be used, so the namespace is kept: %s", path, error)
            return None
        if maker != (self._owner, self.path(container_id)):
            return None
        # No namespace survives a reboot, but the kernel uses its numbers again: () matches no namespace.
        return identity if boot == boot_id() else ()

    def _write(self, container_id: str, identity: DatedNamespaceId) -> None:
        document = {"path": self.path(container_id), "owner": self._owner, "bootId": boot_id(), "identity": identity}
        data = jsontext.dumps(document).encode()
        with (
            _as_record_error("written", f"{self._directory}/{container_id}"),
            Directory(self._drafts, create=True) as drafts,
            Directory(self._directory, create=True) as directory,
        ):
            replace_file(container_id, data, drafts, directory, durable=True)

    def _forget(self, container_id: str) -> None:
        with (
            suppress(FileNotFoundError),
            _as_record_error("removed", f"{self._directory}/{container_id}"),
            Directory(self._directory) as directory,
        ):
            remove(container_id, directory)


@contextmanager
def _as_record_error(what: str, path: str) -> Iterator[None]:
    """Turn an OSError, but not FileNotFoundError, into a RecordError."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise record_error(f"the record of a namespace cannot be {what}", path, error) from error


def _failed(what: str, path: str, error: OSError) -> NamespaceError:
    hint = "run this program as root (CAP_SYS_ADMIN)" if isinstance(error, PermissionError) else None
    return NamespaceError(f"{path}: the network namespace cannot be {what}: {error.strerror}", hint=hint)


def identity_of(path: str) -> DatedNamespaceId | None:
    """Return (device, inode, ctime) of a namespace; None if there is no namespace at the path.

    The kernel uses the inode number of a dead namespace again. The inode's time distinguishes the two.
    """
    try:
        status = os.stat(path)
        if status.st_dev != os.stat("/proc/self/ns/net").st_dev:
            return None  # a name that lost its mount is an empty file
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns
