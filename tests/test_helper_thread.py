"""The thread that works for many verbs."""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import pytest
from processes import fork, wait

from libcni._helper_thread import HelperThread


def answer(helper: HelperThread) -> int:
    """Let the thread do a piece of work, and return the thread's number."""
    answers: SimpleQueue[int] = SimpleQueue()

    def work() -> bool:
        answers.put(threading.get_native_id())
        return True

    helper.do(work)
    return answers.get(timeout=10)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> set[int]:
    return set(map(int, os.listdir("/proc/self/task")))


def test_one_thread_works_and_ends_when_nothing_comes() -> None:
    helper = HelperThread()
    first = answer(helper)
    assert first != threading.get_native_id()
    assert answer(helper) == first
    wait_for(lambda: not helper.is_running and first not in threads())
    assert answer(helper) != first


def test_a_thread_that_is_not_fit_any_more_does_what_waits_and_ends() -> None:
    helper = HelperThread()
    done: list[int] = []

    def work(number: int) -> bool:
        time.sleep(0.05)
        done.append(number)
        return number > 0

    for number in range(3):
        helper.do(partial(work, number))
    wait_for(lambda: done == [0, 1, 2])
    wait_for(lambda: not helper.is_running)


def test_a_forked_child_has_a_thread_of_its_own() -> None:
    helper = HelperThread()
    answer(helper)
    assert wait(fork(lambda: answer(helper))) == 0


def test_a_fork_while_the_lock_is_held() -> None:
    helper = HelperThread()
    with helper._lock:
        child = fork(lambda: answer(helper))
    assert wait(child) == 0


def test_work_is_refused_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise RuntimeError("can't start new thread")

    helper = HelperThread()
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        with pytest.raises(RuntimeError):
            helper.do(lambda: os._exit(1))
    answer(helper)
