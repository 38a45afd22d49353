"""Sweeps beside ADDs: what is stale is detached side by side, and no ADD of its network waits for all of it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from nodes import FakeNode
from processes import no_child_is_left, until

from libcni import AsyncCNIConfig, CNIConfig, RuntimeConf
from libcni.testing import wait_until

STALE = 12


@pytest.fixture(params=[CNIConfig, AsyncCNIConfig], ids=["blocking", "asyncio"])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> FakeNode:
    node = FakeNode(tmp_path, request.param)
    node.plugin("slow", f"[ $CNI_COMMAND != DEL ] || until [ -e {tmp_path}/go ]; do sleep 0.02; done")
    node.configure("slow", cniVersion="1.1.0")
    for number in range(STALE):
        node.cni.add_network_list("slow", rt(f"c{number}"))
    return node


def rt(container_id: str) -> RuntimeConf:
    return RuntimeConf(container_id, None, "eth0")


def test_an_add_does_not_wait_for_the_stale_attachments(node: FakeNode) -> None:
    """The DELs of a sweep do not end here before the ADD has."""
    client = node.client(max_verbs=4)
    reports = []
    sweep = threading.Thread(target=lambda: reports.append(client.gc_network_list("slow", [("live", "eth0")])))
    sweep.start()
    wait_until(lambda: any(verb.startswith("DEL") for verb in node.verbs()))
    client.add_network_list("slow", rt("live"), timeout=20)
    (node.root / "go").touch()
    sweep.join()
    assert len(reports[0].detached) == STALE
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["live"]


def test_gc_with_one_turn_ends(node: FakeNode) -> None:
    """It holds no turn itself while its DELs wait for theirs."""
    (node.root / "go").touch()
    keep = [(f"c{number}", "eth0") for number in range(2, STALE)]
    assert len(node.client(max_verbs=1).gc_network_list("slow", keep, timeout=10).detached) == 2


def test_a_cancelled_gc_stops_its_dels(node: FakeNode) -> None:
    cni = node.async_client(max_verbs=4)

    async def main() -> None:
        sweep = asyncio.create_task(cni.gc_network_list("slow", []))
        await until(lambda: any(verb.startswith("DEL") for verb in node.verbs()), sweep)
        sweep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sweep

    asyncio.run(main())
    assert len(node.verbs()) <= STALE + 4, "no further DEL has begun"
    assert len(node.cni.get_cached_attachments()) == STALE
    wait_until(no_child_is_left)
