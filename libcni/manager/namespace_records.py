"""Records of the namespaces that set-ups created, in ``<cache_dir>/namespaces``. Only these are removed."""

from __future__ import annotations

import logging
import os

from libcni._regular_file import UnusableFileError
from libcni.config import jsontext
from libcni.config.identifiers import check_container_id
from libcni.errors import InvalidIdentifierError
from libcni.kernel.namespace import is_empty_file, namespace_identity
from libcni.kernel.netlink import links
from libcni.manager.attachments import may_belong_to
from libcni.manager.namespaces import NamespaceError, NamespaceIdentity, Namespaces
from libcni.store.boot import boot_id
from libcni.store.files import Directory, read_file, record_error, remove, replace_file, sync_directory
from libcni.store.model import REFUSED, STALE_BOOT, Ours, Record, Unreadable
from libcni.store.records import RecordStore

logger: logging.Logger = logging.getLogger("libcni")


class ContainerNamespaces:
    """Creates, adopts and removes the namespaces of containers; blocking.

    The caller holds the container's lock during every method that changes something.

    Args:
        namespaces: makes and removes namespaces.
        cache_dir: the directory of the records.
        owner: only namespaces that a manager of this owner made are adopted or removed.
    """

    def __init__(self, namespaces: Namespaces, cache_dir: str, owner: str = "") -> None:
        self._namespaces = namespaces
        self._owner = owner
        self._cache_dir = cache_dir
        self._directory = f"{cache_dir}/namespaces"
        self._drafts = f"{cache_dir}/tmp"  # noqa: S108 - not the system's
        self._attachments = RecordStore(cache_dir)

    def path(self, container_id: str) -> str:
        """Return the path of a container's namespace, whether it exists or not."""
        return self._namespaces.path(container_id)

    def exists(self, container_id: str) -> bool:
        """Return whether a namespace of the container's name exists, created by any program."""
        return self._namespaces.exists(container_id)

    def ensure(self, container_id: str) -> str:
        """Return the path of the container's namespace: a new one, or one that an earlier set-up left.

        Raises NamespaceError if another program made the namespace of that name or none can be made, and RecordError if
        the record cannot be written; then no namespace was made.
        """
        path = self.path(container_id)
        recorded = self._read(container_id)
        if recorded is not None and self._is_same(container_id, recorded):
            return path
        if self._namespaces.exists(container_id):
            raise NamespaceError(
                f"{path}: a network namespace of that name exists, and this manager did not create it",
                name=container_id,
                hint=f"to use it, give the container netns={path!r}; to remove it: ip netns delete {container_id}",
            )
        if recorded is not None and is_empty_file(path):
            self._namespaces.remove(container_id)  # a name without a namespace, left by a removal that was killed
        try:
            return self._namespaces.create(container_id, lambda identity: self._write(container_id, identity))
        except NamespaceError:
            # A namespace that exists in spite of the error keeps its record, so that a tear-down can remove it.
            if not self._namespaces.exists(container_id):
                self._forget(container_id)
            raise

    def remove_if_unused(self, container_id: str) -> str:
        """Remove the namespace that a set-up made if nothing is recorded as attached in it; return its path or "".

        Other containers may be attached in it, too: then the next GC removes it after the last of them.

        Raises NamespaceError if it cannot be removed, and RecordError if the records cannot be read.
        """
        recorded = self._read(container_id)
        if recorded is None or self._is_attached(container_id):
            return ""
        path = self.path(container_id)
        removed = ""
        if self._is_same(container_id, recorded) and (other := self._other_in(path)) is not None:
            logger.warning(
                "%s is kept: container %s may be attached in this namespace (%s)", path, other.container_id, other.path
            )
            return ""
        # Compare the identity, not the name: after a reboot or by hand another program may have made this namespace.
        # Again: to read thousands of records takes a second, and another namespace may have got the name since.
        if self._is_same(container_id, recorded):
            removed = path if self._namespaces.remove(container_id) else ""
        elif not self._namespaces.exists(container_id) and is_empty_file(path):
            self._namespaces.remove(container_id)  # a name without a namespace, left by a removal that was killed
        # Another program may have given the name to another namespace since. This manager must not remove that one.
        # The record goes last: after a kill in between, the next call finds a record without a namespace.
        self._forget(container_id)
        return removed

    def recorded(self) -> list[str]:
        """Return the container IDs of all recorded namespaces that this manager may remove; raises RecordError."""
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise record_error("the records of namespaces cannot be listed", self._directory, error) from error
        return [name for name in names if self._read(name) is not None]

    def _is_same(self, container_id: str, recorded: NamespaceIdentity) -> bool:
        """Return whether the namespace that has the name now is the recorded one."""
        return self._namespaces.identity(container_id) == recorded

    def _is_attached(self, container_id: str) -> bool:
        """Return whether any attachment of the container is recorded, of any owner; a torn record may be one."""
        records = self._attachments.records(container_id)
        return any(record.container_id or may_belong_to(record.path, container_id) for record in records)

    def _other_in(self, path: str) -> Record | None:
        """Return the record of an attachment in a namespace, or None; a torn record may be one."""
        try:
            # Most namespaces have only lo left by now. To look through thousands of records takes a second.
            if links(path).keys() <= {"lo"}:
                return None
        except OSError:
            pass
        here = namespace_identity(path)
        for record in self._attachments.iter_records():
            # If an ADD of this library found no namespace, its record has no identity of a namespace.
            known = record.netns_id if isinstance(record, Ours) else namespace_identity(record.netns)
            is_here = known is not None and known == here and record.state != STALE_BOOT
            if isinstance(record, Unreadable) or (is_here and record.state != REFUSED):
                return record
        return None

    def _read(self, container_id: str) -> NamespaceIdentity | None:
        """Return the recorded identity of a namespace, or None if no manager of this owner and directory made one.

        Two managers may share the directory of the records.
        """
        path = f"{self._directory}/{container_id}"
        try:
            check_container_id(container_id)
            with Directory(self._directory) as directory:
                data = read_file(container_id, directory)
            document = jsontext.parse(data.decode())
            identity = tuple(int(number) for number in document["identity"])
            maker = (document["owner"], document["path"])
            boot = document["bootId"]
        except (FileNotFoundError, InvalidIdentifierError):
            return None
        except OSError as error:
            raise record_error("the namespace's record cannot be read", path, error) from error
        except (ValueError, KeyError, TypeError, UnusableFileError) as error:
            logger.warning("%s: the record of a namespace cannot be used, the namespace stays: %s", path, error)
            return None
        if maker != (self._owner, self.path(container_id)):
            return None
        # No namespace survives a reboot, but the kernel uses its numbers again: () matches none.
        return identity if boot == boot_id() else ()

    def _write(self, container_id: str, identity: NamespaceIdentity) -> None:
        document = {
            "containerId": container_id,
            "path": self.path(container_id),
            "identity": list(identity),
            "owner": self._owner,
            "bootId": boot_id(),
        }
        data = jsontext.dumps(document).encode()
        try:
            with Directory(self._drafts, create=True) as drafts, Directory(self._directory, create=True) as directory:
                # Order: first the bytes are on the disk, then the record gets its name, then the namespace gets its.
                # So there is never a namespace of this manager without a record.
                replace_file(container_id, data, drafts, directory, durable=True)
                sync_directory(directory)
        except OSError as error:
            raise record_error(
                "the record of a namespace cannot be written", f"{self._directory}/{container_id}", error
            ) from error

    def _forget(self, container_id: str) -> None:
        try:
            with Directory(self._directory) as directory:
                remove(container_id, directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise record_error(
                "the record of a namespace cannot be removed", f"{self._directory}/{container_id}", error
            ) from error
