"""libcni doctor: check this node, and print what to type about each finding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import groupby

import libcni.diagnosis
from libcni.cli.ended import with_ended
from libcni.cli.openmetrics import openmetrics
from libcni.cli.options import Argument
from libcni.cli.render import Block, Fields, Table, one_line, print_block
from libcni.cli.session import Session
from libcni.cli.stale import repair_command, stale_by_sweep

ARGUMENTS = (Argument("--check", action="store_true", help="Run CHECK of each attachment, too."),)
_EXIT_CODES = {"ok": 0, "warning": 1, "error": 2}
_SHOWN = 5
"""How many findings of one kind are printed. After a reboot there is one for each attachment of the node."""
_COMMANDS = 12
"""How many commands of one finding are printed."""
_OF_ATTACHMENTS = {"records", "namespaces", "interfaces", "rules", "ipam", "containers"}
"""The checks that look at each attachment. The findings of the others have causes of their own."""


def doctor(session: Session, check: bool) -> None:
    """Check this node, and print commands that repair it.

    Looks at configurations, plugins, disks, records, namespaces, interfaces, rules and addresses. Changes nothing.
    The exit code is 0 (ok), 1 (warnings) or 2 (errors). -o openmetrics is for node_exporter's textfile collector.

    Example:
      libcni doctor --check
    """
    cni = session.client()
    with session.working("doctor"):
        report = with_ended(libcni.diagnosis.diagnose(cni, run_check=check), cni)
    # The commands are for this shell: they need the directories that were given as options.
    findings = [
        replace(
            one,
            commands=tuple(map(session.command, one.commands)),
            disrupts=tuple(replace(other, command=session.command(other.command)) for other in one.disrupts),
        )
        for one in report.findings
    ]
    report = replace(report, findings=tuple(findings))
    if session.output == "openmetrics":
        print_block(openmetrics(report))
    else:
        session.show({"status": report.status, **asdict(report)}, *_blocks(session, report))
    if report.status != "ok":
        raise SystemExit(_EXIT_CODES[report.status])


def _blocks(session: Session, report: libcni.diagnosis.DoctorReport) -> list[Block]:
    not_checked = list(_not_checked(report))
    left = f"; {len(report.not_checked)} not checked" if not_checked else ""
    return [
        Table(("check", "checked", "result"), _checked(report)),
        *([Fields("not checked", not_checked)] if not_checked else []),
        *_findings(session, report),
        (_counts(report) or "ok: no problems found in what was checked") + left,
    ]


def _not_checked(report: libcni.diagnosis.DoctorReport) -> Iterator[tuple[str, str]]:
    for check, group in groupby(report.not_checked, lambda one: one.check):
        alike = list(group)
        shown = alike[:_SHOWN] if len(alike) > _SHOWN + 1 else alike
        yield from ((one.subject, one.reason) for one in shown)
        if len(alike) > len(shown):
            yield f"{len(alike) - len(shown)} more", f"of the check {check}"


def _checked(report: libcni.diagnosis.DoctorReport) -> list[list[str]]:
    """Return a row for each check with its result, and one for each further thing that the check looked at."""
    rows: list[list[str]] = []
    for check, things in groupby(report.checked, lambda one: one.check):
        # No further row has a result of its own: the findings are of the whole check.
        first, *more = things
        rows.append([check, first.what, _counts(report, check) or "ok"])
        rows += [["", one.what, ""] for one in more]
    return rows


def _counts(report: libcni.diagnosis.DoctorReport, check: str = "") -> str:
    severities = [one.severity for one in report.findings if check in {"", one.check}]
    counts = {severity: severities.count(severity) for severity in ("error", "warning", "note")}
    return ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)


def _findings(session: Session, report: libcni.diagnosis.DoctorReport) -> Iterator[Fields]:
    """Yield the findings by check and meaning. Replace all but the first of many similar ones by their number."""
    kinds: dict[tuple[str, str, str], list[libcni.diagnosis.NodeFinding]] = {}
    for one in report.findings:
        kinds.setdefault((one.check, one.severity, _kind(one)), []).append(one)
    # A record's problem and the next one's alternate. The checks stay in their order.
    checks = list(dict.fromkeys(check for check, _, _ in kinds))
    for alike in (kinds[kind] for kind in sorted(kinds, key=lambda kind: checks.index(kind[0]))):
        # One more line would be as long as the finding that it replaces.
        is_long = len(alike) > _SHOWN + 1 and alike[0].check in _OF_ATTACHMENTS
        shown = alike[:_SHOWN] if is_long else alike
        yield from map(_finding, shown)
        if len(alike) > len(shown):
            yield _rest(session, alike[len(shown) :])


def _kind(one: libcni.diagnosis.NodeFinding) -> str:
    """Return the meaning of a finding with "..." for IDs and words with digits, which differ between containers."""
    words = {name for container in one.containers for name in container.split(":")}
    parts = re.split(r"([\s:;,]+)", one.meaning.partition(". ")[0])
    return "".join("..." if part in words or any(map(str.isdigit, part)) else part for part in parts)


def _rest(session: Session, findings: list[libcni.diagnosis.NodeFinding]) -> Fields:
    first = findings[0]
    sweeps = stale_by_sweep(session) if first.check in {"namespaces", "records"} else {}
    rows = [("meaning", _kind(first)), ("remedy", f"{session.command('libcni doctor')} -o yaml lists them all")]
    if sweeps:
        rows[1] = ("remedy", f"{rows[1][1]}; repair detaches stale attachments together:")
        rows.append(("type", "\n".join(repair_command(session, sweep) for sweep in sweeps)))
    return Fields(f"{first.severity} {len(findings)} more like the last one", rows)


def _finding(one: libcni.diagnosis.NodeFinding) -> Fields:
    commands = list(one.commands[:_COMMANDS])
    if len(one.commands) > len(commands):
        commands.append(f"# {len(one.commands) - len(commands)} more: type these, then libcni doctor again")
    rows = [("seen", one.seen), ("meaning", one.meaning), ("remedy", one.remedy), ("type", "\n".join(commands))]
    rows += [(f"interrupts {_short(other.containers)}", other.command) for other in one.disrupts]
    return Fields(f"{one.severity} {one_line(one.subject)}", [row for row in rows if row[1]])


def _short(containers: tuple[str, ...]) -> str:
    more = f" and {len(containers) - _SHOWN} more" if len(containers) > _SHOWN else ""
    return f"{', '.join(map(one_line, containers[:_SHOWN]))}{more}"
