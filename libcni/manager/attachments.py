"""Read recorded attachments: their order, and the container that a torn record may belong to."""

from __future__ import annotations

import os
from collections.abc import Iterable

from libcni.store.attachments import Attachment


def in_order(attachments: Iterable[Attachment]) -> list[Attachment]:
    """Return attachments in the order of their ADDs; records of Go, which have no time, come first."""
    return sorted(attachments, key=lambda attachment: attachment.record.created or 0.0)


def may_belong_to(path: str, container_id: str) -> bool:
    """Return whether a torn record may belong to this container, by its file name."""
    # The name is <network>-<container>-<interface>, and each part may contain "-": so this may also match another
    # container. Too many matches are safe, too few are not.
    return f"-{container_id}-" in os.path.basename(path)
