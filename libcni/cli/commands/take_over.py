"""libcni take-over: change the owner of attachments."""

from __future__ import annotations

from dataclasses import replace

from libcni.cli.completion import owners
from libcni.cli.failures import UsageError
from libcni.cli.inputs import Selection
from libcni.cli.listing import attachment_data, find_attachments, identity_row, note_left_out, select
from libcni.cli.options import OPTIONAL_SELECTION, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (
    *OPTIONAL_SELECTION,
    Argument("--to", dest="new_owner", required=True, metavar="NAME", complete=owners,
        help='The new owner; "": none.'),
    Argument("--from", dest="from_owner", metavar="NAME", complete=owners,
        help='Only attachments of this owner; "": of none.'),
)  # fmt: skip


def take_over(session: Session, selection: Selection, new_owner: str, from_owner: str | None) -> None:
    """Change the owner of attachments.

    The sweeps (gc, repair) of the new owner detach the attachments from then on. Records of Go libcni have no owner:
    --from "".

    Example:
      libcni take-over --from "" --to podman
    """
    if selection.container is None and from_owner is None:
        raise UsageError('give CONTAINER, or --from OWNER ("": those without an owner)')
    cni = replace(session, owner=new_owner).client()
    recorded = find_attachments(cni, selection) if selection.container is None else select(cni, selection)
    attachments = [
        attachment for attachment in recorded if attachment.network and from_owner in {None, attachment.owner}
    ]
    taken = [cni.take_over_attachment(attachment) for attachment in attachments if attachment.owner != new_owner]
    rows = [[*identity_row(attachment), attachment.owner or "-"] for attachment in taken]
    session.show(
        [attachment_data(attachment) for attachment in taken],
        Table(("container", "network", "interface", "owner"), rows, empty="nothing to take over"),
    )
    note_left_out(session, selection.container)
