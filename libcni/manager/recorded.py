"""What the manager reads from recorded attachments: their order, their result, and whose a torn record may be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from libcni.errors import RecordError
from libcni.manager.container_result import AttachmentResult, ContainerResult
from libcni.store.attachments import Attachment
from libcni.store.record import READY

__all__ = ["container_result", "in_order", "may_belong_to", "unreadable_error"]


def in_order(attachments: Iterable[Attachment]) -> list[Attachment]:
    """Return attachments in the order in which they were made."""
    return sorted(attachments, key=_age)


def _age(attachment: Attachment) -> float:
    """Return when an attachment was made: as recorded, or the time of its file (records of Go), or 0."""
    created = attachment.record.created
    if created is not None:
        return created
    try:
        return os.stat(attachment.path).st_mtime
    except OSError:
        return 0.0


def container_result(container_id: str, attachments: Sequence[Attachment]) -> ContainerResult | None:
    """Return what the records say of a container, as its set-up returned it; None if nothing is attached."""
    ready = in_order([one for one in attachments if one.state in {READY, "gone"} and one.record.result is not None])
    if not ready:
        return None
    results = tuple(
        AttachmentResult(one.network, one.ifname, result) for one in ready if (result := one.result) is not None
    )
    return ContainerResult(container_id, ready[0].netns, results)


def may_belong_to(path: str, container_id: str) -> bool:
    """Return whether the file name of a torn record may mean this container."""
    return f"-{container_id}-" in os.path.basename(path)


def unreadable_error(attachment: Attachment) -> RecordError:
    """Return the error for a torn record that does not say what to detach."""
    problem = attachment.problem or "the record does not say which attachment it is"
    return RecordError(
        f"{attachment.path}: {problem}",
        path=attachment.path,
        hint="give the network's configuration to tear it down, or set the record aside with repair",
    )
