"""ADD without a process or a disk: what runs, in which order, with what, and what is left when it fails."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from helpers import RESULT, RT, World, attached, failed, network, printed

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    AttachmentExistsError,
    CNIError,
    ConfigError,
    InvalidIdentifierError,
    InvalidOutputError,
    LockTimeoutError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.record import CORRUPT, DETACHING, PENDING, READY, STALE_BOOT, Record
from libcni.verbs.add import add as add_verb

GIVEN = RuntimeConf(
    "c1",
    "/run/netns/blue",
    "eth0",
    args=[("K", "V")],
    capability_args={"mac": "x", "other": 1},
    network_args={"cni": {"labels": []}},
)


def add(world: World, *plugins: Any, rt: RuntimeConf = RT, **options: Any) -> Any:
    return world.run(add_verb, network(*plugins or ("a", "b")), rt, **options)


def test_the_order_of_things() -> None:
    world = World()
    result = add(world)
    assert world.log == ["find a b", "lock net c1", "siblings", "begin net", "ADD a", "ADD b", "complete net"]
    assert result.to_dict() == RESULT


def test_what_each_plugin_is_called_with() -> None:
    world = World({("ADD", "a"): printed(from_a=1), ("ADD", "b"): printed(from_b=2)})
    result = add(world, {"type": "a", "capabilities": {"mac": True}}, "b", rt=GIVEN)
    first, second = world.calls
    assert first == Invocation(
        verb="ADD",
        plugin="a",
        path="/opt/cni/bin/a",
        stdin=first.stdin,
        env={
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": "/run/netns/blue",
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": "K=V",
            "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
        },
        network="net",
        container_id="c1",
        ifname="eth0",
        index=0,
    )
    base = {"cniVersion": "1.0.0", "name": "net", "args": {"cni": {"labels": []}}}
    assert json.loads(first.stdin) == {**base, "type": "a", "runtimeConfig": {"mac": "x"}}
    assert json.loads(second.stdin) == {**base, "type": "b", "prevResult": {**RESULT, "from_a": 1}}
    assert second.env == first.env
    assert second.index == 1
    assert result.to_dict() == {**RESULT, "from_b": 2}
    assert result.unused_capabilities == ("other",)


def test_the_record_says_what_was_used() -> None:
    net = network({"type": "a", "x": 1}, "b")
    world = World({("ADD", "a"): failed()}, owner="me")
    with pytest.raises(PluginError):
        world.run(add_verb, net, GIVEN, rollback=False)
    (pending,) = world.recorded.values()
    assert pending == Record(
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
    world = World()
    world.run(add_verb, net, GIVEN)
    (ready,) = world.recorded.values()
    assert ready.state == READY
    assert json.loads(ready.result or "") == RESULT
    assert ready.path


@pytest.mark.parametrize(
    ("rt", "kind"),
    [
        (RuntimeConf("a/b", None, "eth0"), "container ID"),
        (RuntimeConf("", None, "eth0"), "container ID"),
        (RuntimeConf("c1", None, ""), "interface name"),
        (RuntimeConf("c1", "\0", "eth0"), "network namespace"),
    ],
)
def test_bad_names_are_refused_before_anything_is_done(rt: RuntimeConf, kind: str) -> None:
    world = World()
    with pytest.raises(InvalidIdentifierError) as caught:
        add(world, rt=rt)
    assert caught.value.kind == kind
    assert world.log == []


def test_a_bad_network_name_is_refused_also_when_built_in_code() -> None:
    world = World()
    with pytest.raises(InvalidIdentifierError, match="network name"):
        world.run(add_verb, replace(network(), name="../x"), RT)
    assert world.log == []


def test_a_missing_plugin_is_said_before_any_other_runs() -> None:
    world = World(missing=["b"])
    with pytest.raises(PluginNotFoundError) as caught:
        add(world)
    assert caught.value.plugin == "b"
    assert world.log == ["find a b"]


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
    world = World({step: error})
    with pytest.raises(type(error)) as caught:
        add(world)
    assert caught.value is error
    assert world.calls == []
    assert world.recorded == {}


def test_a_failed_add_is_rolled_back_in_reverse_order() -> None:
    world = World({("ADD", "b"): failed(11, "later")})
    with pytest.raises(PluginError) as caught:
        add(world, "a", "b", "c")
    assert world.log[3:] == ["begin net", "ADD a", "ADD b", "start-cleanup", "DEL c", "DEL b", "DEL a", "forget net"]
    assert (caught.value.code, caught.value.msg, caught.value.plugin) == (11, "later", "b")
    assert caught.value.rollback_errors == ()
    assert world.recorded == {}
    assert world.stdin("DEL", "a")["prevResult"] == world.stdin("DEL", "c")["prevResult"] == RESULT


def test_the_roll_back_of_the_first_plugin_has_no_result() -> None:
    world = World({("ADD", "a"): failed()})
    with pytest.raises(PluginError):
        add(world)
    assert "prevResult" not in world.stdin("DEL", "a")


def test_roll_back_goes_on_over_errors_and_keeps_the_record() -> None:
    world = World(
        {("ADD", "b"): failed(7, "no"), ("DEL", "b"): failed(5, "disk"), ("DEL", "a"): PluginTimeoutError("slow")}
    )
    with pytest.raises(PluginError, match="no") as caught:
        add(world)
    assert world.verbs() == ["ADD a", "ADD b", "DEL b", "DEL a"]
    first, second = caught.value.rollback_errors
    assert isinstance(first, PluginError)
    assert first.code == 5
    assert isinstance(second, PluginTimeoutError)
    assert [note.split(":")[0] for note in caught.value.__notes__] == ["when it was rolled back"] * 2
    assert [record.state for record in world.recorded.values()] == [PENDING]


def test_a_record_that_cannot_be_removed_is_a_rollback_error() -> None:
    world = World({("ADD", "a"): failed(), "forget": RecordError("stuck")})
    with pytest.raises(PluginError) as caught:
        add(world)
    assert [str(error) for error in caught.value.rollback_errors] == ["stuck"]


def test_without_rollback_the_record_stays_pending() -> None:
    world = World({("ADD", "b"): failed()})
    with pytest.raises(PluginError):
        add(world, rollback=False)
    assert world.verbs() == ["ADD a", "ADD b"]
    assert [record.state for record in world.recorded.values()] == [PENDING]


def test_a_record_that_cannot_be_completed_is_rolled_back_with_the_result() -> None:
    world = World({"complete": RecordError("full")})
    with pytest.raises(RecordError, match="full"):
        add(world)
    assert world.verbs() == ["ADD a", "ADD b", "DEL b", "DEL a"]
    assert world.stdin("DEL", "a")["prevResult"] == RESULT
    assert world.recorded == {}


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (Outcome(stdout=b""), "it printed nothing, and a result was expected"),
        (Outcome(stdout=b" \n"), "it printed nothing"),
        (Outcome(stdout=b'hello {"cniVersion":"1.0.0"}'), "something that is not a result"),
        (Outcome(stdout=b"{}\n{}"), "something after the result"),
        (Outcome(stdout=b'{"cniVersion":"9.9.9"}'), """unsupported CNI result version "9.9.9", in '{"cniV"""),
        (Outcome(stdout=b'{"ips":[{"address":"10.0.0.2"}]}'), "ips[0].address: '10.0.0.2' is not an address"),
        (Outcome(stdout=b'{"x":1,"ips":5}'), """in '{"cniVersion":"1.0.0","x":1,"ips":5}'"""),
        (Outcome(stdout=b'{"code":7,"msg":"no"}'), "an error document and exit status 0: no (code 7)"),
    ],
)
def test_output_that_is_no_result(outcome: Outcome, problem: str) -> None:
    with_stderr = Outcome(0, outcome.stdout, b"x" * 5000 + b"the end")
    world = World({("ADD", "b"): with_stderr})
    with pytest.raises(InvalidOutputError) as caught:
        add(world)
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
    assert world.verbs()[-2:] == ["DEL b", "DEL a"]


