"""JSON through the C functions behind Python's ``json`` package, without that package.

Importing ``json`` imports ``re`` and ``enum``, which takes longer than everything else that a plugin does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


class _Options:
    """The options that the C scanner reads from its decoder."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not JSON")


def loads(text: str) -> Any:
    """Return the value of the JSON document ``text``; NaN and Infinity are refused.

    Raises ValueError if ``text`` is not one JSON document, and RecursionError if it is nested too deeply.
    """
    # The C scanner skips white space inside the document, not around it.
    bare = text.strip(" \t\n\r")
    if not bare:
        raise ValueError("it is empty")
    from _json import make_scanner

    try:
        value, end = make_scanner(_Options)(bare, 0)  # type: ignore[arg-type]  # any object with these attributes
        if end == len(bare):
            return value
    except (StopIteration, ValueError, SystemError):
        pass  # SystemError: before Python 3.12 the scanner cannot raise JSONDecodeError while json is not imported
    # The slow way has the better message.
    import json

    return json.loads(text, parse_constant=_Options.parse_constant)


def dumps(document: object) -> str:
    """Return ``document`` as one line of JSON.

    Raises TypeError for a value that JSON does not have, and ValueError for NaN, an infinity or a cycle.
    """
    from _json import encode_basestring_ascii, make_encoder

    # The dictionary makes the encoder notice a document that contains itself.
    encoder = make_encoder({}, _refuse, encode_basestring_ascii, None, ": ", ", ", False, False, False)
    return "".join(encoder(document, 0)) + "\n"


def _refuse(value: object) -> NoReturn:
    raise TypeError(f"a value of type {type(value).__name__} cannot be written as JSON")
