"""The words of a repair."""

from __future__ import annotations

from pathlib import Path

from libcni.cli.repair_text import repair_commands, rows_of
from libcni.cli.session import Session
from libcni.diagnosis import DoctorReport, Mend, MendOutcome, NodeRepair


def test_outcomes_of_another_state_or_reason_are_rows_of_their_own() -> None:
    needs = [("interrupt", f"c{number}:eth0") for number in range(5)]
    mends = [Mend("detach", name, (), (name,)) for _, name in needs]
    left = [MendOutcome(mend, "dead", "left", (need,)) for mend, need in zip(mends, needs, strict=True)]
    failed = [MendOutcome(mend, "dead", "failed", (), f"reason {mend.target}") for mend in mends]
    rows = rows_of([*left, *failed])
    assert [row[3] for row in rows[:4]] == [*(f"it interrupts c{number}:eth0" for number in range(3)), ""]
    assert rows[3][1] == "detach: 2 more"
    assert [row[3] for row in rows[4:]] == [one.reason for one in failed]


def test_the_first_printed_command_names_all_that_one_mend_interrupts(tmp_path: Path) -> None:
    """Otherwise it would do nothing, and the next one would name one container more, and so on."""
    session = Session(str(tmp_path), "/bin", str(tmp_path), "podman", 60.0, "text", verbose=False)
    names = tuple(f"c{number}:eth0" for number in range(5))
    mend = Mend("remove-address", "cni0", ("10.1.0.1/27",), names, names)
    left = MendOutcome(mend, "bridge-address", "left", tuple(("interrupt", name) for name in names))
    [command] = repair_commands(session, NodeRepair((left,), DoctorReport()))
    assert " --interrupt c0 c1 c2 c3 c4 " in command
