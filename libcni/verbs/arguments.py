"""Checks of the arguments that callers give to verbs."""

from __future__ import annotations

from types import FunctionType
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


def name_init(kind: type) -> None:
    """Give a class a copy of its base's ``__init__`` with the class's name, which Python shows in a TypeError."""
    init: Any = getattr(kind, "__init__")  # noqa: B009 - type checkers refuse the attribute
    own = FunctionType(init.__code__, init.__globals__, init.__name__, init.__defaults__, init.__closure__)
    own.__dict__.update(init.__dict__)
    own.__kwdefaults__, own.__annotations__, own.__doc__ = init.__kwdefaults__, init.__annotations__, init.__doc__
    own.__module__, own.__qualname__ = init.__module__, f"{kind.__qualname__}.__init__"
    setattr(kind, "__init__", own)  # noqa: B010 - type checkers refuse the assignment
