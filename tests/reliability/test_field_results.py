"""Rows of field.md about what plugins receive and answer. The number is the row's."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from helpers import RT
from nodes import FakeNode

from libcni import InvalidOutputError, NetworkConfigList


@pytest.mark.parametrize("result", ['{"ips": null}', '{"dns": null}', '{"routes": null, "interfaces": null}', "null"])
def test_field_27_null_for_a_part_is_none(node: FakeNode, result: str) -> None:
    node.plugin("a", result=result)
    net, cni = node.network("a"), node.client()
    cni.add_network_list(net, RT)
    cni.check_network_list(net, RT)
    cni.del_network_list(net, RT)


NULLS = ['{"ips": [null]}', '{"ips": [{"address": null}]}', '{"routes": [null]}', '{"ips": {}}']


@pytest.mark.parametrize("result", NULLS)
@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
def test_field_27_null_in_a_list_is_an_error_with_its_place(node: FakeNode, result: str, version: str) -> None:
    node.plugin("a", result=result)
    cni = node.client()
    with pytest.raises(InvalidOutputError, match=r"ips|routes"):
        cni.add_network_list(node.network("a", cniVersion=version), RT)
    assert node.verbs() == ["ADD a", "DEL a"]
    assert node.states() == []


@pytest.mark.parametrize("result", [*NULLS, '{"ip4": null}', '{"ip4": {"ip": null}}', '{"ip4": [], "ip6": 1}'])
def test_field_27_the_oldest_versions(node: FakeNode, result: str) -> None:
    node.plugin("a", result=result)
    cni = node.client()
    with suppress(InvalidOutputError):
        cni.add_network_list(node.network("a", cniVersion="0.2.0"), RT)
    cni.del_network_list(node.network("a", cniVersion="0.2.0"), RT)
    assert node.states() == []


@pytest.mark.parametrize("result", ['{"ips": [null]}', "[]", '"x"', '{"cniVersion": "9"}', '{"cniVersion": []}'])
def test_field_27_a_broken_result_in_a_record_never_stops_a_del(node: FakeNode, result: str) -> None:
    net, cni = node.network("a"), node.client()
    cni.add_network_list(net, RT)
    path = node.results / "net-c1-eth0"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "result": json.loads(result)}))
    cni.del_network_list(net, RT)
    assert node.states() == []


@pytest.mark.parametrize("number", ["9007199254740993", "1.0", "1e21", "1e400", "0.10000000000000000001", "1" * 5000])
def test_field_34_numbers_are_passed_as_they_are_written(node: FakeNode, number: str) -> None:
    result = f'{{"cniVersion": "1.0.0", "vendor": {number}}}'
    node.plugin("a", result=result)
    node.plugin("b", result=result)
    net = NetworkConfigList.from_bytes(
        f'{{"cniVersion": "1.0.0", "name": "net", "plugins": [{{"type": "a", "n": {number}}}, {{"type": "b"}}]}}'
    )
    cni = node.client()
    cni.add_network_list(net, RT)
    assert f'"n":{number}' in node.last_call("a").stdin.decode().replace(" ", "")
    assert f'"vendor":{number}' in node.last_call("b").stdin.decode().replace(" ", "")
    node.plugin("a")
    cni.del_network_list("net", RT)
    assert f'"n":{number}' in node.last_call("a").stdin.decode().replace(" ", "")
    assert f'"vendor":{number}' in node.last_call("a").stdin.decode().replace(" ", "")


def test_field_35_fields_that_nobody_knows_are_kept(node: FakeNode) -> None:
    result = '{"cniVersion": "1.0.0", "vendor": {"x": [1]}, "ips": [{"address": "10.1.0.5/16", "label": "a"}]}'
    node.plugin("a", result=result)
    node.plugin("b", 'grep -q label "$stdin" || exit 1', result=result)
    net, cni = node.network("a", "b"), node.client()
    answer = cni.add_network_list(net, RT)
    assert answer.to_dict()["vendor"] == {"x": [1]}
    assert answer.ips[0].extra["label"] == "a"
    cached = cni.get_network_list_cached_result(net, RT)
    assert cached is not None
    assert cached.to_dict() == json.loads(result)
    cni.del_network_list(net, RT)
    assert node.last_call("a").config["prevResult"] == json.loads(result)
