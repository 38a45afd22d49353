"""Container IDs: short in tables, and found by their beginning."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from string import hexdigits

import libcni
from libcni.cli.failures import UsageError

_SHORT = 12
_GENERATED = 32
"""The IDs that runtimes generate have at least so many characters, all of them hexadecimal."""


def short_ids(container_ids: Iterable[str], *, no_trunc: bool) -> dict[str, str]:
    """Return each ID cut to 12 characters, or to as many as are needed to tell the IDs apart."""
    known = sorted(set(container_ids))
    if no_trunc:
        return {one: one for one in known}
    short = {}
    for index, one in enumerate(known):
        neighbours = known[max(index - 1, 0) : index] + known[index + 1 : index + 2]
        shared = max((_shared(one, other) for other in neighbours), default=0)
        short[one] = one[: max(_SHORT, shared + 1)]
    return short


def _shared(one: str, other: str) -> int:
    """Return how many characters two IDs have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def recorded_container(cni: libcni.CNIConfig, text: str, *, detaches: bool = False) -> str:
    """Return the recorded container whose ID is ``text`` or begins with it; ``text`` itself if there is none.

    Args:
        cni: the client whose records are searched.
        text: an ID, or its beginning.
        detaches: whether the command detaches the container. In a script a short beginning of a chosen name is not
            accepted then: after ``web`` has been detached, ``del -c web`` must not detach ``web-2``.

    Raises:
        UsageError: several IDs begin with ``text``.
    """
    try:
        # A whole ID comes first: "web" means the container web, although "web-2" begins with it.
        if not text or any(one.container_id == text for one in cni.get_cached_attachments(text)):
            return text
        matching = {one.container_id for one in cni.get_cached_attachments() if one.container_id.startswith(text)}
    except (libcni.RecordError, libcni.InvalidIdentifierError):
        # The verb itself reports it, and DEL works without records.
        return text
    if detaches and not sys.stdin.isatty() and len(text) < _SHORT:
        matching = {one for one in matching if len(one) >= _GENERATED and not set(one) - set(hexdigits)}
    if len(matching) > 1:
        raise UsageError(f"{len(matching)} container IDs begin with {text}: {', '.join(sorted(matching))}")
    return matching.pop() if matching else text
