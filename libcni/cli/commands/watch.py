"""libcni watch: follow the changes of the recorded attachments."""

from __future__ import annotations

from libcni.cli.containers import recorded_container
from libcni.cli.follow import follow
from libcni.cli.options import NetworkOption, NoTrunc, RecordedContainer
from libcni.cli.session import Session


def watch(
    session: Session, container: RecordedContainer = "", network: NetworkOption = "", no_trunc: NoTrunc = False
) -> None:
    """Follow the changes of the recorded attachments.

    Prints a line for each attachment, then one for each change, until Ctrl-C. With -o json each line is an object.
    """
    cni = session.client()
    wanted = {"container_id": recorded_container(cni, container), "network": network}
    follow(session, cni, wanted, no_trunc=no_trunc)
