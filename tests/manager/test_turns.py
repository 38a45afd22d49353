"""A set-up is one operation: one turn for all of its networks, all plugins found first, one namespace."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from libcni import CNIErrorGroup, LockTimeoutError, NamespaceMismatchError, PluginNotFoundError
from libcni.manager import Container
from libcni.testing import wait_until
from manager.fakes import Make, ManagerNode, waits


@pytest.fixture
def node(node: ManagerNode) -> ManagerNode:
    node.configure_each("a", "b")
    return node


def container(name: str) -> Container:
    return Container(name, "/ns", ["a", "b"])


def in_turns(first: str, second: str) -> list[list[str]]:
    """Return the calls of one operation after those of the other one: either may come first."""
    return [[*first.split(", "), *second.split(", ")], [*second.split(", "), *first.split(", ")]]


def test_who_has_begun_goes_on_before_who_has_not(node: ManagerNode) -> None:
    manager = node.async_manager(client={"max_verbs": 1})

    async def go() -> None:
        await asyncio.gather(manager.set_up(container("c1")), manager.set_up(container("c2")))

    asyncio.run(go())
    assert node.calls() in in_turns("ADD a c1 eth0, ADD b c1 eth1", "ADD a c2 eth0, ADD b c2 eth1")


@pytest.mark.parametrize("operation", ["tear_down", "check"])
def test_other_operations_take_one_turn_too(node: ManagerNode, operation: str) -> None:
    manager = node.async_manager(client={"max_verbs": 1})

    async def go() -> None:
        for name in ("c1", "c2"):
            await manager.set_up(container(name))
        node.forget_calls()
        await asyncio.gather(*(getattr(manager, operation)(name) for name in ("c1", "c2")))

    asyncio.run(go())
    assert [call.split()[2] for call in node.calls()] in in_turns("c1, c1", "c2, c2")


def test_operations_that_wait_for_a_container_take_no_turn_of_others(node: ManagerNode, make: Make) -> None:
    """Whoever has a turn waits for no other operation of its client, or all of them could wait for each other."""
    manager = make(client={"max_verbs": 1})
    other = node.manager(client={"timeout": 60.0})
    with ThreadPoolExecutor() as pool, other.locked("c1"):
        waiting = pool.submit(manager.set_up, container("c1"), timeout=60.0)
        with pytest.raises(TimeoutError):
            waiting.exception(timeout=0.2)
        manager.set_up(container("c2"), timeout=60.0)
        other.tear_down("c1")
    assert waiting.exception() is None


def test_a_turn_that_does_not_come_names_the_number_of_operations(node: ManagerNode) -> None:
    node.plugin("a", waits("ADD", node.root / "go"))
    manager = node.manager(client={"max_verbs": 1})
    with ThreadPoolExecutor() as pool:
        first = pool.submit(manager.set_up, container("c1"))
        wait_until(lambda: node.calls("ADD"))
        with pytest.raises(LockTimeoutError, match=r"of running operations \(max_verbs=1\) was reached") as caught:
            manager.set_up(container("c2"), timeout=0.1)
        (node.root / "go").touch()
        first.result()
    assert "doctor" not in str(caught.value)
    assert {one.container_id for one in node.cni.get_cached_attachments()} == {"c1"}


@pytest.mark.parametrize("missing", ["b", "b-ipam"])
def test_all_plugins_of_all_networks_are_found_before_the_first_one_runs(
    node: ManagerNode, make: Make, missing: str
) -> None:
    node.configure("b", {"type": "b", "ipam": {"type": "b-ipam"}})
    node.plugin("b-ipam")
    (node.bin / missing).unlink()
    with pytest.raises(PluginNotFoundError, match=missing):
        make().set_up(container("c1"))
    assert node.calls() == []
    assert node.cni.get_cached_attachments() == []


@pytest.mark.parametrize("what", ["replaced", "removed"])
def test_a_network_is_attached_in_the_namespace_of_the_first_one_or_not_at_all(
    node: ManagerNode, make: Make, what: str
) -> None:
    netns, other = Path(node.netns("c1")), Path(node.netns("other"))
    change = f"mv {other} {netns}" if what == "replaced" else f"rm -f {netns}"
    node.plugin("a", f"[ $CNI_COMMAND = ADD ] && {change}")
    with pytest.raises(NamespaceMismatchError, match="was replaced during the ADD") as caught:
        make().set_up(Container("c1", netns, ["a", "b"]))
    assert caught.value.rollback_errors == ()
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0"]
    assert node.last_call("a", "DEL").env["CNI_NETNS"] == "", "what is there now is not touched"
    assert node.cni.get_cached_attachments() == []
    assert netns.exists() == (what == "replaced")


def test_gc_needs_no_turn_while_it_holds_a_network(node: ManagerNode) -> None:
    """Set-ups may have all turns while they wait for the network."""
    (node.conf_dir / "b.conflist").unlink()
    manager = node.manager(client={"max_verbs": 1})
    with ThreadPoolExecutor() as pool:

        def live() -> list[str]:
            if not waiting:
                waiting.append(pool.submit(manager.set_up, Container("c1", "/ns", ["a"]), timeout=60.0))
            return ["c1"]

        waiting: list[Any] = []
        try:
            manager.gc(live, timeout=60.0)
        except CNIErrorGroup as error:
            raise AssertionError(error.exceptions) from error
        waiting[0].result()
    assert node.calls("ADD") == ["ADD a c1 eth0"]