@pytest.mark.parametrize(
    ("outcome", "problem", "code"),
    [
        (Outcome(1, b'{"code":7,"msg":"m","details":"d"}'), "m; d (code 7)", 7),
        (Outcome(1, b'{"code":7,"msg":"m"}'), "m (code 7)", 7),
        (Outcome(1, b'{"code":-7}'), "no message (code -7)", -7),
        (Outcome(1, b'{"msg":"m","details":null}'), "m (code 0)", 0),
        (Outcome(3, b""), "exit status 3, and its stdout is empty", None),
        (Outcome(1, b"panic: x"), "exit status 1, and its stdout is not an error document: 'panic: x'", None),
        (Outcome(1, b"{}"), "not an error document", None),
        (Outcome(1, b"[]"), "not an error document", None),
        (Outcome(1, b'{"code":"7"}'), "not an error document", None),
        (Outcome(1, b'{"code":true}'), "not an error document", None),
        (Outcome(1, b'{"code":7,"msg":5}'), "not an error document", None),
        (Outcome(1, b'{"code":7,"details":5}'), "not an error document", None),
        (Outcome(1, b"\xff"), "not an error document: '\\\\xff'", None),
        (Outcome(None, b"", signal=9), "it was ended by signal 9 (SIGKILL)", None),
        (Outcome(None, b"half a res", signal=9), "signal 9 (SIGKILL), and had printed 'half a res'", None),
        (Outcome(None, b"", signal=64), "it was ended by signal 64", None),
        (Outcome(None, b"", signal=99), "it was ended by signal 99", None),
    ],
)
def test_how_a_plugin_can_fail(outcome: Outcome, problem: str, code: int | None) -> None:
    world = World({("ADD", "a"): Outcome(outcome.exit_status, outcome.stdout, b"log\nend", outcome.signal, 1.5)})
    with pytest.raises(PluginError) as caught:
        add(world)
    error = caught.value
    assert problem in error.problem
    assert (error.code, error.exit_status, error.signal) == (code, outcome.exit_status, outcome.signal)
    assert (error.stderr, error.seconds) == ("log\nend", 1.5)
    assert not isinstance(error, InvalidOutputError)
    assert "log\\nend" in str(error)


