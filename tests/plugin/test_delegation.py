"""Delegation: what the delegate gets, how its answer and its error come back, and the DEL after a failed ADD."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import is_running

from libcni.errors import InvalidOutputError, PluginError
from libcni.plugin import Plugin, Request, VerbError
from libcni.testing import Answer, FakeCall, FakePlugins, call_plugin, wait_until
from libcni.testing.calling import environment as variables
from plugin.plugins import VERBS, Recorder, config, nothing, write_plugin

RESULT = {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}], "vendor": 1}


def write_delegate(directory: Path, name: str = "ipam", **answers: str) -> Path:
    cases = "".join(f"{verb}) {answer};;\n" for verb, answer in answers.items())
    body = f'echo "log of $CNI_COMMAND" >&2\ncase $CNI_COMMAND in\n{cases}esac\n'
    return FakePlugins(directory).shell(name, body, result=None).path


def received(directory: Path, verb: str, name: str = "ipam") -> FakeCall:
    """Return the last call of a delegate with a verb."""
    return [call for call in FakePlugins(directory).calls if (call.plugin, call.verb) == (name, verb)][-1]


def environment(call: FakeCall | Request) -> dict[str, str]:
    return {name: value for name, value in call.env.items() if name.startswith(("CNI_", "FOO"))}


def delegating(**answers: Any) -> Recorder:
    return Recorder(
        add=answers.get("add", lambda request: request.delegate_add("ipam")),
        delete=lambda request: request.forward("ipam"),
        check=lambda request: request.forward("ipam"),
        gc=lambda request: request.forward("ipam"),
        status=lambda request: request.forward("ipam"),
    )


def call(directory: Path, verb: str = "ADD", recorder: Recorder | None = None, **more: Any) -> Answer:
    chosen = recorder or delegating()
    path = f"/nowhere:{directory}"
    return call_plugin(chosen.plugin, verb, config(**more), path=path, args="FOO=bar", env={"FOO": "bar"})


@pytest.mark.parametrize("verb", VERBS)
def test_the_delegate_gets_the_same_environment_and_the_whole_configuration(tmp_path: Path, verb: str) -> None:
    write_delegate(tmp_path, ADD=f"echo '{json.dumps(RESULT)}'")
    recorder = delegating()
    answer = call(tmp_path, verb, recorder, ipam={"type": "ipam", "x": 1}, big=1)
    assert (answer.status, answer.stderr) == (0, f"log of {verb}\n")
    (request,) = recorder.requests
    assert received(tmp_path, verb).stdin == request.stdin
    assert environment(received(tmp_path, verb)) == environment(request)


def test_the_configuration_reaches_the_delegate_byte_for_byte(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD="echo '{}'")
    stdin = b'{ "name":"net","cniVersion" :"1.1.0", "n": 0.10000000000000000001,  "m": 1e400 }'
    assert call_plugin(delegating().plugin, "ADD", stdin, path=str(tmp_path)).status == 0
    assert received(tmp_path, "ADD").stdin == stdin


def test_the_delegates_result_is_typed_and_keeps_its_fields(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD="""echo '{"ip4": {"ip": "10.0.0.2/24"}, "vendor": 1}'""")
    assert call(tmp_path).document == RESULT


ERROR = '{"cniVersion": "1.1.0", "code": 11, "msg": "full", "details": "all of it"}'


@pytest.mark.parametrize("verb", VERBS)
def test_the_delegates_error_is_passed_up(tmp_path: Path, verb: str) -> None:
    write_delegate(tmp_path, **{verb: f"echo '{ERROR}'; exit 7"})
    answer = call(tmp_path, verb)
    assert answer.status == 1
    details = f"all of it; reported by ipam; stderr of ipam: log of {verb}"
    assert answer.document == {**json.loads(ERROR), "details": details}


@pytest.mark.parametrize(
    ("answer", "code", "msg", "details"),
    [
        # as the text of 0.4.0 prints codes
        ("""echo '{"code": -11, "msg": "full"}'; exit 1""", 11, "full", "reported by ipam; stderr of ipam: log of ADD"),
        ("echo '{}'; echo why >&2; exit 1", 999, "not an error document: '{}'", "stderr of ipam: log of ADD\nwhy"),
        (f"echo '{ERROR}'", 999, "an error document is no result: full", "stderr of ipam: log of ADD"),
    ],
)
def test_the_delegates_answer_reaches_the_operator(
    tmp_path: Path, answer: str, code: int, msg: str, details: str
) -> None:
    write_delegate(tmp_path, ADD=answer)
    document = call(tmp_path).document
    assert (document["code"], document["details"]) == (code, details)
    assert msg in document["msg"]


REFUSED, BROKEN = f"echo '{ERROR}'; exit 1", "kill -9 $$"


@pytest.mark.parametrize(
    "failure",
    ["exit 3", BROKEN, "echo garbage", "echo '{}'; exit 1", """echo '{"code": true}'; exit 1""", f"echo '{ERROR}'"],
)
def test_an_add_that_may_have_allocated_is_followed_by_del(tmp_path: Path, failure: str) -> None:
    write_delegate(tmp_path, ADD=failure)
    recorder = delegating()
    assert call(tmp_path, recorder=recorder).status == 1
    undo = received(tmp_path, "DEL")
    assert undo.stdin == recorder.requests[0].stdin
    assert environment(undo) == {**environment(received(tmp_path, "ADD")), "CNI_COMMAND": "DEL"}


def calls(directory: Path) -> list[tuple[str, str]]:
    return FakePlugins(directory).verbs


def test_a_refused_add_has_nothing_to_undo(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD=REFUSED)
    assert call(tmp_path).status == 1
    assert calls(tmp_path) == [("ADD", "ipam")]


@pytest.mark.parametrize("how", ["raises", "sys.exit", "returns no JSON"])
def test_a_failure_after_the_delegated_add_undoes_it(tmp_path: Path, how: str) -> None:
    def add(request: Request) -> dict[str, object]:
        request.delegate_add("ipam")
        if how == "raises":
            raise RuntimeError("the interface cannot be made")
        if how == "sys.exit":
            raise SystemExit(3)
        return {"vendor": {1}}

    write_delegate(tmp_path, ADD="echo '{}'")
    assert call(tmp_path, recorder=delegating(add=add)).code == 999
    assert ("DEL", "ipam") in calls(tmp_path)


def test_a_del_that_fails_too_does_not_hide_why_add_failed(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD=BROKEN, DEL="exit 9")
    answer = call(tmp_path)
    assert answer.code == 999
    assert "cannot undo the delegated ADD: " in answer.stderr
    assert "exit status 9" in answer.stderr


SLOW = """
@plugin.add
def add(request):
    request.delegate_add("ipam")
