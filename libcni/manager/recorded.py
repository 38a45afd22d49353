"""Read recorded attachments: their order, their results, and the container that a torn record may belong to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from libcni.manager.container_result import AttachmentResult, ContainerResult
from libcni.store.attachments import Attachment
from libcni.store.record import READY


def in_order(attachments: Iterable[Attachment]) -> list[Attachment]:
    """Return attachments in the order in which they were made."""
    return sorted(attachments, key=_age)


def _age(attachment: Attachment) -> float:
    """Return the recorded time of an attachment, or the time of its file (records of Go have none), or 0."""
    created = attachment.record.created
    if created is not None:
        return created
    try:
        return os.stat(attachment.path).st_mtime
    except OSError:
        return 0.0


def container_result(container_id: str, attachments: Sequence[Attachment]) -> ContainerResult | None:
    """Return a container's result from its records; None if nothing is attached."""
    ready = [one for one in in_order(attachments) if one.state in {READY, "gone"} and one.record.result is not None]
    results = (AttachmentResult(one.network, one.ifname, result) for one in ready if (result := one.result))
    return ContainerResult(container_id, ready[0].netns, tuple(results)) if ready else None


def may_belong_to(path: str, container_id: str) -> bool:
    """Return whether a torn record may belong to this container, by its file name."""
    # The name is <network>-<container>-<interface>, and each part may contain "-": so this may also match another
    # container. Too many matches are safe, too few are not.
    return f"-{container_id}-" in os.path.basename(path)
