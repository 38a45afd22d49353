"""Take over an attachment from another owner: only its record changes, no plugin runs."""

from __future__ import annotations

from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachments_of
from libcni.verbs.node import Node
from libcni.verbs.target import Recorded, find_target


async def take_over(node: Node, attachment: Attachment) -> Attachment:
    """Make this client the owner of an attachment, so that its GC and repair manage the attachment.

    Raises:
        RecordError: the record no longer exists, cannot be read, or cannot be written.
    """
    await node.lock([attachment.network], attachment.container_id)
    target = find_target(node, attachment.record.identity)
    if not isinstance(target, Recorded):
        problem = f"{attachment.path}: the record no longer exists, or cannot be read: it cannot be taken over"
        raise RecordError(problem, path=attachment.path, hint="list the attachments again")
    taken = target.record.with_fields(owner=node.settings.owner)
    node.records.rewrite(taken, "taken over")
    return attachments_of([taken], node.records)[0]
