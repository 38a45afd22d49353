"""The words of a repair."""

from __future__ import annotations

from libcni.cli.repair_text import rows_of
from libcni.diagnosis import Mend, MendOutcome


def test_outcomes_of_another_state_or_reason_are_rows_of_their_own() -> None:
    needs = [("interrupt", f"c{number}:eth0") for number in range(5)]
    mends = [Mend("detach", name, (), (name,)) for _, name in needs]
    left = [MendOutcome(mend, "dead", "left", (need,)) for mend, need in zip(mends, needs, strict=True)]
    failed = [MendOutcome(mend, "dead", "failed", (), f"reason {mend.target}") for mend in mends]
    rows = rows_of([*left, *failed])
    assert [row[3] for row in rows[:4]] == [*(f"it interrupts c{number}:eth0" for number in range(3)), ""]
    assert rows[3][1] == "detach: 2 more"
    assert [row[3] for row in rows[4:]] == [one.reason for one in failed]
