"""How many verbs of a client run at once, in which order, and what a verb does that waits."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from helpers import network
from nodes import FakeNode
from processes import fork, wait

import libcni.verbs.turns
from libcni import AsyncCNIConfig, CNIConfig, LockTimeoutError, PluginError, RuntimeConf
from libcni.kernel import system
from libcni.protocol.invocation import Invocation
from libcni.testing import RecordingExecutor, wait_until
from libcni.verbs.turns import Turn, Turns, _Usage, verbs_at_once


def rt(number: int) -> RuntimeConf:
    return RuntimeConf(f"c{number}", None, "eth0")


def entered(limit: Turns, *containers: str) -> list[Turn]:
    turns = [Turn(limit, container_id) for container_id in containers]
    for turn in turns:
        limit.enter(turn)
    return turns


def test_verbs_run_in_the_order_of_their_calls() -> None:
    limit = Turns(2)
    turns = entered(limit, "c1", "c2", "c3", "c4")
    assert [turn.has_come for turn in turns] == [True, True, False, False]
    limit.leave(turns[1])
    assert [turn.has_come for turn in turns[2:]] == [True, False]
    limit.leave(turns[2])
    assert turns[3].has_come


def test_a_verb_that_waits_for_its_container_lets_others_pass() -> None:
    limit = Turns(2)
    first, second, third, other = entered(limit, "c1", "c1", "c1", "c2")
    assert [turn.has_come for turn in (first, second, third, other)] == [True, False, False, True]
    limit.leave(first)
    assert (second.has_come, third.has_come) == (True, False)
    limit.leave(third)
    limit.leave(second)
    assert all(turn.has_come for turn in entered(limit, "c1")), "who gave up holds nobody up"


@pytest.mark.parametrize(("cores", "most"), [(1, 1), (2, 1), (4, 3)])
def test_plugins_start_ahead_while_fewer_operations_run_than_there_are_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, most: int
) -> None:
    """An operation that runs alone may always start them: with one core, too, it waits for the disk now and then."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    limit = Turns(9)
    running = entered(limit, *map(str, range(most)))
    assert limit.has_idle_cores()
    running += entered(limit, "c")
    assert not limit.has_idle_cores()
    limit.leave(running.pop())
    assert limit.has_idle_cores()


