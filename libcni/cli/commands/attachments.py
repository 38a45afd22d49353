"""libcni attachments: list the recorded attachments of this node."""

from __future__ import annotations

import os
import sys
from functools import partial

from libcni.cli.follow import follow
from libcni.cli.listing import attachment_data, find_attachments, recorded_container, row
from libcni.cli.options import ONLY_NETWORK, QUIET, RECORDED_CONTAINER, Argument
from libcni.cli.render import Table
from libcni.cli.session import Session

_STATES = ("pending", "ready", "detaching", "gone", "stale-boot", "corrupt", "legacy")
ARGUMENTS = (
    RECORDED_CONTAINER, ONLY_NETWORK,
    Argument("--ifname", "-i", default="", metavar="NAME", help="Only this interface."),
    Argument("--state", "-s", choices=_STATES, default="", metavar="STATE",
        help=f"Only those in this state: {', '.join(_STATES)}."),
    QUIET,
    Argument("--watch", "-w", action="store_true", help="Follow the changes, until Ctrl-C."),
)  # fmt: skip


def attachments(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    container: str,
    network: str,
    ifname: str,
    state: str,
    quiet: bool,
    watch: bool,
) -> None:
    """List the recorded attachments and their state.

    With --watch: a line for each attachment, then one for each change. With -o json each line is an object.

    Example:
      libcni attachments -n front -s gone -o json
    """
    cni = session.client()
    with session.working("attachments"):
        container = recorded_container(cni, container)
        find = partial(find_attachments, cni, container, network=network, ifname=ifname, state=state)
        found = [] if watch else find()
    if watch:
        follow(session, find)
        return
    if quiet:
        for container_id in dict.fromkeys(one.container_id for one in found if one.container_id):
            print(container_id)
        return
    with_owner = any(one.owner for one in found)
    columns = ["container", "network", "interface", "addresses", "age", "state", *(["owner"] if with_owner else [])]
    rows = [row(one)[: len(columns)] for one in found]
    broken = [[one.path, one.problem] for one in found if one.problem]
    session.show(
        [attachment_data(one) for one in found],
        Table(columns, rows, empty="" if found else _empty(session, len(cni.get_cached_attachments()))),
        *([Table(("record", "problem"), broken, "\nrecords that cannot be read:")] if broken else []),
    )
    if any(one.is_denied for one in found):
        print("note: this user may not read these records: run it as root", file=sys.stderr)


def _empty(session: Session, recorded: int) -> str:
    # A misspelt name or directory must not look like a node without containers.
    if recorded:
        return f"no attachment matches; there are {recorded}"
    missing = "" if os.path.isdir(session.cache_dir) else f": there is no directory {session.cache_dir}"
    return f"no attachments{missing}"
