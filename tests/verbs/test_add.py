"""ADD without a process or a disk: what runs, in which order, with what, and what is left when it fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from types import coroutine
from typing import Any

import pytest
from helpers import RESULT, RT, RecordingRun, a_call, attached, failed, network, printed

from libcni import CNIConfig, Invocation
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    AttachmentExistsError,
    CNIError,
    InterfaceExistsError,
    InvalidIdentifierError,
    InvalidOutputError,
    LockTimeoutError,
    NamespaceMismatchError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.executor import CallOptions
from libcni.protocol.invocation import Outcome
from libcni.store.journal import Journal
from libcni.store.model import PENDING, READY, REFUSED, STALE_BOOT, Ours, Record, State
from libcni.verbs.add import add as add_verb
from libcni.verbs.earlier import earlier_of

GIVEN = RuntimeConf(
    "c1",
    "/run/netns/blue",
    "eth0",
    args=[("K", "V")],
    capability_args={"mac": "x", "other": 1},
    network_args={"cni": {"labels": []}},
)


class FakePlugins:
    """An executor whose plugins succeed."""

    def find(self, plugin: str, path: Sequence[str]) -> str:
        return f"{path[0]}/{plugin}"

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        return printed() if invocation.verb == "ADD" else Outcome()


def add(node: RecordingRun, *plugins: Any, rt: RuntimeConf = RT, **options: Any) -> Any:
    return node.run(add_verb, network(*plugins or ("a", "b")), rt, **options)


@pytest.mark.parametrize("was_run", [True, False])
def test_a_first_plugin_that_did_not_run_leaves_nothing_to_undo(was_run: bool) -> None:
    """The DEL would fail for the same reason, for example because of arguments that no environment can hold."""
    refused = PluginError("cannot be started", a_call("ADD", "a"), was_run=was_run)
    node = RecordingRun({("ADD", "a"): refused})
    with pytest.raises(PluginError):
        add(node)
    assert [line for line in node.log if line.startswith("DEL")] == (["DEL b", "DEL a"] if was_run else [])
    assert node.log[-1].startswith("forget net")


def test_a_second_plugin_that_did_not_run_does_not_spare_the_first_its_del() -> None:
    node = RecordingRun({("ADD", "b"): PluginError("cannot be started", a_call("ADD", "b"), was_run=False)})
    with pytest.raises(PluginError):
        add(node)
    assert [line for line in node.log if line.startswith("DEL")] == ["DEL b", "DEL a"]


WRITTEN = ["begin net", "started net", "ADD a", "step net", "ADD b"]


def test_a_record_whose_directory_was_removed_meanwhile_is_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers._Journal.has_name", lambda _: False)
    node = RecordingRun()
    add(node)
    assert node.log[-2:] == ["complete net", "again net"]


class Interrupted(RecordingRun):
    """A node whose plugin b is interrupted."""

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        outcome = await super().run_plugin(invocation, options)
        if (invocation.verb, invocation.plugin) == ("ADD", "b"):
            await suspended()
            raise KeyboardInterrupt
        return outcome


@coroutine
def suspended() -> Generator[None]:
    """Suspend a verb, as a plugin of an asyncio client does."""
    yield


def test_the_roll_back_after_an_interruption_is_not_repeated() -> None:
    """Who interrupts a program waits for its end."""
    node = Interrupted({("DEL", "a"): failed()})
    verb = add_verb(node, network("a", "b"), RT, on_cancel="rollback")
    verb.send(None)
    with pytest.raises(KeyboardInterrupt):
        verb.send(None)
    assert node.verbs() == ["ADD a", "ADD b", "DEL b", "DEL a"]


def test_an_abandoned_add_runs_nothing_more() -> None:
    """The garbage collector closes it, at whatever moment."""
    node = Interrupted()
    verb = add_verb(node, network("a", "b"), RT, on_cancel="rollback")
    verb.send(None)
    verb.close()
    assert node.verbs() == ["ADD a", "ADD b"]
    assert [record.state for record in node.recorded.values()] == [PENDING]


def test_the_repeated_del_of_a_roll_back_gives_plugins_no_file_that_is_no_namespace() -> None:
    """They refuse it, and a DEL of a later program would not pass it either."""
    node = RecordingRun({("ADD", "b"): failed(), ("DEL", "a"): failed()}, not_namespaces=[RT.netns or ""])
    with pytest.raises(PluginError):
        add(node)
    netns = [call.env["CNI_NETNS"] for call in node.calls if call.verb == "DEL"]
    assert netns == [RT.netns, RT.netns, "", ""]


@pytest.mark.parametrize(("have_ended", "seconds"), [(True, 1.0), (False, 0.0)])
def test_the_wait_for_processes_of_plugins_before_and_after_a_roll_back(*, have_ended: bool, seconds: float) -> None:
    """One that runs after the DEL was started by the DEL, if none ran before it."""
    waits = []

    class Node(RecordingRun):
        async def plugins_have_ended(self, seconds: float) -> bool:
            waits.append(seconds)
            return have_ended

    with pytest.raises(PluginError) as caught:
        add(Node({("ADD", "b"): failed()}))
    assert waits == [1.0, seconds]
    assert bool(caught.value.rollback_errors) is not have_ended


def test_the_order_of_things() -> None:
    node = RecordingRun()
    result = add(node)
    assert node.log == ["find a b", "lock net c1", "siblings", *WRITTEN, "complete net"]
    assert result.to_dict() == RESULT


def test_the_record_says_what_was_used() -> None:
    net = network({"type": "a", "x": 1}, "b")
    node = RecordingRun({("ADD", "a"): failed()}, owner="me")
    with pytest.raises(PluginError):
        node.run(add_verb, net, GIVEN, rollback=False)
    (pending,) = node.recorded.values()
    assert pending == Ours(
        network="net",
        container_id="c1",
        ifname="eth0",
        state=PENDING,
        netns="/run/netns/blue",
        config=net.raw,
        version="1.0.0",
        plugins=('{"type":"a","x":1}', '{"type":"b"}'),
        args=(("K", "V"),),
        capability_args='{"mac":"x","other":1}',
        network_args='{"cni":{"labels":[]}}',
        path="/cache/net-c1-eth0",
        owner="me",
    )
    node = RecordingRun()
    node.run(add_verb, net, GIVEN)
    (ready,) = node.recorded.values()
    assert ready.state == READY
    assert json.loads(ready.result or "") == RESULT
    assert ready.path


def test_a_bad_network_name_is_refused_also_when_built_in_code() -> None:
    node = RecordingRun()
    with pytest.raises(InvalidIdentifierError, match="network name"):
        node.run(add_verb, replace(network(), name="../x"), RT)
    assert node.log == []


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("lock", LockTimeoutError("held")),
        ("lock", RecordError("read-only")),
        ("siblings", RecordError("unreadable")),
        ("begin", RecordError("full")),
    ],
)
def test_what_fails_before_the_first_plugin_is_not_rolled_back(step: str, error: CNIError) -> None:
    node = RecordingRun({step: error})
    with pytest.raises(type(error)) as caught:
        add(node)
    assert caught.value is error
    assert node.calls == []
    assert node.recorded == {}


def test_a_failed_add_is_rolled_back_in_reverse_order() -> None:
    node = RecordingRun({("ADD", "b"): failed(11, "later")})
    with pytest.raises(PluginError) as caught:
        add(node, "a", "b", "c")
    assert node.log[3:] == [*WRITTEN, "start-cleanup", "DEL c", "DEL b", "DEL a", "forget net"]
    assert (caught.value.code, caught.value.msg, caught.value.plugin) == (11, "later", "b")
    assert caught.value.retryable
    assert caught.value.rollback_errors == ()
    assert node.recorded == {}
    assert node.stdin("DEL", "a")["prevResult"] == node.stdin("DEL", "c")["prevResult"] == RESULT


def test_roll_back_goes_on_over_errors_and_keeps_the_record() -> None:
    node = RecordingRun(
        {("ADD", "b"): failed(7, "no"), ("DEL", "b"): failed(5, "disk"), ("DEL", "a"): PluginTimeoutError("slow")}
    )
    with pytest.raises(PluginError, match="no") as caught:
        add(node)
    assert node.verbs() == ["ADD a", "ADD b", "DEL b", "DEL a"]
    assert caught.value.record_state == PENDING
    first, second = caught.value.rollback_errors
    assert isinstance(first, PluginError)
    assert first.code == 5
    assert isinstance(second, PluginTimeoutError)
    assert "; the roll-back failed, and the record stays pending: " in str(caught.value)
    assert f": {first.text}; {second.text} (" in str(caught.value)
    assert [record.state for record in node.recorded.values()] == [PENDING]


def test_a_record_that_cannot_be_removed_is_a_rollback_error() -> None:
    node = RecordingRun({("ADD", "a"): failed(), "forget": RecordError("stuck")})
    with pytest.raises(PluginError) as caught:
        add(node)
    assert [str(error) for error in caught.value.rollback_errors] == ["stuck"]


def test_a_record_that_cannot_be_completed_is_rolled_back_with_the_result() -> None:
    node = RecordingRun({"complete": RecordError("full")})
    with pytest.raises(RecordError, match="full"):
        add(node)
    assert node.verbs() == ["ADD a", "ADD b", "DEL b", "DEL a"]
    assert node.stdin("DEL", "a")["prevResult"] == RESULT
    assert node.recorded == {}


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (Outcome(stdout=b""), "it printed nothing, and a result was expected"),
        (Outcome(stdout=b'{"ips":[{"address":"10.0.0.2"}]}'), "ips[0].address: '10.0.0.2' is not an address"),
        (Outcome(stdout=b'{"x":1,"ips":5}'), """in '{"cniVersion":"1.0.0","x":1,"ips":5}'"""),
        (Outcome(stdout=b'{"code":7,"msg":"no"}'), "an error document and exit status 0: no (code 7)"),
    ],
)
def test_output_that_is_no_result(outcome: Outcome, problem: str) -> None:
    with_stderr = Outcome(0, outcome.stdout, b"x" * 5000 + b"the end")
    node = RecordingRun({("ADD", "b"): with_stderr})
    with pytest.raises(InvalidOutputError) as caught:
        add(node)
    error = caught.value
    assert problem in error.problem
    assert (error.plugin, error.verb, error.network, error.container_id, error.ifname) == (
        "b",
        "ADD",
        "net",
        "c1",
        "eth0",
    )
    assert (error.path, error.exit_status, error.code) == ("/opt/cni/bin/b", 0, None)
    assert error.stdout == outcome.stdout.decode()
    assert "the end" in str(error)
    assert len(str(error)) < 1500
    assert node.verbs()[-2:] == ["DEL b", "DEL a"]


@pytest.mark.parametrize(
    ("outcome", "problem", "code"),
    [
        (Outcome(1, b'{"code":7,"msg":"m","details":"d"}'), "m; d (code 7)", 7),
        (Outcome(1, b'{"code":-7}'), "no message (code -7)", -7),
        (Outcome(1, b'{"msg":"m","details":null}'), "m (code 0)", 0),
        (Outcome(3, b""), "it failed with exit status 3, and its stdout is empty", None),
        (
            Outcome(1, b"panic: x"),
            "exit status 1, and its stdout is not an error document: 'panic: x'",
            None,
        ),
        (Outcome(1, b"{}"), "not an error document", None),
        (Outcome(1, b'{"code":true}'), "not an error document", None),
        (Outcome(1, b'{"code":7,"details":5}'), "not an error document", None),
        (Outcome(None, b"", signal=9), "it was ended by signal 9 (SIGKILL)", None),
        (Outcome(None, b"half a res", signal=9), "signal 9 (SIGKILL), and had printed 'half a res'", None),
        (Outcome(None, b"", signal=64), "it was ended by signal 64", None),
        (Outcome(None, b"", signal=99), "it was ended by signal 99", None),
    ],
)
def test_how_a_plugin_can_fail(outcome: Outcome, problem: str, code: int | None) -> None:
    node = RecordingRun({("ADD", "a"): Outcome(outcome.exit_status, outcome.stdout, b"log\nend", outcome.signal, 1.5)})
    with pytest.raises(PluginError) as caught:
        add(node)
    error = caught.value
    assert problem in error.problem
    assert (error.code, error.exit_status, error.signal) == (code, outcome.exit_status, outcome.signal)
    assert (error.stderr, error.seconds) == ("log\nend", 1.5)
    assert not isinstance(error, InvalidOutputError)
    assert "log\\nend" in str(error)


def test_unused_capabilities_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "libcni"):
        result = add(RecordingRun(), rt=GIVEN)
    assert result.unused_capabilities == ("mac", "other")
    assert ["mac, other" in record.message for record in caplog.records] == [True]


def test_a_misspelt_capability_names_the_declared_one(caplog: pytest.LogCaptureFixture) -> None:
    publishing = {"type": "a", "capabilities": {"portMappings": True}}
    with caplog.at_level(logging.WARNING, "libcni"):
        add(RecordingRun(), publishing, "b", rt=replace(GIVEN, capability_args={"port_mappings": []}))
    assert caplog.messages[0].endswith("port_mappings, so none receives its arguments; did you mean portMappings?")


def test_an_error_document_with_a_result_in_it_is_a_result() -> None:
    odd = printed(code=7, msg="not an error")
    assert add(RecordingRun({("ADD", "b"): odd})).to_dict() == {**RESULT, "code": 7, "msg": "not an error"}


# what is there already

BLUE = {"/run/netns/blue": (4, 1)}
ELSEWHERE = attached(network("x", "y", name="other"), netns_id=(4, 1), path="/cache/other-c1-eth0")


def test_replace_detaches_the_other_first_from_its_own_record(caplog: pytest.LogCaptureFixture) -> None:
    node = RecordingRun(records=[ELSEWHERE], namespaces=BLUE)
    with caplog.at_level(logging.WARNING, "libcni"):
        add(node, on_existing="replace")
    assert caplog.messages == []  # the caller asked for it
    assert node.log == [
        "find a b",
        "lock net c1",
        "siblings",
        "lock net other c1",
        "siblings",
        "siblings",  # in another namespace
        "ensure-writable net",
        "find x y",
        "detach other",
        "DEL y",
        "DEL x",
        "forget other",
        *WRITTEN,
        "complete net",
    ]
    assert node.stdin("DEL", "x") == {"cniVersion": "1.0.0", "name": "other", "type": "x", "prevResult": RESULT}
    assert node.calls[0].env["CNI_NETNS"] == "/run/netns/blue"
    assert list(node.recorded) == [("net", "c1", "eth0")]


def test_replace_detaches_nothing_if_the_new_record_cannot_be_written() -> None:
    node = RecordingRun({"ensure-writable": RecordError("full")}, records=[ELSEWHERE], namespaces=BLUE)
    with pytest.raises(RecordError, match="full"):
        add(node, on_existing="replace")
    assert node.calls == []
    assert list(node.recorded.values()) == [ELSEWHERE]


def test_another_word_is_refused_and_does_not_mean_allow() -> None:
    node = RecordingRun(records=[ELSEWHERE], namespaces=BLUE)
    with pytest.raises(ValueError, match="refuse, replace, allow, not 'replce'"):
        add(node, on_existing="replce")
    assert node.log == []


def test_a_failed_add_without_a_result_leaves_an_interface_alone_that_was_there_before() -> None:
    there = [(RT.netns or "", RT.ifname)]
    node = RecordingRun({("ADD", "a"): failed(7, "no")}, namespaces=BLUE, interfaces=there)
    with pytest.raises(PluginError, match="no"):
        add(node, on_existing="allow")
    assert node.verbs() == ["ADD a", "DEL b", "DEL a"]
    assert {call.env["CNI_NETNS"] for call in node.calls if call.verb == "DEL"} == {""}


@pytest.mark.parametrize(
    ("earlier", "on_existing"),
    [
        ({"state": PENDING, "result": None, "netns_id": None}, "refuse"),
        ({"state": PENDING, "result": None, "netns_id": (4, 2)}, "refuse"),
        ({"netns": "/elsewhere", "netns_id": (4, 2)}, "replace"),
    ],
    ids=["pending, no namespace", "pending, another namespace", "ready elsewhere"],
)
def test_a_foreign_interface_refuses_the_add_before_anything_is_detached(
    earlier: dict[str, Any], on_existing: str
) -> None:
    stale = attached(**earlier)
    there = {**BLUE, "/elsewhere": (4, 2)}
    node = RecordingRun(records=[stale], namespaces=there, interfaces={(RT.netns or "", RT.ifname): 2})
    with pytest.raises(InterfaceExistsError):
        add(node, on_existing=on_existing)
    assert node.calls == []
    assert list(node.recorded.values()) == [stale]


def test_a_refusal_that_cannot_be_recorded_is_still_the_refusal(caplog: pytest.LogCaptureFixture) -> None:
    full = {"refused": RecordError("the disk is full")}
    node = RecordingRun(full, namespaces=BLUE, interfaces=[(RT.netns or "", RT.ifname)])
    with caplog.at_level(logging.WARNING, "libcni"), pytest.raises(InterfaceExistsError):
        add(node)
    assert node.calls == []
    assert "cannot mark the record as refused: the disk is full" in caplog.text


@pytest.mark.parametrize("on_existing", ["refuse", "replace", "allow"])
@pytest.mark.parametrize(
    ("more", "netns"),
    [
        ({"state": PENDING, "result": None, "netns_id": (4, 1)}, "/run/netns/blue"),
        ({"state": PENDING, "result": None, "netns_id": (4, 2)}, ""),
        ({"state": PENDING, "result": None, "netns_id": None}, ""),
        ({"state": PENDING, "result": None, "netns_id": None, "version": ""}, "/run/netns/blue"),
        ({"state": STALE_BOOT, "netns_id": (4, 1)}, ""),
        ({"state": STALE_BOOT, "netns_id": None}, ""),
        ({"state": READY, "netns_id": (4, 2)}, ""),
    ],
    ids=[
        "pending",
        "pending elsewhere",
        "pending without namespace",
        "of Go",
        "rebooted",
        "rebooted opaque",
        "other namespace",
    ],
)
def test_what_is_stale_is_detached_first(
    on_existing: str, more: dict[str, Any], netns: str, caplog: pytest.LogCaptureFixture
) -> None:
    stale = attached(path="/cache/net-c1-eth0", **more)
    node = RecordingRun(records=[stale], namespaces=BLUE)
    with caplog.at_level(logging.WARNING, "libcni"):
        result = add(node, on_existing=on_existing)
    assert node.verbs() == ["DEL b", "DEL a", "ADD a", "ADD b"]
    assert [call.env["CNI_NETNS"] for call in node.calls] == [netns, netns, "/run/netns/blue", "/run/netns/blue"]
    state = "gone" if stale.state == READY else stale.state  # as a listing calls it
    assert result.notes == (f"/cache/net-c1-eth0: detaching this attachment ({state}) before the ADD",)
    assert f"container c1, network net: {result.notes[0]}" in caplog.messages
    assert ("prevResult" in node.stdin("DEL", "a")) == (stale.result is not None)


@pytest.mark.parametrize(
    ("earlier", "netns"),
    [({"netns": "/elsewhere", "netns_id": (4, 2)}, "/elsewhere"), ({"version": "", "netns": ""}, "/run/netns/blue")],
    ids=["in another namespace that lives", "of Go, without a namespace"],
)
def test_an_attachment_is_detached_first_in_its_own_namespace_if_it_has_one(
    earlier: dict[str, Any], netns: str
) -> None:
    stale = attached(state=PENDING, result=None, **earlier)
    node = RecordingRun(records=[stale], namespaces={**BLUE, "/elsewhere": (4, 2)})
    add(node)
    assert [call.env["CNI_NETNS"] for call in node.calls if call.verb == "DEL"] == [netns, netns]


@pytest.mark.parametrize(
    ("options", "is_taken_back"),
    [({"on_cancel": "rollback"}, True), ({"on_cancel": "rollback", "rollback": False}, False), ({}, False)],
)
def test_a_cancelled_add_takes_its_record_back_only_if_it_would_roll_back(
    options: dict[str, Any], *, is_taken_back: bool
) -> None:
    asked = []

    class Node(RecordingRun):
        async def begin(self, *args: Any, take_back: bool, **more: Any) -> Journal:
            asked.append(take_back)
            return await super().begin(*args, take_back=take_back, **more)

    add(Node(), **options)
    assert asked == [is_taken_back]


def test_locks_of_all_networks_are_taken_at_once_in_order() -> None:
    stale = [
        attached(network("x", name=name), state=STALE_BOOT, path=f"/cache/{name}") for name in ("zebra", "aardvark")
    ]
    node = RecordingRun(records=stale)
    add(node)
    assert [line for line in node.log if "lock" in line] == ["lock net c1", "lock aardvark net zebra c1"]
    assert node.verbs() == ["DEL x", "DEL x", "ADD a", "ADD b"]


def test_a_stale_record_whose_plugin_is_missing_stops_the_add() -> None:
    node = RecordingRun(records=[attached(network("gone"), state=PENDING, result=None)], missing=["gone"])
    with pytest.raises(PluginNotFoundError, match="gone"):
        add(node)
    assert node.calls == []


@pytest.mark.parametrize(
    ("stale", "state"),
    [
        (attached(network("a"), state=PENDING, result=None), "pending"),
        (attached(network("a"), state=READY, netns_id=(4, 2)), "gone"),
    ],
)
def test_what_cannot_be_detached_first_is_told_with_the_way_out(stale: Any, state: str) -> None:
    refusing = Outcome(exit_status=1, stdout=b'{"cniVersion":"1.0.0","code":100,"msg":"no"}')
    with pytest.raises(PluginError) as caught:
        add(RecordingRun({("DEL", "a"): refusing}, records=[stale], namespaces=BLUE))
    (note,) = caught.value.__notes__
    assert f"this happened when ADD first detached {stale.path}, which is {state}" in note
    assert caught.value.hint is not None
    assert (caught.value.hint.command, caught.value.hint.argument) == ("forget", "use_given")


def test_a_result_above_1_mib_is_refused_and_rolled_back() -> None:
    result = json.dumps(RESULT).encode()
    node = RecordingRun({("ADD", "a"): Outcome(stdout=result.ljust(1 << 20))})
    assert add(node, "a").to_dict() == RESULT
    node = RecordingRun({("ADD", "a"): Outcome(stdout=result.ljust((1 << 20) + 1))})
    with pytest.raises(InvalidOutputError, match="it printed 1,048,577 bytes, and a result has at most 1,048,576"):
        add(node, "a")
    assert node.verbs() == ["ADD a", "DEL a"]


@pytest.mark.parametrize(
    ("netns", "there", "said"),
    [
        ("web", {}, "the namespace web does not exist"),
        ("/run/netns/we b", {}, "the namespace /run/netns/we b does not exist; create it first: ip netns add 'we b'"),
        ("web", {"/run/netns/web": (1, 2)}, "the namespace web does not exist: did you mean /run/netns/web?"),
        ("web", {"web": (1, 2)}, None),
    ],
)
def test_a_plugin_that_fails_for_a_missing_namespace(
    netns: str, there: dict[str, tuple[int, int]], said: str | None
) -> None:
    """The hint says it. If the plugin's code has a hint, too, it is a note."""
    for code in (999, 7):
        node = RecordingRun({("ADD", "a"): failed(code)}, namespaces=there)
        with pytest.raises(PluginError) as caught:
            node.run(add_verb, network("a"), RuntimeConf("c1", netns, "eth0"))
        notes = getattr(caught.value, "__notes__", [None])
        assert ([caught.value.hint and str(caught.value.hint)] if code == 999 else notes) == [said]


