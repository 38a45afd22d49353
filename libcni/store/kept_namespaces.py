"""Namespaces that only a mount of this library keeps: pins of the OCI hook, and the names that a manager made."""

from __future__ import annotations

import re

from libcni.config import jsontext
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.regular_file import UnusableFileError
from libcni.store.boot import boot_id
from libcni.store.files import Directory, read_file

_PIN = re.compile(r"/run/libcni/netns(-[0-9a-f]{12})?/[^/]+\.[0-9]+")


def is_abandoned(cache_dir: str, path: str) -> bool:
    """Return whether this library mounted the namespace at a path, and nothing else holds the namespace.

    Then nobody uses its interfaces. An operator's own namespace is not abandoned, even if no process is in it.
    """
    identity = namespace_identity(path)
    if identity is None or not (_PIN.fullmatch(path) or _was_made_by_manager(cache_dir, path)):
        return False
    from libcni.kernel.life import Life  # few verbs need it

    return Life().inhabitant(identity, but=[path]).is_dead


def _was_made_by_manager(cache_dir: str, path: str) -> bool:
    """Return whether a manager's record of a namespace names the namespace at a path."""
    name = path.rpartition("/")[2]
    try:
        with Directory(f"{cache_dir}/namespaces") as directory:
            document = jsontext.parse(read_file(name, directory).decode())
        made = (document["path"], document["bootId"], tuple(document["identity"])[:2])
    except (OSError, UnusableFileError, ValueError, KeyError, TypeError):
        return False
    return made == (path, boot_id(), namespace_identity(path))
