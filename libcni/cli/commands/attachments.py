"""libcni attachments: list the recorded attachments of this node."""

from __future__ import annotations

import os
from itertools import compress
from typing import get_args

import libcni
from libcni.cli.inputs import Selection
from libcni.cli.listing import age_of, attachment_data, find_attachments, identity_row, listed_addresses, resolved
from libcni.cli.options import OPTIONAL_SELECTION, Argument
from libcni.cli.parser import closest
from libcni.cli.render import Table, note
from libcni.cli.session import Session
from libcni.options import AttachmentState

_STATES = get_args(AttachmentState)
ARGUMENTS = (
    *OPTIONAL_SELECTION,
    Argument("--state", "-s", choices=_STATES, default="", metavar="STATE",
        help=f"List only attachments in this state: {', '.join(_STATES)}."),
    Argument("--quiet", "-q", action="store_true", help="Print only the containers' IDs, one on each line."),
)  # fmt: skip


def attachments(session: Session, selection: Selection, state: str, quiet: bool) -> None:
    """List the recorded attachments and their state.

    --owner selects the attachments of an owner.

    Example:
      libcni attachments -n front -s gone -o json
    """
    cni = session.client()
    selection = resolved(cni, selection)
    recorded = find_attachments(cni, selection, state=state, owner=session.owner)
    if quiet:
        for container_id in filter(None, dict.fromkeys(attachment.container_id for attachment in recorded)):
            print(container_id)
        return
    columns = ["container", "network", "interface", "addresses", "age", "state", "owner", "pod"]
    rows = [
        [
            *identity_row(attachment), ", ".join(listed_addresses(attachment)), age_of(attachment), attachment.state,
            attachment.owner or "-", attachment.pod or "-",
        ]
        for attachment in recorded
    ]  # fmt: skip
    # Most nodes have no owners and no pods.
    used = [name not in {"owner", "pod"} or any(cells[at] != "-" for cells in rows) for at, name in enumerate(columns)]
    broken = [[attachment.path, attachment.problem] for attachment in recorded if attachment.problem]
    session.show(
        [attachment_data(attachment) for attachment in recorded],
        Table(
            [*compress(columns, used)],
            [[*compress(cells, used)] for cells in rows],
            empty="" if recorded else _empty(session, selection, cni.get_cached_attachments()),
        ),
        *([Table(("record", "problem"), broken, "\nrecords that cannot be read:")] if broken else []),
    )
    if any(attachment.is_denied for attachment in recorded):
        note("this user may not read these records: run libcni as root")


def _empty(session: Session, selection: Selection, recorded: list[libcni.Attachment]) -> str:
    # A misspelt name or directory must not look like a node without containers.
    if not recorded:
        missing = "" if os.path.isdir(session.cache_dir) else f": there is no directory {session.cache_dir}"
        return f"no attachments{missing}"
    container = selection.container
    if container in {attachment.network for attachment in recorded}:
        return f"{container} is a network, not a container; its containers: libcni attachments --network {container}"
    asked = ((container, "container_id"), (selection.network, "network"), (session.owner, "owner"))
    meant = [
        near
        for word, name in asked
        if word and (near := closest(word, {getattr(attachment, name) for attachment in recorded})) not in {"", word}
    ]
    suggestion = f"; did you mean {' '.join(meant)}?" if meant else ""
    return f"no attachment matches; this node has {len(recorded)}{suggestion}"
