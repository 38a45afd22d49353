"""libcni doctor: what is wrong on this node, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict

import typer

import libcni
from libcni.cli.ended import COMMAND, describe_ended
from libcni.cli.render import Fields
from libcni.cli.session import Session

__all__ = ["doctor"]


def doctor(session: Session) -> None:
    """Look for problems, and say what to do.

    Looks at configurations, plugins, permissions, records, attachments and locks. Changes nothing. The exit code is 1
    if there is an error or a warning.
    """
    cni = session.client()
    ended = (libcni.Finding("attachments", "warning", *one, COMMAND) for one in describe_ended(cni))
    findings = (*libcni.diagnose(cni), *ended)
    data = [asdict(one) for one in findings]
    looked = [
        ("networks", cni.conf_dir),
        ("plugins", ", ".join(cni.path)),
        ("records", cni.cache_dir),
    ]
    blocks = [_block(one) for one in findings]
    session.show(data, Fields("looked at", looked), *blocks, _summary(findings))
    if any(one.severity != "note" for one in findings):
        raise typer.Exit(1)


def _block(one: libcni.Finding) -> Fields:
    return Fields(f"{one.severity} {one.subject}", [("problem", one.problem), ("remedy", one.remedy)])


def _summary(findings: tuple[libcni.Finding, ...]) -> str:
    if not findings:
        return "ok: no problems found"
    counts = {kind: sum(one.severity == kind for one in findings) for kind in ("error", "warning", "note")}
    return ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items() if count)
