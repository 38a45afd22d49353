"""Records and locks in a directory of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from libcni.store.locks import LockRequest, LockSet
from libcni.store.records import RecordStore


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    return RecordStore(str(tmp_path / "cache"))


Make = Callable[..., LockSet]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Make]:
    """Make holds in one cache directory; all are closed at the end."""
    made: list[LockSet] = []

    def make(
        *networks: str, container: str = "", exclusive: bool = False, token: str = "", every: bool = False
    ) -> LockSet:
        request = LockRequest(networks, container, exclusive=exclusive, all_containers=every)
        made.append(LockSet(str(tmp_path), request, token))
        return made[-1]

    yield make
    for one in made:
        one.close()
