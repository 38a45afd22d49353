"""Waits of the manager: bounded, with the container in the error, and never for what others do elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import fork, kill_after, until, wait

from libcni import CNIErrorGroup, LockTimeoutError
from libcni.manager import Container
from libcni.store import locks
from libcni.testing import wait_until
from manager.fakes import FakeNamespaces, ManagerNode, waits

Make = Callable[..., Any]


@pytest.fixture
def stopped(node: ManagerNode) -> Iterator[None]:
    """A process is stopped inside the set-up of container c1 on network a."""
    node.configure_each("a", "b", "x", "y")
    node.plugin("a", waits("ADD", node.root / "go", when="[ $CNI_CONTAINERID = c1 ]"))
    runtime = fork(lambda: node.manager().set_up(Container("c1", "/ns", ["a", "x", "y"])))
    wait_until(lambda: node.calls("ADD"))
    os.kill(runtime, signal.SIGSTOP)
    yield
    kill_after(runtime, 0)
    (node.root / "go").touch()


@pytest.mark.usefixtures("stopped")
def test_every_wait_ends_with_the_clients_timeout_and_names_the_container(node: ManagerNode, make: Make) -> None:
    manager = make(client={"timeout": 0.5})
    arguments: dict[str, Any] = {"set_up": Container("c1", "/ns", ["a"]), "tear_down": "c1", "check": "c1", "gc": []}
    for method, argument in arguments.items():
        with pytest.raises((LockTimeoutError, CNIErrorGroup)) as caught:
            getattr(manager, method)(argument)
        error = caught.value.exceptions[-1] if isinstance(caught.value, CNIErrorGroup) else caught.value
        assert isinstance(error, LockTimeoutError), method
        assert error.what == ("network a" if method == "gc" else "container c1"), method
        assert error.seconds < 20, method
        assert error.what in str(error)
        assert "//" not in str(error)


@pytest.mark.usefixtures("stopped")
def test_gc_waits_once_for_a_set_up_that_holds_several_networks(node: ManagerNode, make: Make) -> None:
    with pytest.raises(CNIErrorGroup) as caught:
        make(client={"timeout": 1.0}).gc([])
    first, *others = [error.seconds for error in caught.value.exceptions if isinstance(error, LockTimeoutError)]
    assert len(others) == 2
    assert sum(others) < first


@pytest.mark.usefixtures("stopped")
def test_other_containers_go_on_while_one_is_stopped_and_gc_waits_for_it(node: ManagerNode, make: Make) -> None:
    manager = make()
    with ThreadPoolExecutor() as pool:
        gc = pool.submit(node.manager().gc, ["c2", "c3"], timeout=1.0)
        manager.set_up(Container("c2", "/ns", ["b"]))
        manager.set_up(Container("c3", "/ns", ["a"]))  # GC waits for network a no longer than its second
        error = gc.exception()
    assert isinstance(error, CNIErrorGroup)
    held = {problem.what for problem in error.exceptions if isinstance(problem, LockTimeoutError)}
    assert held >= {"network a", "network x", "network y"}
    assert {one.container_id for one in node.cni.get_cached_attachments()} == {"c1", "c2", "c3"}


def test_a_gc_plugin_that_hangs_in_one_network_does_not_delay_set_ups_of_others(node: ManagerNode, make: Make) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.configure("b", cniVersion="1.1.0")
    node.plugin("a", waits("GC", node.root / "go"))
    gc = threading.Thread(target=lambda: node.manager().gc(["c1"]))
    gc.start()
    try:
        wait_until(lambda: "GC a" in node.calls("GC"))
        make().set_up(Container("c1", "/ns", ["b"]), timeout=60.0)
        with pytest.raises(LockTimeoutError, match="network a, container c2: another verb held"):
            make().set_up(Container("c2", "/ns", ["a"]), timeout=0.2)
    finally:
        (node.root / "go").touch()
        gc.join()


def test_a_tear_down_goes_on_without_its_lock_on_a_disk_that_takes_none(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    make().set_up(Container("c1", "/ns"))
    locks = node.cache / "locks"
    locks.unlink()
    locks.mkdir()  # cannot be opened as a file
    make().tear_down("c1")
    assert node.calls("DEL") == ["DEL a c1 eth0"]


def test_a_manager_without_range_locks(
    node: ManagerNode, make: Make, tool: FakeNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One lock replaces all those of the verbs, and the manager must not wait for itself."""
    monkeypatch.setattr(locks, "_SETLK", 4095)
    monkeypatch.setattr(locks, "_GETLK", 4095)
    node.configure_each("a", "b")
    manager = make(client={"timeout": 5.0}, namespaces=tool)
    manager.set_up(Container("c1", networks=["a", "b"]))
    manager.set_up(Container("c2", networks=["a"]))
    assert manager.check("c1").items
    assert len(manager.gc(["c1"]).of("detached")) == 1
    manager.tear_down("c1")
    assert node.cni.get_cached_attachments() == []


