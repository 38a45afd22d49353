"""JSON that keeps every number as it was written, and merge patches."""

from __future__ import annotations

import json
import re
import sys

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)  # otherwise an integer of more than 4,300 digits is refused


def loads(text: str | bytes) -> object:
    """Parse JSON; a number with a fraction or an exponent becomes a marked string, for ``dumps`` to undo."""
    return json.loads(text, parse_float="\0{}".format)


def dumps(document: object) -> str:
    """Write a document from ``loads``."""
    return re.sub(r'"\\u0000([^"]*)"', r"\1", json.dumps(document))


def number(value: object) -> float:
    """Return a number from ``loads``; None and absence are 0."""
    return float(str(value or 0).lstrip("\0"))


def merged(base: object, patch: object) -> object:
    """Return ``base`` changed by the JSON merge patch ``patch`` (RFC 7396): null removes a key."""
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
