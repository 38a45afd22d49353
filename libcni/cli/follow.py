"""Follow the changes of the recorded attachments."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

import libcni
from libcni import printable
from libcni.cli.listing import attachment_data, row
from libcni.cli.session import Session

_EVERY = 1.0


def follow(session: Session, find: Callable[[], list[libcni.Attachment]]) -> None:
    """Print a line for each attachment that ``find`` returns, and then for each change, until a signal comes.

    The records are read again each second: the removal of a namespace changes no file, so inotify would not report it.
    """
    known: dict[str, libcni.Attachment] | None = None
    while True:
        current = {attachment.path: attachment for attachment in find()}
        for event, attachment in _events(known, current):
            _print(session, event, attachment)
        known = current
        time.sleep(_EVERY)


def _events(
    known: Mapping[str, libcni.Attachment] | None, current: Mapping[str, libcni.Attachment]
) -> Iterator[tuple[str, libcni.Attachment]]:
    """Yield the differences between two readings of the records, by path; ``known`` is None before the first one."""
    for path, attachment in current.items():
        if known is None:
            yield "recorded", attachment
        elif path not in known:
            yield "attached", attachment
        elif (known[path].state, known[path].created) != (attachment.state, attachment.created):
            yield "changed", attachment
    for path, attachment in (known or {}).items():
        if path not in current:
            yield "removed", attachment


def _print(session: Session, event: str, attachment: libcni.Attachment) -> None:
    time = datetime.now(UTC).isoformat(timespec="seconds")
    if session.output == "text":
        container, network, ifname, addresses, _, state, *_ = row(attachment)
        line = printable(f"{time}  {event:8}  {container:12}  {network}  {ifname}  {addresses or '-'}  {state}")
    else:
        line = json.dumps({"time": time, "event": event, **attachment_data(attachment)})
    # Each line is flushed: the reader may be a log collector that waits for it.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
