"""libcni doctor: check this node, and print what to type about each finding."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import libcni
from libcni.cli.ended import with_ended
from libcni.cli.openmetrics import openmetrics
from libcni.cli.options import Option
from libcni.cli.render import Block, Fields, Table, one_line, print_block
from libcni.cli.session import Session

_EXIT_CODES = {"ok": 0, "warning": 1, "error": 2}


def doctor(
    session: Session,
    check: Annotated[bool, Option("--check", help="Run CHECK of each attachment, too.")] = False,
) -> None:
    """Check this node, and print commands that repair it.

    Looks at configurations, plugins, disks, records, namespaces, interfaces, addresses and clocks. Changes nothing.
    The exit code is 0 (ok), 1 (warnings) or 2 (errors). -o openmetrics is for node_exporter's textfile collector.
    """
    cni = session.client()
    report = with_ended(libcni.diagnose(cni, run_check=check), cni)
    # The commands are for this shell: they need the directories that were given as options.
    findings = [replace(one, commands=tuple(map(session.command, one.commands))) for one in report.findings]
    report = replace(report, findings=tuple(findings))
    if session.output == "openmetrics":
        print_block(openmetrics(report))
    else:
        session.show({"status": report.status, **asdict(report)}, *_blocks(report))
    if report.status != "ok":
        raise SystemExit(_EXIT_CODES[report.status])


def _blocks(report: libcni.DoctorReport) -> list[Block]:
    not_checked = [(one.subject, one.reason) for one in report.not_checked]
    left = f"; {len(not_checked)} not checked" if not_checked else ""
    return [
        Table(("check", "checked", "result"), _checked(report)),
        *([Fields("not checked", not_checked)] if not_checked else []),
        *(_finding(one) for one in report.findings),
        (_counts(report) or "ok: no problems found in what was checked") + left,
    ]


def _checked(report: libcni.DoctorReport) -> list[list[str]]:
    """Return a row for each thing that was checked. The first row of a check has the result of the whole check."""
    rows: list[list[str]] = []
    seen: set[str] = set()
    for one in report.checked:
        rows.append([one.check, one.what, "" if one.check in seen else _counts(report, one.check) or "ok"])
        seen.add(one.check)
    return rows


def _counts(report: libcni.DoctorReport, check: str = "") -> str:
    severities = [one.severity for one in report.findings if check in {"", one.check}]
    counts = {severity: severities.count(severity) for severity in ("error", "warning", "note")}
    return ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items() if count)


def _finding(one: libcni.NodeFinding) -> Fields:
    rows = [("seen", one.seen), ("meaning", one.meaning), ("remedy", one.remedy), ("type", "\n".join(one.commands))]
    return Fields(f"{one.severity} {one_line(one.subject)}", [row for row in rows if row[1]])
