"""JSON through the C functions behind the package json, which imports re and enum: a third of a plugin's time."""

from __future__ import annotations

import sys

if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)  # otherwise an integer of more than 4,300 digits is refused


class _Options:
    """The options that the C scanner reads from its decoder."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def loads(data: bytes) -> object:
    """Parse JSON; raises ValueError."""
    try:
        from _json import make_scanner

        bare = data.decode().strip(" \t\n\r")
        value, end = make_scanner(_Options)(bare, 0)
        if end == len(bare):
            return value
    except (ImportError, StopIteration, ValueError, SystemError):
        pass  # SystemError: before Python 3.12 the function cannot raise JSONDecodeError without the package
    import json

    return json.loads(data)  # with the better message


def dumps(document: object) -> str:
    """Return a document as JSON."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:
        import json

        return json.dumps(document)
    encoder = make_encoder({}, None, encode_basestring_ascii, None, ": ", ", ", False, False, True)
    return "".join(encoder(document, 0))
