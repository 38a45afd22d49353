"""The asyncio manager: its own behaviour, and that both managers have the same methods."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from processes import until

from libcni import AsyncCNIConfig, CNIConfig
from libcni.manager import AsyncNetworkManager, Container, NetworkManager
from manager.fakes import ManagerNode, waits


def test_both_managers_have_the_same_methods_with_the_same_parameters() -> None:
    names = [name for name in vars(NetworkManager) if not name.startswith("_")]
    assert names == [name for name in vars(AsyncNetworkManager) if not name.startswith("_")]
    for name in names:
        one, other = getattr(NetworkManager, name), getattr(AsyncNetworkManager, name)
        assert str(inspect.signature(one).parameters) == str(inspect.signature(other).parameters), name
        assert inspect.iscoroutinefunction(other) or name in {"attached", "locked"}


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
    node.plugin("a", waits("ADD", node.root / "go"))
    one, two = node.async_manager(), node.async_manager()

    async def go() -> None:
        set_up = asyncio.create_task(one.set_up(Container("c1", "/ns", ["a", "a"])))
        tear_down = asyncio.create_task(two.tear_down("c1"))
        await until(node.calls, set_up)
        (node.root / "go").touch()  # the plugin waits for the loop
        await asyncio.gather(set_up, tear_down)

    asyncio.run(go())
    verbs = [call.split()[0] for call in node.calls()]
    assert verbs in (["ADD", "ADD", "DEL", "DEL"], ["ADD", "ADD"])


@pytest.mark.parametrize(("manager", "client"), [(NetworkManager, AsyncCNIConfig), (AsyncNetworkManager, CNIConfig)])
def test_a_manager_refuses_the_client_of_the_other_kind(manager: Any, client: Any) -> None:
    right = manager.__name__.replace("NetworkManager", "CNIConfig")
    with pytest.raises(TypeError, match=f"{manager.__name__} needs {right}, not {client.__name__}"):
        manager(client(["/bin"]))
