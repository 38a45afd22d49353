"""AsyncCNIConfig: the same verbs, cancellation, order, bounds and batches, with real processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers import RT, network
from nodes import FakeNode
from processes import descriptors, until

import libcni
from libcni import AsyncCNIConfig, CNIConfig, NetworkConfigList, RuntimeConf
from libcni.executor import CallOptions
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.kernel import system
from libcni.options import OnCancel
from libcni.protocol.invocation import Invocation, Outcome
from libcni.testing import RecordingExecutor


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


async def all_of(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> None:
    await asyncio.gather(*coroutines)


def test_waiting_behind_one_that_wakes_up_ends_with_the_verbs_own_time_too(cni: AsyncCNIConfig, node: FakeNode) -> None:
    """The first task calls again at once, when the second one's turn has come and it has not run yet."""
    go = node.root / "go"
    net = network_of(node, f'test "$CNI_IFNAME" != slow0 || until [ -e {go} ]; do sleep 0.02; done')

    async def again() -> None:
        await cni.add_network_list(net, rt())
        with pytest.raises(libcni.LockTimeoutError):
            await cni.del_network_list(net, rt(), timeout=0.2)
        go.touch()

    async def main() -> None:
        await asyncio.gather(again(), cni.add_network_list(net, RuntimeConf("c1", "/run/netns/none", "slow0")))

    run(main())


def test_a_loop_that_is_closed_while_verbs_wait_keeps_none_from_the_next(node: FakeNode) -> None:
    began = asyncio.Event()

    class Sleeper(AsyncProcessExecutor):
        async def execute(self, invocation: Invocation, _limits: CallOptions) -> Outcome:
            began.set()
            await asyncio.sleep(60 if invocation.ifname == "eth0" else 0.2)
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
    loop.run_until_complete(began.wait())
    loop.run_until_complete(asyncio.sleep(0.05))  # the other one waits behind it by now
    loop.close()
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    del tasks, task
    abandoned[0].close()  # it releases its locks; the other one waits for ever
    run(main())
    assert len(cni.get_cached_attachments()) == 3


def test_nothing_is_left_open(cni: AsyncCNIConfig, node: FakeNode) -> None:
    net = network_of(node)
    run(cni.add_network_list(net, rt("warm")))
    before = descriptors()
    containers = [rt(f"c{index}") for index in range(20)]
    run(all_of(cni.add_network_list(net, one) for one in containers))
    run(all_of(cni.del_network_list(net, one) for one in containers))
    assert descriptors() == before


def test_a_durable_record_is_not_written_on_the_loop(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    import threading

    def fsync(_descriptor: int) -> None:
        threads.append(threading.current_thread() is threading.main_thread())

    monkeypatch.setattr(system, "fsync", fsync)
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
        await until(node.verbs, task)
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
            await until(lambda: node.verbs()[-1:] == [f"{verb} slow"], task)  # noqa: B023 - it is called in this pass
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(cancel_twice())
    assert node.states() == []


def test_a_sweep_ends_quietly_if_its_event_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # of the tasks that are destroyed
    sweep = AsyncCNIConfig._side_by_side(2, [asyncio.Event().wait, asyncio.Event().wait])
    task = loop.create_task(sweep)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    sweep.close()  # as the garbage collector does
    assert not task.done()
    del task


# a verb that is cancelled while its record is written


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let fsync set the first event, and wait for the second."""
    begun, go_on = threading.Event(), threading.Event()

    def slow_fsync(_: int) -> None:
        begun.set()
        go_on.wait(20)

    monkeypatch.setattr(system, "fsync", slow_fsync)
    return begun, go_on


def test_a_cancelled_add_keeps_its_locks_until_the_record_is_written(
    tmp_path: Path, slow_disk: tuple[threading.Event, threading.Event]
) -> None:
    """Otherwise the write could end after a later verb of the same container, and put an old record over its own."""
    begun, go_on = slow_disk
    cni = AsyncCNIConfig(["/bin"], tmp_path, executor=RecordingExecutor().on_asyncio)

    async def main() -> bool:
        task = asyncio.create_task(cni.add_network_list(network("a"), RT))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        for _ in range(100):  # turns of the loop, more than an unhindered cancellation needs
            await asyncio.sleep(0)
        ended_early = task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended_early

    assert asyncio.run(main()) is False
    assert [one.state for one in cni.get_cached_attachments()] == ["begun"]


@pytest.mark.parametrize("states", [[], ["ready"]], ids=["new", "over an attachment in use"])
def test_an_add_that_is_cancelled_while_its_record_is_written_takes_it_back(
    tmp_path: Path, slow_disk: tuple[threading.Event, threading.Event], states: list[str]
) -> None:
    begun, go_on = slow_disk
    executor = RecordingExecutor()
    if states:
        CNIConfig(["/bin"], tmp_path, executor=executor, durable=False).add_network_list(network("a"), RT)
        executor.calls.clear()
    cni = AsyncCNIConfig(["/bin"], tmp_path, executor=executor.on_asyncio)

    async def main() -> None:
        adding = cni.add_network_list(network("a"), RT, on_existing="allow", on_cancel="rollback")
        task = asyncio.create_task(adding)
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [one.state for one in cni.get_cached_attachments()] == states
    assert executor.calls == []
