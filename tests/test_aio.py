"""AsyncCNIConfig: the same verbs, cancellation, order, bounds and batches, with real processes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Coroutine, Sequence
from itertools import pairwise
from typing import Any

import pytest
from helpers import RT, network
from nodes import FakeNode
from processes import is_running

import libcni
from libcni import AsyncCNIConfig, NetworkConfigList, RuntimeConf
from libcni.executor import CallOptions
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.protocol.invocation import Invocation, Outcome
from libcni.testing import RecordingExecutor
from libcni.verbs.reports import OnCancel


@pytest.fixture
def cni(node: FakeNode) -> AsyncCNIConfig:
    return node.async_client(durable=True)


def network_of(node: FakeNode, body: str = "", name: str = "p") -> NetworkConfigList:
    """Write a plugin and return the network that consists of it."""
    node.plugin(name, body)
    return node.network(name, name=f"net-{name}")


def rt(container: str = "c1") -> RuntimeConf:
    return RuntimeConf(container, "/run/netns/none", "eth0")


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 20))


def test_a_container_is_attached_checked_and_detached(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node)

    async def main() -> None:
        result = await cni.add_network_list(net, rt())
        assert result.cni_version == "1.0.0"
        assert [one.state for one in cni.get_cached_attachments("c1")] == ["ready"]
        await cni.check_network_list(net, rt())
        with pytest.raises(libcni.AttachmentExistsError):
            await cni.add_network_list(net, rt())
        await cni.del_network_list(net, rt())
        with pytest.raises(libcni.NotAttachedError):
            await cni.check_network_list(net, rt())

    run(main())
    assert node.verbs() == ["ADD p", "CHECK p", "DEL p"]


def test_every_verb_of_the_blocking_client_is_there() -> None:
    blocking = {name for name in vars(libcni.CNIConfig) if not name.startswith("_")}
    missing = blocking - {name for name in vars(AsyncCNIConfig) if not name.startswith("_")}
    assert missing == set()
    assert all(asyncio.iscoroutinefunction(getattr(AsyncCNIConfig, name)) for name in blocking)


def test_the_other_verbs_answer_as_the_blocking_ones(cni: AsyncCNIConfig, node: FakeNode) -> None:
    node.plugin("p", versions=["1.0.0"])
    net = node.network("p")

    async def main() -> None:
        assert (await cni.get_version_info("p")).supported_versions == ("1.0.0",)
        assert (await cni.validate_network_list(net)).problems == ()
        assert (await cni.negotiate_version(net)).cni_version == "1.0.0"
        assert (await cni.network_status(net)).ready
        assert [one.state for one in (await cni.status_network_list(net)).plugins] == ["unsupported"]
        await cni.add_network_list(net, rt())
        report = await cni.gc_network_list(net, [], dry_run=True)
        assert [one.container_id for one in report.stale] == ["c1"]
        (attachment,) = cni.get_cached_attachments()
        assert (await cni.del_attachment(attachment)).record == "found"
        single = libcni.PluginConfig.from_dict({"type": "p", "name": "single", "cniVersion": "1.0.0"})
        assert (await cni.validate_network(single)).problems == ()
        await cni.add_network(single, rt())
        await cni.check_network(single, rt())
        await cni.del_network(single, rt())

    run(main())


def test_cancelling_kills_the_plugin_and_leaves_the_record_pending(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, f"echo $$ > {node.root}/pid; trap '' TERM; sleep 30; sleep 30")
    number = node.root / "pid"

    async def main() -> None:
        task = asyncio.create_task(cni.add_network_list(net, rt()))
        while not number.exists() or not number.read_text():  # noqa: ASYNC110 - a process writes it
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = time.monotonic()
    run(main())
    assert time.monotonic() - started < 5
    assert not is_running(int(number.read_text()))
    assert node.verbs() == ["ADD p"]
    assert [one.state for one in cni.get_cached_attachments()] == ["pending"]
    network_of(node)
    run(cni.del_network_list(net, rt()))
    assert cni.get_cached_attachments() == []


def test_a_task_group_that_fails_cancels_its_verbs(cni: AsyncCNIConfig, node: FakeNode) -> None:
    slow = network_of(node, "sleep 30")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(cni.add_network_list(slow, rt()))
            group.create_task(fail_soon())

    async def fail_soon() -> None:
        await asyncio.sleep(0.1)
        raise ValueError

    started = time.monotonic()
    with pytest.raises(ExceptionGroup):
        run(main())
    assert time.monotonic() - started < 5


def test_a_timeout_is_its_own_error_and_rolled_back(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, 'test "$CNI_COMMAND" != ADD || sleep 30')
    with pytest.raises(libcni.PluginTimeoutError):
        run(cni.add_network_list(net, rt(), timeout=0.3))
    assert node.verbs()[-1] == "DEL p"  # on a busy machine the plugin may be stopped before it has noted its ADD
    assert cni.get_cached_attachments() == []


def test_a_plugin_that_prints_more_than_a_pipe_holds_is_read_as_it_goes(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, 'test "$CNI_COMMAND" = DEL || printf \'{"cniVersion":"1.0.0","x":"%0300000d"}\' 0; exit 0')
    result = run(cni.add_network_list(net, rt()))
    assert len(result.to_dict()["x"]) == 300000


def test_a_plugin_that_prints_without_end_is_stopped(node: FakeNode) -> None:
    executor = AsyncProcessExecutor(output_limit=100_000)
    cni = node.async_client(executor=executor)
    with pytest.raises(libcni.InvalidOutputError, match="more than 100000 bytes"):
        run(cni.add_network_list(network_of(node, 'test "$CNI_COMMAND" = ADD && yes; exit 0'), rt()))


def test_a_grandchild_that_holds_stdout_delays_nothing(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, "sleep 5 &")
    started = time.monotonic()
    run(cni.add_network_list(net, rt()))
    assert time.monotonic() - started < 2


def test_verbs_of_one_container_run_in_the_order_of_their_calls(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, "sleep 0.05")

    async def main() -> None:
        verbs: list[Any] = [cni.add_network_list, cni.check_network_list, cni.del_network_list] * 2
        await asyncio.gather(*(verb(net, rt()) for verb in verbs))

    run(main())
    assert [line.split()[0] for line in node.verbs()] == ["ADD", "CHECK", "DEL"] * 2


def test_waiting_for_ones_turn_ends_with_the_verbs_own_time(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, "sleep 1")

    async def main() -> None:
        first = asyncio.create_task(cni.add_network_list(net, rt()))
        await asyncio.sleep(0.05)
        with pytest.raises(libcni.LockTimeoutError, match="container c1"):
            await cni.add_network_list(net, rt(), timeout=0.1)
        await first

    run(main())


def test_waiting_behind_one_that_wakes_up_ends_with_the_verbs_own_time_too(cni: AsyncCNIConfig, node: FakeNode) -> None:
    """The first task calls again at once, when the second one's turn has come and it has not run yet."""
    net = network_of(node, 'test "$CNI_IFNAME" != slow0 || sleep 2')

    async def again() -> float:
        await cni.add_network_list(net, rt())
        started = time.monotonic()
        with pytest.raises(libcni.LockTimeoutError):
            await cni.del_network_list(net, rt(), timeout=0.2)
        return time.monotonic() - started

    async def main() -> None:
        slow = RuntimeConf("c1", "/run/netns/none", "slow0")
        seconds, _ = await asyncio.gather(again(), cni.add_network_list(net, slow))
        assert seconds < 1.5

    run(main())


