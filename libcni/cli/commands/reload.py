"""libcni reload: detach and attach containers again in place."""

from __future__ import annotations

import sys
from typing import Any

import libcni
from libcni.cli.failures import UsageError, exit_code, print_error
from libcni.cli.listing import named_attachments
from libcni.cli.options import ONLY_NETWORK, WHOLE_ATTACHMENT, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (
    Argument("attachments", nargs="*", metavar="ID[:IFNAME]", complete=WHOLE_ATTACHMENT.complete,
        help="Containers, or single interfaces; whole IDs."),
    Argument("--all", dest="every", action="store_true", help="All attachments whose container lives."),
    ONLY_NETWORK,
    Argument("--dry-run", action="store_true", help="Only show what would be interrupted."),
)  # fmt: skip


def reload(session: Session, attachments: list[str], every: bool, network: str, dry_run: bool) -> None:
    """Attach containers again in place, after a firewall's reload or a change by hand.

    Runs DEL and ADD with the recorded configuration and arguments, and asks for the same addresses. Each container
    loses its network for that time.

    Example:
      libcni reload web
    """
    if bool(attachments) == every:
        raise UsageError("give containers, or --all")
    cni = session.client()
    found = _living(cni, network) if every else [one for text in attachments for one in _named(cni, text, network)]
    rows: list[dict[str, Any]] = []
    errors: list[libcni.CNIError] = []
    for one in found:
        name = f"{one.container_id} {one.ifname} on {one.network}"
        if session.output == "text":
            print(f"{'would interrupt' if dry_run else 'interrupting'} {libcni.printable(name)}", file=sys.stderr)
        if dry_run:
            continue
        before = _addresses(one.result)
        try:
            after = _addresses(cni.reload_attachment(one))
        except libcni.CNIError as error:
            errors.append(error)
            print_error(error, session)
            rows.append(_row(one, "failed", before, []))
        else:
            rows.append(_row(one, "reloaded" if before == after else "other addresses", before, after))
    shown = [[row["container_id"], row["network"], row["ifname"], " ".join(row["after"]), row["done"]] for row in rows]
    if not dry_run:
        session.show(
            rows, Table(("container", "network", "interface", "addresses", "done"), shown, empty="nothing to do")
        )
    if errors:
        raise SystemExit(exit_code(errors[0]))


def _living(cni: libcni.CNIConfig, network: str) -> list[libcni.Attachment]:
    found = [one for one in cni.get_cached_attachments() if one.state == "ready" and one.netns]
    return [one for one in found if network in {"", one.network}]


def _named(cni: libcni.CNIConfig, text: str, network: str) -> list[libcni.Attachment]:
    return [one for one in named_attachments(cni, text, network, whole=True) if one.network]


def _addresses(result: libcni.Result | None) -> list[str]:
    return [ip.address for ip in result.ips] if result is not None else []


def _row(one: libcni.Attachment, done: str, before: list[str], after: list[str]) -> dict[str, Any]:
    return {
        "container_id": one.container_id, "network": one.network, "ifname": one.ifname, "done": done,
        "before": before, "after": after,
    }  # fmt: skip
