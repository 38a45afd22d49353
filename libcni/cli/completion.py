"""The values that a shell offers at the Tab key. argcomplete calls these functions with keywords."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from glob import glob

import libcni


def networks(parsed_args: Namespace, **_: object) -> list[str]:
    """Return the names of the configured networks."""
    try:
        return [net.name for net in libcni.read_config_directory(parsed_args.conf_dir).networks]
    except libcni.CNIError:  # do not print an error into the line that the user types
        return []


def containers(parsed_args: Namespace, **_: object) -> list[str]:
    """Return the IDs of the recorded containers."""
    return sorted({attachment.container_id for attachment in _recorded(parsed_args) if attachment.container_id})


def owners(parsed_args: Namespace, **_: object) -> list[str]:
    """Return the owners of the recorded attachments."""
    return sorted({attachment.owner for attachment in _recorded(parsed_args) if attachment.owner})


def namespaces(prefix: str, **_: object) -> Iterable[str]:
    """Return the paths of the named network namespaces that begin with ``prefix``; if there are none, files."""
    from argcomplete.completers import FilesCompleter

    return [path for path in sorted(glob("/run/netns/*")) if path.startswith(prefix)] or FilesCompleter()(prefix)


def _recorded(parsed_args: Namespace) -> list[libcni.Attachment]:
    try:
        return libcni.CNIConfig([], parsed_args.cache_dir).get_cached_attachments()
    except libcni.CNIError:
        return []
