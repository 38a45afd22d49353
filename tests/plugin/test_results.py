"""PluginResult: built, read and printed in the shape of each spec version."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_interface
from typing import Any

import pytest

from libcni.config.versions import ALL_VERSIONS
from libcni.plugin import PluginResult, VerbError
from libcni.protocol.result import convert_text
from libcni.testing import call_plugin
from plugin.plugins import Recorder, config

OF_1_1: dict[str, Any] = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "mtu": 1500, "sandbox": "/run/netns/blue", "x": 1}],
    "ips": [
        {"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0, "y": 2},
        {"address": "fd00::5/64"},
        {"address": "10.1.0.6/16"},
    ],
    "routes": [{"dst": "0.0.0.0/0", "table": 7}, {"dst": "::/0", "gw": "fd00::1"}],
    "dns": {"nameservers": ["10.1.0.1"], "z": [3]},
    "vendor": {"a": [1, {"b": None}]},
}


def built(version: str) -> PluginResult:
    result = PluginResult(version)
    index = result.add_interface("eth0", mac="00:11:22:33:44:55", sandbox="/run/netns/blue", mtu=1500)
    result.add_ip("10.1.0.5/16", gateway="10.1.0.1", interface=index)
    result.add_ip(ip_interface("fd00::5/64"), gateway=ip_address("fd00::1"))
    result.add_route("0.0.0.0/0", priority=0)
    result.add_route("::/0", gw="fd00::1")
    result.set_dns(["10.1.0.1"], domain="example.org", search=["example.org"], options=["ndots:2"])
    return result


def test_each_method_adds_its_part() -> None:
    assert built("1.1.0").to_document() == {
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/run/netns/blue", "mtu": 1500}],
        "ips": [
            {"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0},
            {"address": "fd00::5/64", "gateway": "fd00::1"},
        ],
        "routes": [{"dst": "0.0.0.0/0", "priority": 0}, {"dst": "::/0", "gw": "fd00::1"}],
        "dns": {
            "nameservers": ["10.1.0.1"],
            "domain": "example.org",
            "search": ["example.org"],
            "options": ["ndots:2"],
        },
    }


def test_new_fields_are_printed_from_1_1_on_only() -> None:
    newest, older = PluginResult("1.1.0"), PluginResult("1.0.0")
    for result in (newest, older):
        result.add_interface("eth0", mtu=1, socket_path="/s", pci_id="p")
        result.add_route("10.0.0.0/8", mtu=1, advmss=2, priority=0, table=3, scope=0)
    assert newest.interfaces == [{"name": "eth0", "mtu": 1, "socketPath": "/s", "pciID": "p"}]
    assert newest.routes == [{"dst": "10.0.0.0/8", "mtu": 1, "advmss": 2, "priority": 0, "table": 3, "scope": 0}]
    assert (older.interfaces, older.routes) == ([{"name": "eth0"}], [{"dst": "10.0.0.0/8"}])


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_an_empty_result_is_its_version(version: str) -> None:
    assert PluginResult(version).to_document() == {"cniVersion": version}


@pytest.mark.parametrize(
    ("document", "msg"),
    [
        (7, "the result must be an object, not int"),
        ({"ips": {}}, "ips must be a list, not dict"),
        ({"ips": [{}, None]}, "ips[1] must be an object, not NoneType"),
        ({"dns": [1]}, "dns must be an object, not list"),
        ({"ip4": 1}, "ip4 must be an object, not int"),
    ],
)
def test_what_is_no_result_cannot_be_decoded(document: object, msg: str) -> None:
    with pytest.raises(VerbError) as caught:
        PluginResult.from_document(document, "1.1.0")
    assert (caught.value.code, caught.value.msg) == (6, msg)


def test_null_parts_are_empty() -> None:
    document = {"interfaces": None, "ips": None, "routes": None, "dns": None, "ip4": None}
    assert PluginResult.from_document(document, "1.0.0").to_document() == {"cniVersion": "1.0.0"}


@pytest.mark.parametrize("address", ["10.0.0.2", "10.0.0.2/", "10.0.0.2/255.255.255.0", "10.0.0.2/33", "x/24", "/24"])
def test_an_address_needs_its_prefix(address: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        PluginResult().add_ip(address)
    with pytest.raises(ValueError, match=r"."):
        PluginResult().add_route(address)


def test_a_gateway_is_an_address() -> None:
    with pytest.raises(ValueError, match="gateway"):
        PluginResult().add_ip("10.0.0.2/24", gateway="gateway")
    with pytest.raises(ValueError, match="10"):
        PluginResult().add_route("10.0.0.0/24", gw="10.0.0.1/24")


def test_empty_name_server_settings_are_left_out() -> None:
    result = PluginResult()
    result.set_dns(["10.0.0.1"])
    assert result.dns == {"nameservers": ["10.0.0.1"]}
    result.set_dns()
    assert result.to_document() == {"cniVersion": "1.1.0"}


def test_a_newer_result_without_address_has_no_form_of_0_2() -> None:
    result = PluginResult("1.1.0")
    result.version = "0.2.0"
    with pytest.raises(VerbError, match=r"cannot convert the result from 1\.1\.0 to 0\.2\.0: no valid IP") as caught:
        result.to_document()
    assert caught.value.code == 6


@pytest.mark.parametrize("previous", [{"cniVersion": "7.0.0"}, {"cniVersion": 1}, {"ips": [None]}])
def test_a_broken_previous_result_stops_add_and_not_del(previous: object) -> None:
    document = config("1.1.0", prevResult=previous)
    assert call_plugin(Recorder().plugin, "ADD", document).code == 6
    assert call_plugin(Recorder().plugin, "DEL", document).status == 0


@pytest.mark.parametrize("source", ALL_VERSIONS)
@pytest.mark.parametrize("target", ALL_VERSIONS)
def test_a_result_is_passed_on_as_the_runtime_converts_it(source: str, target: str) -> None:
    text = convert_text(json.dumps(OF_1_1), "1.1.0", source)
    passed_on = PluginResult.from_document(json.loads(text), target).to_document()
    assert passed_on == json.loads(convert_text(text, source, target))
