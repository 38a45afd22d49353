"""Read arguments: iterables once, policies together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TypeVar

from libcni.options import DelPolicy
from libcni.verbs.arguments import check_type

_T = TypeVar("_T")


def read_once(name: str, items: Iterable[_T]) -> tuple[_T, ...]:
    """Return the elements of an argument. Read every iterable with this once: a generator is empty the second time.

    Raises TypeError for a string: it is an iterable, for type checkers, too, and each character would be an element.
    """
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise TypeError(f"{name} must be a sequence, not {items!r}")
    return tuple(items)


def merge_policies(base: DelPolicy, policy: DelPolicy | None) -> DelPolicy:
    """Return ``base`` with the options that ``policy`` turns on."""
    if policy is None:
        return base
    check_type("policy", policy, DelPolicy)
    # Every option is off by default.
    return DelPolicy(
        **{field.name: getattr(policy, field.name) or getattr(base, field.name) for field in fields(DelPolicy)}
    )
