"""Find and detach attachments whose container has ended, from the records, an engine's containers and the processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from libcni.errors import ConfigError
from libcni.store.boot import namespaces_of_processes, sees_same_processes
from libcni.store.model import STALE_BOOT

if TYPE_CHECKING:
    from libcni.manager import NetworkManager, Report
    from libcni.store.attachments import Attachment


def ended_among(
    attachments: Iterable[Attachment], known: Collection[str], used: Collection[tuple[int, int]] | None = None
) -> tuple[Attachment, ...]:
    """Return the attachments whose container an engine does not know, and in whose namespace no process lives.

    Args:
        attachments: attachments that were listed before ``known``: a container that starts is known before its record
            is written, so each container with a listed record that lives is known.
        known: the IDs of the engine's containers.
        used: the namespaces of all processes; None: read them.

    Raises:
        ConfigError: such a container may have processes that this program cannot see.
    """
    candidates = [attachment for attachment in attachments if attachment.container_id not in known]
    if candidates and used is None:
        used = namespaces_of_processes()
    # After a reboot the kernel uses the recorded inode numbers for other namespaces.
    ended = [
        attachment
        for attachment in candidates
        if attachment.state == STALE_BOOT or attachment.record.netns_id not in (used or ())
    ]
    for attachment in ended:
        # A node agent's pod, for example, sees neither the containers' processes nor, perhaps, the engine's state.
        if attachment.state != STALE_BOOT and not sees_same_processes(attachment.record):
            raise ConfigError(
                f"container {attachment.container_id} was attached in another PID namespace, so this process cannot "
                "tell whether the container runs",
                hint="run this program in the PID namespace of the containers' runtime (in Kubernetes: hostPID: true)",
            )
    return tuple(ended)


def sweep(manager: NetworkManager, find: Callable[[], Iterable[Attachment]]) -> Report:
    """Detach the attachments that ``find`` returns, and give the plugins' GC all others as valid.

    Raises:
        CNIErrorGroup: some attachments could not be detached. They stay recorded.
    """

    def living() -> list[Attachment]:
        ended = {attachment.path for attachment in find()}
        return [
            attachment
            for attachment in manager.cni.get_cached_attachments()
            if attachment.path not in ended and attachment.network
        ]

    return manager.gc(living)