def test_code_3_says_that_no_cleanup_is_needed_and_it_is_done_all_the_same() -> None:
    world = World({("ADD", "a"): failed(3, "unknown container")})
    with pytest.raises(PluginError) as caught:
        add(world)
    assert not caught.value.cleanup_needed
    assert world.verbs() == ["ADD a", "DEL b", "DEL a"]


def test_results_are_passed_on_in_the_networks_version() -> None:
    old = Outcome(stdout=b'{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24"}],"x":1e400}')
    world = World({("ADD", "a"): old, ("ADD", "b"): old})
    result = add(world)
    prev = b'"prevResult":{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}],"x":1e400}'
    assert prev in world.calls[1].stdin
    assert (result.cni_version, [ip.address for ip in result.ips]) == ("1.0.0", ["10.0.0.2/24"])


def test_a_result_that_has_no_form_in_the_networks_version() -> None:
    world = World({("ADD", "a"): Outcome(stdout=b'{"cniVersion":"1.0.0"}')})
    with pytest.raises(InvalidOutputError, match="no valid IP addresses"):
        world.run(add_verb, network("a", cniVersion="0.2.0"), RT)


def test_strict_refuses_other_versions_and_unused_capabilities() -> None:
    world = World({("ADD", "a"): Outcome(stdout=b'{"cniVersion":"0.4.0"}')})
    with pytest.raises(InvalidOutputError, match=r"answered in version 0\.4\.0 instead of 1\.0\.0"):
        add(world, strict=True)
    world = World()
    with pytest.raises(ConfigError, match="capability arguments mac, other") as caught:
        add(world, rt=GIVEN, strict=True)
    assert caught.value.hint
    assert world.log == []


