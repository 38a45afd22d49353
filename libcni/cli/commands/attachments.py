"""libcni attachments: list the recorded attachments of this node."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import typer

import libcni
from libcni.cli.options import Container
from libcni.cli.render import Table
from libcni.cli.session import Session

__all__ = ["addresses_of", "age_of", "as_data", "attachments"]

State = Literal["pending", "ready", "stale-boot", "corrupt", "legacy"]

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def attachments(
    session: Session,
    container: Container = None,
    network: Annotated[str, typer.Option("--network", "-n", help="Only this network.")] = "",
    ifname: Annotated[str, typer.Option("--ifname", "-i", help="Only this interface.")] = "",
    state: Annotated[State | None, typer.Option("--state", "-s", help="Only those in this state.")] = None,
) -> None:
    """List the recorded attachments and their state."""
    wanted = {"container_id": container, "network": network, "ifname": ifname, "state": state}
    found = [
        one
        for one in session.client().get_cached_attachments()
        if all(not value or getattr(one, name) == value for name, value in wanted.items())
    ]
    columns = ("container", "network", "interface", "addresses", "age", "state")
    rows = [
        [one.container_id or "?", one.network or "?", one.ifname or "?", addresses_of(one), age_of(one), one.state]
        for one in found
    ]
    broken = [[one.path, one.problem] for one in found if one.problem]
    session.show(
        [as_data(one) for one in found],
        Table(columns, rows, empty="no attachments"),
        *([Table(("record", "problem"), broken, "\nrecords that cannot be read:")] if broken else []),
    )


def addresses_of(one: libcni.Attachment) -> str:
    """Return an attachment's addresses, or "" if its result cannot be read."""
    return ", ".join(_addresses(one))


def _addresses(one: libcni.Attachment) -> list[str]:
    try:
        return [ip.address for ip in one.result.ips] if one.result is not None else []
    except libcni.CNIError:
        return []


def age_of(one: libcni.Attachment) -> str:
    """Return the time since an attachment's ADD began, in one unit, such as ``3h``."""
    if one.created is None:
        return ""
    seconds = max(0, int((datetime.now(UTC) - one.created).total_seconds()))
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size}{unit}"


def as_data(one: libcni.Attachment) -> dict[str, Any]:
    """Return an attachment as plain data."""
    return {
        "container_id": one.container_id,
        "network": one.network,
        "ifname": one.ifname,
        "state": one.state,
        "addresses": _addresses(one),
        "netns": one.netns,
        "created": one.created.isoformat(timespec="seconds") if one.created else None,
        "path": one.path,
        "problem": one.problem,
    }