def test_operations_of_a_thread_that_holds_a_container_do_not_wait_for_it(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    other = node.manager(client={"timeout": 0.1})
    with manager.locked("c1"):
        with manager.locked("c1"):  # its end releases nothing
            manager.set_up(Container("c1", "/ns"))
        with ThreadPoolExecutor() as pool:
            with pytest.raises(LockTimeoutError, match="container c1: another operation of a manager"):
                pool.submit(other.tear_down, "c1").result()
            pool.submit(other.set_up, Container("c2", "/ns"), timeout=60.0).result()
        assert [one.container_id for one in manager.tear_down("c1").items] == ["c1"]
        with pytest.raises(LockTimeoutError, match="container c1"), ThreadPoolExecutor() as pool:
            pool.submit(lambda: other.locked("c1").__enter__()).result()
    with other.locked("c1"):
        other.tear_down("c1")
    other.tear_down("c1")


def test_operations_of_a_task_that_holds_a_container_do_not_wait_for_it(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.async_manager(client={"timeout": 0.2})

    async def go() -> None:
        other = asyncio.create_task(wait_and_tear_down())
        async with manager.locked("c1"):
            await manager.set_up(Container("c1", "/ns"), timeout=60)
            with pytest.raises(LockTimeoutError, match="container c1"):
                await other
        await manager.tear_down("c1", timeout=60)

    async def wait_and_tear_down() -> None:
        await until(lambda: node.calls("ADD"))
        await manager.tear_down("c1")

    asyncio.run(go())
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0"]


def test_a_container_of_other_records_is_another_container(node: ManagerNode, tmp_path: Path) -> None:
    node.configure("a")
    there = node.manager(client={"cache_dir": tmp_path / "there", "timeout": 0.1})
    held = there.locked("c1")
    with node.manager().locked("c1"), ThreadPoolExecutor(1) as other:
        other.submit(held.__enter__).result()
        with pytest.raises(LockTimeoutError):
            there.tear_down("c1")
        other.submit(held.__exit__, None, None, None).result()


def test_a_task_that_outlives_the_block_holds_nothing(node: ManagerNode) -> None:
    node.configure("a")
    manager, other = node.async_manager(client={"timeout": 0.2}), node.manager(client={"timeout": 5.0})

    async def go() -> None:
        release = asyncio.Event()

        async def later() -> None:
            await release.wait()
            await manager.set_up(Container("c1", "/ns"))

        async with manager.locked("c1"):
            task = asyncio.create_task(later())
        with other.locked("c1"):
            release.set()
            with pytest.raises(LockTimeoutError, match="container c1"):
                await task

    asyncio.run(go())
    assert node.calls() == []


def test_a_thread_that_outlives_the_block_holds_nothing(node: ManagerNode) -> None:
    node.configure("a")
    manager, other = node.manager(client={"timeout": 0.2}), node.manager(client={"timeout": 5.0})
    with ThreadPoolExecutor() as pool:
        with manager.locked("c1"):
            context = copy_context()
            pool.submit(context.run, partial(manager.set_up, Container("c1", "/ns"), timeout=60.0)).result()
        with other.locked("c1"), pytest.raises(LockTimeoutError, match="container c1"):
            pool.submit(context.run, manager.tear_down, "c1").result()
    assert node.calls() == ["ADD a c1 eth0"]


def test_an_operation_that_outlives_the_block_keeps_the_container_to_its_end(node: ManagerNode) -> None:
    node.configure("a")
    node.plugin("a", waits("ADD", node.root / "go"))
    manager, other = node.manager(), node.manager(client={"timeout": 0.1})
    with ThreadPoolExecutor() as pool:
        with manager.locked("c1"):
            running = pool.submit(copy_context().run, manager.set_up, Container("c1", "/ns"))
            wait_until(lambda: node.calls("ADD"))
        with pytest.raises(LockTimeoutError, match="container c1"):
            other.tear_down("c1")
        (node.root / "go").touch()
        running.result()
    other.tear_down("c1", timeout=60.0)
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0"]


def test_a_forked_child_of_the_block_holds_nothing(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager(client={"timeout": 0.2})

    def child() -> None:
        with pytest.raises(LockTimeoutError, match="container c1"):
            manager.set_up(Container("c1", "/ns"))

    with manager.locked("c1"):
        assert wait(fork(child)) == 0
        manager.set_up(Container("c1", "/ns"), timeout=60.0)
    assert node.calls() == ["ADD a c1 eth0"]
