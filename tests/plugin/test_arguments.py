"""CNI_ARGS, as pairs and as a typed object."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from libcni.plugin import VerbError
from plugin.plugins import request


class Args:
    IP: IPv4Address | None
    Verbose: bool = False
    Count: int = 1
    K8S_POD_NAME: str = ""
    _private: str = "kept"


def test_args_fill_an_object_by_its_annotations() -> None:
    args = request("IP=10.0.0.2;Verbose=TRUE;Count=3;K8S_POD_NAME=").load_args(Args)
    assert str(args.IP) == "10.0.0.2"
    assert isinstance(args.IP, IPv4Address)
    assert (args.Verbose, args.Count, args.K8S_POD_NAME) == (True, 3, "")


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("True", True), ("0", False), ("FALSE", False)]
)
def test_a_bool_has_four_forms_in_whatever_case(text: str, value: bool) -> None:
    assert request(f"Verbose={text}").load_args(Args).Verbose is value


def test_args_that_are_not_there_keep_their_defaults() -> None:
    args = request("").load_args(Args)
    assert (args.IP, args.Verbose, args.Count, args._private) == (None, False, 1, "kept")


@pytest.mark.parametrize(
    "text", ["X=1;IgnoreUnknown=1", "IgnoreUnknown=true;X=1;Y=2", "X=1;IgnoreUnknown=TRUE;Count=2"]
)
def test_unknown_args_are_ignored_where_the_runtime_says_so(text: str) -> None:
    assert isinstance(request(text).load_args(Args), Args)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("X=1;Count=2;Y=2", 'unknown args ["X=1" "Y=2"]'),
        ("X=1;IgnoreUnknown=0", 'unknown args ["X=1"]'),
        ("count=1", 'unknown args ["count=1"]'),
        ("_private=1", 'unknown args ["_private=1"]'),
        ("A=b=c", 'invalid pair "A=b=c"'),
        ("Count=2;", 'invalid pair ""'),
        ("Count", 'invalid pair "Count"'),
        ("Count=x", 'error parsing value of pair "Count=x": '),
        ("IP=x", 'error parsing value of pair "IP=x": '),
        ("Verbose=yes", 'error parsing value of pair "Verbose=yes": it must be 1, true, 0 or false'),
        ("IgnoreUnknown=x", 'error parsing value of pair "IgnoreUnknown=x": '),
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
