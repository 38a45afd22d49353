"""Words for a number of things, in findings and on the command line."""

from __future__ import annotations

from collections.abc import Sequence


def some(texts: Sequence[str], separator: str = ", ", most: int = 3) -> str:
    """Return the first texts, and the number of the others."""
    more = f"{separator}and {len(texts) - most} more" if len(texts) > most else ""
    return f"{separator.join(texts[:most])}{more}"


def counted(number: int, noun: str) -> str:
    """Return ``1 record`` or ``2,000 records``."""
    ending = "" if number == 1 else "es" if noun.endswith("ss") else "s"
    return f"{number:,} {noun}{ending}"
