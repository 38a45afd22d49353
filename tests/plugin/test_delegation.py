"""Delegation: what the delegate gets, how its answer and its error come back, and the DEL after a failed ADD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libcni.errors import InvalidOutputError, PluginError, PluginNotFoundError
from libcni.plugin import Request
from libcni.testing import Answer, call_plugin
from plugin.plugins import VERBS, Recorder, config

SHELL = """#!/bin/sh
cat > "$0.$CNI_COMMAND.stdin"
env | grep -E '^(CNI_|FOO)' | sort > "$0.$CNI_COMMAND.env"
echo "log of $CNI_COMMAND" >&2
"""
RESULT = {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}], "vendor": 1}


def write_delegate(directory: Path, name: str = "ipam", **answers: str) -> Path:
    cases = "".join(f"{verb}) {answer};;\n" for verb, answer in answers.items())
    path = directory / name
    path.write_text(f"{SHELL}case $CNI_COMMAND in\n{cases}esac\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def received(directory: Path, verb: str, what: str) -> str:
    return (directory / f"ipam.{verb}.{what}").read_text(encoding="utf-8")


def delegating(**answers: Any) -> Recorder:
    return Recorder(
        add=answers.get("add", lambda request: request.delegate_add("ipam")),
        delete=lambda request: request.delegate_del("ipam"),
        check=lambda request: request.delegate_check("ipam"),
        gc=lambda request: request.delegate_gc("ipam"),
        status=lambda request: request.delegate_status("ipam"),
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
    assert answer.status == 0
    (request,) = recorder.requests
    assert received(tmp_path, verb, "stdin").encode() == request.stdin
    want = sorted(f"{name}={value}" for name, value in request.env.items() if name.startswith(("CNI_", "FOO")))
    assert received(tmp_path, verb, "env").splitlines() == want


def test_the_configuration_reaches_the_delegate_byte_for_byte(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD="echo '{}'")
    stdin = b'{ "name":"net","cniVersion" :"1.1.0", "n": 0.10000000000000000001,  "m": 1e400 }'
    assert call_plugin(delegating().plugin, "ADD", stdin, path=str(tmp_path)).status == 0
    assert received(tmp_path, "ADD", "stdin").encode() == stdin


def test_a_changed_configuration_may_be_handed_on(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD="echo '{}'")
    recorder = delegating(add=lambda request: request.delegate_add("ipam", {**request.config, "more": 1}))
    assert call(tmp_path, recorder=recorder).status == 0
    assert json.loads(received(tmp_path, "ADD", "stdin")) == config(more=1)


def test_the_delegates_result_is_typed_and_keeps_its_fields(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD="""echo '{"ip4": {"ip": "10.0.0.2/24"}, "vendor": 1}'""")
    assert call(tmp_path).document == RESULT


def test_the_delegates_stderr_is_the_plugins(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_delegate(tmp_path, ADD="echo '{}'")
    call(tmp_path)
    assert capfd.readouterr().err == "log of ADD\n"


ERROR = '{"cniVersion": "1.1.0", "code": 11, "msg": "full", "details": "all of it"}'


@pytest.mark.parametrize("verb", VERBS)
def test_the_delegates_error_is_passed_up(tmp_path: Path, verb: str) -> None:
    write_delegate(tmp_path, **{verb: f"echo '{ERROR}'; exit 7"})
    answer = call(tmp_path, verb)
    assert answer.status == 1
    assert answer.document == json.loads(ERROR)


@pytest.mark.parametrize("failure", [f"echo '{ERROR}'; exit 1", "exit 3", "kill -9 $$", "echo garbage"])
def test_a_failed_delegated_add_is_followed_by_its_del(tmp_path: Path, failure: str) -> None:
    write_delegate(tmp_path, ADD=failure)
    recorder = delegating()
    assert call(tmp_path, recorder=recorder).status == 1
    assert received(tmp_path, "DEL", "stdin").encode() == recorder.requests[0].stdin
    assert "CNI_COMMAND=DEL" in received(tmp_path, "DEL", "env").splitlines()
    assert received(tmp_path, "ADD", "env").replace("=ADD", "=DEL") == received(tmp_path, "DEL", "env")


def test_a_del_that_fails_too_does_not_hide_why_add_failed(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD=f"echo '{ERROR}'; exit 1", DEL="exit 9")
    answer = call(tmp_path)
    assert answer.code == 11
    assert "undoing the delegated ADD failed as well: " in answer.stderr
    assert "exit status 9" in answer.stderr


def test_a_delegate_that_succeeds_gets_no_del(tmp_path: Path) -> None:
    write_delegate(tmp_path, ADD="echo '{}'")
    call(tmp_path)
    assert not (tmp_path / "ipam.DEL.stdin").exists()


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ("exit 3", {"exit_status": 3, "signal": None, "code": None}),
        ("kill -9 $$", {"exit_status": None, "signal": 9, "code": None}),
        ("echo garbage; exit 1", {"exit_status": 1, "code": None, "stdout": "garbage\n"}),
        (f"echo '{ERROR}'; exit 1", {"exit_status": 1, "code": 11, "msg": "full", "details": "all of it"}),
        ("""echo '{"code": "x"}'; exit 1""", {"exit_status": 1, "code": None}),
    ],
)
def test_the_error_says_what_is_known_of_the_call(tmp_path: Path, failure: str, expected: dict[str, Any]) -> None:
    def add(request: Request) -> None:
        with pytest.raises(PluginError) as caught:
            request.delegate_check("ipam")
        error = caught.value
        assert {name: getattr(error, name) for name in expected} == expected
        assert (error.plugin, error.path, error.verb) == ("ipam", str(tmp_path / "ipam"), "CHECK")
        assert (error.network, error.container_id, error.ifname) == ("net", "test-container", "eth0")

    write_delegate(tmp_path, CHECK=failure)
    assert call(tmp_path, recorder=Recorder(add=add)).status == 0


def test_output_that_is_no_text_is_shown_escaped(tmp_path: Path) -> None:
    def add(request: Request) -> None:
        with pytest.raises(PluginError) as caught:
            request.delegate_check("ipam")
        assert caught.value.stdout == "\\xff"
        assert caught.value.problem == "exit status 1, and no error document"

    write_delegate(tmp_path, CHECK=r"printf '\377'; exit 1")
    assert call(tmp_path, recorder=Recorder(add=add)).status == 0


@pytest.mark.parametrize("output", ["", "[]", "garbage", "{}{}"])
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
    assert answer.document["msg"] == f'plugin "ipam" not found in /nowhere, {tmp_path} (is the plugin installed there?)'


def test_a_file_that_cannot_be_executed_is_passed_over(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    for directory in (first, second):
        directory.mkdir()
        write_delegate(directory, ADD="echo '{}'")
    (first / "ipam").chmod(0o644)
    assert call_plugin(delegating().plugin, "ADD", config(), path=f"{first}:{second}").status == 0
    assert (second / "ipam.ADD.stdin").exists()


@pytest.mark.parametrize("name", ["../ipam", "", ".", "a/b"])
def test_a_delegates_type_is_no_path(tmp_path: Path, name: str) -> None:
    answer = call(tmp_path, recorder=Recorder(add=lambda request: request.delegate_add(name)))
    assert "invalid plugin type" in answer.document["msg"]


def test_without_cni_path_there_is_nothing_to_delegate_to() -> None:
    def add(request: Request) -> None:
        with pytest.raises(PluginNotFoundError, match="CNI_PATH is empty"):
            request.delegate_add("ipam")

    assert call_plugin(Recorder(add=add).plugin, "ADD", config()).status == 0


def test_a_delegate_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    path = write_delegate(tmp_path)
    path.write_text("#!/nowhere/interpreter\n", encoding="utf-8")
    answer = call(tmp_path, "DEL")
    assert (answer.code, "cannot be started" in answer.document["msg"]) == (999, True)
