"""GC of all networks: what is detached, what the plugins are told, and what is never touched."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from libcni import CNIError, CNIErrorGroup, DelPolicy, PluginError, RuntimeConf
from libcni.manager import Container
from libcni.manager import gc as manager_gc
from libcni.testing import wait_until
from libcni.verbs import gc as verb
from manager.fakes import AfterAdd, FakeNamespaces, ManagerNode, fails, removed, waits


def test_gc_detaches_what_does_not_live_and_tells_each_network_once(attached: ManagerNode) -> None:
    manager = attached.manager()
    summary = manager.gc(["c2"])
    assert attached.calls("DEL", "GC") == ["DEL b c1 eth1", "DEL a c1 eth0", "GC a"]
    assert [(one.network, one.container_id) for one in summary.of("detached")] == [("b", "c1"), ("a", "c1")]
    assert [one.container_id for one in attached.client().get_cached_attachments()] == ["c2"]


def told(node: ManagerNode, plugin: str) -> set[tuple[str, str]]:
    """Return the pairs that a plugin's last GC got as valid."""
    rows = node.last_call(plugin, "GC").config["cni.dev/valid-attachments"]
    return {(row["containerID"], row["ifname"]) for row in rows}


def test_gc_tells_plugins_every_pair_of_the_live_containers(attached: ManagerNode) -> None:
    """Pairs of other networks, and of a container without record, protect what does not exist. That does no harm."""
    attached.manager().gc(["c1", "c2", "not-attached"])
    assert told(attached, "a") == {("c1", "eth0"), ("c1", "eth1"), ("c2", "eth0"), ("not-attached", "eth0")}


def test_gc_takes_single_attachments_as_live(attached: ManagerNode) -> None:
    attached.manager().gc([("c1", "eth0"), *attached.client().get_cached_attachments("c2")])
    left = sorted((one.network, one.container_id) for one in attached.client().get_cached_attachments())
    assert left == [("a", "c1"), ("b", "c2")]


def test_gc_of_a_network_that_only_records_know(attached: ManagerNode) -> None:
    (attached.conf_dir / "a.conflist").unlink()
    summary = attached.manager().gc(["c2"])
    assert attached.calls("DEL", "GC") == ["DEL a c1 eth0", "GC a", "DEL b c1 eth1"]
    assert {one.network for one in summary.items} == {"a", "b"}


def test_a_dry_run_of_gc_runs_nothing(attached: ManagerNode) -> None:
    summary = attached.manager().gc([], dry_run=True)
    assert len(summary.of("stale")) == 3
    assert (summary.of("detached"), attached.calls()) == ((), [])


def test_gc_goes_on_over_errors_and_says_what_was_cleaned(attached: ManagerNode) -> None:
    attached.configure("c", cniVersion="1.1.0")
    attached.plugin("c", fails("GC", msg="refused"))
    attached.plugin("b", fails("DEL", msg="stuck", when="[ $CNI_CONTAINERID = c1 ]"))
    with pytest.raises(CNIErrorGroup) as caught:
        attached.manager().gc([])
    refused, stuck = caught.value.exceptions
    assert isinstance(refused, PluginError)
    assert isinstance(stuck, PluginError)
    assert (refused.msg, stuck.msg) == ("refused", "stuck")
    assert attached.calls("GC") == ["GC c", "GC a"]
    items = sorted((one.outcome, one.network, one.container_id, one.error) for one in caught.value.report.items)
    assert items == [("detached", "a", "c1", None), ("detached", "b", "c2", None), ("failed", "b", "c1", stuck)]
    assert [(one.network, one.container_id) for one in attached.client().get_cached_attachments()] == [("b", "c1")]


