"""libcni reload: detach and attach containers again in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcni
from libcni.cli.failures import UsageError, outcomes_of, raise_errors
from libcni.cli.inputs import Selection
from libcni.cli.listing import (
    find_attachments,
    identity_data,
    identity_row,
    listed_addresses,
    note_left,
    select,
)
from libcni.cli.options import CONTAINER, INCLUDE_GO, ONLY_IFNAME, ONLY_NETWORK, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session
from libcni.diagnosis import obstacles_to_reload

ARGUMENTS = (
    Argument("containers", nargs="*", metavar="CONTAINER", complete=CONTAINER.complete,
        help=CONTAINER.keywords["help"]),
    Argument("--all", dest="every", action="store_true",
        help="Reload all living attachments of --owner; without --owner, all that have no owner."),
    ONLY_IFNAME, ONLY_NETWORK, INCLUDE_GO,
    Argument("--dry-run", action="store_true", help="Only print the attachments that would be reloaded."),
)  # fmt: skip


def reload(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session, containers: list[str], every: bool, ifname: str, network: str, include_go: bool, dry_run: bool
) -> None:
    """Detach containers and attach them again in place.

    Use it after the reload of a firewall, or after a change by hand. Runs DEL and ADD with the recorded configuration
    and arguments, and requests the same addresses. Meanwhile the container has no network.

    Example:
      libcni reload web
    """
    if bool(containers) == every:
        raise UsageError("give containers, or --all")
    cni = session.client()
    if every:
        recorded = find_attachments(cni, Selection(None, ifname, network))
        # Like every sweep: leave the containers of other owners alone.
        own = [
            attachment
            for attachment in recorded
            if attachment.owner == session.owner and (include_go or not attachment.made_by_go)
        ]
        attachments = [attachment for attachment in own if attachment.can_reload]
        others = len([attachment for attachment in recorded if attachment.can_reload]) - len(attachments)
        note_left(others, "of other owners (--owner) or of Go libcni (--include-go)")
        unfinished = [attachment for attachment in own if attachment.state == "pending" and not attachment.can_reload]
        doctor = session.hint_command(libcni.Hint("", "doctor"))
        note_left(len(unfinished), f"whose ADD was stopped at its beginning (see: {doctor})")
    else:
        selections = [Selection(text, ifname, network) for text in containers]
        attachments = [attachment for selection in selections for attachment in select(cni, selection)]
    outcomes = _reloaded(cni, attachments, dry_run=dry_run)
    data = [
        _outcome(attachment, outcome, dry_run=dry_run)
        for attachment, outcome in zip(attachments, outcomes, strict=True)
    ]
    rows = [
        [*identity_row(attachment), " ".join(row["after"] or row["before"]), row["done"]]
        for attachment, row in zip(attachments, data, strict=True)
    ]
    columns = ("container", "network", "interface", "addresses", "done")
    session.show(data, Table(columns, rows, empty="nothing to do"))
    raise_errors("RELOAD", outcomes)


def _reloaded(
    cni: libcni.CNIConfig, attachments: list[libcni.Attachment], *, dry_run: bool
) -> Sequence[libcni.Result | libcni.CNIError | None]:
    """Reload the attachments whose ADD is not known to fail after the DEL; return for each its result or error."""
    obstacles = obstacles_to_reload(cni, attachments) if attachments else []
    free = [attachment for attachment, obstacle in zip(attachments, obstacles, strict=True) if not obstacle]
    done = iter([None] * len(free) if dry_run else outcomes_of(lambda: cni.reload_attachments(free)) if free else [])
    return [
        libcni.CNIError(
            f"container {attachment.container_id}, network {attachment.network}, interface {attachment.ifname}: not "
            f"reloaded, because its ADD would fail after the DEL: {obstacle}"
        )
        if obstacle
        else next(done)
        for attachment, obstacle in zip(attachments, obstacles, strict=True)
    ]


def _outcome(
    attachment: libcni.Attachment, outcome: libcni.Result | libcni.CNIError | None, *, dry_run: bool
) -> dict[str, Any]:
    before = listed_addresses(attachment)
    after = [ip.address for ip in outcome.ips] if isinstance(outcome, libcni.Result) else []
    if outcome is None:
        done = "planned" if attachment.can_reload else "not possible"
    elif isinstance(outcome, libcni.CNIError):
        done = "not possible" if dry_run else "failed"
    else:
        done = "reloaded" if before == after else "other addresses"
    return {**identity_data(attachment), "done": done, "before": before, "after": after}
