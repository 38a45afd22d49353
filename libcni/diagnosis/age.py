"""The age of attachments."""

from __future__ import annotations

import time

from libcni.store.attachments import Attachment
from libcni.store.record import STALE_BOOT

__all__ = ["attachment_age"]


def attachment_age(attachment: Attachment) -> float | None:
    """Return the age of an attachment in seconds, or None if its record has no time.

    Within one boot the age is measured with the boot clock, which nobody can set. If the record has only a wall-clock
    time, an age below zero is shown as zero.
    """
    started = boot_time(attachment)
    if started is not None:
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    created = attachment.record.created
    return None if created is None else max(0.0, time.time() - created)


def boot_time(attachment: Attachment) -> float | None:
    """Return the time of an ADD on the boot clock, or None if it was in another boot or is not recorded."""
    return attachment.record.uptime if attachment.state != STALE_BOOT else None
