"""The age of attachments, and jumps of the wall clock."""

from __future__ import annotations

import time

from libcni.diagnosis.node_view import NodeView, name_of
from libcni.diagnosis.report import Checked, NodeFinding, Observations
from libcni.store.attachments import Attachment
from libcni.store.record import STALE_BOOT

__all__ = ["attachment_age", "check_clock"]

_TOLERANCE = 60.0


def attachment_age(attachment: Attachment) -> float | None:
    """Return the age of an attachment in seconds, or None if its record has no time.

    Within one boot the age is measured with the boot clock, which nobody can set. If the record has only a wall-clock
    time, an age below zero is shown as zero.
    """
    started = _boot_time(attachment)
    if started is not None:
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    created = attachment.record.created
    return None if created is None else max(0.0, time.time() - created)


def _boot_time(attachment: Attachment) -> float | None:
    return getattr(attachment.record, "uptime", None) if attachment.state != STALE_BOOT else None


def check_clock(node: NodeView) -> Observations:
    """Find attachments whose recorded time shows that the wall clock has jumped."""
    count = 0
    for one in node.attachments:
        created, started = one.record.created, _boot_time(one)
        if created is None or one.state == STALE_BOOT:
            continue
        count += 1
        by_wall = time.time() - created
        by_boot = time.clock_gettime(time.CLOCK_BOOTTIME) - started if started is not None else max(by_wall, 0.0)
        jump = by_wall - by_boot
        if abs(jump) > _TOLERANCE:
            yield NodeFinding(
                "clock", "note", name_of(one),
                f"the wall clock was set {'forward' if jump > 0 else 'back'} by {abs(jump):.0f} s since its ADD",
                "ages are measured with the boot clock, if the record has it; logs have two times",
                "nothing, if the clock is right now (timedatectl)",
            )  # fmt: skip
    if count:
        yield Checked("clock", f"times of {count} attachments")
