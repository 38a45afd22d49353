"""libcni check: check an attachment."""

from __future__ import annotations

from libcni.cli.inputs import network_of, parameters
from libcni.cli.options import CapArgs, CniArgs, Container, IfName, NetnsArgument, NetworkArgument
from libcni.cli.session import Session

__all__ = ["check"]


def check(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    network: NetworkArgument,
    netns: NetnsArgument,
    ifname: IfName = "eth0",
    container: Container = None,
    args: CniArgs = "",
    capabilities: CapArgs = "",
) -> None:
    """Check an attachment.

    Uses the configuration that its ADD used. Prints nothing if the attachment is in order.
    """
    rt = parameters(netns, ifname, container=container, args=args, capabilities=capabilities)
    session.client().check_network_list(network_of(network), rt)
