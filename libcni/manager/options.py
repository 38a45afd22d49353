"""Read arguments: iterables once, policies together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TypeVar

from libcni.options import DelPolicy
from libcni.verbs.arguments import check_type

_T = TypeVar("_T")


def read_once(name: str, given: Iterable[_T]) -> tuple[_T, ...]:
    """Return the elements of an argument. Read every iterable with this once: a generator is empty the second time.

    Raises TypeError for a string: it is an iterable, for type checkers, too, and each character would be an element.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a sequence, not {given!r}")
    return tuple(given)


def merge_policies(base: DelPolicy, given: DelPolicy | None) -> DelPolicy:
    """Return ``base`` with the options that ``given`` turns on."""
    if given is None:
        return base
    check_type("policy", given, DelPolicy)
    # Every option is off by default.
    return DelPolicy(**{one.name: getattr(given, one.name) or getattr(base, one.name) for one in fields(DelPolicy)})
