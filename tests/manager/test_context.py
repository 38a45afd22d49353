"""The limit on set-ups: first come, first served."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from libcni.manager.context import SetUpLimit


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("libcni.manager.context.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.mark.usefixtures("clock")
def test_a_free_place_goes_to_the_first_of_those_that_wait() -> None:
    limit = SetUpLimit(2)
    assert [limit.try_acquire(one) for one in "abcd"] == [True, True, False, False]
    limit.release("a")
    assert [limit.try_acquire(one) for one in "dcd"] == [False, True, False]
    limit.release("b")
    limit.release("c")
    assert [limit.try_acquire(one) for one in "efd"] == [True, False, True]


@pytest.mark.usefixtures("clock")
def test_who_gives_up_leaves_the_queue() -> None:
    limit = SetUpLimit(1)
    assert [limit.try_acquire(one) for one in "abc"] == [True, False, False]
    limit.release("b")
    limit.release("a")
    assert limit.try_acquire("c")


def test_who_no_longer_asks_does_not_keep_the_place_from_the_others(clock: list[float]) -> None:
    limit = SetUpLimit(1)
    assert [limit.try_acquire(one) for one in "abc"] == [True, False, False]
    limit.release("a")
    clock[0] = 0.4
    assert not limit.try_acquire("c")
    clock[0] = 0.6
    assert limit.try_acquire("c")
    limit.release("c")
    assert limit.try_acquire("b")
