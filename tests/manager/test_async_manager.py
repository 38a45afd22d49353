"""The asyncio manager: its own behaviour, and that both managers have the same methods."""

from __future__ import annotations

import asyncio
import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from libcni import AsyncCNIConfig, CNIConfig
from libcni.manager import AsyncNetworkManager, Container, NetworkManager
from manager.fakes import ManagerNode


def test_both_managers_have_the_same_methods_with_the_same_parameters() -> None:
    names = [name for name in vars(NetworkManager) if not name.startswith("_")]
    assert names == [name for name in vars(AsyncNetworkManager) if not name.startswith("_")]
    for name in names:
        one, other = getattr(NetworkManager, name), getattr(AsyncNetworkManager, name)
        assert str(inspect.signature(one).parameters) == str(inspect.signature(other).parameters), name
        assert inspect.iscoroutinefunction(other) or name == "locked"


def test_the_life_of_a_container(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b", cniVersion="1.1.0")
    manager = node.async_manager()

    async def go() -> None:
        assert (await manager.status()).ready
        result = await manager.set_up(Container("c1", "/ns", ["a", "b"]))
        assert list(result.interfaces) == ["eth0", "eth1"]
        assert len((await manager.check("c1")).items) == 2
        assert (await manager.gc(["c1"])).of("detached") == ()
        assert [one.network for one in (await manager.tear_down("c1")).of("detached")] == ["b", "a"]

    asyncio.run(go())
    assert node.calls("ADD", "DEL")[-1] == "DEL a c1 eth0"


def test_gc_may_ask_a_coroutine_function_or_a_plain_one(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.async_manager()

    async def live() -> list[str]:
        await asyncio.sleep(0)
        return []

    async def go() -> None:
        for function in (live, list):
            await manager.set_up(Container("c1", "/ns"))
            assert len((await manager.gc(function)).of("detached")) == 1

    asyncio.run(go())


def test_one_container_is_done_once_at_a_time_and_the_loop_goes_on_meanwhile(node: ManagerNode) -> None:
    node.configure("a")
    node.plugin("a", "sleep 0.2")
    one, two = node.async_manager(), node.async_manager()

    async def go() -> int:
        ticks = 0
        tasks = {
            asyncio.create_task(one.set_up(Container("c1", "/ns", ["a", "a"]))),
            asyncio.create_task(two.tear_down("c1")),
        }
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.01)
            ticks += 1
        await asyncio.gather(*tasks)
        return ticks

    assert asyncio.run(go()) > 20
    verbs = [call.split()[0] for call in node.calls()]
    assert verbs in (["ADD", "ADD", "DEL", "DEL"], ["ADD", "ADD"])


SECONDS = 1.0
_SLOW = f"""#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && sleep {SECONDS}
echo '{{"cniVersion":"1.0.0"}}'
"""


@pytest.fixture
def slow(node: ManagerNode) -> ManagerNode:
    """Three networks that take their time, and nothing else: their plugins must not be what is measured."""
    for name in ("a", "b", "c"):
        node.configure(name)
        (node.bin / name).write_text(_SLOW)
    return node


@pytest.mark.parametrize(("manager", "client"), [(NetworkManager, AsyncCNIConfig), (AsyncNetworkManager, CNIConfig)])
def test_a_manager_refuses_the_client_of_the_other_kind(manager: Any, client: Any) -> None:
    right = manager.__name__.replace("NetworkManager", "CNIConfig")
    with pytest.raises(TypeError, match=f"{manager.__name__} needs {right}, not {client.__name__}"):
        manager(client(["/bin"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_twenty_containers_take_at_most_1_3_times_one(slow: ManagerNode, kind: str) -> None:
    blocking, on_asyncio = (
        NetworkManager(slow.client(durable=True)),
        AsyncNetworkManager(slow.async_client(durable=True)),
    )

    async def take(*names: str) -> float:
        started = time.monotonic()
        containers = [Container(one, "/ns", ["a", "b", "c"]) for one in names]
        if kind == "threads":
            with ThreadPoolExecutor(len(names)) as pool:
                list(pool.map(blocking.set_up, containers))
        else:
            await asyncio.gather(*map(on_asyncio.set_up, containers))
        return time.monotonic() - started

    async def go() -> tuple[float, float]:
        return await take("first"), await take(*(f"c{number}" for number in range(20)))

    one, twenty = asyncio.run(go())
    assert one >= 3 * SECONDS
    assert twenty <= 1.3 * one, f"{twenty:.2f} s against {one:.2f} s"
    assert len(slow.cni.get_cached_attachments()) == 63
