"""libcni repair: move corrupt records aside, remove temporary files, detach stale attachments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import libcni
import libcni.diagnosis
from libcni.cli.failures import message_of, print_error
from libcni.cli.options import INCLUDE_GO, SKIP_MISSING, Argument, seconds
from libcni.cli.render import Fields, Table, one_line
from libcni.cli.session import Session
from libcni.cli.stale import Sweep, check_include_go, repair_command, stale_by_sweep

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
    with session.working("repair"):
        find = partial(libcni.diagnosis.find_stale_attachments, cni, pending_after=pending_after, include_go=include_go)
        actions, errors = _repair(cni, policy, find) if yes else (_plan(cni, find()), ())
        actions += _of_others(session, pending_after, Sweep(session.owner, include_go))
    rows = [[one["action"], one["subject"], one["reason"]] for one in actions]
    session.show(actions, Table(("action", "what", "why"), rows, empty="nothing to repair"))
    if not yes and any(one["action"] != "left" for one in actions):
        command = session.command("libcni repair --yes" + " --include-go" * include_go)
        session.show_text(f"\nnothing was changed; to do it: {command}")
    moved = [one_line(one["moved_to"]) for one in actions if one["moved_to"]]
    if moved:
        session.show_text(Fields("\nRecords that were set aside are now:", [("", "\n".join(moved))]))
    if remains := ", ".join(dict.fromkeys(what for one in actions for what in one["left"])):
        session.show_text(f"\n{remains} stay; this prints the commands: {session.command('libcni doctor')}")
    for error in errors:
        print_error(error, session)
    if any(one["action"] == "failed" for one in actions):
        raise SystemExit(1)


_Actions = list[dict[str, Any]]


def _plan(cni: libcni.CNIConfig, stale: tuple[libcni.diagnosis.StaleAttachment, ...]) -> _Actions:
    report = libcni.repair_records(cni.cache_dir, dry_run=True)
    return [
        *(_action("set aside", one.path, one.problem) for one in report.corrupt),
        *(_action("remove", path, "temporary file of a program that was killed") for path in report.temporary),
        *(_action("detach", _name(one.attachment), one.reason) for one in stale),
        *_left(report),
    ]


def _repair(
    cni: libcni.CNIConfig, policy: libcni.DelPolicy, find: Callable[[], tuple[libcni.diagnosis.StaleAttachment, ...]]
) -> tuple[_Actions, tuple[libcni.CNIError, ...]]:
    report = libcni.repair_records(cni.cache_dir)
    actions = [
        _action("set aside", one.path, one.problem, moved_to=target)
        if target
        else _action("failed", one.path, "the file could not be moved")
        for one, target in zip(report.corrupt, report.moved_to, strict=True)
    ]
    # The records are put in order first: a corrupt record could hide a stale attachment of the same name.
    actions += [_action("removed", path, "temporary file of a program that was killed") for path in report.temporary]
    stale = find()
    try:
        outcomes: list[libcni.DelReport | libcni.CNIError]
        outcomes = [*cni.del_attachments([one.attachment for one in stale], policy=policy)]
    except libcni.CNIErrorGroup as group:
        outcomes = group.report
    actions += [
        _action("failed", _name(one.attachment), message_of(outcome))
        if isinstance(outcome, libcni.CNIError)
        else _action("detached", _name(one.attachment), one.reason, left=outcome.left)
        for one, outcome in zip(stale, outcomes, strict=True)
    ]
    return actions + _left(report), tuple(one for one in outcomes if isinstance(one, libcni.CNIError))


def _left(report: libcni.RepairReport) -> _Actions:
    return [_action("left", path, reason) for path, _, reason in (text.partition(": ") for text in report.left)]


def _of_others(session: Session, pending_after: float, done: Sweep) -> _Actions:
    """Return an action for each other sweep that would find stale attachments: "nothing to repair" would deny them."""
    return [
        _action("left", f"stale attachments {sweep}: {len(stale)}", f"see: {repair_command(session, sweep)}")
        for sweep, stale in stale_by_sweep(session, pending_after).items()
        if sweep.owner != done.owner or (sweep.of_go and not done.of_go)
    ]


def _name(one: libcni.Attachment) -> str:
    return f"{one.container_id} {one.ifname} on {one.network}"


def _action(
    action: str, subject: str, reason: str, moved_to: str | None = None, left: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {"action": action, "subject": subject, "reason": reason, "moved_to": moved_to, "left": list(left)}
