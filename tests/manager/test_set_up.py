"""Set-up: which networks, under which interface names, in which order, and all or nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from libcni import (
    CapabilityArgs,
    CNIError,
    ConfigError,
    DelPolicy,
    InvalidIdentifierError,
    NetworkConfigList,
    PluginError,
    PortMapping,
    RetryPolicy,
)
from libcni.errors import AttachmentExistsError, LockTimeoutError, NetworkNotFoundError, PluginTimeoutError
from libcni.manager import Container, Namespaces, NetworkRequest
from libcni.observe.protocol import Observer, Operation
from manager.fakes import FakeTool, Place, fails, network_json


def test_networks_are_attached_in_order_and_interface_names_are_assigned(place: Place) -> None:
    for name in ("b", "a", "c"):
        place.network(name)
    result = place.manager().set_up(Container("c1", "/ns", ["c", "a", "b"]))
    assert place.calls("ADD") == ["ADD c c1 eth0", "ADD a c1 eth1", "ADD b c1 eth2"]
    assert [(one.network, one.ifname) for one in result.attachments] == [("c", "eth0"), ("a", "eth1"), ("b", "eth2")]


def test_given_interface_names_are_kept_and_assigned_ones_avoid_them(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.network(name)
    networks: list[str | NetworkRequest] = [NetworkRequest("a"), "b@eth0", NetworkRequest("c", ifname="net1")]
    place.manager().set_up(Container("c1", "/ns", networks))
    assert place.calls("ADD") == ["ADD a c1 eth1", "ADD b c1 eth0", "ADD c c1 net1"]


def test_a_preview_says_what_a_set_up_would_attach_and_runs_nothing(place: Place) -> None:
    place.network("a")
    place.network("b")
    manager = place.manager(loopback=True)
    assert manager.preview(Container("c1", "/ns", ["b", "a@x"])) == (("cni-loopback", "lo"), ("b", "eth0"), ("a", "x"))
    assert place.calls() == []
    with pytest.raises(NetworkNotFoundError):
        manager.preview(Container("c1", "/ns", ["none"]))


def test_the_prefix_of_assigned_names_can_be_chosen(place: Place) -> None:
    place.network("a")
    place.manager(prefix="net").set_up(Container("c1", "/ns"))
    assert place.calls("ADD") == ["ADD a c1 net0"]


@pytest.mark.parametrize("networks", [["a@x", "b@x"], ["a@lo"], ["a@", "b"], ["a@" + "x" * 16]])
def test_bad_and_duplicate_interface_names_are_refused_before_anything_runs(place: Place, networks: list[str]) -> None:
    place.network("a")
    place.network("b")
    with pytest.raises(InvalidIdentifierError):
        place.manager(loopback=True).set_up(Container("c1", "/ns", networks))
    assert place.calls() == []


def test_an_unknown_network_is_refused_before_anything_runs(place: Place) -> None:
    place.network("a")
    with pytest.raises(NetworkNotFoundError, match="there are: a"):
        place.manager().set_up(Container("c1", "/ns", ["a", "b"]))
    assert place.calls() == []


def test_a_network_that_came_after_the_last_look_is_found(place: Place) -> None:
    manager = place.manager()
    place.network("late")
    manager.set_up(Container("c1", "/ns", ["late"]))
    assert place.calls("ADD") == ["ADD late c1 eth0"]


def test_a_default_network_that_came_after_the_last_look_is_found(place: Place) -> None:
    manager = place.manager()
    place.network("late")
    manager.set_up(Container("c1", "/ns"))
    assert place.calls("ADD") == ["ADD late c1 eth0"]


def test_the_same_network_twice_has_parameters_of_its_own_each_time(place: Place) -> None:
    place.network("a", capabilities={"mac": True})
    requests = [NetworkRequest("a", capability_args={"mac": f"02:00:00:00:00:0{n}"}) for n in (1, 2)]
    place.manager().set_up(Container("c1", "/ns", requests))
    macs = [place.stdin("ADD", "a", ifname)["runtimeConfig"]["mac"] for ifname in ("eth0", "eth1")]
    assert macs == ["02:00:00:00:00:01", "02:00:00:00:00:02"]


def test_a_failure_detaches_what_was_attached_in_reverse_order(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.network(name)
    place.plugin("c", fails("ADD", msg="full"))
    with pytest.raises(PluginError, match="full") as caught:
        place.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]))
    assert place.calls("DEL") == ["DEL c c1 eth2", "DEL b c1 eth1", "DEL a c1 eth0"]
    assert place.client().get_cached_attachments() == []
    assert caught.value.rollback_errors == ()
    assert place.kinds(without="reload")[-3:] == ["attachment-removed", "attachment-removed", "problem"]


def test_errors_of_the_roll_back_are_in_the_error_and_stay_recorded(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.network(name)
    place.plugin("b", fails("DEL", msg="stuck"))
    place.plugin("c", fails("ADD", msg="full"))
    with pytest.raises(PluginError, match="full") as caught:
        place.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]))
    assert place.calls("DEL")[1:] == ["DEL b c1 eth1", "DEL a c1 eth0"]
    assert [str(error.msg) for error in caught.value.rollback_errors if isinstance(error, PluginError)] == ["stuck"]
    assert [one.network for one in place.client().get_cached_attachments()] == ["b"]


def test_a_second_set_up_is_refused_and_leaves_the_first_alone(place: Place) -> None:
    place.network("a")
    manager = place.manager()
    manager.set_up(Container("c1", "/ns"))
    with pytest.raises(AttachmentExistsError):
        manager.set_up(Container("c1", "/ns"))
    assert place.calls("DEL") == []
    manager.set_up(Container("c1", "/ns"), on_existing="replace")
    assert place.calls() == ["ADD a c1 eth0", "DEL a c1 eth0", "ADD a c1 eth0"]


def test_a_failing_hot_plug_leaves_the_attachments_of_before_alone(place: Place) -> None:
    place.network("a")
    place.network("b")
    place.plugin("b", fails("ADD"))
    manager = place.manager()
    manager.set_up(Container("c1", "/ns", ["a"]))
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", "/ns", ["b@eth1"]))
    assert [one.network for one in place.client().get_cached_attachments("c1")] == ["a"]


def test_loopback_comes_first_as_lo(place: Place) -> None:
    place.plugin("loopback")
    place.network("a")
    result = place.manager(loopback=True).set_up(Container("c1", "/ns"))
    assert place.calls("ADD") == ["ADD loopback c1 lo", "ADD a c1 eth0"]
    assert list(result.interfaces) == ["lo", "eth0"]
    assert result.primary()[0].compressed == "10.1.0.5"


@pytest.mark.parametrize(("manager", "container", "expected"), [(True, False, False), (False, True, True)])
def test_a_container_may_say_itself_whether_it_wants_loopback(
    place: Place, manager: Any, container: bool, expected: bool
) -> None:
    place.plugin("loopback")
    place.network("a")
    place.manager(loopback=manager).set_up(Container("c1", "/ns", loopback=container))
    assert ("ADD loopback c1 lo" in place.calls("ADD")) is expected


def test_loopback_may_be_the_callers_own_network(place: Place) -> None:
    place.plugin("mylo")
    place.network("a")
    lo = NetworkConfigList.from_bytes(network_json("my-loopback", "mylo"))
    place.manager(loopback=lo).set_up(Container("c1", "/ns"))
    assert place.calls("ADD") == ["ADD mylo c1 lo", "ADD a c1 eth0"]


def test_arguments_of_the_container_reach_every_network_and_those_of_one_win(place: Place) -> None:
    place.network("a")
    place.network("b")
    requests = [NetworkRequest("a"), NetworkRequest("b", args={"K": "own", "L": "2"})]
    place.manager().set_up(Container("c1", "/ns", requests, args=[("IgnoreUnknown", "1"), ("K", "all")]))
    assert place.variable("args", "ADD", "a", "eth0") == "IgnoreUnknown=1;K=all"
    assert place.variable("args", "ADD", "b", "eth1") == "IgnoreUnknown=1;K=own;L=2"


def test_capabilities_of_the_container_go_to_the_networks_that_declare_them(place: Place) -> None:
    place.network("a", capabilities={"portMappings": True})
    place.network("b")
    given = CapabilityArgs(port_mappings=(PortMapping(host_port=80, container_port=8080),), mac="02:00:00:00:00:09")
    result = place.manager().set_up(Container("c1", "/ns", ["a", "b"], capability_args=given))
    assert place.stdin("ADD", "a", "eth0")["runtimeConfig"]["portMappings"][0]["hostPort"] == 80
    assert "runtimeConfig" not in place.stdin("ADD", "b", "eth1")
    assert result.unused_capabilities == ("mac",)


def test_a_network_is_not_given_what_it_does_not_declare_and_so_does_not_refuse_it(place: Place) -> None:
    place.network("a", capabilities={"mac": True})
    place.network("b")
    given = {"mac": "02:00:00:00:00:09"}
    place.manager().set_up(Container("c1", "/ns", ["a", "b"], capability_args=given), strict=True)
    request = NetworkRequest("b", capability_args=given)
    with pytest.raises(ConfigError):
        place.manager().set_up(Container("c2", "/ns", [request]), strict=True)


def test_capabilities_may_have_any_name(place: Place) -> None:
    name = "io.kubernetes.cri.pod-annotations"
    place.network("a", capabilities={name: True, "aliases": True, "cgroupPath": True})
    given = {name: {"x": "y"}, "aliases": ["db"], "cgroupPath": "/pods/1"}
    place.manager().set_up(Container("c1", "/ns", capability_args=given))
    assert place.stdin("ADD", "a", "eth0")["runtimeConfig"] == given


def test_network_args_of_the_container_and_of_a_network_are_merged(place: Place) -> None:
    place.network("a")
    request = NetworkRequest("a", network_args={"cni": {"ips": ["10.1.0.9"]}})
    place.manager().set_up(Container("c1", "/ns", [request], network_args={"cni": {"labels": []}, "x": 1}))
    assert place.stdin("ADD", "a", "eth0")["args"] == {"cni": {"labels": [], "ips": ["10.1.0.9"]}, "x": 1}


def test_a_configuration_in_the_request_needs_no_file(place: Place) -> None:
    place.plugin("own")
    net = NetworkConfigList.from_bytes(network_json("own-net", "own"))
    manager = place.manager()
    manager.set_up(Container("c1", "/ns", [NetworkRequest(net)]))
    manager.tear_down("c1")
    assert place.calls() == ["ADD own c1 eth0", "DEL own c1 eth0"]


def test_code_11_is_tried_again_and_another_error_is_not(place: Place) -> None:
    place.network("a")
    place.plugin("a", fails("ADD", 11, when="[ $(grep -c ^ADD calls) -lt 3 ]").replace("calls", str(place.log)))
    manager = place.manager(retry=RetryPolicy(attempts=3, delay=0.01))
    manager.set_up(Container("c1", "/ns"))
    assert len(place.calls("ADD")) == 3
    place.plugin("a", fails("ADD", 7))
    with pytest.raises(PluginError):
        manager.set_up(Container("c2", "/ns"))
    assert len(place.calls("ADD")) == 4


def test_code_11_is_tried_again_only_so_often_and_never_without_being_asked(place: Place) -> None:
    place.network("a")
    place.plugin("a", fails("ADD", 11))
    for manager, tries in ((place.manager(retry=RetryPolicy(attempts=3, delay=0.01)), 3), (place.manager(), 1)):
        before = len(place.calls("ADD"))
        with pytest.raises(PluginError):
            manager.set_up(Container("c1", "/ns"))
        assert len(place.calls("ADD")) - before == tries


def test_the_time_limit_is_for_all_networks_together_and_the_roll_back_has_its_own(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.network(name)
        place.plugin(name, "[ $CNI_COMMAND = ADD ] && sleep 0.4")
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError):
        place.manager().set_up(Container("c1", "/ns", ["a", "b", "c"]), timeout=0.6)
    assert time.monotonic() - started < 5
    assert place.calls("DEL")[-1] == "DEL a c1 eth0"
    assert place.client().get_cached_attachments() == []


def test_the_same_container_is_done_once_at_a_time_even_between_managers(place: Place) -> None:
    """Two set-ups and a tear-down of one container never mix: each network's ADD or DEL has the container alone."""
    place.network("a")
    place.network("b")
    for name in ("a", "b"):
        place.plugin(name, "sleep 0.05")
    one, two = place.manager(), place.manager()
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
    text = ",".join(call.split()[0] + call.split()[1] for call in place.calls())
    assert text.replace("ADDa,ADDb", "U").replace("DELb,DELa", "D").strip("UD,") == ""
    assert all(isinstance(error, AttachmentExistsError) for error in errors)


