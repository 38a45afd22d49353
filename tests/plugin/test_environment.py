"""What the environment must hold for each verb, and what a plugin says where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from libcni.plugin import ErrorCode
from libcni.testing import call_plugin
from plugin.plugins import VERBS, Recorder, config

NEEDED = {
    "ADD": ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
    "DEL": ["CNI_CONTAINERID", "CNI_IFNAME"],
    "CHECK": ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
    "GC": ["CNI_PATH"],
    "STATUS": [],
}
VARIABLES = ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH", "CNI_ARGS", "CNI_NETNS_OVERRIDE"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("missing", [None, ""])
def test_each_variable_is_needed_by_the_verbs_of_the_table_only(verb: str, missing: str | None) -> None:
    for names in (*([name] for name in VARIABLES), VARIABLES):
        answer = call_plugin(Recorder().plugin, verb, config(), path="/opt/cni/bin", env=dict.fromkeys(names, missing))
        needed = [name for name in names if name in NEEDED[verb]]
        assert answer.code == (4 if needed else None)
        if needed:
            assert answer.document["msg"] == f"required env variables [{','.join(needed)}] missing"


@pytest.mark.parametrize("verb", ["GC", "STATUS"])
def test_gc_and_status_do_not_look_at_an_attachment(verb: str) -> None:
    env = {"CNI_CONTAINERID": "../x", "CNI_IFNAME": "a/b", "CNI_PATH": "/opt/cni/bin"}
    assert call_plugin(Recorder().plugin, verb, config(), env=env).status == 0


@pytest.mark.parametrize("verb", ["NOPE", "add", "ADD "])
def test_an_unknown_command_is_refused_in_the_version_of_the_configuration(verb: str) -> None:
    answer = call_plugin(Recorder().plugin, verb, config("0.4.0"))
    assert answer.document == {"cniVersion": "0.4.0", "code": 4, "msg": f"unknown CNI_COMMAND: {verb}"}


def test_what_is_wrong_with_the_environment_comes_before_what_is_wrong_with_stdin() -> None:
    answer = call_plugin(Recorder().plugin, "ADD", b"garbage", env={"CNI_NETNS": None})
    assert answer.code == ErrorCode.INVALID_ENVIRONMENT_VARIABLES
    assert answer.document["cniVersion"] == "1.1.0"


OWN = "/proc/self/ns/net"


@pytest.mark.parametrize(("verb", "override"), [("ADD", None), ("DEL", "0"), ("ADD", "yes"), ("DEL", "")])
def test_the_plugins_own_namespace_is_refused_before_the_function_runs(verb: str, override: str | None) -> None:
    recorder = Recorder()
    env = {"CNI_NETNS_OVERRIDE": override}
    answer = call_plugin(recorder.plugin, verb, config(), netns=OWN, env=env)
    assert answer.document == {
        "cniVersion": "1.1.0",
        "code": ErrorCode.INVALID_NETNS,
        "msg": "plugin's netns and netns from CNI_NETNS should not be the same",
        "details": f"CNI_NETNS is {OWN}, the plugin's own namespace; CNI_NETNS_OVERRIDE=1 allows that",
    }
    assert recorder.requests == []


@pytest.mark.parametrize("override", ["1", "true", "TRUE"])
def test_the_override_allows_the_plugins_own_namespace(override: str) -> None:
    answer = call_plugin(Recorder().plugin, "ADD", config(), netns=OWN, env={"CNI_NETNS_OVERRIDE": override})
    assert answer.status == 0


def test_a_link_to_the_own_namespace_is_seen_through(tmp_path: Path) -> None:
    link = tmp_path / "netns"
    link.symlink_to(f"/proc/{os.getpid()}/ns/net")
    answer = call_plugin(Recorder().plugin, "ADD", config(), netns=str(link), env={"CNI_NETNS_OVERRIDE": None})
    assert answer.code == ErrorCode.INVALID_NETNS


@pytest.mark.parametrize("netns", ["/run/netns/gone", "a\0b", "/etc/passwd"])
def test_a_namespace_that_cannot_be_opened_or_is_another_passes(netns: str) -> None:
    assert call_plugin(Recorder().plugin, "DEL", config(), netns=netns, env={"CNI_NETNS_OVERRIDE": None}).status == 0


def test_check_does_not_compare_namespaces() -> None:
    assert call_plugin(Recorder().plugin, "CHECK", config(), netns=OWN, env={"CNI_NETNS_OVERRIDE": None}).status == 0
