"""What a plugin receives: its own text, unchanged but for what the runtime makes (spec 1.1.0, section 3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from config.test_jsontext import NUMBERS, strings, values
from helpers import RT
from hypothesis import given
from hypothesis import strategies as st

from libcni.config import jsontext
from libcni.config.network import NetworkConfigList, PluginConfig, parse_plugin
from libcni.config.runtime_conf import RuntimeConf
from libcni.protocol.request import execution_config

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


def test_escaped_keys_are_the_same_keys() -> None:
    text = '{"type":"a","\\u0063apabilities":{"mac":true},"prev\\u0052esult":{},"n\\u0061me":"own"}'
    assert json.loads(derived(text, rt=RT)) == {"cniVersion": "1.0.0", "name": "net", "type": "a"}


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


def test_arguments_replace_a_recorded_value_that_is_no_object() -> None:
    plugin = parse_plugin('{"type":"a","args":["x"],"b":1}')
    assert execution_config(plugin, "net", "1.0.0", rt=RT) == (
        b'{"cniVersion":"1.0.0","name":"net","type":"a","args":["x"],"b":1}'
    )
    rt = RuntimeConf("c1", "/n", "eth0", network_args={"cni": {}})
    assert execution_config(plugin, "net", "1.0.0", rt=rt) == (
        b'{"cniVersion":"1.0.0","name":"net","type":"a","args":{"cni":{}},"b":1}'
    )
