"""Find and detach attachments of containers that podman no longer has, and that podman never tears down."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from libcni.engine.ended_containers import ended_among, sweep
from libcni.errors import ConfigError
from libcni.netavark.request import OWNER

if TYPE_CHECKING:
    from libcni.client import CNIConfig
    from libcni.manager import NetworkManager, Report
    from libcni.store.attachments import Attachment

__all__ = ["collect", "find_ended"]

_LIST = ("podman", "ps", "--all", "--external", "--no-trunc", "--format", "{{.ID}}")


def find_ended(cni: CNIConfig) -> tuple[Attachment, ...]:
    """Return the attachments of this driver whose container podman does not list, and in which no process lives.

    Raises:
        ConfigError: podman cannot be asked, or a container may have processes that this program cannot see.
        RecordError: the records cannot be listed.
    """
    # The order matters: podman stores a container before it attaches it.
    own = [attachment for attachment in cni.get_cached_attachments() if attachment.owner == OWNER]
    return ended_among(own, _container_ids())


def collect(manager: NetworkManager) -> Report:
    """Detach the attachments that ``find_ended`` returns.

    Args:
        manager: runs GC; its client has the owner ``OWNER``.

    Raises:
        CNIErrorGroup: some attachments could not be detached. They stay recorded.
        CNIError: as ``find_ended``.
    """
    return sweep(manager, lambda: find_ended(manager.cni))


def _container_ids() -> set[str]:
    """Return the IDs of podman's containers, those that have stopped included."""
    try:
        listed = subprocess.run(_LIST, capture_output=True, text=True, check=True)  # noqa: S603 - no shell
    except (OSError, subprocess.CalledProcessError) as error:
        # A failed listing must not look like an empty one: containers that are not listed are detached.
        problem = (getattr(error, "stderr", "") or str(error)).strip()
        raise ConfigError(f"cannot list the containers of podman: {problem}") from error
    return set(listed.stdout.split())
