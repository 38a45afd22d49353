"""libcni attachments: list the recorded attachments of this node."""

from __future__ import annotations

from typing import Annotated, Literal

from libcni.cli.containers import recorded_container
from libcni.cli.follow import follow
from libcni.cli.listing import list_attachments
from libcni.cli.options import NetworkOption, NoTrunc, Option, Quiet, RecordedContainer
from libcni.cli.session import Session

__all__ = ["attachments"]

State = Literal["pending", "ready", "detaching", "gone", "stale-boot", "corrupt", "legacy"]


def attachments(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    container: RecordedContainer = "",
    network: NetworkOption = "",
    ifname: Annotated[str, Option("--ifname", "-i", help="Only this interface.")] = "",
    state: Annotated[State | None, Option("--state", "-s", help="Only those in this state.")] = None,
    quiet: Quiet = False,
    no_trunc: NoTrunc = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Follow the changes, as libcni watch does.")] = False,
) -> None:
    """List the recorded attachments and their state."""
    if watch:
        cni = session.client()
        wanted = {"container_id": recorded_container(cni, container), "network": network, "ifname": ifname}
        follow(session, cni, {**wanted, "state": state or ""}, no_trunc=no_trunc)
        return
    list_attachments(
        session, container, network=network, ifname=ifname, state=state or "", quiet=quiet, no_trunc=no_trunc
    )
