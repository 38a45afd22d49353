"""libcni attachments: list the recorded attachments of this node."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal, get_args

from libcni.cli.containers import recorded_container, short_ids
from libcni.cli.follow import follow
from libcni.cli.listing import attachment_data, matches, row
from libcni.cli.options import NetworkOption, NoTrunc, Option, Quiet, RecordedContainer
from libcni.cli.render import Table
from libcni.cli.session import Session

State = Literal["pending", "ready", "detaching", "gone", "stale-boot", "corrupt", "legacy"]


def attachments(  # noqa: PLR0913, PLR0917 - the options of the command
    session: Session,
    container: RecordedContainer = "",
    network: NetworkOption = "",
    ifname: Annotated[str, Option("--ifname", "-i", metavar="NAME", help="Only this interface.")] = "",
    state: Annotated[
        State | None,
        Option("--state", "-s", metavar="STATE", help=f"Only those in this state: {', '.join(get_args(State))}."),
    ] = None,
    quiet: Quiet = False,
    no_trunc: NoTrunc = False,
    watch: Annotated[bool, Option("--watch", "-w", help="Follow the changes, as libcni watch does.")] = False,
) -> None:
    """List the recorded attachments and their state."""
    cni = session.client()
    container = recorded_container(cni, container)
    wanted = {"container_id": container, "network": network, "ifname": ifname, "state": state or ""}
    if watch:
        follow(session, cni, wanted, no_trunc=no_trunc)
        return
    recorded = cni.get_cached_attachments()
    found = [one for one in recorded if matches(one, wanted)]
    if quiet:
        for container_id in dict.fromkeys(one.container_id for one in found if one.container_id):
            print(container_id)
        return
    # Shortened among all records, not only the listed ones: a short ID must be unique when somebody types it.
    short = short_ids((one.container_id for one in recorded), no_trunc=no_trunc)
    with_owner = any(one.owner for one in found)
    columns = ["container", "network", "interface", "addresses", "age", "state", *(["owner"] if with_owner else [])]
    rows = [row(one, short)[: len(columns)] for one in found]
    broken = [[one.path, one.problem] for one in found if one.problem]
    session.show(
        [attachment_data(one) for one in found],
        Table(columns, rows, empty=_empty(session, len(recorded))),
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