def test_a_wait_for_the_container_has_an_end(place: Place) -> None:
    place.network("a")
    place.plugin("a", "[ $CNI_COMMAND = ADD ] && sleep 1")
    manager = place.manager()
    thread = threading.Thread(target=lambda: manager.set_up(Container("c1", "/ns")))
    thread.start()
    while not place.calls("ADD"):
        time.sleep(0.01)
    with pytest.raises(LockTimeoutError):
        manager.tear_down("c1", timeout=0.1)
    thread.join()


def test_container_returns_what_set_up_returned(place: Place) -> None:
    place.network("a")
    place.network("b")
    manager = place.manager()
    result = manager.set_up(Container("c1", "/ns", ["b", "a"]))
    assert place.manager().container("c1") == result
    assert manager.container("other") is None
    assert json.loads(result.to_json()) == result.to_dict()
    assert result.to_dict()["networks"][0]["result"] == result.attachments[0].result.to_dict()
    assert json.loads(result.attachments[0].result.to_json()) == result.attachments[0].result.to_dict()


def test_cancelled_or_killed_what_is_attached_by_then_is_found_by_tear_down(place: Place) -> None:
    place.network("a")
    place.network("b")

    class Interrupted(BaseException):
        pass

    manager = place.manager()

    def interrupt(event: Any) -> None:
        if event.kind == "attachment-added":
            raise Interrupted

    manager.observe(interrupt)
    with pytest.raises(Interrupted):
        manager.set_up(Container("c1", "/ns", ["a", "b"]))
    assert [one.network for one in place.manager().tear_down("c1").detached] == ["a"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_existing": "sometimes"}, ValueError),
        ({"on_cancel": "never"}, ValueError),
        ({"colour": "red"}, TypeError),
        ({"strict": "yes"}, TypeError),
        ({"retry": 3}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"timeout": -1}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": "3"}, TypeError),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(
    place: Place, make: Callable[..., Any], options: dict[str, Any], error: type[Exception]
) -> None:
    place.network("a")
    tool = FakeTool()
    with pytest.raises(error, match=next(iter(options))):
        make(namespaces=Namespaces(tool)).set_up(Container("c1"), **options)
    assert (place.calls(), tool.done) == ([], [])