def test_operations_that_need_the_processor_begin_when_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all of them end late, and with a timeout none is complete."""
    used = count(0, 1000)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(libcni.verbs.turns, "_PACE_SECONDS", 0.01)
    monkeypatch.setattr(libcni.verbs.turns, "_processor_seconds", lambda: float(next(used)))
    monkeypatch.setattr(libcni.verbs.turns, "_idle_seconds", system.monotonic)  # other cores of the machine are idle
    turns = Turns(10)
    every = entered(turns, *(f"c{number}" for number in range(12)))
    assert [turn.has_come for turn in every] == [True] * 8 + [False] * 4
    wait_until(lambda: next(used) > 9000)
    assert not every[8].has_come
    turns.leave(every[0])
    assert [turn.has_come for turn in every[8:]] == [True, False, False, False], "who ends makes room at once"


@pytest.mark.parametrize("used", [0.0, 0.6])
def test_operations_that_mostly_wait_let_others_begin(monkeypatch: pytest.MonkeyPatch, used: float) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(libcni.verbs.turns, "_PACE_SECONDS", 0.01)
    monkeypatch.setattr(libcni.verbs.turns, "_processor_seconds", lambda: used * system.monotonic())
    monkeypatch.setattr(libcni.verbs.turns, "_idle_seconds", lambda: 0.0)  # other programs keep the machine busy
    turns = Turns(30)
    every = entered(turns, *(f"c{number}" for number in range(31)))
    assert [turn.has_come for turn in every] == [True] * 8 + [False] * 23
    wait_until(lambda: every[29].has_come)
    assert not every[30].has_come, "there are thirty turns"
    turns.leave(every[1])
    assert every[30].has_come


def test_idle_cores_let_others_begin_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three quarters of the processor's time are used, which is too much for the longer look."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(libcni.verbs.turns, "_PACE_SECONDS", 3600.0)
    monkeypatch.setattr(libcni.verbs.turns, "_processor_seconds", lambda: 0.75 * system.monotonic())
    idle = [0.0]
    monkeypatch.setattr(
        libcni.verbs.turns, "_idle_seconds", lambda: idle[0] * system.monotonic() * (os.cpu_count() or 1)
    )
    turns = Turns(30)
    every = entered(turns, *(f"c{number}" for number in range(30)))
    assert [turn.has_come for turn in every] == [True] * 8 + [False] * 22
    first = turns._timer
    wait_until(lambda: turns._timer is not first)
    assert not every[8].has_come, "no core was idle"
    idle[0] = 0.5
    wait_until(lambda: every[29].has_come)


def test_after_a_busy_time_fewer_operations_begin_and_not_as_few_as_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(libcni.verbs.turns, "_IDLE_SECONDS", 3600.0)  # the test looks itself
    turns = Turns(100)
    every = entered(turns, *(f"c{number}" for number in range(60)))
    waits = _Usage(0.0, 0.0, 0.0)
    for at, used, running in ((1.0, 0.0, 16), (2.0, 0.0, 24), (3.0, 1.0, 24)):
        monkeypatch.setattr(_Usage, "now", lambda at=at, used=used: _Usage(at, used, 0.0))
        turns._look_again(waits._replace(at=at - 1), waits._replace(at=at - 1))
        assert sum(turn.has_come for turn in every) == running
    assert turns._extra == 12


def test_verbs_without_a_container_count() -> None:
    limit = Turns(2)
    assert [turn.has_come for turn in entered(limit, "", "", "")] == [True, True, False]


def test_an_operation_whose_turn_came_after_its_wait_had_failed_does_not_name_itself() -> None:
    turns = Turns(1)
    first, second, third = entered(turns, "c1", "c2", "c1")
    assert str(turns.timeout(third, 1.0)).startswith("container c1: ")
    turns.leave(first)
    assert second.has_come
    assert turns.timeout(second, 1.0).what == "max_verbs"
    turns.leave(second)
    assert third.has_come
    assert turns.timeout(third, 1.0).what == "max_verbs", "no operation of its container ran"


def test_a_turn_that_is_forgotten_ends() -> None:
    """An exception of a signal handler can come between the end of a verb and the release of its turn."""
    limit = Turns(1)
    turns = entered(limit, "c1", "c2")
    waiting = turns[1]
    del turns
    gc.collect()
    assert waiting.has_come
    limit.leave(waiting)
    limit.leave(waiting)
    assert entered(limit, "c1")[0].has_come


def test_a_waiter_whose_event_loop_was_closed_is_passed_over() -> None:
    limit = Turns(1)
    first, closed, last = entered(limit, "c1", "c2", "c3")

    def wake() -> None:
        raise RuntimeError("Event loop is closed")

    limit.call_when_it_comes(closed, wake)
    limit.leave(first)
    assert (closed.has_come, last.has_come) == (False, True)


def test_a_forked_child_begins_anew() -> None:
    limit = Turns(1)
    turns = entered(limit, "c1", "c2")

    def child() -> None:
        assert entered(limit, "c1")[0].has_come

    assert wait(fork(child)) == 0
    assert [turn.has_come for turn in turns] == [True, False]


@pytest.mark.parametrize(
    ("soft", "verbs"), [(1024, 120), (256, 24), (64, 1), (-1, 128)], ids=["1024", "256", "64", "no limit"]
)
def test_few_open_files_allow_fewer_verbs(soft: int, verbs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, soft))
    assert verbs_at_once(128) == verbs
    assert verbs_at_once(1) == 1


@pytest.mark.parametrize(("value", "kind"), [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError)])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, value: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="max_verbs"):
        CNIConfig([], tmp_path, max_verbs=value)


def test_many_verbs_need_no_more_descriptors_than_are_allowed(node: FakeNode) -> None:
    node.plugin("p", "sleep 0.1")
    net = node.network("p")

    async def main() -> None:
        cni = AsyncCNIConfig([node.bin], node.cache)
        await asyncio.gather(*(cni.add_network_list(net, rt(number)) for number in range(60)))

    def work() -> None:
        os.closerange(3, 4096)
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        asyncio.run(main())

    assert wait(fork(work)) == 0


class Gate:
    """A plugin of an executor that waits until it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.go = threading.Event()

    def __call__(self, invocation: Invocation) -> None:
        self.begun.append(invocation.container_id)
        self.go.wait(20)


