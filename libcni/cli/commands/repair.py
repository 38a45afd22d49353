"""libcni repair: move corrupt records aside, remove temporary files, detach stale attachments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import libcni
from libcni.cli.failures import message_of, print_error
from libcni.cli.listing import title_of
from libcni.cli.options import INCLUDE_GO, SKIP_MISSING, Argument, seconds
from libcni.cli.render import Fields, Table, one_line
from libcni.cli.session import Session
from libcni.cli.stale import Sweep, check_include_go, left_text, repair_command, stale_by_sweep
from libcni.diagnosis import StaleAttachment, find_stale_attachments

ARGUMENTS = (
    Argument("--yes", "-y", action="store_true", help="Make the changes. Without it they are only shown."),
    Argument("--pending-after", type=seconds, default=600.0, metavar="SECONDS",
        help="Treat an ADD as abandoned if it is unfinished after SECONDS."),
    INCLUDE_GO, SKIP_MISSING,
)  # fmt: skip


def repair(session: Session, yes: bool, pending_after: float, include_go: bool, skip_missing: bool) -> None:
    """Put the records in order.

    Shows the changes; --yes makes them. Corrupt records are moved to CACHE_DIR/corrupt, so nothing is lost. An
    attachment is detached (DEL) if the node was rebooted since, if its namespace has gone and no process lives in it,
    or if its ADD has not ended for a long time. Files, and attachments of other owners and of Go libcni, that repair
    leaves as they are have the action "left".

    Example:
      libcni repair --yes
    """
    check_include_go(session, include_go=include_go)
    cni = session.client()
    policy = libcni.DelPolicy(skip_missing=skip_missing)
    outcomes: list[libcni.DelReport | libcni.CNIError] = []
    with session.working("repair"):
        # The records are put in order first: a corrupt record could hide a stale attachment of the same name.
        report = libcni.repair_records(cni.cache_dir, dry_run=not yes)
        stale = find_stale_attachments(cni, pending_after=pending_after, include_go=include_go)
        if yes:
            try:
                outcomes += cni.del_attachments([one.attachment for one in stale], policy=policy)
            except libcni.CNIErrorGroup as group:
                outcomes += group.report
        actions = [
            *_of_files(report, yes=yes),
            *(map(_detached, stale, outcomes) if yes else map(_detach, stale)),
            *(_action("left", path, reason) for path, _, reason in (text.partition(": ") for text in report.left)),
            *_of_others(session, pending_after, Sweep(session.owner, include_go)),
        ]
    rows = [[one["action"], one["subject"], one["reason"]] for one in actions]
    session.show(actions, Table(("action", "what", "why"), rows, empty="nothing to repair"))
    if not yes and any(one["action"] != "left" for one in actions):
        command = session.command("libcni repair --yes" + " --include-go" * include_go)
        session.show_text(f"\nnothing was changed; to do it: {command}")
    moved = [one_line(one["moved_to"]) for one in actions if one["moved_to"]]
    if moved:
        session.show_text(Fields("\nRecords that were set aside are now:", [("", "\n".join(moved))]))
    if remains := dict.fromkeys(what for one in actions for what in one["left"]):
        session.show_text(f"\n{left_text(session, remains)}")
    for outcome in outcomes:
        if isinstance(outcome, libcni.CNIError):
            print_error(outcome, session)
    if any(one["action"] == "failed" for one in actions):
        raise SystemExit(1)


_Action = dict[str, Any]


def _of_files(report: libcni.RepairReport, *, yes: bool) -> Iterator[_Action]:
    # Without --yes nothing is moved.
    for one, target in zip(report.corrupt, report.moved_to or [None] * len(report.corrupt), strict=True):
        if yes and not target:
            yield _action("failed", one.path, "the file could not be moved")
        else:
            yield _action("set aside", one.path, one.problem, moved_to=target)
    for path in report.temporary:
        yield _action("removed" if yes else "remove", path, "temporary file of a program that was killed")


def _detach(one: StaleAttachment) -> _Action:
    return _action("detach", title_of(one.attachment), one.reason)


def _detached(one: StaleAttachment, outcome: libcni.DelReport | libcni.CNIError) -> _Action:
    if isinstance(outcome, libcni.CNIError):
        return _action("failed", title_of(one.attachment), message_of(outcome))
    return _action("detached", title_of(one.attachment), one.reason, left=outcome.left)


def _of_others(session: Session, pending_after: float, done: Sweep) -> list[_Action]:
    """Return an action for each other sweep that would find stale attachments: "nothing to repair" would deny them."""
    return [
        _action("left", f"stale attachments {sweep}: {len(stale)}", f"see: {repair_command(session, sweep)}")
        for sweep, stale in stale_by_sweep(session, pending_after).items()
        if sweep.owner != done.owner or (sweep.of_go and not done.of_go)
    ]


def _action(action: str, subject: str, reason: str, moved_to: str | None = None, left: tuple[str, ...] = ()) -> _Action:
    return {"action": action, "subject": subject, "reason": reason, "moved_to": moved_to, "left": list(left)}
