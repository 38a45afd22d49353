"""The gate: one thread inside at a time, and none that holds up the others for long."""

from __future__ import annotations

import os
import threading
import time

import pytest

from libcni.executor import gate
from libcni.executor.gate import Passage


@pytest.fixture(autouse=True)
def fresh_gate() -> None:
    gate._Gate.lock = threading.Lock()


def is_free() -> bool:
    return not gate._Gate.lock.locked()


@pytest.mark.parametrize(("patience", "seconds", "times"), [(5.0, 0.0002, 50), (0.3, 0.1, 1)])
def test_one_is_inside_at_a_time(monkeypatch: pytest.MonkeyPatch, patience: float, seconds: float, times: int) -> None:
    """Also where one has to wait longer than the patience, as long as others go in and out."""
    monkeypatch.setattr(gate, "_PATIENCE", patience)
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(times):
            with Passage():
                inside.append(1)
                most.append(len(inside))
                time.sleep(seconds)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert is_free()


def test_in_and_out_are_done_once() -> None:
    passage = Passage()
    passage.leave()
    passage.enter()
    passage.enter()
    assert not is_free()
    passage.leave()
    passage.leave()
    assert is_free()


def test_one_that_stays_inside_holds_up_the_others_once() -> None:
    stuck = Passage()
    stuck.enter()
    started = time.monotonic()
    for _ in range(20):
        with Passage():
            pass
    assert gate._PATIENCE <= time.monotonic() - started < 5 * gate._PATIENCE
    stuck.leave()
    assert is_free()


def test_an_exception_inside_leaves() -> None:
    with pytest.raises(KeyError), Passage():
        raise KeyError
    assert is_free()


def test_a_forked_child_finds_the_gate_free() -> None:
    with Passage():
        pid = os.fork()
        if not pid:
            os._exit(0 if is_free() else 1)
        assert os.waitpid(pid, 0)[1] == 0
