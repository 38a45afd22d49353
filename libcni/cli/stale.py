"""Stale attachments, by the sweep that detaches them: one detaches only those of its own owner."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from libcni import DelReport
from libcni.cli.failures import UsageError
from libcni.cli.session import Session
from libcni.diagnosis import StaleAttachment, find_stale_attachments


class Sweep(NamedTuple):
    """What one ``libcni repair`` detaches: attachments of an owner, or with ``of_go`` those of Go libcni."""

    owner: str
    of_go: bool = False

    def __str__(self) -> str:
        return "of Go libcni" if self.of_go else f"of owner {self.owner}" if self.owner else "without owner"


def stale_by_sweep(session: Session, pending_after: float = 600.0) -> dict[Sweep, tuple[StaleAttachment, ...]]:
    """Return the stale attachments of each sweep that finds any. Go's records are a sweep of their own."""
    found: dict[Sweep, tuple[StaleAttachment, ...]] = {}
    recorded = session.client().get_cached_attachments()
    for sweep in sorted({Sweep(one.owner, one.made_by_go) for one in recorded if one.network}):
        cni = replace(session, owner=sweep.owner).client()
        stale = find_stale_attachments(cni, pending_after=pending_after, include_go=sweep.of_go)
        found[sweep] = tuple(one for one in stale if one.attachment.made_by_go == sweep.of_go)
    return {sweep: stale for sweep, stale in found.items() if stale}


def check_include_go(session: Session, *, include_go: bool) -> None:
    """Raise UsageError if --include-go would detach nothing more."""
    if include_go and session.owner:
        raise UsageError("--include-go contradicts --owner: records of Go libcni have no owner")


def left_text(session: Session, left: Iterable[str]) -> str:
    """Say what the plugins of a DEL are known to leave behind."""
    return f"{', '.join(left)} stay; this prints the commands: {session.command('libcni doctor')}"


def note_left(session: Session, report: DelReport) -> None:
    """Print on stderr what the plugins of a DEL are known to leave behind."""
    for what in report.left:
        print(f"note: {left_text(session, [what])}", file=sys.stderr)


def repair_command(session: Session, sweep: Sweep) -> str:
    """Return the command that shows what repair would detach in a sweep."""
    return replace(session, owner=sweep.owner).command("libcni repair" + " --include-go" * sweep.of_go)
