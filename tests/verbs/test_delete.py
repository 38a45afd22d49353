"""DEL without a process or a disk: in reverse order, from the record, and never stopped by the record."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from helpers import RESULT, RT, RecordingRun, attached, failed, network

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import LockTimeoutError, NetworkNotFoundError, PluginError, RecordError
from libcni.executor.interface import CallOptions
from libcni.options import DelPolicy
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.model import CORRUPT, DETACHING, PENDING, READY, STALE_BOOT, Unreadable
from libcni.verbs.add import add
from libcni.verbs.del_report import DelReport, PluginReport
from libcni.verbs.delete import delete as del_verb

GIVEN = RuntimeConf(
    "c1",
    "/recorded",
    "eth0",
    args=[("K", "recorded")],
    capability_args={"mac": "02:00:00:00:00:01"},
    network_args={"cni": "recorded"},
)
CHAIN = network({"type": "a", "capabilities": {"mac": True}}, "b")
OTHER = network({"type": "x", "capabilities": {"mac": True}})
IDENTITY = ("net", "c1", "eth0")
CORRUPT_RECORD = Unreadable("net", "c1", "eth0", state=CORRUPT, path="/cache/net-c1-eth0", problem="it is empty")


def delete(node: RecordingRun, net: NetworkConfigList | None = CHAIN, rt: RuntimeConf = RT, **policy: Any) -> DelReport:
    report: DelReport = node.run(del_verb, "net", net, rt, DelPolicy(**policy))
    return report


def test_the_order_of_things() -> None:
    node = RecordingRun(records=[attached(CHAIN)])
    report = delete(node)
    assert node.log == ["lock net c1", "lookup", "find a b", "detach net", "DEL b", "DEL a", "forget net"]
    assert report == DelReport((PluginReport("b", "done"), PluginReport("a", "done")), "found", "/run/netns/blue")
    assert node.recorded == {}
    assert node.stdin("DEL", "a")["prevResult"] == node.stdin("DEL", "b")["prevResult"] == RESULT


@pytest.mark.parametrize(("keep_going", "given"), [(True, [4.0, 6.0, 12.0]), (False, [12.0, 12.0, 12.0])])
def test_a_plugin_that_hangs_leaves_time_for_the_others_if_the_del_goes_on(
    given: list[float], monkeypatch: pytest.MonkeyPatch, *, keep_going: bool
) -> None:
    timeouts: list[float | None] = []

    class Node(RecordingRun):
        async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
            timeouts.append(options.timeout)
            return await super().run_plugin(invocation, options)

    monkeypatch.setattr("libcni.kernel.system.monotonic", lambda: 0.0)
    node = Node(records=[attached(network("a", "b", "c"))])
    node._deadline = 12.0
    delete(node, network("a", "b", "c"), keep_going=keep_going)
    assert timeouts == given


BARE = RuntimeConf("c1", None, "eth0")
CALLERS = RuntimeConf(
    "c1",
    "/given",
    "eth0",
    args=[("K", "given")],
    capability_args={"mac": "02:00:00:00:00:02"},
    network_args={"cni": "given"},
)


@pytest.mark.parametrize("net", [CHAIN, OTHER, None], ids=["same", "changed", "gone"])
@pytest.mark.parametrize(("rt", "netns"), [(BARE, "/recorded"), (CALLERS, "/given")])
def test_what_its_add_used_is_used(net: NetworkConfigList | None, rt: RuntimeConf, netns: str) -> None:
    node = RecordingRun(records=[attached(CHAIN, GIVEN)])
    report = delete(node, net, rt)
    assert node.verbs() == ["DEL b", "DEL a"]
    got = node.stdin("DEL", "a")
    assert got["runtimeConfig"] == {"mac": "02:00:00:00:00:01"}
    assert got["args"] == {"cni": "recorded"}
    assert node.calls[0].env["CNI_ARGS"] == "K=recorded"
    assert node.calls[0].env["CNI_NETNS"] == report.netns == netns


@pytest.mark.parametrize("result", ['{"cniVersion":"9.9.9"}', "[]", '{"ips":5}'])
def test_a_recorded_result_that_cannot_be_used_stops_no_del(result: str, caplog: pytest.LogCaptureFixture) -> None:
    node = RecordingRun(records=[attached(CHAIN, result=result)])
    with caplog.at_level(logging.WARNING, "libcni"):
        delete(node)
    assert "prevResult" not in node.stdin("DEL", "a")
    assert "DEL goes on without prevResult" in caplog.text


def test_a_pending_attachment_sends_no_prev_result() -> None:
    node = RecordingRun(records=[attached(CHAIN, state=PENDING, result=None)])
    delete(node)
    assert node.log == ["lock net c1", "lookup", "find a b", "find a b", "detach net", "DEL b", "DEL a", "forget net"]
    assert "prevResult" not in node.stdin("DEL", "a")


def test_an_add_that_did_not_end_sends_the_last_result() -> None:
    node = RecordingRun({("ADD", "b"): failed()})
    with pytest.raises(PluginError):
        node.run(add, CHAIN, RT, rollback=False)
    delete(node)
    assert node.stdin("DEL", "b")["prevResult"] == node.stdin("DEL", "a")["prevResult"] == RESULT


def test_a_corrupt_record_stays_where_nothing_says_what_to_detach() -> None:
    node = RecordingRun(records=[CORRUPT_RECORD])
    with pytest.raises(NetworkNotFoundError):
        delete(node, None)
    assert node.log == ["lock net c1", "lookup"]


@pytest.mark.parametrize("step", ["lock", "lookup", "forget", "set-aside"])
def test_a_disk_that_refuses_never_stops_a_del(step: str, caplog: pytest.LogCaptureFixture) -> None:
    record = CORRUPT_RECORD if step == "set-aside" else attached(CHAIN)
    node = RecordingRun({step: RecordError("read-only")}, records=[record])
    with caplog.at_level(logging.WARNING, "libcni"):
        report = delete(node)
    assert node.verbs() == ["DEL b", "DEL a"]
    assert report.record == ("unreadable" if step in {"lookup", "set-aside"} else "found")
    assert "read-only" in caplog.text


def test_a_lock_that_is_held_stops_it() -> None:
    node = RecordingRun({"lock": LockTimeoutError("held")}, records=[attached(CHAIN)])
    with pytest.raises(LockTimeoutError):
        delete(node)
    assert node.calls == []


def test_gos_records_lack_drop_ins_so_the_callers_configuration_is_the_better_one() -> None:
    go = attached(CHAIN, GIVEN, version="", plugins=())
    node = RecordingRun(records=[go])
    delete(node, OTHER, BARE)
    assert node.verbs() == ["DEL x"]
    assert node.stdin("DEL", "x")["runtimeConfig"] == {"mac": "02:00:00:00:00:01"}
    node = RecordingRun(records=[go])
    delete(node, None, BARE)
    assert node.verbs() == ["DEL b", "DEL a"]
    assert node.stdin("DEL", "a")["runtimeConfig"] == {"mac": "02:00:00:00:00:01"}


def test_what_go_lets_into_cni_args_stops_no_del(caplog: pytest.LogCaptureFixture) -> None:
    node = RecordingRun(records=[attached(CHAIN, args=(("K", "v;w"),), capability_args='{"mac":1e400}')])
    with caplog.at_level(logging.WARNING, "libcni"):
        delete(node)
    assert node.calls[0].env["CNI_ARGS"] == ""
    assert "runtimeConfig" not in node.stdin("DEL", "a")
    assert "without the recorded CNI_ARGS" in caplog.text


@pytest.mark.parametrize("config", [b"", b"{", b'{"name":"net","plugins":[]}', b'{"name":"net","plugins":[{}]}'])
def test_a_recorded_configuration_that_cannot_be_used(config: bytes, caplog: pytest.LogCaptureFixture) -> None:
    record = attached(CHAIN, config=config, version="", plugins=())
    node = RecordingRun(records=[record])
    with (
        caplog.at_level(logging.WARNING, "libcni"),
        pytest.raises(RecordError, match="no usable configuration") as caught,
    ):
        delete(node, None)
    assert (caught.value.path, caught.value.missing) == (record.path, "configuration")
    assert node.calls == []
    assert node.recorded == {IDENTITY: record}
    delete(node, OTHER)
    assert node.verbs() == ["DEL x"]
    node = RecordingRun(records=[attached(CHAIN, config=config, plugins=())], configured=[OTHER])
    delete(node, None)
    assert node.verbs() == ["DEL x"], "the network's file replaces a configuration that the record does not hold"


@pytest.mark.parametrize("recorded", [{"version": "", "plugins": ()}, {}])
def test_a_list_that_was_put_together_in_code_is_as_good_as_one_from_a_file(recorded: dict[str, Any]) -> None:
    for net in (NetworkConfigList("net", "1.0.0", CHAIN.plugins), replace(OTHER, name="net", plugins=CHAIN.plugins)):
        if recorded and net.raw:
            continue
        node = RecordingRun(records=[attached(net, GIVEN, **recorded)])
        delete(node, None, BARE)
        assert node.verbs() == ["DEL b", "DEL a"]
        assert node.stdin("DEL", "a")["runtimeConfig"] == {"mac": "02:00:00:00:00:01"}


def test_a_renamed_list_keeps_its_new_name() -> None:
    net = replace(network("a", name="old"), name="net")
    node = RecordingRun(records=[attached(net)])
    delete(node, None)
    assert node.stdin("DEL", "a")["name"] == "net"


def test_a_recorded_configuration_without_plugins_is_never_taken_for_nothing_to_do() -> None:
    go = attached(CHAIN, version="", plugins=(), config=b'{"name":"net","cniVersion":"1.0.0"}')
    node = RecordingRun(records=[go])
    with pytest.raises(RecordError, match="no usable configuration"):
        delete(node, None)
    assert node.recorded == {IDENTITY: go}


@pytest.mark.parametrize("more", [{}, {"version": "", "plugins": ()}, {"state": PENDING, "result": None}])
@pytest.mark.parametrize("use_given", [False, True])
def test_a_given_list_without_plugins_is_never_taken_for_nothing_to_do(more: dict[str, Any], use_given: bool) -> None:
    node = RecordingRun(records=[attached(CHAIN, **more)])
    empty = NetworkConfigList.from_bytes(b'{"name":"net","cniVersion":"1.0.0"}')
    delete(node, empty, use_given=use_given)
    assert node.verbs() == ["DEL b", "DEL a"]
    record = attached(CHAIN, state=PENDING, result=None)
    node = RecordingRun({("DEL", "b"): failed()}, records=[record])
    with pytest.raises(PluginError):
        delete(node, empty)
    assert node.recorded == {IDENTITY: replace(record, state=DETACHING)}


@pytest.mark.parametrize("use_given", [False, True])
def test_a_listed_attachment_is_detached_with_the_present_configuration_if_the_caller_asks_for_it(
    use_given: bool,
) -> None:
    """The error of a DEL advises it."""
    record = attached(CHAIN)
    node = RecordingRun(records=[record], configured=[OTHER])
    node.run(del_verb, "net", None, RT.with_netns(None), DelPolicy(use_given=use_given), listed=record)
    assert node.verbs() == (["DEL x"] if use_given else ["DEL b", "DEL a"])


def test_a_listed_attachment_that_another_program_has_detached_is_not_detached_again() -> None:
    node = RecordingRun(configured=[OTHER])
    report = node.run(del_verb, "net", None, RT, DelPolicy(use_given=True), listed=attached(CHAIN))
    assert (report.record, node.verbs()) == ("missing", [])


@pytest.mark.parametrize(
    ("net", "tries", "notes"), [(CHAIN, 1, []), (OTHER, 2, ['with the current configuration or arguments: plugin "x"'])]
)
def test_a_note_tells_of_a_further_try_that_failed_in_another_way(
    net: NetworkConfigList, tries: int, notes: list[str]
) -> None:
    record = attached(CHAIN, state=PENDING, result=None)
    node = RecordingRun({("DEL", "b"): failed(), ("DEL", "x"): failed()}, records=[record])
    with pytest.raises(PluginError, match="no") as caught:
        delete(node, net)
    assert len([line for line in node.log if line.startswith("DEL")]) == tries
    assert [one.partition(" failed")[0] for one in getattr(caught.value, "__notes__", [])] == notes


@pytest.mark.parametrize(("skip_missing", "verbs"), [(False, ["DEL b"]), (True, ["DEL b", "DEL x"])])
def test_a_corrected_configuration_whose_plugin_is_missing_is_tried_only_if_it_may_be_skipped(
    skip_missing: bool, verbs: list[str]
) -> None:
    record = attached(CHAIN, state=PENDING, result=None)
    node = RecordingRun({("DEL", "b"): failed()}, records=[record], missing=["y"])
    corrected = network("y", "x")
    if skip_missing:
        delete(node, corrected, skip_missing=True)
    else:
        with pytest.raises(PluginError, match="no"):
            delete(node, corrected)
    assert node.verbs() == verbs


def test_plugins_get_no_address_from_before_a_reboot() -> None:
    """Its rules have not survived, and firewall would delete those of the container that has the address by now."""
    for state, sent in ((READY, 1), (STALE_BOOT, 0)):
        node = RecordingRun(records=[attached(CHAIN, state=state)], namespaces={"/run/netns/blue": (4, 1)})
        delete(node, None, BARE)
        assert len(node.stdin("DEL", "b")["prevResult"]["ips"]) == sent
