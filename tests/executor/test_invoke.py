"""One plugin run by its path, with parameters like those of Go's pkg/invoke."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from libcni.errors import ConfigError, InvalidOutputError, PluginError
from libcni.executor import (
    PluginArgs,
    args_from_env,
    delegate_args,
    exec_plugin_with_result,
    exec_plugin_without_result,
)
from libcni.protocol.invocation import Outcome
from libcni.testing import RecordingExecutor

ARGS = PluginArgs("ADD", "c1", "/run/netns/c1", "eth0", iter([("K", "V"), ("L", "")]), "/opt/cni/bin")
VARIABLES = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/c1",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "K=V;L=",
    "CNI_PATH": "/opt/cni/bin",
}
CONF = {"cniVersion": "1.0.0", "name": "net", "type": "a"}


def answering(stdout: str, exit_status: int = 0) -> RecordingExecutor:
    return RecordingExecutor({("a", "ADD"): Outcome(exit_status, stdout.encode())})


def test_the_parameters_are_variables_and_back() -> None:
    assert ARGS.env() == ARGS.env() == VARIABLES
    received = args_from_env({**VARIABLES, "PATH": "/bin"})
    assert received.env() == VARIABLES
    assert delegate_args("DEL", VARIABLES).env() == {**VARIABLES, "CNI_COMMAND": "DEL"}
    assert args_from_env({}).env() == dict.fromkeys(VARIABLES, "")


def test_a_plugin_receives_its_document_and_only_these_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CNI_STALE", "1")
    monkeypatch.setenv("OF_THE_PROGRAM", "1")
    plugin = tmp_path / "a"
    plugin.write_text(f"#!/bin/sh\nenv > {tmp_path}/env; cat > {tmp_path}/stdin; echo '{{}}'\n")
    plugin.chmod(0o755)
    exec_plugin_without_result(plugin, json.dumps(CONF), ARGS)
    seen = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert {name: seen[name] for name in VARIABLES} == VARIABLES
    assert ("CNI_STALE" in seen, seen["OF_THE_PROGRAM"]) == (False, "1")
    assert json.loads((tmp_path / "stdin").read_text()) == CONF


@pytest.mark.parametrize(
    ("conf", "printed", "version"),
    [("1.0.0", "0.4.0", "0.4.0"), ("0.3.1", None, "0.3.1"), ("0.3.1", "", "0.3.1"), (None, None, "0.1.0")],
)
def test_a_result_without_a_version_has_that_of_the_configuration(
    conf: str | None, printed: str | None, version: str
) -> None:
    document = {**CONF, "cniVersion": conf} if conf else {"name": "net", "type": "a"}
    result = {} if printed is None else {"cniVersion": printed}
    got = exec_plugin_with_result("/bin/a", document, ARGS, executor=answering(json.dumps(result)))
    assert got.cni_version == version


@pytest.mark.parametrize("document", [b'{ "some": "stdin" }', '{ "some": "stdin" }', {"some": "stdin"}])
def test_a_configuration_needs_no_key(document: bytes | str | dict[str, str]) -> None:
    executor = answering("{}")
    assert exec_plugin_with_result("/bin/a", document, ARGS, executor=executor).cni_version == "0.1.0"
    assert executor.calls[0].config == {"some": "stdin"}


@pytest.mark.parametrize("document", [b"[]", b"\xff{}", b"", {"some": object()}, "[" * 5000])
def test_a_configuration_that_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(ConfigError):
        exec_plugin_with_result("/bin/a", document, ARGS, executor=answering("{}"))


def test_errors_are_those_of_the_verbs() -> None:
    failing = answering('{"code": 11, "msg": "later", "details": "why"}', 1)
    with pytest.raises(PluginError, match="later") as caught:
        exec_plugin_without_result("/bin/a", CONF, ARGS, executor=failing)
    assert (caught.value.code, caught.value.details, caught.value.plugin) == (11, "why", "a")
    with pytest.raises(InvalidOutputError):
        exec_plugin_with_result("/bin/a", CONF, ARGS, executor=answering("nonsense"))
    with pytest.raises(ConfigError):
        exec_plugin_with_result("/bin/a", b"{", ARGS, executor=answering("{}"))
    with pytest.raises(PluginError):
        exec_plugin_with_result("/nonexistent/a", CONF, ARGS)