class Raising(Observer):
    """An observer of the client that fails after a plugin's ADD on some network."""

    def __init__(self, network: str) -> None:
        self.network = network

    def after_call(self, operation: Operation, *_: object) -> None:
        if operation.network == self.network and operation.verb == "ADD":
            raise RuntimeError("observer")


def test_an_exception_of_any_kind_leaves_neither_attachment_nor_namespace(
    place: Place, make: Callable[..., Any]
) -> None:
    place.network("a")
    place.network("b")
    tool = FakeTool()
    manager = make(namespaces=Namespaces(tool), client={"observer": Raising("b")})
    with pytest.raises(RuntimeError, match="observer"):
        manager.set_up(Container("c1", networks=["a", "b"]))
    assert place.client().get_cached_attachments() == []
    assert tool.there == {}
    assert place.calls("DEL")[-1] == "DEL a c1 eth0"


def test_an_exception_before_an_add_leaves_the_live_attachment_of_before_alone(
    place: Place, make: Callable[..., Any]
) -> None:
    class RaisingAtOnce(Observer):
        def begin(self, operation: Operation) -> None:
            if operation.verb == "ADD":
                raise RuntimeError("observer")

    place.network("a")
    place.manager().set_up(Container("c1", "/ns"))
    with pytest.raises(RuntimeError, match="observer"):
        make(client={"observer": RaisingAtOnce()}).set_up(Container("c1", "/ns"))
    assert place.calls() == ["ADD a c1 eth0"]
    assert [one.state for one in place.client().get_cached_attachments()] == ["ready"]


