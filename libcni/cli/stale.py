"""Stale attachments, by owner: a sweep detaches only those of its own owner."""

from __future__ import annotations

import sys
from dataclasses import replace

import libcni
from libcni.cli.session import Session


def stale_by_owner(session: Session, pending_after: float = 600.0) -> dict[str, tuple[libcni.StaleAttachment, ...]]:
    """Return the stale attachments of each owner that has any, as ``libcni repair`` of that owner finds them."""
    owners = {one.owner for one in session.client().get_cached_attachments() if one.network}
    found = {
        owner: libcni.find_stale_attachments(replace(session, owner=owner).client(), pending_after=pending_after)
        for owner in sorted(owners)
    }
    return {owner: stale for owner, stale in found.items() if stale}


def note_left(session: Session, report: libcni.DelReport) -> None:
    """Print on stderr what the plugins of a DEL are known to leave behind."""
    for what in report.left:
        print(f"note: {what} stay; this prints the commands: {session.command('libcni doctor')}", file=sys.stderr)


def repair_command(session: Session, owner: str) -> str:
    """Return the command that shows what repair would detach of an owner."""
    return replace(session, owner=owner).command("libcni repair")
