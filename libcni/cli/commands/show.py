"""libcni show: print all recorded data of a container's attachments."""

from __future__ import annotations

import os
import sys
from typing import Any

import libcni
from libcni.cli.failures import UsageError
from libcni.cli.inputs import Selection
from libcni.cli.listing import age_of, attachment_data, decoded, listed_addresses, select
from libcni.cli.options import SELECTION, Argument
from libcni.cli.render import Fields, Verbatim, indented_json
from libcni.cli.session import Session

ARGUMENTS = (
    *SELECTION,
    Argument("--config", action="store_true", help="Print only the network's configuration, byte for byte."),
)


def show(session: Session, selection: Selection, config: bool) -> None:
    """Show all recorded data of a container.

    Example:
      libcni show web -i eth0
    """
    found = select(session.client(), selection)
    if config:
        if len({one.config for one in found}) > 1:
            raise UsageError(f"{selection.container} has several configurations: add --ifname or --network")
        # The bytes, so that "> FILE" puts the file back.
        sys.stdout.buffer.write(found[0].config)
        return
    data = [
        {
            **attachment_data(one),
            "events": [{"at": at.isoformat(timespec="milliseconds"), "event": event} for at, event in one.events],
            "args": [list(pair) for pair in one.args],
            "capability_args": dict(one.capability_args),
            "config": decoded(one.config),
            "result": _result(one),
        }
        for one in found
    ]
    session.show(data, *(_block(one) for one in found))


def _result(one: libcni.Attachment) -> Any:
    try:
        return one.result.to_dict() if one.result is not None else None
    except libcni.CNIError as error:
        return f"unreadable: {error}"


def _block(one: libcni.Attachment) -> Fields:
    gone = "" if not one.netns.startswith("/") or os.path.exists(one.netns) else " (gone)"
    result = _result(one)
    events = [f"{at.replace(tzinfo=None).isoformat(' ', 'milliseconds')} {event}" for at, event in one.events]
    rows = [
        ("container", Verbatim(one.container_id)),
        ("state", one.state),
        ("problem", one.problem),
        ("owner", one.owner),
        ("pod", one.pod),
        ("namespace", one.netns + gone),
        ("addresses", ", ".join(listed_addresses(one))),
        ("created", f"{one.created:%Y-%m-%d %H:%M:%S} UTC, {age_of(one)} ago" if one.created else ""),
        ("events", "\n".join(events)),
        ("record", Verbatim(one.path)),
        ("arguments", ";".join(f"{key}={value}" for key, value in one.args)),
        ("capabilities", Verbatim(indented_json(dict(one.capability_args))) if one.capability_args else ""),
        ("configuration", Verbatim(indented_json(decoded(one.config))) if one.config else ""),
        ("result", "none" if result is None else Verbatim(indented_json(result))),
    ]
    return Fields(f"{one.container_id} {one.ifname} on {one.network}", [(name, text) for name, text in rows if text])
