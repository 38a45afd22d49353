"""Take over an attachment from another owner: only its record changes, no plugin runs."""

from __future__ import annotations

from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachments_of
from libcni.verbs.delete import check_unchanged
from libcni.verbs.target import Recorded, find_target
from libcni.verbs.verb_run import VerbRun


async def take_over(run: VerbRun, attachment: Attachment) -> Attachment:
    """Make this client the owner of an attachment, and return the attachment with the new owner.

    Raises:
        RecordError: the record no longer exists, belongs to another ADD than the listed one, cannot be read, or cannot
            be written.
    """
    await run.lock([attachment.network], attachment.container_id)
    target = find_target(run, attachment.record.identity)
    if not isinstance(target, Recorded):
        problem = f"cannot take over the attachment: its record {attachment.path} is missing or unreadable"
        raise RecordError(problem, path=attachment.path, hint="list the attachments again")
    # An attachment that another program has made since the listing is not the one that the caller chose.
    check_unchanged(target.record, attachment.record)
    taken = target.record.with_fields(owner=run.settings.owner)
    run.records.rewrite(taken, "taken over")
    return attachments_of([taken], run.records)[0]
