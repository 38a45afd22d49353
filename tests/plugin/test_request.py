"""A Request as a plugin's function sees it: arguments, capabilities, the previous result, valid attachments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libcni.plugin import Request, VerbError
from plugin.plugins import request


def test_what_the_runtime_sent_is_there() -> None:
    got = request(keyA=["x"])
    assert (got.verb, got.version, got.name) == ("ADD", "1.1.0", "net")
    assert (got.container_id, got.ifname) == ("test-container", "eth0")
    assert got.netns == "/run/netns/test-namespace-that-is-not-there"
    assert got.path == ("/opt/cni/bin", "/usr/lib/cni")
    assert got.config["keyA"] == ["x"]
    assert json.loads(got.stdin) == got.config
    assert got.env["CNI_COMMAND"] == "ADD"


def test_cni_args_are_pairs() -> None:
    assert request("K8S_POD_NAME=web;FOO=;FOO=bar").args == {"K8S_POD_NAME": "web", "FOO": "bar"}
    assert request("").args == {}
    for text, pair in (("FOO", "FOO"), ("A=b=c", "A=b=c"), ("A=1;", "")):
        with pytest.raises(VerbError, match=f'CNI_ARGS: invalid pair "{pair}"') as caught:
            _ = request(text).args
        assert caught.value.code == 4


def gc(more: dict[str, Any]) -> Request:
    return request(verb="GC", **more)


def test_a_previous_result_is_typed_and_none_where_there_is_none() -> None:
    got = request(prevResult={"ips": [{"version": "4", "address": "10.0.0.2/24"}]})
    assert got.prev_result is not None
    assert got.prev_result.ips == [{"address": "10.0.0.2/24"}]
    assert request().prev_result is None
    assert request(prevResult=None).prev_result is None


def test_changing_the_result_leaves_the_previous_one() -> None:
    got = request(prevResult={"ips": [{"address": "10.0.0.2/24"}], "vendor": [{"a": 1}]})
    got.result.ips[0]["address"] = got.result.extra["vendor"][0]["a"] = "changed"
    assert got.prev_result is not None
    assert (got.prev_result.ips, got.prev_result.extra) == ([{"address": "10.0.0.2/24"}], {"vendor": [{"a": 1}]})
    assert (got.result.ips, got.result.extra) == ([{"address": "changed"}], {"vendor": [{"a": "changed"}]})


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_knows_the_valid_attachments(key: str) -> None:
    valid = [{"containerID": "a", "ifname": "eth0"}, {"containerID": "b", "ifname": "eth1"}]
    assert gc({key: valid}).valid_attachments == {("a", "eth0"), ("b", "eth1")}


def test_null_is_an_empty_list_of_attachments_as_go_sends_it() -> None:
    assert gc({"cni.dev/valid-attachments": None}).valid_attachments == frozenset()


@pytest.mark.parametrize(
    ("more", "msg"),
    [
        ({}, 'missing key "cni.dev/valid-attachments": without this list GC must free nothing'),
        (
            {"cni.dev/valid-attachments": [7]},
            "cni.dev/valid-attachments: 7 is not an object with containerID and ifname",
        ),
        (
            {"cni.dev/attachments": [{"containerID": "a"}]},
            "cni.dev/attachments: {'containerID': 'a'} is not an object with containerID and ifname",
        ),
        (
            {"cni.dev/attachments": [{"ifname": "a"}]},
            "cni.dev/attachments: {'ifname': 'a'} is not an object with containerID and ifname",
        ),
    ],
)
def test_without_a_right_list_nothing_may_be_collected(more: dict[str, Any], msg: str) -> None:
    with pytest.raises(VerbError) as caught:
        _ = gc(more).valid_attachments
    assert (caught.value.code, caught.value.msg) == (7, msg)


def test_a_plugin_can_require_a_previous_result() -> None:
    assert request(prevResult={"ips": []}).require_prev_result().ips == []
    with pytest.raises(VerbError, match="missing prevResult") as caught:
        request().require_prev_result()
    assert caught.value.code == 7
