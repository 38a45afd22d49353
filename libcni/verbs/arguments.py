"""Checks of the arguments that callers give to verbs."""

from __future__ import annotations

from typing import Any, get_args

from libcni.errors import short_repr


def check_type(name: str, value: object, kind: type) -> None:
    """Raise TypeError if the argument ``name`` of a verb is not a ``kind``, instead of an AttributeError later."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, not {short_repr(value)}")


def check_word(name: str, value: object, words: Any) -> None:
    """Raise ValueError if the argument ``name`` is not in ``words``, a Literal."""
    known = get_args(words)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}")