def test_gc_has_the_policy_of_the_manager(attached: ManagerNode, make: Callable[..., Any]) -> None:
    (attached.bin / "b").unlink()
    with pytest.raises(CNIErrorGroup):
        make().gc([])
    manager = make(policy=DelPolicy(skip_missing=True))
    assert sorted(one.container_id for one in manager.gc(["c2"]).of("detached")) == ["c1"]
    assert [(one.network, one.container_id) for one in attached.client().get_cached_attachments()] == [("b", "c2")]
    manager.gc([])
    assert attached.client().get_cached_attachments() == []


def test_gc_asks_for_the_live_set_when_no_container_is_being_set_up(node: ManagerNode) -> None:
    """Asked any earlier, the runtime would not know yet of the container that is being set up."""
    node.configure("a")
    node.plugin("a", waits("ADD", node.root / "go"))
    running: list[str] = []
    manager = node.manager(client={"observer": AfterAdd(lambda operation: running.append(operation.container_id))})
    thread = threading.Thread(target=lambda: manager.set_up(Container("c1", "/ns")))
    thread.start()
    wait_until(lambda: node.calls("ADD"))
    threading.Timer(0.3, (node.root / "go").touch).start()
    node.manager().gc(lambda: list(running))
    thread.join()
    assert node.calls("DEL") == []


def test_a_set_up_on_a_network_does_not_wait_for_the_dels_of_its_gc(
    node: ManagerNode, make: Callable[..., Any]
) -> None:
    """After a crash, which GC is for, containers start at the same time."""
    node.configure("a", cniVersion="1.1.0")
    for number in range(12):
        node.manager().set_up(Container(f"stale{number}", "/ns"))
    node.plugin("a", waits("DEL", node.root / "go"))
    with ThreadPoolExecutor() as pool:
        gc = pool.submit(make().gc, ["new"])
        wait_until(lambda: len(node.calls("DEL")) > 1)  # side by side
        node.manager().set_up(Container("new", "/ns"))
        assert node.calls("GC") == []
        (node.root / "go").touch()
        assert len(gc.result().of("detached")) == 12
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["new"]