plugin.delete(lambda request: request.forward("ipam"))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_plugin_that_is_stopped_does_not_leave_its_delegate(tmp_path: Path, number: signal.Signals) -> None:
    """Go's runtimes send SIGKILL, and to the plugin alone."""
    write_delegate(tmp_path, ADD='echo $$ > "$0.pid"; exec sleep 300')
    plugin = write_plugin(tmp_path, "main", SLOW)
    env = variables("ADD", {}, path=str(tmp_path))
    with subprocess.Popen([plugin], env=env, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(config()).encode())
        process.stdin.close()
        file = tmp_path / "ipam.pid"
        pid = int(wait_until(lambda: file.exists() and file.read_text().strip(), 60))
        process.send_signal(number)
        assert process.wait(60) == -number
    wait_until(lambda: not is_running(pid), 60)


def test_the_error_says_what_is_known_of_the_call(tmp_path: Path) -> None:
    def check(request: Request) -> None:
        with pytest.raises(PluginError) as caught:
            request.forward("ipam")
        error = caught.value
        assert (error.exit_status, error.code, error.msg, error.details) == (1, 11, "full", "all of it")
        assert (error.plugin, error.path, error.verb) == ("ipam", str(tmp_path / "ipam"), "CHECK")
        assert (error.network, error.container_id, error.ifname) == ("net", "test-container", "eth0")

    write_delegate(tmp_path, CHECK=REFUSED)
    assert call(tmp_path, "CHECK", recorder=Recorder(check=check)).status == 0


@pytest.mark.parametrize("output", ["", "[]"])
def test_success_without_a_result_is_an_error(tmp_path: Path, output: str) -> None:
    def add(request: Request) -> None:
        with pytest.raises(InvalidOutputError):
            request.delegate_add("ipam")

    write_delegate(tmp_path, ADD=f"printf '{output}'")
    assert call(tmp_path, recorder=Recorder(add=add)).status == 0


@pytest.mark.parametrize("verb", VERBS)
def test_a_delegate_that_is_not_there_is_named(tmp_path: Path, verb: str) -> None:
    answer = call(tmp_path, verb)
    assert answer.code == 999
    assert str(answer.document["msg"]).startswith(
        f'plugin "ipam" not found in /nowhere, {tmp_path} (install the plugin there'
    )


@pytest.mark.parametrize("name", ["../ipam", "", ".", "a/b"])
def test_a_delegates_type_is_no_path(tmp_path: Path, name: str) -> None:
    answer = call(tmp_path, recorder=Recorder(add=lambda request: request.delegate_add(name)))
    assert "invalid plugin type" in answer.document["msg"]


