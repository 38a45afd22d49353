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

    The records are read again each second. A namespace that is removed changes no file, so no event of the directory
    would tell of it.
    """
    known: dict[str, libcni.Attachment] | None = None
    while True:
        found = {one.path: one for one in find()}
        for event, one in _events(known, found):
            _print(session, event, one)
        known = found
        time.sleep(_EVERY)


def _events(
    known: Mapping[str, libcni.Attachment] | None, found: Mapping[str, libcni.Attachment]
) -> Iterator[tuple[str, libcni.Attachment]]:
    """Yield the differences between two readings of the records, by path; ``known`` is None before the first one."""
    for path, one in found.items():
        if known is None:
            yield "recorded", one
        elif path not in known:
            yield "attached", one
        elif (known[path].state, known[path].created) != (one.state, one.created):
            yield "changed", one
    for path, one in (known or {}).items():
        if path not in found:
            yield "removed", one


def _print(session: Session, event: str, one: libcni.Attachment) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if session.output == "text":
        container, network, ifname, addresses, _, state, *_ = row(one)
        line = printable(f"{now}  {event:8}  {container:12}  {network}  {ifname}  {addresses or '-'}  {state}")
    else:
        line = json.dumps({"time": now, "event": event, **attachment_data(one)})
    # Each line is flushed: the reader may be a log collector that waits for it.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
