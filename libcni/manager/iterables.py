"""Read iterable arguments once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

_T = TypeVar("_T")


def read_once(name: str, items: Iterable[_T]) -> tuple[_T, ...]:
    """Return the elements of an argument. Read every iterable with this once: a generator is empty the second time.

    Raises TypeError for a string: a string is iterable, also for type checkers, and each character would be an element.
    """
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise TypeError(f"{name} must be an iterable of items, not {items!r}")
    return tuple(items)