def test_containers_run_in_parallel_up_to_the_bound(node: FakeNode) -> None:
    def add_four(bound: int, body: str) -> None:
        net = network_of(node, body)
        executor = AsyncProcessExecutor(max_processes=bound)
        cni = node.async_client(cache_dir=node.root / f"cache{bound}", executor=executor)
        assert run(cni.add_many([(net, rt(f"c{index}")) for index in range(4)])).errors == ()

    (node.root / "begun").mkdir()
    add_four(1, f"mkdir {node.root}/alone || exit 1; sleep 0.1; rmdir {node.root}/alone")
    add_four(
        4,
        f"cd {node.root}/begun; : > $CNI_CONTAINERID; until [ -e c0 -a -e c1 -a -e c2 -a -e c3 ]; do sleep 0.01; done",
    )


@pytest.mark.parametrize(("limit", "processes"), [(1024, 168), (64, 8), (20, 1), (1 << 20, 1024), (2, 1)])
def test_the_limit_of_open_files_bounds_the_plugins(
    limit: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    assert AsyncProcessExecutor().max_processes == processes
    assert AsyncProcessExecutor(max_processes=7).max_processes == 7


def test_many_verbs_need_no_more_descriptors_than_are_allowed(node: FakeNode) -> None:
    text = network_of(node, "sleep 0.1").raw
    code = f"""
import asyncio, resource, libcni
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
net = libcni.NetworkConfigList.from_bytes({text!r})
async def main():
    cni = libcni.AsyncCNIConfig([{str(node.bin)!r}], {str(node.cache)!r})
    batch = await cni.add_many([(net, libcni.RuntimeConf(f"c{{i}}", "/none", "eth0")) for i in range(60)], parallel=60)
    batch.raise_errors()
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.unmeasured
def test_a_thousand_verbs_run_at_once(node: FakeNode) -> None:
    """Each waits until all of them run; with a bound below their number none would end."""
    net = network_of(node)
    running: set[str] = set()
    everyone = asyncio.Event()

    class Waiting:
        def find(self, plugin: str, path: Sequence[str]) -> str:
            return f"{path[0]}/{plugin}"

        async def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            running.add(invocation.container_id)
            if options.on_started is not None:
                options.on_started()
            if len(running) == 1000:
                everyone.set()
            await everyone.wait()
            return Outcome(stdout=b'{"cniVersion":"1.0.0"}')

    cni = node.async_client(executor=Waiting())
    batch = run(cni.add_many([(net, rt(f"c{index}")) for index in range(1000)], parallel=1000))
    assert batch.errors == ()
    assert len(running) == 1000


def test_a_place_that_does_not_come_free_in_time_is_a_timeout(node: FakeNode) -> None:
    executor = AsyncProcessExecutor(max_processes=1)
    cni = node.async_client(executor=executor)
    runs, may_end = node.root / "runs", node.root / "may-end"
    net = network_of(node, f"touch {runs}; while [ ! -e {may_end} ]; do sleep 0.01; done")

    async def main() -> None:
        first = asyncio.create_task(cni.add_network_list(net, rt()))
        while not runs.exists():  # noqa: ASYNC110 - a process makes it
            await asyncio.sleep(0.01)
        with pytest.raises(libcni.PluginTimeoutError, match="was not run"):
            await cni.add_network_list(net, rt("c2"), timeout=0.1, rollback=False)
        may_end.touch()
        await first

    run(main())


def test_a_batch_keeps_its_order_and_groups_its_errors(cni: AsyncCNIConfig, node: FakeNode) -> None:
    good = network_of(node, name="good")
    bad = network_of(node, 'test "$CNI_COMMAND" = DEL || { echo \'{"code":7,"msg":"no"}\'; exit 1; }', "bad")
    requests = [(bad if index % 3 == 0 else good, rt(f"c{index}")) for index in range(9)]
    seen: list[int] = []
    batch = run(cni.add_many(requests, parallel=4, on_item=lambda item: seen.append(item.index)))
    assert [item.index for item in batch.items] == list(range(9))
    assert sorted(seen) == list(range(9))
    assert [answer is None for answer in batch.answers] == [True, False, False] * 3
    with pytest.raises(libcni.CNIErrorGroup, match="3 of 9 failed") as caught:
        batch.raise_errors()
    assert {error.code for error in caught.value.exceptions if isinstance(error, libcni.PluginError)} == {7}
    done = run(cni.del_many([request for request in requests if request[0] is good]))
    done.raise_errors()
    assert cni.get_cached_attachments() == []


@pytest.mark.parametrize("parallel", [0, -1])
def test_a_batch_that_would_do_nothing_is_refused(cni: AsyncCNIConfig, node: FakeNode, parallel: int) -> None:
    net = network_of(node)
    with pytest.raises(ValueError, match="parallel"):
        run(cni.add_many([(net, rt())], parallel=parallel))


@pytest.mark.parametrize("count", [0, 1])
def test_a_misspelt_option_is_refused_before_anything_runs(cni: AsyncCNIConfig, node: FakeNode, count: int) -> None:
    requests = [(network_of(node), rt())] * count
    # mypy --strict, which checks the tests, reports each ignore that is not needed: so it sees these mistakes, too.
    with pytest.raises(TypeError, match="unknown option 'rollbck'; the options of add_network_list are allow_own"):
        run(cni.add_many(requests, rollbck=False))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unknown option 'polcy'; the options of del_network_list are policy, timeout"):
        run(cni.del_many(requests, polcy=None))  # type: ignore[call-arg]
    assert cni.get_cached_attachments() == []


def test_leaving_a_batch_early_cancels_the_rest(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node, 'test "$CNI_CONTAINERID" = c0 || sleep 30')

    async def main() -> None:
        items = cni.add_each([(net, rt(f"c{index}")) for index in range(3)])
        async for item in items:
            assert item.index == 0
            break
        await items.aclose()

    started = time.monotonic()
    run(main())
    assert time.monotonic() - started < 5


def test_one_client_serves_several_loops(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node)
    for _ in range(2):
        requests = [(net, rt(f"c{index}")) for index in range(3)]
        run(cni.add_many(requests)).raise_errors()
        run(cni.del_many(requests)).raise_errors()


def test_a_loop_that_is_closed_while_verbs_wait_keeps_none_from_the_next(node: FakeNode) -> None:
    class Sleeper(AsyncProcessExecutor):
        async def execute(self, _invocation: Invocation, _limits: CallOptions) -> Outcome:
            await asyncio.sleep(0.2)
            return Outcome(0, b"{}")

    cni = node.async_client(executor=Sleeper(), timeout=None)
    net = network_of(node)

    def two(*ifnames: str) -> list[Coroutine[Any, Any, Any]]:
        return [cni.add_network_list(net, RuntimeConf("c1", "/run/netns/none", ifname)) for ifname in ifnames]

    async def main() -> None:
        await asyncio.gather(*two("eth2", "eth3"))

    abandoned = two("eth0", "eth1")
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(coroutine) for coroutine in abandoned]
    loop.run_until_complete(asyncio.sleep(0.05))
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    del tasks, task
    with pytest.raises(RuntimeError, match="closed"):  # it lets its locks go, and the other one waits for ever
        abandoned[0].close()
    run(main())
    assert len(cni.get_cached_attachments()) == 3


def test_nothing_is_left_open(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node)
    run(cni.add_many([(net, rt("warm"))]))
    before = len(os.listdir("/proc/self/fd"))
    requests = [(net, rt(f"c{index}")) for index in range(20)]
    run(cni.add_many(requests)).raise_errors()
    run(cni.del_many(requests)).raise_errors()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_durable_record_is_not_written_on_the_loop(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    import threading

    def fsync(_descriptor: int) -> None:
        threads.append(threading.current_thread() is threading.main_thread())

    monkeypatch.setattr(os, "fsync", fsync)
    cni = node.async_client(durable=True)
    run(cni.add_network_list(network_of(node), rt()))
    count = len(threads)
    assert count > 0
    assert not any(threads)
    cni = node.async_client(cache_dir=node.root / "cache2")
    run(cni.add_network_list(network_of(node), rt()))
    assert len(threads) == count


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
def test_a_cancelled_add_is_rolled_back_if_that_is_wanted(node: FakeNode, on_cancel: OnCancel) -> None:
    node.plugin("slow", "[ $CNI_COMMAND != ADD ] || sleep 60")
    cni = node.async_client()

    async def cancel() -> None:
        task = asyncio.create_task(cni.add_network_list(network("slow"), RT, on_cancel=on_cancel))
        while not node.verbs():  # noqa: ASYNC110 - it happens in another process
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    if on_cancel == "keep":
        assert (node.verbs(), node.states()) == (["ADD slow"], ["pending"])
    else:
        assert (node.verbs(), node.states()) == (["ADD slow", "DEL slow"], [])


def test_a_second_cancellation_does_not_stop_the_roll_back(node: FakeNode) -> None:
    node.plugin("slow", "[ $CNI_COMMAND != ADD ] || sleep 60; sleep 0.3")
    cni = node.async_client()

    async def cancel_twice() -> None:
        task = asyncio.create_task(cni.add_network_list(network("slow"), RT, on_cancel="rollback"))
        for verb in ("ADD", "DEL"):
            while node.verbs()[-1:] != [f"{verb} slow"]:  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.01)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel_twice())
    assert node.states() == []


def test_few_verbs_begin_in_one_pass_of_the_event_loop(node: FakeNode) -> None:
    """Otherwise a thousand ADDs at once would keep the program's other tasks waiting for seconds."""
    executor = RecordingExecutor()
    # Not durable: a verb that waits for nothing ends in the pass in which it begins.
    cni = AsyncCNIConfig([], str(node.cache), executor=executor.on_asyncio, durable=False)
    begun: list[int] = []

    async def other_task() -> None:
        while True:
            begun.append(len(executor.calls))
            await asyncio.sleep(0)

    async def main() -> None:
        other = asyncio.create_task(other_task())
        await asyncio.gather(*(cni.add_network_list(network("p"), rt(f"c{number}")) for number in range(60)))
        other.cancel()

    run(main())
    assert len(executor.calls) == 60
    # Between two turns of the other task is the end of one pass and the begin of the next one.
    assert max(after - before for before, after in pairwise(begun)) <= 2 * 8
