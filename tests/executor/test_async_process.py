"""AsyncProcessExecutor and the event loop. The tests of both executors are in the other files."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import is_running

from executor.plugins import BASE, invocation, number_in, script
from libcni.executor import CallOptions, loop_events
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.executor.process import AsyncPreparedProcess
from libcni.testing import wait_until


def test_cancelling_a_plugin_that_cannot_be_killed_does_not_block_the_loop(
    tmp_path: Path, unkillable: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 120")

    async def main() -> None:
        task = asyncio.create_task(AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE)))
        await asyncio.to_thread(number_in, tmp_path / "pid")
        task.cancel()
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert task.cancelled()
        assert ticks > 3, "one, if the loop is blocked"

    asyncio.run(main())
    unkillable.undo()
    os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)


def test_verbs_that_begin_and_plugins_that_have_ended_let_other_tasks_run() -> None:
    handled: list[str] = []
    passes: list[list[str]] = []

    async def main() -> None:
        events = loop_events.of_running_loop()

        def end(read_end: int) -> None:
            handled.append("end")
            events.remove_reader(read_end)
            os.close(read_end)

        async def begin() -> None:
            await loop_events.let_others_run()
            handled.append("begin")

        for _ in range(30):
            read_end, write_end = os.pipe()
            os.close(write_end)
            events.add_reader(read_end, partial(end, read_end))
        beginning = [asyncio.create_task(begin()) for _ in range(30)]
        while sum(map(len, passes)) < 60:
            await asyncio.sleep(0)
            passes.append(handled.copy())
            handled.clear()
        await asyncio.gather(*beginning)

    asyncio.run(main())
    assert max(map(len, passes)) <= 9
    assert all("end" in one for one in passes[1:-1]), "a plugin that has ended waits for all verbs that begin"


def test_a_coroutine_that_is_closed_with_its_loop_kills_the_plugin(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 120")
    loop = asyncio.new_event_loop()
    coroutine = AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE))
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.to_thread(number_in, tmp_path / "pid"))
    pid = number_in(tmp_path / "pid")
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    loop.close()
    coroutine.close()
    assert not Path(f"/proc/{pid}").exists(), "it is reaped, too"


def test_a_plugin_that_was_started_ahead_is_discarded_without_an_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is closed with the verb, or the system allows no epoll instance: the verb's own error is raised."""
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 120")

    def prepare() -> tuple[AsyncPreparedProcess, int]:
        prepared = AsyncProcessExecutor().prepare(invocation(path), CallOptions(10.0, BASE))
        assert prepared is not None
        pid = number_in(tmp_path / "pid")
        (tmp_path / "pid").unlink()
        return prepared, pid

    prepared, pid = prepare()
    with pytest.raises(StopIteration):
        prepared.discard().send(None)
    assert not Path(f"/proc/{pid}").exists()

    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    prepared, pid = prepare()
    monkeypatch.setattr(loop_events, "of_running_loop", refuse)
    asyncio.run(prepared.discard())
    assert not Path(f"/proc/{pid}").exists()


def test_a_loop_that_is_closed_with_calls_running_is_freed_with_them(tmp_path: Path) -> None:
    """Their verbs hold locks, which only their end releases."""
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 120")

    class Verb:
        pass

    async def run(verb: Verb) -> Verb:
        await AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE))
        return verb

    loop = asyncio.new_event_loop()
    verb = Verb()
    task = loop.create_task(run(verb))
    loop.run_until_complete(asyncio.to_thread(number_in, tmp_path / "pid"))
    pid, left = number_in(tmp_path / "pid"), weakref.ref(verb)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    del loop, verb, task
    # The thread that has started the plugin may not have ended: it holds the task.
    wait_until(lambda: gc.collect() >= 0 and left() is None)
    wait_until(lambda: not is_running(pid))


def test_several_loops_one_after_the_other_and_at_once(tmp_path: Path) -> None:
    path = script(tmp_path, "sleep 0.05; echo {}")

    async def run_two() -> None:
        calls = [AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE)) for _ in range(2)]
        assert [one.stdout for one in await asyncio.gather(*calls)] == [b"{}\n"] * 2

    for _ in range(2):
        threads = [threading.Thread(target=asyncio.run, args=[run_two()]) for _ in range(2)]
        for thread in threads:
            thread.start()
        asyncio.run(run_two())
        for thread in threads:
            thread.join()


def counting(function: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def count(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    return count


def test_calls_of_a_loop_share_one_reader_and_few_timers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, number = script(tmp_path, "sleep 0.02; echo {}"), 20
    readers: list[object] = []
    timers: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "add_reader", counting(loop.add_reader, readers))
        monkeypatch.setattr(loop, "call_later", counting(loop.call_later, timers))
        await asyncio.gather(
            *(AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE)) for _ in range(number))
        )

    started = time.monotonic()
    asyncio.run(main())
    assert len(readers) == 1
    # One for each 5 ms, and those of a moment in which no call waits for a time.
    assert len(timers) < (time.monotonic() - started) / 0.005 + number


def test_a_time_that_comes_before_the_others_is_kept(tmp_path: Path) -> None:
    called: list[str] = []

    async def main() -> None:
        events = loop_events.of_running_loop()
        now = time.monotonic()
        times = {"late": 30.0, "third": 0.06, "first": 0.02, "cancelled": 0.01, "second": 0.04, "last": 30.0}
        for name, seconds in times.items():
            events.call_at(now + seconds, name, partial(called.append, name))
        events.cancel("cancelled")
        async with asyncio.timeout(20):
            while len(called) < 3:  # noqa: ASYNC110 - the events' timer calls them
                await asyncio.sleep(0.01)
        events.cancel("late")
        events.cancel("last")

    asyncio.run(main())
    assert sorted(called) == ["first", "second", "third"]
