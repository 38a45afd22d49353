"""libcni add: attach a container to a network."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import libcni
from libcni.cli.hints import UsageError
from libcni.cli.inputs import network_of, parameters
from libcni.cli.options import CapArgs, CniArgs, Container, IfName, NetnsArgument, NetworkArgument, Option
from libcni.cli.session import Session


def add(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    network: NetworkArgument,
    netns: NetnsArgument,
    ifname: IfName = "eth0",
    container: Container = None,
    args: CniArgs = "",
    capabilities: CapArgs = "",
    on_existing: Annotated[
        Literal["refuse", "replace", "allow"], Option(help="What to do if the container has that interface.")
    ] = "refuse",
    rollback: Annotated[bool, Option(help="Undo an ADD that fails.")] = True,
    strict: Annotated[bool, Option(help="Refuse capability arguments that no plugin declares.")] = False,
    negotiate: Annotated[bool, Option(help="Use the highest version that all plugins support.")] = False,
) -> None:
    """Attach a container to a network.

    Prints the result of the last plugin.
    """
    if not network or not netns:
        raise UsageError("NETWORK and NETNS must not be empty")
    rt = parameters(netns, ifname, container=container, args=args, capabilities=capabilities)
    try:
        result = session.client().add_network_list(
            network_of(network), rt, on_existing=on_existing, rollback=rollback, strict=strict,
            negotiate_version=negotiate,
        )  # fmt: skip
    except libcni.PluginError as error:
        # Each plugin has words of its own for this, and none knows the namespace that was meant.
        if rt.netns and not os.path.exists(rt.netns):
            named = f"/run/netns/{netns}"
            meant = f": did you mean {named}?" if "/" not in netns and os.path.exists(named) else ""
            error.add_note(f"the namespace {rt.netns} does not exist{meant}")
        raise
    if session.output == "yaml":
        session.show(result.to_dict())
    else:
        # Like cnitool: indented by four spaces, no newline at the end.
        print(result.to_json(), end="\n" if sys.stdout.isatty() else "")