def test_an_add_whose_record_go_rewrites_fails_and_leaves_gos_record(tmp_path: Path) -> None:
    """Its plugins are undone, but the file is the other runtime's now."""
    verbs: list[str] = []

    class Plugins:
        def find(self, plugin: str, path: Sequence[str]) -> str:
            return f"/bin/{plugin}"

        def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            verbs.append(f"{invocation.verb} {invocation.plugin}")
            if verbs[-1] == "ADD a":
                (record,) = (tmp_path / "results").iterdir()
                record.write_bytes(b"Go's record")
            return printed() if invocation.verb == "ADD" else Outcome()

    cni = CNIConfig("/bin", tmp_path, executor=Plugins(), durable=False)
    with pytest.raises(RecordError, match="another program rewrote the record"):
        cni.add_network_list(network("a", "b"), RuntimeConf("c1", "", "eth0"))
    assert verbs == ["ADD a", "DEL b", "DEL a"]
    (record,) = (tmp_path / "results").iterdir()
    assert record.read_bytes() == b"Go's record"


def test_a_hint_that_cannot_be_found_does_not_prevent_the_roll_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The holder's record cannot be read: the disk has an error, or the process no descriptor left."""
    taken = "requested IP address 10.1.0.5 is not available in range set 10.1.0.1-10.1.0.9"
    node = RecordingRun({("ADD", "b"): failed(11, taken)})
    monkeypatch.setattr("libcni.verbs.attempt.holders_of", lambda *_: [("c2", "eth0")])
    real = node.records.find

    def find(identity: Any) -> Any:
        if identity[1] == "c2":
            raise RecordError("the record cannot be read: Input/output error")
        return real(identity)

    monkeypatch.setattr(node.records, "find", find)
    with pytest.raises(PluginError, match="is not available") as caught:
        add(node)
    assert node.verbs() == ["ADD a", "ADD b", "DEL b", "DEL a"]
    assert caught.value.rollback_errors == ()
    assert node.recorded == {}