def test_a_delegate_can_have_another_interface_namespace_and_arguments_also_when_it_is_undone(tmp_path: Path) -> None:
    def add(request: Request) -> None:
        request.delegate("STATUS", "ipam")
        request.delegate_add("ipam", ifname="net1", netns="/run/netns/other", args="A=b")
        request.delegate("ADD", "ipam", {"cniVersion": "1.1.0", "name": "inner"})
        request.delegate("DEL", "ipam", {"cniVersion": "1.1.0", "name": "inner"})
        raise VerbError("too late")

    write_delegate(tmp_path, ADD="echo '{}'")
    assert call(tmp_path, recorder=Recorder(add=add)).status == 1
    seen = [
        (one.verb, *(one.env[f"CNI_{name}"] for name in ("IFNAME", "NETNS", "ARGS")), one.config["name"])
        for one in FakePlugins(tmp_path).calls
    ]
    own, other = ("eth0", variables("ADD", {})["CNI_NETNS"], "FOO=bar"), ("net1", "/run/netns/other", "A=b")
    assert seen == [
        ("STATUS", *own, "net"),
        ("ADD", *other, "net"),
        ("ADD", *own, "inner"),
        ("DEL", *own, "inner"),
        ("DEL", *other, "net"),
    ]


def test_a_wrong_word_for_a_delegate_is_an_error_of_the_author(tmp_path: Path) -> None:
    def add(request: Request) -> None:
        with pytest.raises(ValueError, match="'VERSION' is no verb for a delegate"):
            request.delegate("VERSION", "ipam")
        with pytest.raises(TypeError, match="mtu cannot be changed for a delegate; only ifname, netns, args can"):
            request.delegate_add("ipam", mtu="1")

    write_delegate(tmp_path)
    assert call(tmp_path, recorder=Recorder(add=add)).status == 0
    assert calls(tmp_path) == []


def test_a_delegate_that_cannot_be_started_is_an_error_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ipam").write_text("#!/nowhere/sh\n")
    (tmp_path / "ipam").chmod(0o755)
    body = "plugin.add(lambda r: r.delegate_add('ipam'))\nplugin.delete(lambda r: None)"
    answer = call_plugin(write_plugin(tmp_path, "main", body), "ADD", config(), path=str(tmp_path))
    assert answer.code == 999
    assert "cannot be started: No such file or directory" in answer.document["msg"]


def main_plugin(
    add: Callable[[Request], Any] = lambda request: request.ipam_add(), *, ipam: Any = True, **functions: Any
) -> Plugin:
    plugin = Plugin("main", ipam=ipam)
    plugin.add(add)
    plugin.delete(functions.get("delete", nothing))
    for name in ("check", "gc", "status"):
        if name in functions:
            getattr(plugin, name)(functions[name])
    return plugin


def call_main(directory: Path, plugin: Plugin, verb: str = "ADD", **more: Any) -> Answer:
    document = config(**{"ipam": {"type": "ipam"}, **more})
    return call_plugin(plugin, verb, document, path=str(directory))


@pytest.mark.parametrize("verb", VERBS)
def test_a_declared_ipam_plugin_gets_every_verb(tmp_path: Path, verb: str) -> None:
    write_delegate(tmp_path, ADD=f"echo '{json.dumps(RESULT)}'")
    answer = call_main(tmp_path, main_plugin(), verb)
    assert answer.status == 0
    assert (verb, "ipam") in calls(tmp_path)
    if verb == "ADD":
        assert answer.document == RESULT


def test_an_ipam_plugin_that_is_not_declared_is_refused(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD=f"echo '{json.dumps(RESULT)}'")
    answer = call_main(tmp_path, main_plugin(ipam=False))
    assert answer.document["msg"] == "ipam_add() needs Plugin(..., ipam=True): otherwise no DEL frees the address"
    assert calls(tmp_path) == []


@pytest.mark.parametrize("verb", ["DEL", "GC"])
def test_what_can_be_freed_is_freed_although_one_of_the_two_fails(tmp_path: Path, verb: str) -> None:
    called = []

    def fail(request: Request) -> None:
        called.append(request.verb)
        raise VerbError("my own", code=120)

    write_delegate(tmp_path, **{verb: REFUSED})
    answer = call_main(tmp_path, main_plugin(delete=fail, gc=fail), verb)
    assert called == [verb]
    assert (verb, "ipam") in calls(tmp_path)
    assert answer.code == (11 if verb == "DEL" else 120)
    assert f"{verb} failed as well: " in answer.stderr


@pytest.mark.parametrize(("verb", "code"), [("ADD", 7), ("CHECK", 7), ("STATUS", 7), ("DEL", None)])
@pytest.mark.parametrize("ipam", [{"type": ""}, "host-local"])
def test_an_ipam_section_without_a_type_is_invalid(tmp_path: Path, verb: str, code: int | None, ipam: object) -> None:
    assert call_main(tmp_path, main_plugin(), verb, ipam=ipam).code == code


@pytest.mark.parametrize("verb", VERBS)
def test_a_configuration_without_an_ipam_section_has_no_ipam_plugin(tmp_path: Path, verb: str) -> None:
    assert call_main(tmp_path, main_plugin(nothing), verb, ipam={}).status == 0
    answer = call_main(tmp_path, main_plugin(), verb, ipam={})
    assert answer.code == (7 if verb == "ADD" else None)
