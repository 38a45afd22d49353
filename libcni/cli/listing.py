"""The columns and fields of attachments that several commands print."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcni

__all__ = ["addresses_of", "age_of", "as_data", "matches", "row"]

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def matches(one: libcni.Attachment, wanted: Mapping[str, str]) -> bool:
    """Return whether an attachment has all wanted values; an empty value means any."""
    return all(not value or getattr(one, name) == value for name, value in wanted.items())


def row(one: libcni.Attachment, short: Mapping[str, str]) -> list[str]:
    """Return the cells of an attachment: container, network, interface, addresses, age, state, owner."""
    container = short.get(one.container_id, one.container_id) or "?"
    return [
        container, one.network or "?", one.ifname or "?", addresses_of(one), age_of(one), one.state, one.owner or "-",
    ]  # fmt: skip


def addresses_of(one: libcni.Attachment) -> str:
    """Return an attachment's addresses, or "" if its result cannot be read."""
    return ", ".join(_addresses(one))


def _addresses(one: libcni.Attachment) -> list[str]:
    try:
        return [ip.address for ip in one.result.ips] if one.result is not None else []
    except libcni.CNIError:
        return []


def age_of(one: libcni.Attachment) -> str:
    """Return the time since an attachment's ADD began, in one unit, such as ``3h``."""
    age = libcni.attachment_age(one)
    if age is None:
        return ""
    seconds = int(age)
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{seconds // size}{unit}"


def as_data(one: libcni.Attachment) -> dict[str, Any]:
    """Return an attachment as plain data."""
    return {
        "container_id": one.container_id,
        "network": one.network,
        "ifname": one.ifname,
        "state": one.state,
        "owner": one.owner,
        "addresses": _addresses(one),
        "netns": one.netns,
        "created": one.created.isoformat(timespec="seconds") if one.created else None,
        "path": one.path,
        "problem": one.problem,
    }