def test_an_address_that_an_empty_file_reserves_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = "requested IP address 10.1.0.5 is not available in range set 10.1.0.1-10.1.0.9"
    node = RecordingRun({("ADD", "b"): failed(11, taken)})
    monkeypatch.setattr("libcni.verbs.attempt.holders_of", lambda *_: [("", "")])
    with pytest.raises(PluginError, match="is not available") as caught:
        add(node)
    assert "10.1.0.5 is reserved by an empty file" in str(caught.value.hint)


@pytest.mark.parametrize("on_existing", ["refuse", "allow"])
def test_a_record_that_go_has_written_is_neither_removed_nor_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_existing: Any
) -> None:
    """Go rewrites the file before the first plugin, or while the plugins change an attachment in use."""
    cni = CNIConfig("/bin", tmp_path, executor=FakePlugins(), durable=False)
    if on_existing == "allow":
        cni.add_network_list(network("a"), RuntimeConf("c1", "", "eth0"))
    real = Journal.write

    def write(self: Journal, event: Any, **fields: Any) -> None:
        (record,) = (tmp_path / "results").iterdir()
        record.write_bytes(b"Go's record")
        real(self, event, **fields)

    monkeypatch.setattr(Journal, "write", write)
    with pytest.raises(RecordError, match="another program rewrote the record"):
        cni.add_network_list(network("a"), RuntimeConf("c1", "", "eth0"), on_existing=on_existing)
    (record,) = (tmp_path / "results").iterdir()
    assert record.read_bytes() == b"Go's record"