def test_unused_capabilities_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "libcni"):
        result = add(World(), rt=GIVEN)
    assert result.unused_capabilities == ("mac", "other")
    assert ["mac, other" in record.message for record in caplog.records] == [True]


def test_an_error_document_with_a_result_in_it_is_a_result() -> None:
    odd = printed(code=7, msg="not an error")
    assert add(World({("ADD", "b"): odd})).to_dict() == {**RESULT, "code": 7, "msg": "not an error"}


# what is there already

BLUE = {"/run/netns/blue": (4, 1)}
ELSEWHERE = attached(network("x", "y", name="other"), netns_id=(4, 1), path="/cache/other-c1-eth0")
SAME = attached(netns_id=(4, 1), path="/cache/net-c1-eth0")


@pytest.mark.parametrize("record", [SAME, ELSEWHERE])
def test_an_attached_interface_is_refused(record: Record) -> None:
    world = World(records=[record], namespaces=BLUE)
    with pytest.raises(AttachmentExistsError) as caught:
        add(world)
    assert (caught.value.container_id, caught.value.ifname) == ("c1", "eth0")
    assert caught.value.network == record.network
    assert record.path in str(caught.value)
    assert world.calls == []
    assert world.recorded == {record.identity: record}


def test_without_a_known_namespace_a_ready_record_counts() -> None:
    with pytest.raises(AttachmentExistsError):
        add(World(records=[attached(netns_id=None)]))


@pytest.mark.parametrize("other", [RuntimeConf("c1", "/n", "eth1"), RuntimeConf("c2", "/n", "eth0")])
def test_other_attachments_do_not_matter(other: RuntimeConf) -> None:
    world = World(records=[attached(rt=other)])
    add(world)
    assert world.verbs() == ["ADD a", "ADD b"]
    assert len(world.recorded) == 2


def test_replace_detaches_the_other_first_from_its_own_record() -> None:
    world = World(records=[ELSEWHERE], namespaces=BLUE)
    add(world, on_existing="replace")
    assert world.log == [
        "find a b",
        "lock net c1",
        "siblings",
        "lock net other c1",
        "siblings",
        "ensure-writable net",
        "find x y",
        "detaching other",
        "DEL y",
        "DEL x",
        "forget other",
        "begin net",
        "ADD a",
        "ADD b",
        "complete net",
    ]
    assert world.stdin("DEL", "x") == {"cniVersion": "1.0.0", "name": "other", "type": "x", "prevResult": RESULT}
    assert world.calls[0].env["CNI_NETNS"] == "/run/netns/blue"
    assert list(world.recorded) == [("net", "c1", "eth0")]


def test_replace_that_fails_stops_the_add() -> None:
    world = World({("DEL", "y"): failed(7, "busy")}, records=[ELSEWHERE], namespaces=BLUE)
    with pytest.raises(PluginError, match="busy"):
        add(world, on_existing="replace")
    assert world.verbs() == ["DEL y"]
    assert world.recorded == {ELSEWHERE.identity: replace(ELSEWHERE, state=DETACHING)}


def test_another_word_is_refused_and_does_not_mean_allow() -> None:
    world = World(records=[ELSEWHERE], namespaces=BLUE)
    with pytest.raises(ValueError, match="refuse, replace, allow, not 'replce'"):
        add(world, on_existing="replce")
    assert world.log == []


def test_allow_goes_on() -> None:
    world = World(records=[ELSEWHERE], namespaces=BLUE)
    add(world, on_existing="allow")
    assert world.verbs() == ["ADD a", "ADD b"]
    assert len(world.recorded) == 2