def test_an_interrupted_set_up_is_rolled_back_on_request(place: Place, make: Callable[..., Any]) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(event: Any) -> None:
        if event.kind == "attachment-added" and event.network == "b":
            raise Interrupted

    place.network("a")
    place.network("b")
    tool = FakeTool()
    manager = make(namespaces=Namespaces(tool), on_cancel="rollback")
    manager.observe(interrupt)
    with pytest.raises(Interrupted):
        manager.set_up(Container("c1", networks=["a", "b"]))
    assert place.calls("DEL") == ["DEL b c1 eth1", "DEL a c1 eth0"]
    assert (place.client().get_cached_attachments(), tool.there) == ([], {})


@pytest.mark.parametrize("on_cancel", ["keep", "rollback"])
def test_a_cancelled_set_up_leaves_its_records_or_nothing(place: Place, on_cancel: Any) -> None:
    place.network("a")
    place.network("b")
    place.plugin("a", "[ $CNI_COMMAND = DEL ] && sleep 0.3")
    place.plugin("b", "[ $CNI_COMMAND = ADD ] && sleep 5")
    tool = FakeTool()
    manager = place.async_manager(namespaces=Namespaces(tool))

    async def go() -> None:
        task = asyncio.create_task(manager.set_up(Container("c1", networks=["a", "b"]), on_cancel=on_cancel))
        while len(place.calls("ADD")) < 2:  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)
        task.cancel()
        while on_cancel == "rollback" and "DEL a c1 eth0" not in place.calls():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.01)
        task.cancel()  # a second one does not cut the roll-back short
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    recorded = sorted(one.network for one in place.client().get_cached_attachments())
    assert (recorded, list(tool.there)) == ((["a", "b"], ["c1"]) if on_cancel == "keep" else ([], []))


