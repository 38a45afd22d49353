"""Set-up: which networks, under which interface names, in which order, and all or nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers import network
from processes import fork, kill_after

from libcni import (
    CNIError,
    DelPolicy,
    PluginError,
)
from libcni.errors import AttachmentExistsError, NetworkNotFoundError, PluginTimeoutError
from libcni.manager import Container, NetworkRequest
from libcni.observe.protocol import Observer, Operation
from libcni.testing import wait_until
from manager.fakes import FakeNamespaces, Killed, ManagerNode, fails


def test_a_plan_says_what_a_set_up_would_attach_and_runs_nothing(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    manager = node.manager(loopback=True)
    planned = manager.plan(Container("c1", "/ns", ["b", "a@x"]))
    assert [(one.net.name, one.rt.ifname) for one in planned] == [("cni-loopback", "lo"), ("b", "eth0"), ("a", "x")]
    assert node.calls() == []
    with pytest.raises(NetworkNotFoundError):
        manager.plan(Container("c1", "/ns", ["none"]))


def test_an_unknown_network_is_refused_before_anything_runs(node: ManagerNode) -> None:
    node.configure("a")
    with pytest.raises(NetworkNotFoundError, match="there are: a"):
        node.manager().set_up(Container("c1", "/ns", ["a", "b"]))
    assert node.calls() == []


def test_a_network_that_came_after_the_last_look_is_found(node: ManagerNode) -> None:
    manager = node.manager()
    node.configure("late")
    manager.set_up(Container("c1", "/ns", ["late"]))
    assert node.calls("ADD") == ["ADD late c1 eth0"]


def test_a_failure_detaches_what_was_attached_in_reverse_order(node: ManagerNode) -> None:
    for name in ("a", "b", "c"):
        node.configure(name)
    node.plugin("c", fails("ADD", msg="full"))
    with pytest.raises(PluginError, match="full") as caught:
        node.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]))
    assert node.calls("DEL") == ["DEL c c1 eth2", "DEL b c1 eth1", "DEL a c1 eth0"]
    assert node.cni.get_cached_attachments() == []
    assert caught.value.rollback_errors == ()


def test_errors_of_the_roll_back_are_in_the_error_and_stay_recorded(node: ManagerNode) -> None:
    for name in ("a", "b", "c"):
        node.configure(name)
    node.plugin("b", fails("DEL", msg="stuck"))
    node.plugin("c", fails("ADD", msg="full"))
    with pytest.raises(PluginError, match="full") as caught:
        node.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]))
    assert node.calls("DEL")[1:] == ["DEL b c1 eth1", "DEL a c1 eth0"]
    assert [str(error.msg) for error in caught.value.rollback_errors if isinstance(error, PluginError)] == ["stuck"]
    assert [one.network for one in node.cni.get_cached_attachments()] == ["b"]


def test_a_second_set_up_is_refused_and_leaves_the_first_alone(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns"))
    with pytest.raises(AttachmentExistsError):
        manager.set_up(Container("c1", "/ns"))
    assert node.calls("DEL") == []
    manager.set_up(Container("c1", "/ns"), on_existing="replace")
    assert node.calls() == ["ADD a c1 eth0", "DEL a c1 eth0", "ADD a c1 eth0"]


@pytest.mark.parametrize("loopback", [True, network("loopback", name="my-loopback")])
def test_loopback_comes_first_as_lo(node: ManagerNode, loopback: Any) -> None:
    node.plugin("loopback")
    node.configure("a")
    result = node.manager(loopback=loopback).set_up(Container("c1", "/ns"))
    assert node.calls("ADD") == ["ADD loopback c1 lo", "ADD a c1 eth0"]
    assert list(result.interfaces) == ["lo", "eth0"]
    assert result.primary()[0].compressed == "10.1.0.5"


def test_a_configuration_in_the_request_needs_no_file(node: ManagerNode) -> None:
    node.plugin("own")
    net = network("own", name="own-net")
    manager = node.manager()
    manager.set_up(Container("c1", "/ns", [NetworkRequest(net)]))
    manager.tear_down("c1")
    assert node.calls() == ["ADD own c1 eth0", "DEL own c1 eth0"]


def test_a_roll_back_detaches_interfaces_that_share_a_rule_in_two_attempts(node: ManagerNode) -> None:
    flag = node.conf_dir / "first-is-gone"
    shares = f"[ $CNI_IFNAME = x2 ] && [ ! -e {flag} ]"
    node.plugin("a", fails("DEL", when=shares) + f"\n[ $CNI_COMMAND != DEL ] || touch {flag}")
    node.plugin("b", fails("ADD"))
    node.configure("a")
    node.configure("b")
    with pytest.raises(PluginError) as caught:
        node.manager().set_up(Container("c1", "/ns", ["a@x1", "a@x2", "b"]))
    assert caught.value.rollback_errors == ()
    assert node.calls("DEL")[1:] == ["DEL a c1 x2", "DEL a c1 x1", "DEL a c1 x2"]
    assert node.client().get_cached_attachments() == []


def test_the_time_limit_is_for_all_networks_together_and_the_roll_back_has_its_own(node: ManagerNode) -> None:
    for name in ("a", "b", "c"):
        node.configure(name)
        node.plugin(name, "[ $CNI_COMMAND = ADD ] && sleep 0.4")
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError):
        node.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]), timeout=0.6)
    assert time.monotonic() - started < 5
    assert node.calls("DEL")[-1] == "DEL a c1 eth0"
    assert node.cni.get_cached_attachments() == []


def test_the_same_container_is_done_once_at_a_time_even_between_managers(node: ManagerNode) -> None:
    """Two set-ups and a tear-down of one container never mix: each network's ADD or DEL has the container alone."""
    node.configure("a")
    node.configure("b")
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
    node.configure("a")
    node.configure("b")
    manager = node.manager()
    result = manager.set_up(Container("c1", "/ns", ["b", "a"]))
    assert node.manager().container("c1") == result
    assert manager.container("other") is None


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
def test_an_interrupted_set_up_is_found_by_tear_down_or_rolled_back(
    node: ManagerNode, make: Callable[..., Any], on_cancel: str
) -> None:
    for name in ("a", "b", "c"):
        node.configure(name)
    tool = FakeNamespaces()
    manager = make(namespaces=tool, on_cancel=on_cancel, client={"observer": Interrupting("c")})
    with pytest.raises(Killed):
        manager.set_up(Container("c1", networks=["a", "b", "c"]))
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