@pytest.mark.parametrize("on_existing", ["refuse", "replace", "allow"])
@pytest.mark.parametrize(
    ("more", "netns"),
    [
        ({"state": PENDING, "result": None, "netns_id": (4, 1)}, "/run/netns/blue"),
        ({"state": PENDING, "result": None, "netns_id": (4, 2)}, ""),
        ({"state": PENDING, "result": None, "netns_id": None}, "/run/netns/blue"),
        ({"state": STALE_BOOT, "netns_id": (4, 1)}, ""),
        ({"state": STALE_BOOT, "netns_id": None}, ""),
        ({"state": READY, "netns_id": (4, 2)}, ""),
    ],
    ids=["pending", "pending elsewhere", "pending opaque", "rebooted", "rebooted opaque", "other namespace"],
)
def test_what_is_stale_is_detached_first(
    on_existing: str, more: dict[str, Any], netns: str, caplog: pytest.LogCaptureFixture
) -> None:
    stale = attached(path="/cache/net-c1-eth0", **more)
    world = World(records=[stale], namespaces=BLUE)
    with caplog.at_level(logging.WARNING, "libcni"):
        add(world, on_existing=on_existing)
    assert world.verbs() == ["DEL b", "DEL a", "ADD a", "ADD b"]
    assert [call.env["CNI_NETNS"] for call in world.calls] == [netns, netns, "/run/netns/blue", "/run/netns/blue"]
    assert any("/cache/net-c1-eth0: detaching it before ADD" in record.message for record in caplog.records)
    assert ("prevResult" in world.stdin("DEL", "a")) == (stale.result is not None)


def test_locks_of_all_networks_are_taken_at_once_in_order() -> None:
    stale = [
        attached(network("x", name=name), state=STALE_BOOT, path=f"/cache/{name}") for name in ("zebra", "aardvark")
    ]
    world = World(records=stale)
    add(world)
    assert [line for line in world.log if "lock" in line] == ["lock net c1", "lock aardvark net zebra c1"]
    assert world.verbs() == ["DEL x", "DEL x", "ADD a", "ADD b"]


def test_a_stale_record_whose_plugin_is_missing_stops_the_add() -> None:
    world = World(records=[attached(network("gone"), state=PENDING)], missing=["gone"])
    with pytest.raises(PluginNotFoundError, match="gone"):
        add(world)
    assert world.calls == []


def test_what_cannot_be_detached_first_is_told_with_the_way_out() -> None:
    stale = attached(network("a"), state=PENDING)
    refusing = Outcome(exit_status=1, stdout=b'{"cniVersion":"1.0.0","code":100,"msg":"no"}')
    with pytest.raises(PluginError) as caught:
        add(World({("DEL", "a"): refusing}, records=[stale]))
    (note,) = caught.value.__notes__
    assert f"ADD was detaching {stale.path}, which is pending, first" in note
    assert "DelPolicy(use_given=True)" in str(caught.value)


def test_corrupt_records_are_no_siblings() -> None:
    world = World(records=[Record(state=CORRUPT, path="/cache/x")])
    add(world)
    assert world.verbs() == ["ADD a", "ADD b"]


def test_negotiation_comes_first() -> None:
    said = Outcome(stdout=b'{"cniVersion":"1.1.0","supportedVersions":["0.4.0"]}')
    world = World({("VERSION", "a"): said, ("VERSION", "b"): said})
    net = network("a", "b", cniVersions=["0.4.0", "1.0.0"])
    result = world.run(add_verb, net, RT, negotiate_version=True)
    assert result.cni_version == "0.4.0"
    assert world.log[:4] == ["find a b", "VERSION a", "VERSION b", "find a b"]
    assert world.stdin("ADD", "a")["cniVersion"] == "0.4.0"
    (record,) = world.recorded.values()
    assert record.version == "0.4.0"


def test_the_roll_back_before_0_4_0_has_no_result() -> None:
    world = World({"complete": RecordError("full")})
    with pytest.raises(RecordError):
        world.run(add_verb, network("a", cniVersion="0.3.1"), RT)
    assert "prevResult" not in world.stdin("DEL", "a")


def test_a_list_without_plugins_is_refused_before_anything_is_asked() -> None:
    world = World()
    with pytest.raises(ConfigError, match="no plugins"):
        world.run(add_verb, replace(network(), plugins=()), RT)
    assert world.log == []
