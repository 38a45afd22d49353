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
    attachments = select(session.client(), selection)
    if config:
        if len({attachment.config for attachment in attachments}) > 1:
            raise UsageError(f"{selection.container} has several configurations: add --ifname or --network")
        # Print the bytes unchanged, so that "> FILE" restores the file.
        sys.stdout.buffer.write(attachments[0].config)
        return
    data = [
        {
            **attachment_data(attachment),
            "events": [
                {"at": at.isoformat(timespec="milliseconds"), "event": event} for at, event in attachment.events
            ],
            "args": [list(pair) for pair in attachment.args],
            "capability_args": dict(attachment.capability_args),
            "config": decoded(attachment.config),
            "result": _result(attachment),
        }
        for attachment in attachments
    ]
    session.show(data, *(_block(attachment) for attachment in attachments))


def _result(attachment: libcni.Attachment) -> Any:
    try:
        return attachment.result.to_dict() if attachment.result is not None else None
    except libcni.CNIError as error:
        return f"unreadable: {error}"


def _block(attachment: libcni.Attachment) -> Fields:
    gone = "" if not attachment.netns.startswith("/") or os.path.exists(attachment.netns) else " (gone)"
    result, capabilities = _result(attachment), attachment.capability_args
    created = f"{attachment.created:%Y-%m-%d %H:%M:%S} UTC, {age_of(attachment)} ago" if attachment.created else ""
    events = [f"{at.replace(tzinfo=None).isoformat(' ', 'milliseconds')} {event}" for at, event in attachment.events]
    rows = [
        ("container", Verbatim(attachment.container_id)),
        ("state", attachment.state),
        ("problem", attachment.problem),
        ("owner", attachment.owner),
        ("pod", attachment.pod),
        ("namespace", attachment.netns + gone),
        ("addresses", ", ".join(listed_addresses(attachment))),
        ("created", created),
        ("events", "\n".join(events)),
        ("record", Verbatim(attachment.path)),
        ("arguments", ";".join(f"{key}={value}" for key, value in attachment.args)),
        ("capabilities", Verbatim(indented_json(dict(capabilities))) if capabilities else ""),
        ("configuration", Verbatim(indented_json(decoded(attachment.config))) if attachment.config else ""),
        ("result", "none" if result is None else Verbatim(indented_json(result))),
    ]
    return Fields(f"{attachment.container_id} {attachment.ifname} on {attachment.network}", rows)
