"""A result as it is read: the typed view, other versions, and the text as it was printed."""

from __future__ import annotations

import ipaddress
import json
import pickle
from typing import Any

import pytest

from libcni.errors import InvalidOutputError, VersionError
from libcni.protocol.result import DNS, Interface, IPConfig, Result, Route

FULL = {
    "cniVersion": "1.1.0",
    "interfaces": [
        {
            "name": "eth0",
            "mac": "00:11:22:33:44:55",
            "mtu": 1500,
            "sandbox": "/ns",
            "socketPath": "/s",
            "pciID": "0000:00:1f.6",
            "vendor": [1],
        }
    ],
    "ips": [{"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0}],
    "routes": [{"dst": "0.0.0.0/0", "gw": "", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 0, "scope": 0}],
    "dns": {"nameservers": ["10.1.0.1"], "domain": "d", "search": ["s"], "options": ["o"]},
    "vendor": {"kept": 1},
}


def read(document: Any, version: str | None = None) -> Result:
    return Result.from_bytes(document if isinstance(document, bytes | str) else json.dumps(document), version)


def test_the_typed_view() -> None:
    result = read(FULL)
    (interface,), (ip,), (route,) = result.interfaces, result.ips, result.routes
    assert isinstance(interface, Interface)
    assert (interface.name, interface.mtu, interface.sandbox) == ("eth0", 1500, "/ns")
    assert (interface.socket_path, interface.pci_id, interface.mac) == ("/s", "0000:00:1f.6", "00:11:22:33:44:55")
    assert interface.extra == {"vendor": [1]}
    assert isinstance(ip, IPConfig)
    assert (ip.ip, ip.gateway, ip.interface) == (ipaddress.ip_interface("10.1.0.5/16"), "10.1.0.1", 0)
    assert isinstance(route, Route)
    assert (route.dst, route.gw, route.mtu, route.advmss) == ("0.0.0.0/0", "", 1400, 1360)
    assert (route.priority, route.table, route.scope) == (5, 0, 0)
    assert result.dns == DNS(nameservers=("10.1.0.1",), domain="d", search=("s",), options=("o",))
    assert result.to_dict() == FULL
    assert result.cni_version == "1.1.0"


def test_parts_become_json_again() -> None:
    result = read(FULL)
    for name in ("interfaces", "ips", "routes"):
        assert [part.to_json() for part in getattr(result, name)] == FULL[name]
    assert read({"ips": [{"address": "10.0.0.2/24"}]}, "1.0.0").ips[0].to_json() == {"address": "10.0.0.2/24"}


def test_null_is_no_name_server() -> None:
    assert read({"dns": {"nameservers": None, "search": ["a"]}}, "1.0.0").dns.search == ("a",)


# One case for each kind of location and text. The vectors result-bad-* have more wrong values.
BAD: list[tuple[Any, str]] = [
    (b"", "it printed nothing, and a result was expected"),
    (b" \n", "it printed nothing"),
    (b'{"ips":[', "line 1, column 9: it is not JSON: Expecting value"),
    (b'starting up\n{"cniVersion":"1.0.0"}', "something that is not a result"),
    (b'{"cniVersion":"1.0.0"}\n{"cniVersion":"1.0.0"}', "more text after the end"),
    (b"\xff", "not UTF-8"),
    (b"[1]", "not an object"),
    (b"5", "not an object"),
    ({"cniVersion": "9.9.9"}, 'unsupported CNI result version "9.9.9"'),
    ({"ips": [None]}, "ips[0]: "),
    ({"ips": [{}]}, 'ips[0].address: missing "address"'),
    ({"ips": [{"address": "10.0.0.2"}]}, "ips[0].address: '10.0.0.2' is not an address in CIDR notation"),
    ({"ips": [{"address": "10.0.0.2/24", "gateway": "fe80::1%eth0"}]}, "ips[0].gateway: 'fe80::1%eth0' has a zone"),
    ({"ips": [{"address": "10.0.0.2/24", "interface": True}]}, "ips[0].interface: "),
    ({"interfaces": [{"name": "a", "mtu": "1500"}]}, "interfaces[0].mtu: "),
    ({"routes": [{"gw": "10.0.0.1"}]}, 'routes[0].dst: missing "dst"'),
    ({"routes": [{"dst": "default"}]}, "routes[0].dst: 'default' is not an address"),
    ({"dns": {"nameservers": "9.9.9.9"}}, "dns.nameservers: "),
    ({"cniVersion": "0.2.0", "ip4": "10.0.0.2/24"}, "ip4 must be an object, not str"),
    ({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2"}}, "CIDR"),
    ({"cniVersion": "0.2.0", "ip4": {}}, 'missing "address"'),
]


@pytest.mark.parametrize(("document", "problem"), BAD, ids=[problem for _, problem in BAD])
def test_what_is_not_a_result_is_refused_with_its_location(document: Any, problem: str) -> None:
    with pytest.raises(InvalidOutputError) as caught:
        read(document, "1.0.0")
    assert problem in caught.value.problem
    assert len(str(caught.value)) < 600


def test_other_versions() -> None:
    result = read(FULL)
    assert result.as_version("1.1.0") is result
    down = result.as_version("0.4.0")
    assert (down.cni_version, down.ips[0].version) == ("0.4.0", "4")
    assert down.to_dict()["vendor"] == {"kept": 1}
    with pytest.raises(VersionError, match=r"1\.1\.0 cannot be converted to '2\.0\.0'") as caught:
        result.as_version("2.0.0")
    assert caught.value.version == "2.0.0"
    with pytest.raises(VersionError, match=r"cannot be converted to '0\.2\.0': no valid IP addresses$"):
        read({}, "1.0.0").as_version("0.2.0")


def test_the_error_of_a_document_names_no_plugin() -> None:
    with pytest.raises(InvalidOutputError) as caught:
        Result.from_bytes(b"")
    assert str(caught.value) == caught.value.problem == "it printed nothing, and a result was expected"


def test_results_are_values() -> None:
    result = read(FULL)
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result
    assert copy.interfaces == result.interfaces
    assert hash(copy) == hash(result)
    result.to_dict()["ips"].clear()
    assert result.to_dict() == FULL


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_indented_text(indent: int | None) -> None:
    text = read(FULL).to_json(indent)
    assert json.loads(text) == FULL
    assert ("\n" in text) == (indent is not None)
    assert read(FULL).to_json().splitlines()[1] == '    "cniVersion": "1.1.0",'


def test_indented_text_keeps_numbers_as_they_are_written() -> None:
    numbers = ["1e400", "-0.0", "0.10000000000000000001"]
    text = read(f'{{"cniVersion":"1.0.0","a":[{",".join(numbers)}]}}').to_json(2)
    assert [line.strip(" ,") for line in text.splitlines()[3:6]] == numbers
