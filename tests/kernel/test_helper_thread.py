"""The thread that works for many verbs."""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest
from processes import fork, wait

from libcni.kernel.helper_thread import HelperThread


def answer(helper: HelperThread) -> int:
    """Let the thread do a piece of work, and return the thread's number."""
    answers: SimpleQueue[int] = SimpleQueue()

    helper.do(lambda: answers.put(threading.get_native_id()))
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
    wait_for(lambda: first not in threads())
    assert answer(helper) != first


def test_work_that_comes_while_the_thread_ends_keeps_it() -> None:
    class Announced:
        """A lock that tells who asks for it."""

        def __init__(self) -> None:
            self.lock, self.is_asked = threading.Lock(), threading.Event()

        def __enter__(self) -> None:
            self.is_asked.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    helper, may_be_idle = HelperThread(), threading.Event()
    first = answer(helper)
    helper._lock = gate = Announced()  # type: ignore[assignment]
    helper.do(lambda: may_be_idle.wait(10))  # the thread must not end before its lock is held
    done: SimpleQueue[int] = SimpleQueue()
    begins, may_end = threading.Event(), threading.Event()

    def work() -> None:
        begins.set()
        may_end.wait(10)
        done.put(threading.get_native_id())

    with gate.lock:
        gate.is_asked.clear()
        may_be_idle.set()
        assert gate.is_asked.wait(10)  # it was idle, and waits for the lock
        assert helper._queue is not None
        helper._queue.put(work)
    assert begins.wait(10)
    helper.do(lambda: done.put(threading.get_native_id()))
    may_end.set()
    assert [done.get(timeout=10), done.get(timeout=10)] == [first, first]


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
