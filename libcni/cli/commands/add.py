"""libcni add: attach a container to a network."""

from __future__ import annotations

import os
import sys
from argparse import BooleanOptionalAction
from typing import Literal

import libcni
from libcni.cli.failures import UsageError
from libcni.cli.inputs import Target
from libcni.cli.options import TARGET, Argument
from libcni.cli.session import Session

ARGUMENTS = (
    *TARGET,
    Argument("--on-existing", choices=("refuse", "replace", "allow"), default="refuse", metavar="WORD",
        help="What to do if the container has that interface: refuse, replace or allow."),
    Argument("--rollback", action=BooleanOptionalAction, default=True, help="Undo an ADD that fails."),
    Argument("--strict", action=BooleanOptionalAction, default=False,
        help="Refuse capability arguments that no plugin declares."),
    Argument("--negotiate", action=BooleanOptionalAction, default=False,
        help="Use the highest version that all plugins support."),
)  # fmt: skip


def add(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    target: Target,
    on_existing: Literal["refuse", "replace", "allow"],
    rollback: bool,
    strict: bool,
    negotiate: bool,
) -> None:
    """Attach a container to a network.

    Prints the result of the last plugin.

    Example:
      libcni add front /run/netns/web -c web --capabilities '{mac: "c2:11:22:33:44:55"}'
    """
    if not target.network or not target.netns:
        raise UsageError("NETWORK and NETNS must not be empty")
    rt = target.conf()
    try:
        result = session.client().add_network_list(
            target.net(), rt, on_existing=on_existing, rollback=rollback, strict=strict,
            negotiate_version=negotiate,
        )  # fmt: skip
    except libcni.PluginError as error:
        # Each plugin has words of its own for this, and none knows the namespace that was meant.
        if rt.netns and not os.path.exists(rt.netns):
            named = f"/run/netns/{target.netns}"
            meant = f": did you mean {named}?" if "/" not in target.netns and os.path.exists(named) else ""
            error.add_note(f"the namespace {rt.netns} does not exist{meant}")
        raise
    if session.output == "yaml":
        session.show(result.to_dict())
    else:
        # Like cnitool: indented by four spaces, no newline at the end.
        print(result.to_json(), end="\n" if sys.stdout.isatty() else "")
