"""libcni show: print all recorded data of a container's attachments."""

from __future__ import annotations

import os
import sys
from typing import Any

import libcni
from libcni.cli.failures import UsageError
from libcni.cli.listing import age_of, attachment_data, decoded, listed_addresses, named_attachments, title_of
from libcni.cli.options import ATTACHMENT, ONLY_NETWORK, Argument
from libcni.cli.render import Fields, indented_json
from libcni.cli.session import Session

ARGUMENTS = (
    ATTACHMENT,
    ONLY_NETWORK,
    Argument("--config", action="store_true", help="Print only the network's configuration, byte for byte."),
)


def show(session: Session, attachment: str, network: str, config: bool) -> None:
    """Show all recorded data of a container.

    Example:
      libcni show web:eth0
    """
    found = named_attachments(session.client(), attachment, network, whole=False)
    if config:
        if len({one.config for one in found}) > 1:
            raise UsageError(f"{attachment} has several configurations: add :IFNAME, or --network")
        # The bytes, so that "> FILE" puts the file back.
        sys.stdout.buffer.write(found[0].config)
        return
    data = [
        {
            **attachment_data(one),
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
    rows = [
        ("state", one.state),
        ("problem", one.problem),
        ("owner", one.owner),
        ("namespace", one.netns + gone),
        ("addresses", ", ".join(listed_addresses(one))),
        ("created", f"{one.created:%Y-%m-%d %H:%M:%S} UTC, {age_of(one)} ago" if one.created else ""),
        ("record", one.path),
        ("arguments", ";".join(f"{key}={value}" for key, value in one.args)),
        ("capabilities", indented_json(dict(one.capability_args)) if one.capability_args else ""),
        ("configuration", indented_json(decoded(one.config)) if one.config else ""),
        ("result", "none" if result is None else indented_json(result)),
    ]
    return Fields(title_of(one), [(name, text) for name, text in rows if text])
