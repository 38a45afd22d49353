"""Container IDs: short in tables, and found by their beginning."""

from __future__ import annotations

from collections.abc import Iterable

import libcni
from libcni.cli.failures import UsageError

_SHORT = 12


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


def recorded_container(cni: libcni.CNIConfig, text: str) -> str:
    """Return the recorded container whose ID is ``text`` or begins with it; ``text`` itself if there is none.

    For commands that only read. If ``web`` has been detached, ``del -c web`` must not detach ``web-2``.

    Raises:
        UsageError: several IDs begin with ``text``.
    """
    try:
        # A whole ID comes first: "web" means the container web, although "web-2" begins with it.
        if not text or any(one.container_id == text for one in cni.get_cached_attachments(text)):
            return text
        matching = longer_ids(cni, text)
    except (libcni.RecordError, libcni.InvalidIdentifierError):
        return text  # the verb itself reports it
    if len(matching) > 1:
        raise UsageError(f"{len(matching)} container IDs begin with {text}: {', '.join(matching)}")
    return matching[0] if matching else text


def longer_ids(cni: libcni.CNIConfig, text: str) -> list[str]:
    """Return the recorded IDs that begin with ``text``, sorted."""
    return sorted({one.container_id for one in cni.get_cached_attachments() if one.container_id.startswith(text)})
