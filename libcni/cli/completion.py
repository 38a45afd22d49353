"""The values that a shell offers at the Tab key: networks, containers, plugins, owners, namespaces."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterable
from glob import escape, glob

import libcni


def networks(options: Namespace, _prefix: str) -> list[str]:
    """Return the names of the configured networks."""
    try:
        return [net.name for net in libcni.read_config_directory(options.conf_dir).networks]
    except libcni.CNIError:  # do not print an error into the line that the user types
        return []


def containers(options: Namespace, _prefix: str) -> list[str]:
    """Return the IDs of the recorded containers."""
    return sorted({attachment.container_id for attachment in _recorded(options) if attachment.container_id})


def owners(options: Namespace, _prefix: str) -> list[str]:
    """Return the owners of the recorded attachments."""
    return sorted({attachment.owner for attachment in _recorded(options) if attachment.owner})


def plugins(options: Namespace, _prefix: str) -> list[str]:
    """Return the types of the installed plugins."""
    directories = filter(None, options.path.split(os.pathsep))
    files = [path for directory in directories for path in glob(f"{escape(directory)}/*")]
    return sorted({os.path.basename(path) for path in files if os.path.isfile(path) and os.access(path, os.X_OK)})


def namespaces(_given: Namespace, prefix: str) -> Iterable[str]:
    """Return the paths of the named network namespaces that begin with ``prefix``; if there are none, files."""
    from argcomplete.completers import FilesCompleter

    return [path for path in sorted(glob("/run/netns/*")) if path.startswith(prefix)] or FilesCompleter()(prefix)


def _recorded(options: Namespace) -> list[libcni.Attachment]:
    try:
        return libcni.CNIConfig([], options.cache_dir).get_cached_attachments()
    except libcni.CNIError:
        return []
