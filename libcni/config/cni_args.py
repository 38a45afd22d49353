"""CNI_ARGS in both directions: ordered pairs, and the variable's text ``K=V;K=V`` (conventions, CNI_ARGS)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from libcni.errors import InvalidIdentifierError

__all__ = ["format_args", "parse_args"]

Args = tuple[tuple[str, str], ...]
"""CNI_ARGS as ordered (key, value) pairs."""


def parse_args(text: str) -> Args:
    """Return the pairs of a CNI_ARGS text; "" gives ().

    Raises:
        InvalidIdentifierError: a part does not have exactly one ``=``, or has no key.
    """
    pairs = [part.split("=") for part in text.split(";")] if text else []
    for pair in pairs:
        # Go's plugins refuse the same texts (pkg/types/args.go, LoadArgs).
        if len(pair) != 2 or not pair[0]:  # noqa: PLR2004 - key and value
            raise InvalidIdentifierError("CNI_ARGS pair", "=".join(pair), "it must be KEY=VALUE")
    return check_args((key, value) for key, value in pairs)


def format_args(pairs: Args) -> str:
    """Return the text of CNI_ARGS for pairs that ``check_args`` has accepted."""
    return ";".join(f"{key}={value}" for key, value in pairs)


def check_args(args: Iterable[tuple[str, str]] | Mapping[str, str]) -> Args:
    """Return ``args`` as pairs in order.

    A ``=`` in a value is accepted although Go's plugins refuse it (pkg/types/args.go): the text can carry it.

    Raises:
        InvalidIdentifierError: they are no pairs, or CNI_ARGS cannot carry a key or value.
    """
    rule = 'it must be pairs such as ("KEY", "VALUE") or a mapping; for a text such as "KEY=VALUE" use parse_args'
    value: Any = args
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidIdentifierError("CNI_ARGS", value, rule)
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - a string of two letters is no pair
            raise InvalidIdentifierError("CNI_ARGS pair", pair, rule)
    return tuple((_checked("key", key, ";="), _checked("value", value, ";")) for key, value in pairs)


def _checked(kind: str, text: Any, forbidden: str) -> str:
    what = f"CNI_ARGS {kind}"
    if not isinstance(text, str):
        raise InvalidIdentifierError(what, text, f"it must be a string, not {type(text).__name__}")
    if kind == "key" and not text:
        raise InvalidIdentifierError(what, text, "it must not be empty")
    # The text has no escapes: a ";" in a value would begin a second pair, which the caller did not give.
    if not is_environment_text(text) or any(char in forbidden for char in text):
        listed = " or ".join(f"'{char}'" for char in forbidden)
        raise InvalidIdentifierError(what, text, f"it must be text without {listed} or NUL")
    return text


def is_environment_text(text: str) -> bool:
    """Return whether an environment variable can hold ``text``."""
    try:
        # execve(2) ends a variable at NUL. fsencode refuses lone surrogates, except those that fsdecode makes.
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
