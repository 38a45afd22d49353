"""One thread at a time runs the code of verbs, and nothing relies on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers import RT
from nodes import FakeNode
from processes import fork, wait

from libcni import CNIConfig, RuntimeConf
from libcni.executor import CallOptions, ProcessExecutor, baton
from libcni.executor.baton import Holding, Waiting
from libcni.observe import Observer
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.records import RecordStore


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(baton, "_lock", threading.Lock())
    yield
    assert not baton._lock.locked()


def has_baton() -> bool:
    return baton._mine.held is not None


def in_thread(work: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(timeout=60)


def test_a_thread_waits_until_the_other_one_waits() -> None:
    inside, go_on, order = threading.Event(), threading.Event(), []

    def other() -> None:
        with Holding():
            inside.set()
            with Holding():  # reentrant
                pass
            time.sleep(0.1)
            order.append("first")
            with Waiting() as had:
                assert had
                go_on.wait(60)
            order.append("third")

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(other)
        inside.wait(60)
        with Holding():
            order.append("second")
            go_on.set()
            time.sleep(0.1)
            order.append("still second")
        ended.result(60)
    assert order == ["first", "second", "still second", "third"]


def test_a_lost_baton_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception of a signal handler between two lines can lose it."""
    monkeypatch.setattr(baton, "_LONGEST_WAIT", 0.2)
    baton._lock.acquire()
    with Holding():
        assert not has_baton()
    monkeypatch.setattr(baton, "_LONGEST_WAIT", 60)
    with Holding():
        assert has_baton()


def test_an_exception_releases_it() -> None:
    with pytest.raises(KeyboardInterrupt), Holding():
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), Holding(), Waiting():
        raise KeyboardInterrupt
    assert not baton._lock.locked()


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baton, "_LONGEST_WAIT", 60)
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with Holding():
            held.set()
            end.wait(60)

    def child() -> None:
        with Holding():
            assert has_baton()

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        held.wait(60)
        assert wait(fork(child), 20) == 0
        end.set()
        holding.result(60)


def test_a_verb_has_it_and_foreign_code_has_not(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Foreign code may wait for a verb of another thread."""
    seen: dict[str, set[bool]] = {}
    begin = RecordStore.begin

    def note(where: str) -> None:
        seen.setdefault(where, set()).add(has_baton())

    class Noting(Observer):
        def begin(self, *_: Any) -> None:
            note("observer")

        before_call = after_call = end = after_wait = begin  # type: ignore[assignment]

    def noted_begin(*args: Any, **options: Any) -> Any:
        note("verb")
        return begin(*args, **options)

    monkeypatch.setattr(RecordStore, "begin", noted_begin)
    node.plugin("a", "echo text >&2")
    cni = node.client(observer=Noting(), stderr=lambda *_: note("stderr"), durable=False)
    cni.add_network_list(node.network("a"), RT)
    cni.gc_network_list(node.network("a"), [])
    assert seen == {"verb": {True}, "observer": {False}, "stderr": {False}}


def test_verbs_of_an_executor_that_waits_for_another_thread(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baton, "_LONGEST_WAIT", 60)
    net, inner = node.network("a"), node.client()

    class Waits(ProcessExecutor):
        def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            assert not has_baton()
            name = f"{invocation.container_id}-inner"
            in_thread(lambda: inner.add_network_list(net, RuntimeConf(name, None, "eth0")))
            return super().execute(invocation, options)

    started = time.monotonic()
    CNIConfig([node.bin], node.cache, executor=Waits()).add_network_list(net, RT)
    assert time.monotonic() - started < 60
    assert len(node.verbs()) == 2
