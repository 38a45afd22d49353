"""libcni status: ask a network's plugins whether they can serve ADD."""

from __future__ import annotations

from typing import Annotated

import typer

from libcni.cli.inputs import network_of
from libcni.cli.options import NetworkArgument
from libcni.cli.render import Table
from libcni.cli.session import Session

__all__ = ["status"]


def status(
    session: Session,
    network: NetworkArgument,
    _netns: Annotated[str, typer.Argument(metavar="NETNS", help="Ignored, as cnitool does.")] = "",
) -> None:
    """Ask whether a network can serve ADD.

    Prints nothing if it can. With -v, prints a line for each plugin.
    """
    found = session.client().network_status(network_of(network))
    rows = [[one.plugin, one.state] for one in found.plugins]
    data = {
        "network": found.network,
        "ready": found.ready,
        "plugins": [{"plugin": one.plugin, "state": one.state} for one in found.plugins],
    }
    if session.verbose or session.output != "text":
        session.show(data, Table(("plugin", "state"), rows))
    for error in found.errors:
        raise error
