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


def test_a_number_that_python_cannot_write_is_refused() -> None:
    with pytest.raises(ConversionError, match="a number that is too large"):
        convert_text('{"ips":[],"x":1e400}', "0.4.0", "1.0.0")
