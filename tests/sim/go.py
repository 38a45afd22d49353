"""A record as others read it: Go libcni, with encoding/json into the struct cachedInfo (libcni/api.go)."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "kind": str,
    "containerId": str,
    "config": str,
    "ifName": str,
    "networkName": str,
    "netns": str,
    "cniArgs": list,
    "capabilityArgs": dict,
    "result": dict,
}
_LOWER = {name.lower(): name for name in _FIELDS}


@lru_cache(1000)  # most schedules write the same records
def read_as_go(data: bytes) -> dict[str, Any]:
    """Return the fields of a record. Raises ValueError if Go refuses the file.

    A key that comes twice is refused, too: Go takes the last one, and other readers another. Go ignores case in keys.
    """
    found = json.loads(data, object_pairs_hook=_no_repeats)
    if not isinstance(found, dict) or found.get("kind") != "cniCacheV1":
        raise ValueError("its kind is not cniCacheV1")
    for key, value in found.items():
        name = _LOWER.get(key.lower(), "")
        if name not in {key, ""}:
            raise ValueError(f"Go takes {key} for {name}")
        if name and not isinstance(value, _FIELDS[name]):
            raise ValueError(f"{name} is a {type(value).__name__}")
    return {key: value for key, value in found.items() if key in _FIELDS}


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a key comes twice: {[key for key, _ in pairs]}")
    return found


@lru_cache(1000)
def last_event(data: bytes) -> str:
    """Return the last event that a record tells, "begin" if it has only the head."""
    found = json.loads(data)
    events = [value["event"] for key, value in found.items() if key.startswith("libcni.")]
    return events[-1] if events else "begin"