def test_gc_keeps_what_was_attached_after_it_asked_for_the_living(
    node: ManagerNode, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    node.configure("a")
    node.manager().set_up(Container("old", "/ns"))

    async def late(*args: Any, **options: Any) -> Any:
        node.cni.add_network_list("a", RuntimeConf("new", "/ns", "eth0"))
        return await verb.gc(*args, **options)

    monkeypatch.setattr(manager_gc, "gc", late)
    assert [one.container_id for one in make().gc([]).of("detached")] == ["old"]
    assert [one.container_id for one in node.cni.get_cached_attachments()] == ["new"]


def test_records_of_go_are_detached_only_if_asked(node: ManagerNode, make: Callable[..., Any]) -> None:
    node.configure("a")
    node.manager().set_up(Container("c1", "/ns"))
    node.strip_record("c1", "a")
    assert [one.container_id for one in make().gc([]).of("made-by-go")] == ["c1"]
    assert node.calls("DEL") == []
    assert [one.container_id for one in make().gc([], include_go=True).of("detached")] == ["c1"]


def test_gc_does_not_fail_for_a_network_that_nobody_uses(node: ManagerNode, make: Callable[..., Any]) -> None:
    """An operator may have left a file whose plugin is not installed; GC would fail in each round."""
    node.configure("a", cniVersion="1.1.0")
    node.configure("unused", {"type": "missing"}, cniVersion="1.1.0")
    (node.bin / "missing").unlink()
    node.manager().set_up(Container("c1", "/ns", ["a"]))
    make().gc(["c1"])
    assert node.calls("GC") == ["GC a"]
    (node.bin / "a").unlink()
    with pytest.raises(CNIErrorGroup, match="GC: 1 failed"):
        make().gc(["c1"])


def test_gc_asks_again_before_it_removes_a_namespace(
    node: ManagerNode, make: Callable[..., Any], tool: FakeNamespaces
) -> None:
    """A container may come to life between the first question and the lock."""
    node.configure("a")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    next(node.cache.glob("results/*")).unlink()
    # For the network, for the namespaces, and under the lock of the container.
    answers = iter([[], [], ["c1"]])
    assert removed(manager.gc(lambda: next(answers))) == []
    assert "c1" in tool.there
    assert removed(manager.gc(list)) == ["/run/netns/c1"]


def test_an_error_of_the_function_hides_nothing_of_what_was_done(
    node: ManagerNode, make: Callable[..., Any], tool: FakeNamespaces
) -> None:
    def live() -> list[str]:
        if answers:
            return answers.pop()
        raise CNIError("the runtime does not answer")

    node.configure("a")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    answers: list[list[str]] = [[]]
    with pytest.raises(CNIErrorGroup) as caught:
        manager.gc(live)
    assert [str(error) for error in caught.value.exceptions] == ["the runtime does not answer"]
    assert [one.container_id for one in caught.value.report.of("detached")] == ["c1"]
    assert "c1" in tool.there


@pytest.mark.slow
def test_gc_of_two_thousand_containers_never_holds_up_the_event_loop(node: ManagerNode) -> None:
    """The processor time of the loop's own thread counts, so that a busy or slow machine does not matter."""
    node.configure("a", cniVersion="1.1.0")
    cni = node.client()
    for number in range(20):
        cni.add_network_list(cni.network("a"), RuntimeConf(f"c{number}", "/ns", "eth0"))
    template = (node.cache / "results" / "a-c0-eth0").read_text()
    for number in range(20, 2000):
        (node.cache / "results" / f"a-c{number}-eth0").write_text(template.replace('"c0"', f'"c{number}"'))
    manager = node.async_manager()
    longest = 0.0

    async def watched(operation: Coroutine[Any, Any, Any]) -> Any:
        nonlocal longest
        task = asyncio.create_task(operation)
        last = time.thread_time()
        while not task.done():
            # A loop that never sleeps would take the interpreter from the thread that reads the records.
            await asyncio.sleep(0.001)
            longest, last = max(longest, time.thread_time() - last), time.thread_time()
        return await task

    async def go() -> None:
        assert len((await watched(manager.gc([], dry_run=True))).of("stale")) == 2000
        summary = await watched(manager.gc([f"c{number}" for number in range(1, 2000)]))
        assert [one.container_id for one in summary.of("detached")] == ["c0"]
        assert await watched(manager.container("c5")) is not None

    # The collection of all of pytest's objects takes longer than what is measured.
    gc.collect()
    gc.disable()
    try:
        began = time.thread_time()
        assert len(cni.get_cached_attachments()) == 2000
        whole = time.thread_time() - began
        asyncio.run(go())
    finally:
        gc.enable()
    # About 7 ms of 400, and twice that if all cores are busy; all records in one piece take 100.
    assert longest < whole / 8, f"{longest * 1000:.1f} of {whole * 1000:.1f} ms"


def test_in_a_shared_directory_nothing_of_another_owner_changes(
    node: ManagerNode, make: Callable[..., Any], tool: FakeNamespaces
) -> None:
    node.configure("a", cniVersion="1.1.0")
    node.manager(client={"owner": "theirs"}, namespaces=tool).set_up(Container("c1"))
    node.manager().set_up(Container("go", "/ns"))  # without an owner, as Go libcni's
    manager = make(client={"owner": "ours"}, namespaces=tool)
    manager.set_up(Container("c2"))
    summary = manager.gc([])
    assert [one.container_id for one in summary.of("detached")] == ["c2"]
    assert removed(summary) == ["/run/netns/c2"]
    assert told(node, "a") == {("c1", "eth0"), ("go", "eth0")}
    assert {one.container_id for one in node.cni.get_cached_attachments()} == {"c1", "go"}
    (node.cache / "results" / "a-c1-eth0").unlink()
    assert manager.gc([]).items == ()
    assert [item.outcome for item in manager.tear_down("c1").items] == ["not-recorded"]
    assert set(tool.there) == {"c1"}