def test_an_attachment_in_use_is_not_moved_to_another_namespace() -> None:
    """Its identity has one file, which would name the new namespace: nobody could detach the old one."""
    kept = attached(netns="/elsewhere", netns_id=(4, 2))
    node = RecordingRun(records=[kept], namespaces={**BLUE, "/elsewhere": (4, 2)}, interfaces=[("/elsewhere", "eth0")])
    with pytest.raises(NamespaceMismatchError, match="attached in the namespace /elsewhere, but /run/netns/blue is an"):
        add(node, on_existing="allow")
    assert node.calls == []
    assert list(node.recorded.values()) == [kept]


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_namespace_that_is_replaced_is_refused_also_if_the_interface_may_exist(is_kept: bool) -> None:
    kept = [attached(netns_id=BLUE[RT.netns or ""])] if is_kept else []
    node = RecordingRun(records=kept, namespaces=BLUE, interfaces=[(RT.netns or "", RT.ifname)] if is_kept else ())
    real = node.begin

    async def begin(*args: Any, **options: Any) -> Journal:
        journal = await real(*args, **options)
        node.namespaces[RT.netns or ""] = (4, 99)
        return journal

    node.begin = begin  # type: ignore[method-assign]
    with pytest.raises(NamespaceMismatchError, match="was replaced during the ADD"):
        add(node, on_existing="allow")
    assert node.calls == []
    assert [one.state for one in node.recorded.values()] == [READY if is_kept else REFUSED]


