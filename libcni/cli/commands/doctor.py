"""libcni doctor: check this node."""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby

import libcni.diagnosis
from libcni._dataclass import replace
from libcni.cli.inputs import Selection
from libcni.cli.listing import resolved, select, short_names
from libcni.cli.options import OPTIONAL_CONTAINER, Argument
from libcni.cli.parser import refusal
from libcni.cli.render import Block, Fields, Table, Verbatim, one_line
from libcni.cli.repair_text import examples, repair_commands, summary
from libcni.cli.session import Session
from libcni.diagnosis.printed_commands import with_commands
from libcni.engines.ended_findings import with_ended
from libcni.errors import some

ARGUMENTS = (
    OPTIONAL_CONTAINER,
    Argument("--check", action="store_true", help="Also run CHECK of each attachment."),
    Argument(
        "--traffic",
        action="store_true",
        help="Also send packets: echo requests between containers, gateways and this node; TCP between containers.",
    ),
)
_UNWRITABLE = {"full", "read-only", "not-writable"}
_EXIT_CODES = {"ok": 0, "warning": 1, "error": 2}
_FAILED = 3


def doctor(session: Session, container: str | None, check: bool, traffic: bool) -> None:
    """Check this node, and print the commands that repair it.

    Looks at configurations, plugins, disks, records, namespaces, interfaces, rules and addresses. Changes nothing.
    With CONTAINER, prints only that container's findings. The exit code is 0 (ok), 1 (warnings), 2 (errors) or 3 (the
    doctor could not run, or a bug ended one of its checks, and the others found nothing).

    Example:
      libcni doctor --check
    """
    cni = session.client()
    only = [] if container is None else [resolved(cni, Selection(container), least=1).container or ""]
    plan = libcni.diagnosis.repair_node(cni, dry_run=True, run_check=check, send_packets=traffic, only=only)
    report = with_ended(plan.report, cni, session.hint_command)
    if only:
        about = [
            finding for finding in report.findings if {name.partition(":")[0] for name in finding.containers} & {*only}
        ]
        if not about:
            select(cni, Selection(only[0]))  # a misspelt name must not look like a container that is in order
        report = replace(report, findings=tuple(about))
    commands = repair_commands(session, plan, [*short_names(cni, only), *(["--check"] * check)])
    data = {"status": report.status, **asdict(report), "commands": commands}
    session.show(data, *_blocks(report, commands, is_whole=not only))
    if report.status != "ok":
        raise SystemExit(_EXIT_CODES[report.status])
    if any(unseen.is_bug for unseen in report.not_checked):
        raise SystemExit(_FAILED)


def _blocks(report: libcni.diagnosis.DoctorReport, commands: list[str], *, is_whole: bool) -> list[Block]:
    not_checked = [
        [f"{more} more", f"of the check {unseen.check}"] if more else [unseen.subject, unseen.reason]
        for unseen, more in examples((unseen.check, unseen) for unseen in report.not_checked)
    ]
    left = f"; {len(report.not_checked)} not checked" if not_checked else ""
    if report.status == "ok" and any((one.check, one.subject) == ("traffic", "packets") for one in report.not_checked):
        left += "; no packets were sent (--traffic)"
    # The findings of other containers are hidden, so a check without a shown finding may have failed.
    parts: list[list[Block]] = [[Table(("check", "checked", "result"), _checked(report))]] if is_whole else []
    if not_checked:
        parts.append([Table(("subject", "reason"), not_checked, "not checked:")])
    parts.extend([_finding(finding)] for finding in report.findings)
    # Without these checks nobody knows which containers live, so "ok" would say too much.
    is_blind = any(one.check in {"records", "namespaces", "rules"} or one.is_bug for one in report.not_checked)
    result = (_counts(report) or f"{'' if is_blind else 'ok: '}no problems found in the checked objects") + left
    # On a full disk a mend fails.
    writable = all(finding.name not in _UNWRITABLE for finding in report.findings)
    title = "To repair it:" if writable else "To repair the node when its disk is writable again:"
    parts.append([result, *([title, *(f"  {command}" for command in commands)] if commands else [])])
    return [block for part in parts for block in ("", *part)][1:]


def _checked(report: libcni.diagnosis.DoctorReport) -> list[list[str]]:
    """Return a row for each check with its result, and a row for each further kind of objects that it examined."""
    rows: list[list[str]] = []
    for check, things in groupby(report.checked, lambda checked: checked.check):
        # Only the first row has a result, because the findings belong to the whole check.
        first, *more = things
        skipped = sum(checked.check == check for checked in report.not_checked)
        # Without this count "ok" would also mean the objects that were not checked.
        results = [_counts(report, check), f"{skipped} not checked" if skipped else ""]
        rows.append([check, first.what, ", ".join(filter(None, results)) or "ok"])
        rows += [["", checked.what, ""] for checked in more]
    return rows


def _counts(report: libcni.diagnosis.DoctorReport, check: str = "") -> str:
    severities = [finding.severity for finding in report.findings if check in {"", finding.check}]
    counts = {severity: severities.count(severity) for severity in ("error", "warning", "note")}
    return ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)


def _finding(finding: libcni.diagnosis.NodeFinding) -> Fields:
    remedy, commands = _with_commands(finding.remedy)
    rows = [
        ("seen", finding.seen),
        ("pods", some(finding.pods)),
        ("meaning", finding.meaning),
        ("remedy", remedy),
        ("type", Verbatim("\n".join(commands))),
        ("mends", "\n".join(summary(finding.mends))),
    ]
    return Fields(f"{finding.severity} {one_line(finding.subject)} ({finding.name})", rows)


def _with_commands(text: str) -> tuple[str, list[str]]:
    """Return a remedy without the commands at its end, and these. They are never folded: the user copies them."""
    remedy, _, command = text.rpartition(": libcni ")
    if remedy and not refusal(f"libcni {command}"):
        return remedy, [f"libcni {command}"]
    return with_commands(text)
