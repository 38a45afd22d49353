"""libcni take-over: change the owner of attachments."""

from __future__ import annotations

from libcni.cli.completion import owners
from libcni.cli.failures import UsageError
from libcni.cli.listing import attachment_data, find_attachments, identity_row, named_attachments, note_left_out
from libcni.cli.options import ONLY_NETWORK, RECORDED_CONTAINER, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (
    RECORDED_CONTAINER.but(help="Only this container: a whole ID."), ONLY_NETWORK,
    Argument("--from", dest="from_owner", metavar="NAME", complete=owners,
        help="Those of this owner; empty: without owner."),
)  # fmt: skip


def take_over(session: Session, container: str, network: str, from_owner: str | None) -> None:
    """Change the owner of attachments.

    --owner names the new owner. Its sweeps (gc, repair) detach the attachments from then on. Records of Go libcni have
    no owner: --from "".

    Example:
      libcni take-over --from "" --owner podman
    """
    if not container and from_owner is None:
        raise UsageError('give the attachments: --container ID, or --from OWNER ("" for those without an owner)')
    cni = session.client()
    if container:
        recorded = named_attachments(cni, container, network, whole=True)
    else:
        recorded = find_attachments(cni, "", network=network)
    found = [one for one in recorded if one.network and from_owner in {None, one.owner}]
    taken = [cni.take_over_attachment(one) for one in found if one.owner != session.owner]
    rows = [[*identity_row(one), one.owner or "-"] for one in taken]
    session.show(
        [attachment_data(one) for one in taken],
        Table(("container", "network", "interface", "owner"), rows, empty="nothing to take over"),
    )
    note_left_out(cni, container)
