"""Follow the changes of the recorded attachments."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import libcni
from libcni import printable
from libcni.cli.listing import attachment_data, matches, row
from libcni.cli.session import Session

_LOOK_EVERY, _READ_EVERY = 0.2, 2.0


def follow(session: Session, cni: libcni.CNIConfig, wanted: Mapping[str, str]) -> None:
    """Print a line for each attachment that is recorded, and then for each change, until a signal comes.

    The directory's time is polled, because a record that is written or removed changes a name in it. A namespace that
    goes changes no record, and the begin of a DEL no name, so all are read again every two seconds.
    """
    known: dict[str, libcni.Attachment] | None = None
    changed, read = -1, 0.0
    while True:
        # The time is read before the records. A change in between is seen in the next round, never lost.
        now = _changed(cni)
        if now != changed or time.monotonic() - read > _READ_EVERY:
            changed, read = now, time.monotonic()
            found = {one.path: one for one in cni.get_cached_attachments() if matches(one, wanted)}
            for event, one in _events(known, found):
                _print(session, event, one)
            known = found
        time.sleep(_LOOK_EVERY)


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


def _changed(cni: libcni.CNIConfig) -> int:
    try:
        return os.stat(f"{cni.cache_dir}/results").st_mtime_ns
    except OSError:
        return 0


def _print(session: Session, event: str, one: libcni.Attachment) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    if session.output == "text":
        container, network, ifname, addresses, _, state, _ = row(one)
        line = printable(f"{now}  {event:8}  {container:12}  {network}  {ifname}  {addresses or '-'}  {state}")
    else:
        line = json.dumps({"time": now, "event": event, **attachment_data(one)})
    # Each line is flushed: the reader may be a log collector that waits for it.
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
