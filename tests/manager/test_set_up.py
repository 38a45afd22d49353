"""Set-up: which networks, under which interface names, in which order, and all or nothing."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
from processes import until

from libcni import CNIError, CNIErrorGroup, PluginError
from libcni.errors import AttachmentExistsError, NetworkNotFoundError, PluginTimeoutError
from libcni.manager import Container, NetworkRequest
from libcni.observe import LoggingObserver
from libcni.observe.observer import Observer, Operation
from libcni.verbs.verb_run import VerbRun
from manager.fakes import FakeNamespaces, Killed, ManagerNode, fails


def test_a_plan_says_what_a_set_up_would_attach_and_runs_nothing(node: ManagerNode) -> None:
    node.configure_each("a", "b")
    manager = node.manager(loopback=True)
    planned = manager.plan(Container("c1", "/ns", ["b", "a@x"]))
    assert [(one.net.name, one.rt.ifname) for one in planned] == [("cni-loopback", "lo"), ("b", "eth0"), ("a", "x")]
    for unknown in (manager.plan, manager.set_up):
        with pytest.raises(NetworkNotFoundError, match="the known networks: a, b"):
            unknown(Container("c1", "/ns", ["a", "none"]))
    assert node.calls() == []


def test_a_network_that_came_after_the_last_look_is_found(node: ManagerNode) -> None:
    manager = node.manager()
    node.configure("late")
    manager.set_up(Container("c1", "/ns", ["late"]))
    assert node.calls("ADD") == ["ADD late c1 eth0"]


@pytest.mark.parametrize("stuck", [[], ["b"]])
def test_errors_of_the_roll_back_are_in_the_error_and_stay_recorded(node: ManagerNode, stuck: list[str]) -> None:
    for name in ("a", "b", "c"):
        node.configure(name)
        node.plugin(name, fails("DEL", msg=name) if name in stuck else "")
    node.plugin("c", fails("ADD", msg="full"))
    with pytest.raises(PluginError, match="full") as caught:
        node.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]))
    again = [f"DEL {name} c1 eth1" for name in stuck]
    assert node.calls("DEL") == ["DEL c c1 eth2", "DEL b c1 eth1", "DEL a c1 eth0", *again]
    assert [error.msg for error in caught.value.rollback_errors if isinstance(error, PluginError)] == stuck
    assert [one.network for one in node.cni.get_cached_attachments()] == stuck


def test_a_second_set_up_is_refused_and_leaves_the_first_alone(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns"))
    with pytest.raises(AttachmentExistsError) as caught:
        manager.set_up(Container("c1", "/ns"))
    assert node.calls("DEL") == []
    hint = caught.value.hint
    assert hint
    assert str(hint).startswith('use on_existing="replace", or first detach the container from all networks')
    assert (hint.command, hint.container_id, hint.ifname, hint.network) == ("del", "c1", "", "")
    manager.set_up(Container("c1", "/ns"), on_existing="replace")
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0", "ADD a c1 eth0"]


def test_a_roll_back_detaches_interfaces_that_share_a_rule_in_two_attempts(node: ManagerNode) -> None:
    flag = node.conf_dir / "first-is-gone"
    shares = f"[ $CNI_IFNAME = x2 ] && [ ! -e {flag} ]"
    node.plugin("a", fails("DEL", when=shares) + f"\n[ $CNI_COMMAND != DEL ] || touch {flag}")
    node.plugin("b", fails("ADD"))
    node.configure_each("a", "b")
    with pytest.raises(PluginError) as caught:
        node.manager().set_up(Container("c1", "/ns", ["a@x1", "a@x2", "b"]))
    assert caught.value.rollback_errors == ()
    assert node.calls("DEL")[1:] == ["DEL a c1 x2", "DEL a c1 x1", "DEL a c1 x2"]
    assert node.client().get_cached_attachments() == []


@pytest.mark.slow
def test_the_time_limit_is_for_all_networks_together_and_the_roll_back_has_its_own(node: ManagerNode) -> None:
    node.configure_each("a", "b")
    node.plugin("a", "[ $CNI_COMMAND = ADD ] && sleep 1")
    node.plugin("b", "[ $CNI_COMMAND = ADD ] && exec sleep 60")
    with pytest.raises(PluginTimeoutError, match=r"did not end within ([\d.]+) s") as caught:
        node.manager().set_up(Container("c1", "/ns", ["a", "b"]), timeout=3)
    assert float(re.search(r"within ([\d.]+) s", str(caught.value))[1]) < 2.5  # type: ignore[index]
    assert node.calls("DEL")[-1] == "DEL a c1 eth0"
    assert node.cni.get_cached_attachments() == []


def test_the_same_container_is_done_once_at_a_time_even_between_managers(node: ManagerNode) -> None:
    """Two set-ups and a tear-down of one container never mix: each network's ADD or DEL has the container alone."""
    node.configure_each("a", "b")
    for name in ("a", "b"):
        node.plugin(name, "sleep 0.05")
    one, two = node.manager(), node.manager()
    errors: list[Exception] = []

    def go(manager: Any) -> None:
        try:
            manager.set_up(Container("c1", "/ns", ["a", "b"]))
            manager.tear_down("c1")
        except CNIError as error:
            errors.append(error)

    threads = [threading.Thread(target=go, args=(manager,)) for manager in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # whole set-ups and tear-downs stand beside each other; the second set-up may find the first one's and be refused
    text = ",".join(call.split()[0] + call.split()[1] for call in node.calls())
    assert text.replace("ADDa,ADDb", "U").replace("DELb,DELa", "D").strip("UD,") == ""
    assert all(isinstance(error, AttachmentExistsError) for error in errors)


def test_container_returns_what_set_up_returned(node: ManagerNode) -> None:
    node.configure_each("a", "b")
    manager = node.manager()
    result = manager.set_up(Container("c1", "/ns", ["b", "a"]))
    assert node.manager().container("c1") == result
    assert manager.container("other") is None
    node.plugin("b", fails("DEL"))
    with pytest.raises(CNIErrorGroup):
        manager.tear_down("c1")
    assert manager.container("c1") is None, "its DEL has begun"


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
def test_an_interrupted_set_up_is_found_by_tear_down_or_rolled_back(
    node: ManagerNode, make: Callable[..., Any], on_cancel: str, tool: FakeNamespaces
) -> None:
    node.configure_each("a", "b", "c")
    manager = make(namespaces=tool, client={"observer": Interrupting("c")})
    with pytest.raises(Killed):
        manager.set_up(Container("c1", networks=["a", "b", "c"]), on_cancel=on_cancel)
    if on_cancel == "keep":
        assert node.calls("DEL") == []
        make(namespaces=tool).tear_down("c1")
    assert node.calls("DEL") == ["DEL b c1 eth1", "DEL a c1 eth0"]
    assert (node.cni.get_cached_attachments(), tool.there) == ([], {})


class Interrupting(Observer):
    """An observer of the client that interrupts the ADD of some network before it begins."""

    def __init__(self, network: str) -> None:
        self.network = network

    def begin(self, operation: Operation) -> None:
        if operation.network == self.network and operation.verb == "ADD":
            raise Killed


def test_an_exception_of_any_kind_leaves_neither_attachment_nor_namespace(
    node: ManagerNode, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tool: FakeNamespaces
) -> None:
    begin = VerbRun.begin

    async def broken(self: VerbRun, record: Any, *args: Any, **options: Any) -> Any:
        if record.network == "b":
            raise RuntimeError("broken")
        return await begin(self, record, *args, **options)

    node.configure_each("a", "b")
    manager = make(namespaces=tool)
    monkeypatch.setattr(VerbRun, "begin", broken)
    with pytest.raises(RuntimeError, match="broken"):
        manager.set_up(Container("c1", networks=["a", "b"]))
    assert node.cni.get_cached_attachments() == []
    assert tool.there == {}
    assert node.calls("DEL")[-1] == "DEL a c1 eth0"


def test_a_failure_leaves_the_attachment_of_before_that_it_was_allowed_to_change(
    node: ManagerNode, make: Callable[..., Any]
) -> None:
    node.configure_each("a", "b", "c")
    node.plugin("loopback")
    manager = make(loopback=True)
    manager.set_up(Container("c1", "/ns", ["a"]))
    node.plugin("c", "[ $CNI_COMMAND != ADD ] || exit 1")
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", "/ns", ["a", "b", "c"]), on_existing="allow")
    assert node.calls("DEL") == ["DEL c c1 eth2", "DEL b c1 eth1"]
    assert node.states() == ["ready", "ready"]


def test_unused_capabilities_are_in_the_result_and_in_one_warning_each(
    node: ManagerNode, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        node.configure(name, {"type": name, "capabilities": {"aliases": True}})
    caplog.set_level(logging.WARNING, "libcni")  # the command's explain raises the level of its process
    own = NetworkRequest("b", capability_args={"aliases": ["db"], "mac": "02:00:00:00:00:01"})
    result = make().set_up(Container("c1", "/ns", ["a", own], capability_args={"ips": ["10.1.0.9/24"], "aliases": []}))
    assert result.unused_capabilities == ("ips", "mac")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [[name for name in ("ips", "mac", "aliases") if name in text] for text in warnings] == [["ips"], ["mac"]]


def test_a_block_of_attached_has_the_result_and_ends_with_the_tear_down(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    with manager.attached(Container("c1", "/ns")) as result:
        assert list(result.interfaces) == ["eth0"]
        assert node.calls() == ["ADD a c1 eth0"]
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0"]
    node.plugin("a", fails("DEL"))
    with pytest.raises(ValueError, match="block") as caught, manager.attached(Container("c1", "/ns")):
        raise ValueError("block")
    assert 'when the container was torn down: plugin "a" failed' in caught.value.__notes__[0]
    with pytest.raises(CNIErrorGroup), manager.attached(Container("c2", "/ns")):
        pass


def test_a_block_of_attached_on_asyncio_is_torn_down_even_if_it_is_cancelled_twice(node: ManagerNode) -> None:
    node.configure("a")
    node.plugin("a", "[ $CNI_COMMAND = DEL ] && sleep 0.3")
    manager = node.async_manager()

    async def work() -> None:
        async with manager.attached(Container("c1", "/ns")) as result:
            assert list(result.interfaces) == ["eth0"]
            await asyncio.sleep(20)

    async def go() -> None:
        task = asyncio.create_task(work())
        for verb in ("ADD", "DEL"):
            await until(lambda: node.calls(verb) and (verb == "DEL" or node.states() == ["ready"]), task)  # noqa: B023
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0"]
    assert node.states() == []


def test_an_exception_before_an_add_leaves_the_live_attachment_of_before_alone(
    node: ManagerNode, make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("broken")

    node.configure("a")
    node.manager().set_up(Container("c1", "/ns"))
    monkeypatch.setattr(VerbRun, "lock", broken)
    with pytest.raises(RuntimeError, match="broken"):
        make().set_up(Container("c1", "/ns"))
    assert node.calls() == ["ADD a c1 eth0"]
    assert [one.state for one in node.cni.get_cached_attachments()] == ["ready"]


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
def test_a_cancelled_set_up_leaves_its_records_or_nothing(
    node: ManagerNode, on_cancel: Any, tool: FakeNamespaces
) -> None:
    node.configure_each("a", "b")
    node.plugin("a", "[ $CNI_COMMAND = DEL ] && sleep 0.3")
    node.plugin("b", "[ $CNI_COMMAND = ADD ] && exec sleep 60")
    manager = node.async_manager(namespaces=tool)

    async def go() -> None:
        task = asyncio.create_task(manager.set_up(Container("c1", networks=["a", "b"]), on_cancel=on_cancel))
        await until(lambda: len(node.calls("ADD")) == 2, task)
        task.cancel()
        if on_cancel == "rollback":
            await until(lambda: "DEL a c1 eth0" in node.calls(), task)
        task.cancel()  # a second one does not cut the roll-back short
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    recorded = sorted(one.network for one in node.cni.get_cached_attachments())
    assert (recorded, list(tool.there)) == ((["a", "b"], ["c1"]) if on_cancel == "keep" else ([], []))


def test_a_cancelled_set_up_is_one_warning_in_the_log(node: ManagerNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    node.configure_each("a", "b")
    node.plugin("b", "[ $CNI_COMMAND = ADD ] && exec sleep 60")
    manager = node.async_manager(client={"observer": LoggingObserver()})

    async def go() -> None:
        task = asyncio.create_task(manager.set_up(Container("c1", "/ns", ["a", "b"])))
        await until(lambda: len(node.calls("ADD")) == 2, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [text.split(" in ")[0] for text in warnings] == ["SET-UP c1: CancelledError"]
    assert any("ADD b c1 eth1: CancelledError" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_existing": "sometimes"}, ValueError),
        ({"on_cancel": "never"}, ValueError),
        ({"colour": "red"}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": "3"}, TypeError),
    ],
)
def test_bad_options_are_refused_and_nothing_is_left(
    node: ManagerNode, make: Callable[..., Any], options: dict[str, Any], error: type[Exception], tool: FakeNamespaces
) -> None:
    node.configure("a")
    with pytest.raises(error, match=next(iter(options))):
        make(namespaces=tool).set_up(Container("c1"), **options)
    assert (node.calls(), tool.there) == ([], {})