class Raising(Observer):
    """An observer of the client that fails after a plugin's ADD on some network."""

    def __init__(self, network: str) -> None:
        self.network = network

    def after_call(self, operation: Operation, *_: object) -> None:
        if operation.network == self.network and operation.verb == "ADD":
            raise RuntimeError("observer")


def test_an_exception_of_any_kind_leaves_neither_attachment_nor_namespace(
    node: ManagerNode, make: Callable[..., Any]
) -> None:
    node.configure("a")
    node.configure("b")
    tool = FakeNamespaces()
    manager = make(namespaces=tool, client={"observer": Raising("b")})
    with pytest.raises(RuntimeError, match="observer"):
        manager.set_up(Container("c1", networks=["a", "b"]))
    assert node.cni.get_cached_attachments() == []
    assert tool.there == {}
    assert node.calls("DEL")[-1] == "DEL a c1 eth0"


def test_a_failure_leaves_the_attachment_of_before_that_it_was_allowed_to_change(
    node: ManagerNode, make: Callable[..., Any]
) -> None:
    for name in ("a", "b", "c"):
        node.configure(name)
    manager = make(loopback=node.network("a", name="lo"))
    manager.set_up(Container("c1", "/ns", ["a"]))
    node.plugin("c", "[ $CNI_COMMAND != ADD ] || exit 1")
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", "/ns", ["a", "b", "c"]), on_existing="allow")
    assert node.calls("DEL") == ["DEL c c1 eth2", "DEL b c1 eth1"]
    assert node.states() == ["ready", "ready"]


def test_an_exception_before_an_add_leaves_the_live_attachment_of_before_alone(
    node: ManagerNode, make: Callable[..., Any]
) -> None:
    class RaisingAtOnce(Observer):
        def begin(self, operation: Operation) -> None:
            if operation.verb == "ADD":
                raise RuntimeError("observer")

    node.configure("a")
    node.manager().set_up(Container("c1", "/ns"))
    with pytest.raises(RuntimeError, match="observer"):
        make(client={"observer": RaisingAtOnce()}).set_up(Container("c1", "/ns"))
    assert node.calls() == ["ADD a c1 eth0"]
    assert [one.state for one in node.cni.get_cached_attachments()] == ["ready"]


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
def test_a_cancelled_set_up_leaves_its_records_or_nothing(node: ManagerNode, on_cancel: Any) -> None:
    node.configure("a")
    node.configure("b")
    node.plugin("a", "[ $CNI_COMMAND = DEL ] && sleep 0.3")
    node.plugin("b", "[ $CNI_COMMAND = ADD ] && sleep 5")
    tool = FakeNamespaces()
    manager = node.async_manager(namespaces=tool)

    async def go() -> None:
        task = asyncio.create_task(manager.set_up(Container("c1", networks=["a", "b"]), on_cancel=on_cancel))
        while len(node.calls("ADD")) < 2:  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)
        task.cancel()
        while on_cancel == "rollback" and "DEL a c1 eth0" not in node.calls():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
        task.cancel()  # a second one does not cut the roll-back short
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    recorded = sorted(one.network for one in node.cni.get_cached_attachments())
    assert (recorded, list(tool.there)) == ((["a", "b"], ["c1"]) if on_cancel == "keep" else ([], []))


def test_settings_can_be_read_back_and_bad_ones_are_refused(node: ManagerNode, make: Callable[..., Any]) -> None:
    manager = make(default=["a"], minimum=2, prefix="net", on_cancel="rollback", policy=DelPolicy(keep_going=True))
    assert (manager.default, manager.minimum, manager.prefix) == (("a",), 2, "net")
    assert (manager.on_cancel, manager.loopback) == ("rollback", None)
    assert manager.policy == DelPolicy(keep_going=True)
    bad: list[dict[str, Any]] = [{"default": 0}, {"default": -1}, {"default": []}, {"default": ""}, {"minimum": 0}]
    bad += [{"on_cancel": "never"}, {"prefix": "a/b"}]
    for options in bad:
        with pytest.raises(ValueError, match=next(iter(options)) if "prefix" not in options else "interface name"):
            make(**options)
    with pytest.raises(ValueError, match="default"):
        manager.set_default(0)


def test_after_a_runtime_was_killed_in_a_set_up_another_tears_all_of_it_down(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    node.plugin("b", "[ $CNI_COMMAND = ADD ] && sleep 1")
    runtime = fork(lambda: node.manager().set_up(Container("c1", "/ns", ["a", "b"])))
    wait_until(lambda: "ADD b c1 eth1" in node.calls("ADD"))
    assert kill_after(runtime, 0)
    report = node.manager().tear_down("c1")
    assert [one.network for one in report.of("detached")] == ["b", "a"]
    assert node.cni.get_cached_attachments() == []
