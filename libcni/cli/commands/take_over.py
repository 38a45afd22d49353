"""libcni take-over: change the owner of attachments."""

from __future__ import annotations

from libcni.cli.completion import owners
from libcni.cli.failures import UsageError
from libcni.cli.listing import (
    attachment_data,
    corrupt_error,
    find_attachments,
    no_record_error,
    note_left_out,
    row,
    short_ids,
)
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
    recorded = find_attachments(cni, container, network=network)
    found = [one for one in recorded if one.network and from_owner in {None, one.owner}]
    if container and not found:
        raise corrupt_error(cni, container, "") or no_record_error(cni, f"container {container}", container)
    taken = [cni.take_over_attachment(one) for one in found if one.owner != session.owner]
    short = short_ids((one.container_id for one in taken), no_trunc=False)
    rows = [[cells[0], cells[1], cells[2], cells[-1]] for cells in (row(one, short) for one in taken)]
    session.show(
        [attachment_data(one) for one in taken],
        Table(("container", "network", "interface", "owner"), rows, empty="nothing to take over"),
    )
    note_left_out(cni.get_cached_attachments(container or None))
