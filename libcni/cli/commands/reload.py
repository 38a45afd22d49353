"""libcni reload: detach and attach containers again in place."""

from __future__ import annotations

import sys
from typing import Any

import libcni
from libcni.cli.failures import UsageError, exit_code, print_error
from libcni.cli.listing import find_attachments, identity_data, listed_addresses, named_attachments, title_of
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
    if every:
        found = [one for one in find_attachments(cni, "", network=network, state="ready") if one.netns]
    else:
        named = [one for text in attachments for one in named_attachments(cni, text, network, whole=True)]
        found = [one for one in named if one.network]
    data: list[dict[str, Any]] = []
    errors: list[libcni.CNIError] = []
    for one in found:
        if session.output == "text":
            word = "would interrupt" if dry_run else "interrupting"
            print(f"{word} {libcni.printable(title_of(one))}", file=sys.stderr)
        if dry_run:
            continue
        before, after, done = listed_addresses(one), list[str](), "failed"
        try:
            after = [ip.address for ip in cni.reload_attachment(one).ips]
            done = "reloaded" if before == after else "other addresses"
        except libcni.CNIError as error:
            errors.append(error)
            print_error(error, session)
        data.append({**identity_data(one), "done": done, "before": before, "after": after})
    if not dry_run:
        rows = [
            [one["container_id"], one["network"], one["ifname"], " ".join(one["after"]), one["done"]] for one in data
        ]
        columns = ("container", "network", "interface", "addresses", "done")
        session.show(data, Table(columns, rows, empty="nothing to do"))
    if errors:
        raise SystemExit(exit_code(errors[0]))
