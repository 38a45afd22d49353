"""libcni take-over: change the owner of attachments."""

from __future__ import annotations

from typing import Annotated

from libcni.cli.containers import recorded_container, short_ids
from libcni.cli.hints import UsageError
from libcni.cli.listing import attachment_data, corrupt_error, find_attachments, no_record_error, note_left_out, row
from libcni.cli.options import NetworkOption, Option, RecordedContainer
from libcni.cli.render import Table
from libcni.cli.session import Session


def take_over(
    session: Session,
    container: RecordedContainer = "",
    network: NetworkOption = "",
    from_owner: Annotated[
        str | None, Option("--from", metavar="NAME", help="Those of this owner; empty: without owner.")
    ] = None,
) -> None:
    """Change the owner of attachments.

    --owner names the new owner. Its sweeps (gc, repair) detach the attachments from then on. Records of Go libcni have
    no owner: --from "".
    """
    if not container and from_owner is None:
        raise UsageError('give the attachments: --container ID, or --from OWNER ("" for those without an owner)')
    cni = session.client()
    container = recorded_container(cni, container)
    recorded = find_attachments(cni, container, network=network)
    found = [one for one in recorded if one.network and from_owner in {None, one.owner}]
    if container and not found:
        raise corrupt_error(cni, container, "") or no_record_error(f"container {container}", container)
    taken = [cni.take_over_attachment(one) for one in found if one.owner != session.owner]
    short = short_ids((one.container_id for one in taken), no_trunc=False)
    rows = [[cells[0], cells[1], cells[2], cells[-1]] for cells in (row(one, short) for one in taken)]
    session.show(
        [attachment_data(one) for one in taken],
        Table(("container", "network", "interface", "owner"), rows, empty="nothing to take over"),
    )
    note_left_out(cni.get_cached_attachments(container or None))