def blocked(tmp_path: Path, work: Callable[[CNIConfig], object]) -> list[str]:
    """Call ``work`` with a client whose one place is taken by an ADD of c0; return the containers in their order."""
    gate = Gate()
    cni = CNIConfig(["/bin"], tmp_path, executor=RecordingExecutor({("p", "ADD"): gate}), max_verbs=1, durable=False)
    holder = threading.Thread(target=cni.add_network_list, args=(network("p"), rt(0)))
    holder.start()
    wait_until(lambda: gate.begun == ["c0"])
    try:
        work(cni)
    finally:
        gate.go.set()
        holder.join()
    return gate.begun


def test_threads_get_their_turn_in_the_order_of_their_calls(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    def queue(cni: CNIConfig) -> None:
        for number in range(1, 6):
            threads.append(threading.Thread(target=cni.add_network_list, args=(network("p"), rt(number))))
            threads[-1].start()
            wait_until(lambda: len(cni._state.turns._waiting) == len(threads))

    blocked(tmp_path, queue)
    for thread in threads:
        thread.join()
    assert [one.container_id for one in CNIConfig([], tmp_path).get_cached_attachments()] == [f"c{n}" for n in range(6)]


def test_a_verb_whose_turn_does_not_come_is_not_run_nor_on_record(tmp_path: Path) -> None:
    def give_up(cni: CNIConfig) -> None:
        with pytest.raises(LockTimeoutError, match=r"of running operations \(max_verbs=1\) was reached") as caught:
            cni.add_network_list(network("p"), rt(1), timeout=0.1)
        assert caught.value.seconds == 0.1
        with pytest.raises(LockTimeoutError, match=r"container c0: another operation of this client"):
            cni.del_network_list(network("p"), rt(0), timeout=0.1)
        assert [one.container_id for one in cni.get_cached_attachments()] == ["c0"]

    assert blocked(tmp_path, give_up) == ["c0"]


def test_a_roll_back_keeps_the_turn_of_its_verb(node: FakeNode) -> None:
    node.plugin("bad", "[ $CNI_COMMAND = DEL ] || exit 1; sleep 0.2")
    node.plugin("good")
    cni = node.async_client(max_verbs=1)

    async def main() -> None:
        failing = asyncio.create_task(cni.add_network_list(node.network("bad"), rt(1)))
        await asyncio.sleep(0)
        await cni.add_network_list(node.network("good", name="other"), rt(2))
        with pytest.raises(PluginError):
            await failing

    asyncio.run(main())
    assert node.verbs() == ["ADD bad", "DEL bad", "ADD good"]


def test_a_cancelled_waiter_gives_up_its_turn(node: FakeNode) -> None:
    node.plugin("p", "sleep 0.2")
    cni, net = node.async_client(max_verbs=1), node.network("p")

    async def main() -> None:
        first, second, third = (asyncio.create_task(cni.add_network_list(net, rt(number))) for number in range(3))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.gather(first, third)
        assert second.cancelled()

    asyncio.run(asyncio.wait_for(main(), 20))
    assert [one.container_id for one in cni.get_cached_attachments()] == ["c0", "c2"]


def test_many_verbs_that_begin_at_once_let_other_tasks_run(tmp_path: Path) -> None:
    executor, most = RecordingExecutor(), 0
    cni = AsyncCNIConfig("/opt/cni/bin", tmp_path, executor=executor.on_asyncio, durable=False)

    async def main() -> None:
        nonlocal most
        tasks = [asyncio.create_task(cni.add_network_list(network("a"), rt(number))) for number in range(50)]
        while not all(task.done() for task in tasks):
            before = len(executor.calls)
            await asyncio.sleep(0)
            most = max(most, len(executor.calls) - before)

    asyncio.run(main())
    assert [call.invocation.container_id for call in executor.calls] == [f"c{number}" for number in range(50)]
    assert most == 8
