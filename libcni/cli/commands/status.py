"""libcni status: ask a network's plugins whether they can serve ADD."""

from __future__ import annotations

import os
import sys

from libcni.cli.inputs import network_of
from libcni.cli.options import IGNORED_NETNS, NETWORK
from libcni.cli.render import Table
from libcni.cli.session import Session

ARGUMENTS = (NETWORK, IGNORED_NETNS)


def status(session: Session, network: str, netns: str) -> None:
    """Ask whether a network can serve ADD.

    Prints nothing if it can. With -v, prints a line for each plugin.

    Example:
      libcni status front -v
    """
    if netns and not os.path.exists(netns):
        # The user may mean it as a second network. No network but the first is asked.
        print(f"note: {netns} is ignored: status asks one network", file=sys.stderr)
    found = session.client().network_status(network_of(network))
    # Plugins of a version without STATUS are not called. "ready" would be a guess.
    asked = all(one.state != "unsupported" for one in found.plugins)
    rows = [[one.plugin, "not asked" if one.state == "unsupported" else one.state] for one in found.plugins]
    data = {
        "network": found.network,
        "ready": found.ready if asked or not found.ready else None,
        "plugins": [{"plugin": one.plugin, "state": one.state} for one in found.plugins],
    }
    if session.verbose or session.output != "text":
        session.show(data, Table(("plugin", "state"), rows))
    if not asked:
        text = f"note: network {found.network} was not asked: its spec version has no STATUS"
        print(f"{text} (libcni networks --check helps)", file=sys.stderr)
    # The table has all states. The first error is printed, and decides the exit code.
    for error in found.errors:
        raise error
