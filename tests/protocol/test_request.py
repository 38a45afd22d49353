"""What a plugin receives: its own text, unchanged but for what the runtime makes (spec 1.1.0, section 3)."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from config.test_jsontext import NUMBERS, strings, values
from helpers import RT, network
from hypothesis import given
from hypothesis import strategies as st

from libcni.config import jsontext
from libcni.config.network import NetworkConfigList, PluginConfig, parse_plugin
from libcni.config.runtime_conf import RuntimeConf
from libcni.protocol.request import cni_variables, execution_config, valid_attachments

MADE = ["name", "cniVersion", "runtimeConfig", "prevResult", "capabilities"]


def derived(text: str, **more: Any) -> str:
    plugin = PluginConfig.from_bytes(text)
    return execution_config(plugin, "net", "1.0.0", **more).decode()


keys = strings.filter(lambda text: json.loads(text) not in {*MADE, "type", "ipam", "dns", "args"}).filter(
    lambda text: not json.loads(text).startswith("cni.dev/")
)


@given(st.lists(st.tuples(keys, values), max_size=6), st.sampled_from(NUMBERS), st.integers(0, 6))
def test_unknown_keys_pass_as_they_are_written(members: list[tuple[str, str]], number: str, where: int) -> None:
    whole = [*members[:where], ('"type"', '"a"'), ('"number"', number), *members[where:]]
    text = "{ " + " ,\n".join(f"{key} : {value} " for key, value in whole) + "}"
    net = NetworkConfigList.from_bytes(f'{{"name":"net","cniVersion":"1.0.0","plugins":[{text}]}}')
    got = execution_config(net.plugins[0], net.name, net.cni_version).decode()
    assert got == '{"cniVersion":"1.0.0","name":"net",' + ",".join(f"{key}:{value}" for key, value in whole) + "}"
    assert jsontext.parse(got) == {**jsontext.parse(text), "cniVersion": "1.0.0", "name": "net"}


@pytest.mark.parametrize("number", NUMBERS)
def test_numbers_arrive_unchanged(number: str) -> None:
    text = f'{{"type":"a","x":{number},"y":{{"z":[ {number} ]}},"args":{{"cni":{number}}}}}'
    assert derived(text) == f'{{"cniVersion":"1.0.0","name":"net",{text[1:]}'
    merged = derived(text, rt=RuntimeConf("c1", None, "eth0", network_args={"mine": 1}))
    assert merged.endswith(f'"type":"a","x":{number},"y":{{"z":[ {number} ]}},"args":{{"cni":{number},"mine":1}}}}')


def test_what_the_runtime_makes_is_never_the_files() -> None:
    made = {"runtimeConfig": {"mac": 1}, "prevResult": {}, "cni.dev/valid-attachments": [], "cni.dev/x": 1}
    text = json.dumps({"type": "a", **made, "name": "own", "cniVersion": "0.3.1", "capabilities": {"mac": True}})
    assert json.loads(derived(text)) == {"cniVersion": "1.0.0", "name": "net", "type": "a"}
    assert json.loads(derived(text, rt=RT)) == {"cniVersion": "1.0.0", "name": "net", "type": "a"}


def test_escaped_keys_are_the_same_keys() -> None:
    text = '{"type":"a","\\u0063apabilities":{"mac":true},"prev\\u0052esult":{},"n\\u0061me":"own"}'
    assert json.loads(derived(text, rt=RT)) == {"cniVersion": "1.0.0", "name": "net", "type": "a"}


@pytest.mark.parametrize("text", ['{"type":"a"}', '{"type":"a","capabilities":{}}', '{"type":"a","capabilities":null}'])
def test_without_capabilities_there_is_no_runtime_config(text: str) -> None:
    rt = RuntimeConf("c1", None, "eth0", capability_args={"mac": "x"})
    assert json.loads(derived(text, rt=rt)).keys() == {"cniVersion", "name", "type"}


def test_each_plugin_gets_the_capabilities_that_it_declares() -> None:
    text = '{"type":"a","capabilities":{"ips":true,"mac":false,"bandwidth":true,"portMappings":true}}'
    rt = RuntimeConf("c1", None, "eth0", capability_args={"portMappings": [1], "mac": "x", "ips": None, "other": 1})
    got = json.loads(derived(text, rt=rt))
    assert got["runtimeConfig"] == {"ips": None, "portMappings": [1]}
    assert "capabilities" not in got


@pytest.mark.parametrize(
    ("own", "given_args", "merged"),
    [
        ("", {"cni": {"labels": [1]}}, {"cni": {"labels": [1]}}),
        (',"args":null', {"cni": {}}, {"cni": {}}),
        (
            ',"args":{"cni":{"a":1,"labels":[2]},"b":3}',
            {"cni": {"labels": [1]}},
            {"cni": {"a": 1, "labels": [1]}, "b": 3},
        ),
        (',"args":{"cni":5}', {"cni": {"a": 1}}, {"cni": {"a": 1}}),
        (',"args":{"a":1}', {}, {"a": 1}),
        (',"\\u0061rgs":{"a":1}', {"b": 2}, {"a": 1, "b": 2}),
        (',"args":{"a":1},"args":{"c":3}', {"b": 2}, {"c": 3, "b": 2}),
        (',"args":{"a":1},"\\u0061rgs":{"c":3}', {"b": 2}, {"c": 3, "b": 2}),
    ],
)
def test_args_are_merged(own: str, given_args: dict[str, Any], merged: dict[str, Any]) -> None:
    rt = RuntimeConf("c1", None, "eth0", network_args=given_args)
    got = derived(f'{{"type":"a"{own},"last":1}}', rt=rt)
    assert json.loads(got)["args"] == merged
    assert list(json.loads(got))[:3] == ["cniVersion", "name", "type"]


def test_args_pass_where_nothing_is_merged() -> None:
    text = '{"type":"a","args":{ "cni" : 1e400 }}'
    assert '"args":{ "cni" : 1e400 }' in derived(text)
    assert '"args":{ "cni" : 1e400 }' in derived(text, rt=RT)


def test_the_previous_result_is_put_in_as_text() -> None:
    prev = '{"cniVersion":"1.0.0","x":1e400}'
    assert derived('{"type":"a","prevResult":{}}', prev_result=prev) == (
        f'{{"cniVersion":"1.0.0","name":"net","type":"a","prevResult":{prev}}}'
    )


@pytest.mark.parametrize(("pairs", "text"), [([], "[]"), ([("c1", "eth0")], '[{"containerID":"c1","ifname":"eth0"}]')])
def test_valid_attachments_stand_under_both_keys(pairs: list[tuple[str, str]], text: str) -> None:
    assert valid_attachments(pairs) == text
    got = json.loads(derived('{"type":"a","cni.dev/attachments":5}', valid=text))
    assert got["cni.dev/valid-attachments"] == got["cni.dev/attachments"] == json.loads(text)


def test_the_environment_of_an_attachment() -> None:
    rt = RuntimeConf("c1", "/ns", "eth0", args=[("B", "2"), ("A", "x=y")])
    assert cni_variables("ADD", ["/a", "/b"], rt) == {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/ns",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "B=2;A=x=y",
        "CNI_PATH": f"/a{os.pathsep}/b",
    }


def test_all_six_variables_are_always_there() -> None:
    wanted = {"CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_IFNAME": "", "CNI_ARGS": "", "CNI_PATH": "/a"}
    assert cni_variables("GC", ["/a"]) == {"CNI_COMMAND": "GC", **wanted}
    assert cni_variables("DEL", ["/a"], RuntimeConf("c1", None, "eth0"))["CNI_NETNS"] == ""


def test_the_plugins_name_and_version_are_the_lists() -> None:
    net = network({"type": "a", "name": "own", "cniVersion": "0.2.0"}, cniVersion="1.1.0")
    got = json.loads(execution_config(net.plugins[0], net.name, net.cni_version))
    assert got == {"cniVersion": "1.1.0", "name": "net", "type": "a"}


def test_arguments_replace_a_recorded_value_that_is_no_object() -> None:
    plugin = parse_plugin('{"type":"a","args":["x"],"b":1}')
    assert execution_config(plugin, "net", "1.0.0", rt=RT) == (
        b'{"cniVersion":"1.0.0","name":"net","type":"a","args":["x"],"b":1}'
    )
    rt = RuntimeConf("c1", "/n", "eth0", network_args={"cni": {}})
    assert execution_config(plugin, "net", "1.0.0", rt=rt) == (
        b'{"cniVersion":"1.0.0","name":"net","type":"a","args":{"cni":{}},"b":1}'
    )
