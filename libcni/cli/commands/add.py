"""libcni add: attach a container to a network."""

from __future__ import annotations

import sys
from typing import Unpack

from libcni.cli.failures import UsageError
from libcni.cli.inputs import Target
from libcni.cli.options import TARGET, Argument
from libcni.cli.session import Session
from libcni.options import AddOptions

ARGUMENTS = (
    *TARGET,
    Argument("--on-existing", choices=("refuse", "replace", "allow"), default="refuse", metavar="WORD",
        help="What to do if the container already has the interface: refuse, replace or allow."),
    Argument("--strict", action="store_true",
        help="Refuse arguments that no plugin reads, and host ports that a program or a firewall rule uses."),
    Argument("--retries", type=int, default=1, metavar="N",
        help="How often to repeat an ADD after a known temporary fault of a plugin; 0: never."),
    Argument("--no-rollback", dest="rollback", action="store_false", help="Do not undo an ADD that fails."),
    Argument("--allow-own-netns", action="store_true", help="Accept this program's own network namespace as NETNS."),
)  # fmt: skip


def add(session: Session, target: Target, retries: int, **options: Unpack[AddOptions]) -> None:
    """Attach a container to a network.

    Prints the result of the last plugin.

    Example:
      libcni add front /run/netns/web -c web --capabilities '{mac: "c2:11:22:33:44:55"}'
    """
    if not target.network or not target.netns:
        raise UsageError("NETWORK and NETNS must not be empty")
    if retries < 0:
        raise UsageError("--retries must be 0 or more")
    result = session.client(retries=retries).add_network_list(target.net(), target.conf(), **options)
    # Like cnitool: indented by four spaces, no newline at the end.
    print(result.to_json(), end="\n" if sys.stdout.isatty() else "")
