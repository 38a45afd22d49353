"""Find jumps of the wall clock."""

from __future__ import annotations

import time

from libcni.diagnosis.age import boot_time
from libcni.diagnosis.node_view import NodeView, name_of
from libcni.diagnosis.report import Checked, NodeFinding, Observations, counted
from libcni.store.record import STALE_BOOT

_TOLERANCE = 60.0


def check_clock(node: NodeView) -> Observations:
    """Find attachments whose recorded time shows that the wall clock has jumped."""
    count = 0
    for one in node.attachments:
        created, started = one.record.created, boot_time(one)
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
        yield Checked("clock", f"times of {counted(count, 'attachment')}")
