"""What the helper finds wrong with a document, beyond what every runtime refuses."""

from __future__ import annotations

from typing import Any

import pytest

from libcni.testing.document_checks import error_problems, result_problems, version_problems

ETH0 = {"interfaces": [{"name": "eth0"}]}


def ips(**keys: Any) -> dict[str, Any]:
    return {"ips": [{"address": "10.0.0.2/24", **keys}]}


@pytest.mark.parametrize(
    ("version", "result", "problems"),
    [
        ("1.1.0", {**ETH0, **ips(interface=0)}, []),
        ("1.1.0", ips(), []),
        ("1.1.0", {**ETH0, **ips()}, []),
        ("1.1.0", {**ETH0, **ips(interface=1)}, ["ips[0].interface is 1, and there are 1 interfaces"]),
        ("1.1.0", {**ETH0, **ips(interface=-1)}, ["ips[0].interface is -1, and there are 1 interfaces"]),
        ("1.1.0", {"interfaces": [{"mac": "02:00:00:00:00:01"}]}, ["interfaces[0].name is missing"]),
        ("1.1.0", ips(version="4"), ["ips[0].version is not a key of version 1.1.0"]),
        ("0.4.0", ips(version="4"), []),
        ("0.4.0", ips(), ["ips[0].version is None"]),
        ("0.2.0", {"ip4": {"ip": "10.0.0.2/24"}}, []),
        ("0.4.0", {"ips": [{"address": "fd00::2/64", "version": "4"}]}, ["ips[0].version is '4'"]),
        ("0.2.0", {"routes": []}, ["routes is not a key of version 0.2.0"]),
    ],
)
def test_a_result(version: str, result: dict[str, Any], problems: list[str]) -> None:
    assert result_problems({"cniVersion": version, **result}, version) == problems


def test_a_result_of_another_version() -> None:
    assert result_problems({}, "1.1.0") == ["cniVersion is None, and the configuration has '1.1.0'"]


@pytest.mark.parametrize("versions", [[], "1.1.0", ["1.1.0", "x"]])
def test_a_version_document(versions: object) -> None:
    assert len(version_problems({"cniVersion": "1.1.0", "supportedVersions": versions})) == 1
    assert version_problems({"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}) == []


@pytest.mark.parametrize(
    "document", [{"code": True, "msg": "m"}, {"code": 7}, {"code": 7, "msg": ""}, {"code": 7, "msg": "m", "details": 1}]
)
def test_an_error_document(document: dict[str, Any]) -> None:
    assert len(error_problems(document)) == 1
    assert error_problems({"code": 7, "msg": "m"}) == []
