"""The mounts that this process sees."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

_MAX_BYTES = 1 << 24
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mount: its directory, the type of its file system, and its source, such as a disk."""

    point: str
    kind: str
    source: str


def mount_of(path: str, mounts: Iterable[Mount] | None = None) -> Mount:
    """Return the mount that a path is on; the root if the mounts cannot be read. ``mounts``: the mounts, if known."""
    path, found = os.path.realpath(path), Mount("/", "?", "?")
    for mount in read_mounts() if mounts is None else mounts:
        # A later mount hides the earlier ones at its point and below.
        if f"{path}/".startswith(f"{mount.point.rstrip('/')}/"):
            found = mount
    return found


def read_mounts() -> Iterator[Mount]:
    """Yield the mounts in their order. There may be two for each of 10,000 containers: read them once."""
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file.read(_MAX_BYTES).splitlines():
            before, _, after = line.partition(" - ")
            fields = [_ESCAPED.sub(lambda code: chr(int(code[1], 8)), word) for word in before.split(" ")]
            if len(fields) > 4:  # noqa: PLR2004 - proc(5)
                yield Mount(fields[4], *[*after.split(" "), "?", "?"][:2])
