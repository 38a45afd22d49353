"""CNI_ARGS, as pairs and as a typed object."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

import pytest

from libcni.plugin import VerbError
from plugin.plugins import request


@dataclass
class Args:
    IP: IPv4Address | None = None
    Verbose: bool = False
    Count: int = 1
    Share: float = 0.5
    K8S_POD_NAME: str = ""


def test_args_fill_an_object_by_its_annotations() -> None:
    args = request("IP=10.0.0.2;Verbose=1;Count=3;Share=2;K8S_POD_NAME=7").load_args(Args)
    assert args == Args(IPv4Address("10.0.0.2"), True, 3, 2.0, "7")
    assert request("").load_args(Args) == Args()


@pytest.mark.parametrize(("text", "value"), [("1", True), ("True", True), ("0", False), ("FALSE", False)])
def test_a_bool_has_four_forms_in_whatever_case(text: str, value: bool) -> None:
    assert request(f"Verbose={text}").load_args(Args).Verbose is value


@pytest.mark.parametrize("text", ["X=1;IgnoreUnknown=1", "IgnoreUnknown=TRUE;count=7;Y=2"])
def test_unknown_args_are_ignored_where_the_runtime_says_so(text: str) -> None:
    assert request(text).load_args(Args) == Args()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("X=1;Count=2;Y=2", 'unknown args ["X=1" "Y=2"]'),
        ("X=1;IgnoreUnknown=0", 'unknown args ["X=1"]'),
        ("count=1", 'unknown args ["count=1"]'),
        ("A=b=c", 'invalid pair "A=b=c"'),
        ("Count=2;", 'invalid pair ""'),
        ("Count=x", "Count: invalid literal"),
        ("IP=x", "IP: Expected 4 octets"),
        ("Verbose=yes", "Verbose: must be 1, true, 0 or false, not 'yes'"),
        ("IgnoreUnknown=x", "IgnoreUnknown: must be 1"),
    ],
)
def test_wrong_args_are_an_invalid_environment(text: str, problem: str) -> None:
    with pytest.raises(VerbError) as caught:
        request(text).load_args(Args)
    assert caught.value.code == 4
    assert caught.value.msg.startswith(f"CNI_ARGS: {problem}")


def test_args_as_they_are() -> None:
    assert request("K8S_POD_NAME=web;FOO=;FOO=bar").args == {"K8S_POD_NAME": "web", "FOO": "bar"}
    assert request("").args == {}
    with pytest.raises(VerbError, match="invalid pair"):
        _ = request("FOO").args