def test_a_container_has_an_address_and_a_device_for_one_network_only(place: Place) -> None:
    for name in ("a", "b"):
        place.network(name, capabilities={"ips": True, "mac": True, "portMappings": True})
    given = {"ips": ["10.1.0.9/24"], "portMappings": [{"hostPort": 80, "containerPort": 80}]}
    place.manager().set_up(Container("c1", "/ns", ["a", "b"], capability_args=given))
    assert place.stdin("ADD", "a", "eth0")["runtimeConfig"] == given
    assert "ips" not in place.stdin("ADD", "b", "eth1")["runtimeConfig"]


def test_only_so_many_set_ups_run_at_once(place: Place, make: Callable[..., Any]) -> None:
    place.network("a")
    place.plugin("a", "[ $CNI_COMMAND = ADD ] && sleep 0.3 && echo end >> " + str(place.log))
    manager = make(max_set_ups=1)
    threads = [threading.Thread(target=manager.set_up, args=(Container(f"c{n}", "/ns"),)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    words = [line.split()[0] for line in place.log.read_text().splitlines()]
    assert words == ["ADD", "end"] * 3
    assert manager.max_set_ups == 1


def test_a_wait_for_other_set_ups_has_an_end(place: Place, make: Callable[..., Any]) -> None:
    place.network("a")
    place.plugin("a", "[ $CNI_COMMAND = ADD ] && sleep 2")
    manager = make(max_set_ups=1)
    thread = threading.Thread(target=manager.set_up, args=(Container("c1", "/ns"),))
    thread.start()
    while not place.calls("ADD"):
        time.sleep(0.01)
    with pytest.raises(LockTimeoutError, match="container c2: 1 other set-ups"):
        manager.set_up(Container("c2", "/ns"), timeout=0.2)
    thread.join()


def test_settings_can_be_read_back_and_bad_ones_are_refused(place: Place, make: Callable[..., Any]) -> None:
    retry = RetryPolicy(2, 0.1)
    manager = make(
        default=["a"], minimum=2, prefix="net", retry=retry, on_cancel="rollback", policy=DelPolicy(keep_going=True)
    )
    assert (manager.default, manager.minimum, manager.prefix) == (["a"], 2, "net")
    assert (manager.retry, manager.on_cancel, manager.loopback, manager.max_set_ups) == (retry, "rollback", None, None)
    assert manager.policy == DelPolicy(keep_going=True, empty_gone_netns=True)
    bad: list[dict[str, Any]] = [{"default": 0}, {"default": -1}, {"default": []}, {"default": ""}, {"minimum": 0}]
    bad += [{"max_set_ups": 0}, {"on_cancel": "never"}, {"prefix": "a/b"}]
    for options in bad:
        with pytest.raises(ValueError, match=next(iter(options)) if "prefix" not in options else "interface name"):
            make(**options)
    with pytest.raises(ValueError, match="default"):
        manager.set_default(0)


PROGRAM = """
import sys
from libcni import CNIConfig
from libcni.manager import Container, NetworkManager
conf, plugins, cache = sys.argv[1:]
NetworkManager(CNIConfig([plugins], cache, conf_dir=conf)).set_up(Container("c1", "/ns", ["a", "b"]))
"""


def test_after_a_runtime_was_killed_in_a_set_up_another_tears_all_of_it_down(place: Place) -> None:
    place.network("a")
    place.network("b")
    place.plugin("b", "[ $CNI_COMMAND = ADD ] && sleep 1")
    words = [sys.executable, "-c", PROGRAM, str(place.conf), str(place.bin), str(place.cache)]
    with subprocess.Popen(words) as runtime:
        while "ADD b c1 eth1" not in place.calls("ADD"):
            assert runtime.poll() is None
            time.sleep(0.01)
        runtime.kill()
    report = place.manager().tear_down("c1")
    assert [one.network for one in report.detached] == ["b", "a"]
    assert place.client().get_cached_attachments() == []


def test_requests_and_results_are_small_values(place: Place) -> None:
    assert NetworkRequest.parse("a@b") == NetworkRequest("a", "b")
    assert NetworkRequest.parse("a") == NetworkRequest("a")
