"""libcni status: ask a network's plugins whether they can serve ADD."""

from __future__ import annotations

from libcni.cli.inputs import network_of
from libcni.cli.options import IGNORED_NETNS, NETWORK
from libcni.cli.render import note
from libcni.cli.session import Session

ARGUMENTS = (NETWORK, IGNORED_NETNS)


def status(session: Session, network: str, netns: str) -> None:  # noqa: ARG001 - ignored, like cnitool
    """Ask whether a network can serve ADD.

    Prints nothing if it can. With -v, prints each call.

    Example:
      libcni status front -v
    """
    answer = session.client().network_status(network_of(network))
    # Plugins of a version without STATUS are not called. "ready" would be a guess.
    asked = all(plugin.state != "unsupported" for plugin in answer.plugins)
    data = {
        "network": answer.network,
        "ready": answer.ready if asked or not answer.ready else None,
        "plugins": [{"plugin": plugin.plugin, "state": plugin.state} for plugin in answer.plugins],
    }
    session.show(data)
    if not asked:
        note(f"network {answer.network} was not asked: its spec version has no STATUS")
    # The data has all states. The first error is printed, and decides the exit code.
    for error in answer.errors:
        raise error
