"""Results from one spec version to another: what each way keeps, and what it gives up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from libcni.protocol.conversion import ConversionError
from libcni.protocol.result import convert_text


def converted(document: dict[str, Any], source: str, target: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(convert_text(json.dumps({"cniVersion": source, **document}), source, target))
    assert answer.pop("cniVersion") == target
    return answer


@pytest.mark.parametrize(("source", "target"), [("1.0.0", "9.9.9"), ("", "1.0.0"), ("1.0.0", "")])
def test_versions_without_a_converter(source: str, target: str) -> None:
    with pytest.raises(ConversionError, match="no converter for CNI result version"):
        convert_text("{}", source, target)


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


@pytest.mark.parametrize("number", ["9007199254740993", "1.0", "-0.0"])
@pytest.mark.parametrize(("source", "target"), [("0.2.0", "1.1.0"), ("1.1.0", "0.2.0"), ("0.4.0", "1.0.0")])
def test_unknown_fields_are_kept(number: str, source: str, target: str) -> None:
    key = '"ip4":{"ip"' if source == "0.2.0" else '"ips":[{"version":"4","address"'
    close = "}" if source == "0.2.0" else "}]"
    text = f'{{{key}:"10.0.0.2/24","x":{number}{close},"y":[{number} , 1]}}'
    down = convert_text(text, source, target)
    assert f'"x":{number}' in down
    assert f'"y":[{number},1]' in down


def test_a_number_that_python_cannot_write_is_refused() -> None:
    with pytest.raises(ConversionError, match="a number that is too large"):
        convert_text('{"ips":[],"x":1e400}', "0.4.0", "1.0.0")
