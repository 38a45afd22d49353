"""The moments of a verb: before each of its calls of the system, and inside each of its writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from libcni.kernel import system

CHANGES = ("fsync", "ftruncate", "link", "mkdir", "pwrite", "rename", "unlink", "write")
"""The calls that change the disk."""
CALLS = tuple(
    name for name in ("close", "fcntl", "fstat", "open", "read", "scandir", "stat", *CHANGES) if hasattr(system, name)
)


@contextmanager
def moments(act: Callable[[int], object], names: tuple[str, ...] = CALLS) -> Iterator[None]:
    """Call ``act`` with the number of each moment, from 1 on, in this program."""
    count = 0

    def moment() -> None:
        nonlocal count
        count += 1
        act(count)

    def at(name: str) -> Callable[..., Any]:
        real = getattr(system, name)

        def call(*args: Any, **options: Any) -> Any:
            moment()
            if name not in {"pwrite", "write"} or len(args[1]) == 1:
                return real(*args, **options)
            descriptor, data, *index = args
            half = len(data) // 2
            real(descriptor, data[:half], *index)
            moment()
            return half + real(descriptor, data[half:], *(one + half for one in index))

        return call

    replaced: dict[str, Any] = {name: at(name) for name in names if hasattr(system, name)}
    with patch.multiple(system, **replaced):
        yield


def count_moments(work: Callable[[], object], names: tuple[str, ...] = CALLS) -> int:
    """Return how many moments a work has."""
    last = 0

    def note(number: int) -> None:
        nonlocal last
        last = number

    with moments(note, names):
        work()
    return last


def spread(count: int, number: int) -> list[int]:
    """Return so many moments of a work, or all, evenly spread."""
    return sorted({1 + one * (count - 1) // max(1, number - 1) for one in range(min(count, number))})
