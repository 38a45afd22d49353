"""Find findings that want opposite changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from libcni._dataclass import replace
from libcni.diagnosis.report import NodeFinding
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import some

_COMMANDS = {"add-address": "add", "remove-address": "del"}


def without_contradictions(findings: Sequence[NodeFinding]) -> Iterator[NodeFinding]:
    """Yield the findings, without the mends of two that want opposite changes: a person must decide which is right.

    An address that is released and reserved anew is no contradiction.
    """
    wanted = [(finding, mend) for finding in findings for mend in finding.mends if mend.kind in _COMMANDS]
    kinds = {mend.kind for _, mend in wanted}
    for finding in findings:
        contrary = {
            mend: other.name for mend in (finding.mends if kinds == _COMMANDS.keys() else ())
            for other, opposite in wanted if other is not finding and mend.undoes(opposite)
        }  # fmt: skip
        if not contrary:
            yield finding
            continue
        commands = [
            command_in(mend.netns, f"ip addr {_COMMANDS[mend.kind]} {mend.details[0]} dev {mend.target}")
            for mend in contrary
        ]
        reason = f"the finding {some(sorted(set(contrary.values())))} wants the opposite, so decide which one is right"
        yield replace(
            finding,
            mends=tuple(mend for mend in finding.mends if mend not in contrary),
            remedy="; ".join(filter(None, (finding.remedy, f"{reason}; if this one is: {'; '.join(commands)}"))),
        )
