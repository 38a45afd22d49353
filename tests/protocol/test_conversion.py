"""Results from one spec version to another: what each way keeps, and what it gives up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libcni.config.versions import ALL_VERSIONS
from libcni.protocol.conversion import ConversionError
from libcni.protocol.result import convert_text

FLAT: dict[str, Any] = {
    "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}]},
    "ip6": {"ip": "2001:db8::2/64", "routes": [{"dst": "::/0"}]},
    "dns": {"nameservers": ["9.9.9.9"]},
    "vendor": 1,
}
LISTED: dict[str, Any] = {
    "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/ns", "vendor": 2}],
    "ips": [
        {"version": "4", "address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0},
        {"version": "6", "address": "2001:db8::2/64", "interface": 0},
    ],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}, {"dst": "::/0"}],
    "dns": {"nameservers": ["9.9.9.9"]},
    "vendor": 1,
}
PLAIN: dict[str, Any] = {**LISTED, "ips": [{k: v for k, v in ip.items() if k != "version"} for ip in LISTED["ips"]]}
SHAPES = {version: FLAT if version < "0.3" else LISTED if version < "1" else PLAIN for version in ALL_VERSIONS}


def converted(document: dict[str, Any], source: str, target: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(convert_text(json.dumps({"cniVersion": source, **document}), source, target))
    assert answer.pop("cniVersion") == target
    return answer


@pytest.mark.parametrize("target", ALL_VERSIONS)
@pytest.mark.parametrize("source", ALL_VERSIONS)
def test_every_version_goes_to_every_other(source: str, target: str) -> None:
    wanted = SHAPES[target]
    if source < "0.3" and target >= "0.3":  # 0.2.0 has no interfaces
        wanted = {key: value for key, value in wanted.items() if key != "interfaces"}
        wanted["ips"] = [{key: value for key, value in ip.items() if key != "interface"} for ip in wanted["ips"]]
    assert converted(SHAPES[source], source, target) == wanted


@pytest.mark.parametrize(("source", "target"), [("1.0.0", "9.9.9"), ("", "1.0.0"), ("1.0.0", "")])
def test_versions_without_a_converter(source: str, target: str) -> None:
    with pytest.raises(ConversionError, match="no converter for CNI result version"):
        convert_text("{}", source, target)


@pytest.mark.parametrize(
    ("source", "ips"),
    [("1.0.0", None), ("1.0.0", []), ("0.3.1", None), ("0.3.1", [{"address": "10.0.0.2/24", "version": "5"}])],
)
def test_without_an_address_there_is_no_way_down(source: str, ips: Any) -> None:
    with pytest.raises(ConversionError, match="no valid IP addresses"):
        converted({"ips": ips}, source, "0.2.0")


def test_down_to_0_2_the_first_address_of_each_family_stays() -> None:
    ips = [
        {"address": "10.9.9.9/8"},
        {"version": "6", "address": "2001:db8::2/64"},
        {"version": "4", "address": "10.0.0.2/24", "interface": 0, "vendor": 3},
        {"version": "4", "address": "10.0.0.3/24"},
    ]
    routes = [{"dst": "10.1.0.0/16", "gw": "10.0.0.1", "mtu": 1400, "vendor": 4}, {"dst": "10.2.0.0/16"}]
    assert converted({"ips": ips, "routes": routes}, "0.4.0", "0.2.0") == {
        "ip6": {"ip": "2001:db8::2/64"},
        "ip4": {
            "ip": "10.0.0.2/24",
            "vendor": 3,
            "routes": [{"dst": "10.1.0.0/16", "gw": "10.0.0.1"}, {"dst": "10.2.0.0/16"}],
        },
    }


def test_down_to_0_4_what_1_0_knows_of_interfaces_goes_and_routes_stay() -> None:
    document = {
        "interfaces": [{"name": "eth0", "mtu": 1500, "socketPath": "/s", "pciID": "p", "vendor": 1}],
        "ips": [{"address": "::ffff:10.0.0.2/120"}, {"address": "2001:db8::2/64", "version": "9"}],
        "routes": [{"dst": "0.0.0.0/0", "mtu": 1400, "advmss": 1, "priority": 2, "table": 0, "scope": 0}],
    }
    down = converted(document, "1.1.0", "0.4.0")
    assert down["interfaces"] == [{"name": "eth0", "vendor": 1}]
    assert [ip["version"] for ip in down["ips"]] == ["4", "6"]
    assert down["routes"] == document["routes"]
    assert converted(document, "1.1.0", "1.0.0") == document


@pytest.mark.parametrize(
    ("document", "source", "target", "wanted"),
    [
        ({"ip4": None, "ip6": {"ip": "::1/128", "routes": None}}, "0.2.0", "0.4.0", [("6", "::1/128")]),
        ({"ips": None, "interfaces": None}, "1.0.0", "0.4.0", None),
        ({"ips": None}, "0.4.0", "1.0.0", None),
    ],
)
def test_null_is_nothing(document: dict[str, Any], source: str, target: str, wanted: Any) -> None:
    ips = converted(document, source, target).get("ips")
    assert (ips and [(ip["version"], ip["address"]) for ip in ips]) == wanted


@pytest.mark.parametrize("number", ["9007199254740993", "1e400", "0.10000000000000000001", "9" * 5000, "-0.0"])
@pytest.mark.parametrize(("source", "target"), [("0.2.0", "1.1.0"), ("1.1.0", "0.2.0"), ("0.4.0", "1.0.0")])
def test_unknown_fields_keep_their_text(number: str, source: str, target: str) -> None:
    key = '"ip4":{"ip"' if source == "0.2.0" else '"ips":[{"version":"4","address"'
    close = "}" if source == "0.2.0" else "}]"
    text = f'{{{key}:"10.0.0.2/24","x":{number}{close},"y":[{number} , 1]}}'
    down = convert_text(text, source, target)
    assert f'"x":{number}' in down
    assert f'"y":[{number},1]' in down