def test_an_add_whose_record_cannot_be_closed_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs: list[str] = []
    real = Journal.close

    def close(self: Journal) -> None:
        is_complete = self._descriptor >= 0 and self.record.state == "ready"
        real(self)
        if is_complete:
            raise RecordError("the record cannot be written: Input/output error")

    class Plugins:
        def find(self, plugin: str, path: Sequence[str]) -> str:
            return f"/bin/{plugin}"

        def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            verbs.append(f"{invocation.verb} {invocation.plugin}")
            return printed() if invocation.verb == "ADD" else Outcome()

    monkeypatch.setattr(Journal, "close", close)
    cni = CNIConfig("/bin", tmp_path, executor=Plugins(), durable=False)
    with pytest.raises(RecordError, match="Input/output error"):
        cni.add_network_list(network("a"), RuntimeConf("c1", "", "eth0"))
    assert verbs == ["ADD a", "DEL a"]
    assert list((tmp_path / "results").iterdir()) == []


def test_what_an_add_does_with_the_records_of_its_interface() -> None:
    """Two networks may have an attachment of one interface: a living one on another network, and a lost one on this."""
    here, there = attached(network("a"), path="/here"), attached(network("a", name="other"), path="/there")
    both: list[tuple[Record, State]] = [(here, "ready"), (there, "ready")]
    with pytest.raises(AttachmentExistsError):
        earlier_of("net", both, "refuse", has_damaged=False)
    replaced = earlier_of("net", both, "replace", has_damaged=True)
    assert (replaced.to_detach, replaced.changed, replaced.replaced_path) == ((here, there), None, "/here")
    assert (replaced.has_damaged, replaced.keeps_record(here), replaced.keeps_record(there)) == (True, True, False)
    allowed = earlier_of("net", both, "allow", has_damaged=False)
    assert (allowed.to_detach, allowed.changed, allowed.live) == ((), here, (here, there))
    lost = earlier_of("net", [(here, "lost"), (there, "ready")], "allow", has_damaged=False)
    assert (lost.to_detach, lost.changed, lost.replaced_path) == ((here,), None, "")
    assert earlier_of("net", [(here, "lost")], "refuse", has_damaged=False).to_detach == (here,)
