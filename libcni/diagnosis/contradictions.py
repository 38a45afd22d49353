"""Find findings that want opposite changes, or the same command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from libcni._dataclass import replace
from libcni.diagnosis.printed_commands import with_commands
from libcni.diagnosis.report import NodeFinding
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import some

_ONCE = re.compile(
    r"(?:nsenter \S+ )?(?:ip6?tables\S*|ebtables|ip|ipset|nft|bridge|tc) .*?"
    r"(?:add|append|del|delete|insert|prepend|-A|-D|-I) "
)
"""Commands that fail, or change something again, if they are typed twice."""
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


def without_repetitions(findings: Iterable[NodeFinding]) -> Iterator[NodeFinding]:
    """Yield the findings; each command is printed by one of them, and the others refer to that one."""
    printed: dict[str, NodeFinding] = {}
    for finding in findings:
        words, commands = with_commands(finding.remedy)
        known = [printed[command] for command in commands if command in printed]
        left = [command for command in commands if command not in printed]
        printed.update((command, finding) for command in left if _ONCE.match(command))
        if not known:
            yield finding
            continue
        others = some([f"{one.name} of {one.subject}" for one in dict.fromkeys(known)])
        remedy = f"{'the rest' if left else 'this'} is done by the command of the finding {others}"
        yield replace(
            finding, remedy=": ".join(filter(None, (words, f"{'; '.join(left)}; {remedy}"))) if left else remedy
        )
