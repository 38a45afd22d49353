"""JSON that keeps every number as it was written, and merge patches."""

from __future__ import annotations

import sys

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)  # otherwise an integer of more than 4,300 digits is refused


class _Options:
    """The options that the C scanner reads from its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float = "\0{}".format
    parse_int = int

    @staticmethod
    def parse_constant(text: str) -> object:
        raise ValueError(text)  # the package json knows NaN


def loads(text: str | bytes) -> object:
    """Parse JSON; a number with a fraction or an exponent becomes a marked string, for ``dumps`` to undo."""
    # Through the C function behind json: that package imports re and enum, which takes a third of a plugin's time.
    try:
        from _json import make_scanner

        bare = (text if isinstance(text, str) else text.decode()).strip(" \t\n\r")
        value, end = make_scanner(_Options)(bare, 0)
        if end == len(bare):
            return value
    except (ImportError, StopIteration, ValueError, SystemError):
        pass  # SystemError: before Python 3.12 the function cannot raise JSONDecodeError without the package
    import json

    return json.loads(text, parse_float=_Options.parse_float)


def dumps(document: object) -> str:
    """Write a document from ``loads``."""
    head, *marked = _encoded(document).split('"\\u0000')
    return head + "".join(one.replace('"', "", 1) for one in marked)


def _encoded(document: object) -> str:
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:
        import json

        return json.dumps(document)
    encoder = make_encoder({}, None, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encoder(document, 0))


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
