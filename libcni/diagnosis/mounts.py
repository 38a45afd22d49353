"""The mounts that this process sees."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import NamedTuple

_MAX_BYTES = 1 << 24
_ESCAPED = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mount: its directory, the type of its file system, and its source, such as a disk."""

    point: str
    kind: str
    source: str


def mount_of(path: str) -> Mount:
    """Return the mount that a path is on; the root if that cannot be read."""
    path, found = os.path.realpath(path), Mount("/", "?", "?")
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file.read(_MAX_BYTES).splitlines():
            before, _, after = line.partition(" - ")
            fields = [_ESCAPED.sub(lambda code: chr(int(code[1], 8)), word) for word in before.split(" ")]
            # A later mount hides the earlier ones at its point and below.
            if len(fields) > 4 and f"{path}/".startswith(f"{fields[4].rstrip('/')}/"):  # noqa: PLR2004 - proc(5)
                found = Mount(fields[4], *[*after.split(" "), "?", "?"][:2])
    return found
