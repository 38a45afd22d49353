"""CNI_ARGS in both directions: ordered pairs, and the variable's text ``K=V;K=V`` (conventions, CNI_ARGS)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from libcni.config.identifiers import check_text
from libcni.errors import InvalidIdentifierError, short_repr

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
            rule = f"it must be KEY=VALUE; several are separated by ';' (in {short_repr(text)})"
            raise InvalidIdentifierError("CNI_ARGS pair", "=".join(pair), rule)
    return check_args((key, value) for key, value in pairs)


def format_args(pairs: Args) -> str:
    """Return the text of CNI_ARGS for pairs that ``check_args`` has accepted."""
    return ";".join(f"{key}={value}" for key, value in pairs)


class RecordedArgs(tuple[tuple[str, str], ...]):
    """CNI_ARGS from a record. DEL accepts them without a check, because ADD has accepted them."""

    __slots__ = ()


def check_args(args: Iterable[tuple[str, str]] | Mapping[str, str]) -> Args:
    """Return ``args`` as pairs in order.

    A ``=`` in a value is refused, as by Go's plugins (pkg/types/args.go), but not in RecordedArgs.

    Raises:
        InvalidIdentifierError: ``args`` are not pairs, or a key or value has a character that CNI_ARGS cannot hold.
    """
    rule = 'it must be a mapping, or pairs such as ("KEY", "VALUE"); for a text such as "KEY=VALUE" use parse_args'
    value: Any = args
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidIdentifierError("CNI_ARGS", value, rule)
    pairs = list(value.items() if isinstance(value, Mapping) else value)
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:  # noqa: PLR2004 - a string of two letters is no pair
            raise InvalidIdentifierError("CNI_ARGS pair", pair, rule)
    is_recorded = isinstance(value, RecordedArgs)
    in_value = ";" if is_recorded else ";="
    checked = ((_checked("key", key, ";="), _checked("value", value, in_value)) for key, value in pairs)
    return RecordedArgs(checked) if is_recorded else tuple(checked)


def _checked(kind: str, text: str, forbidden: str) -> str:
    name = f"CNI_ARGS {kind}"
    if kind == "key" or text != "":  # a value may be empty
        check_text(name, text)
    # The text has no escapes: a ";" in a value would begin a second pair, which the caller did not pass.
    if not is_environment_text(text) or any(char in forbidden for char in text):
        listed = " or ".join(f"'{char}'" for char in forbidden)
        raise InvalidIdentifierError(name, text, f"it must not contain {listed}, NUL or a lone surrogate")
    return text


def is_environment_text(text: str) -> bool:
    """Return whether an environment variable can hold ``text``."""
    try:
        # execve(2) ends a variable at NUL. fsencode refuses lone surrogates, except those that fsdecode makes.
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
