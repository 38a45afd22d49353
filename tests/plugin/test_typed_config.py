"""A configuration loaded into a class, a dataclass or a NamedTuple; errors name the key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal, NamedTuple, TypedDict

import pytest

from libcni.plugin import VerbError
from plugin.plugins import request


@dataclass
class Range:
    subnet: IPv4Network
    gateway: str | None = None


@dataclass
class Ipam:
    data_dir: str
    ranges: list[Range] = field(default_factory=list)
    mode: Literal["fast", "safe"] = "safe"
    limits: dict[str, int] = field(default_factory=dict)
    share: float = 0.5
    pair: tuple[int, ...] = ()
    anything: Any = None
    made: int = field(default=7, init=False)


def test_a_dataclass_is_filled_with_typed_values() -> None:
    ipam = {
        "dataDir": "/x",
        "ranges": [{"subnet": "10.0.0.0/8", "gateway": None}, {"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}],
        "mode": "fast",
        "limits": {"a": 1},
        "share": 1,
        "pair": [1, 2],
        "anything": {"a": [None]},
        "unknown": True,
    }
    loaded = request(ipam=ipam).load_config(Ipam, "ipam")
    assert loaded.ranges == [Range(IPv4Network("10.0.0.0/8")), Range(IPv4Network("10.1.0.0/16"), "10.1.0.1")]
    assert (loaded.data_dir, loaded.mode, loaded.limits, loaded.share) == ("/x", "fast", {"a": 1}, 1.0)
    assert (loaded.pair, loaded.anything, loaded.made) == ((1, 2), {"a": [None]}, 7)
    assert request(ipam={"data_dir": "/y"}).load_config(Ipam, "ipam") == Ipam("/y")


@pytest.mark.parametrize(
    ("ipam", "msg"),
    [
        ({}, 'missing key "ipam.dataDir"'),
        ({"dataDir": 1}, "ipam.dataDir: must be a string, not 1"),
        ({"dataDir": "/x", "ranges": {}}, "ipam.ranges: must be a list, not {}"),
        ({"dataDir": "/x", "ranges": [{}]}, 'missing key "ipam.ranges[0].subnet"'),
        ({"dataDir": "/x", "ranges": [{"subnet": "x"}]}, "ipam.ranges[0].subnet: Expected 4 octets in 'x'"),
        ({"dataDir": "/x", "ranges": [{"subnet": 7}]}, "ipam.ranges[0].subnet: must be a string, not 7"),
        (
            {"dataDir": "/x", "ranges": [{"subnet": "10.0.0.0/8", "gateway": 1}]},
            "ipam.ranges[0].gateway: must be a string, not 1",
        ),
        ({"dataDir": "/x", "mode": "slow"}, "ipam.mode: must be one of 'fast', 'safe', not 'slow'"),
        ({"dataDir": "/x", "limits": {"a": True}}, "ipam.limits.a: must be an integer, not True"),
        ({"dataDir": "/x", "share": "1"}, "ipam.share: must be a number, not '1'"),
        ({"dataDir": None}, "ipam.dataDir: must be a string, not None"),
        ([], "ipam: must be an object, not []"),
    ],
)
def test_an_error_names_the_key(ipam: object, msg: str) -> None:
    with pytest.raises(VerbError) as caught:
        request(ipam=ipam).load_config(Ipam, "ipam")
    assert (caught.value.code, caught.value.msg) == (7, msg)


def test_a_part_that_is_missing_is_named() -> None:
    with pytest.raises(VerbError, match='missing key "ipam"'):
        request().load_config(Ipam, "ipam")


def test_a_problem_of_the_authors_own_check_is_an_invalid_configuration() -> None:
    @dataclass
    class Even:
        size: int

        def __post_init__(self) -> None:
            if self.size % 2:
                raise ValueError("size must be even")

    with pytest.raises(VerbError, match=r"^the configuration: size must be even") as caught:
        request(size=3).load_config(Even)
    assert caught.value.code == 7


class Shared:
    mode: Literal["fast", "safe"] = "safe"


class Plain(Shared):
    data_dir: str
    range: Range | None = None
    sizes: dict[str, list[int]] | None = None
    inner: Plain | None = None
    anything: object = 7


def test_a_class_with_annotations_is_filled() -> None:
    sizes = {"a": [1]}
    ipam = {"dataDir": "/x", "Range": {"subnet": "10.0.0.0/8"}, "sizes": sizes, "inner": {"data_dir": "/y"}}
    loaded = request(ipam=ipam).load_config(Plain, "ipam")
    assert (loaded.data_dir, loaded.range, loaded.sizes) == ("/x", Range(IPv4Network("10.0.0.0/8")), sizes)
    assert (loaded.mode, loaded.anything) == ("safe", 7)
    assert loaded.inner is not None
    assert (loaded.inner.data_dir, loaded.inner.inner) == ("/y", None)
    for wrong, msg in (({}, 'missing key "ipam.dataDir"'), ({"dataDir": 1}, "ipam.dataDir: must be a string, not 1")):
        with pytest.raises(VerbError, match=msg):
            request(ipam=wrong).load_config(Plain, "ipam")


def test_a_class_with_a_constructor_of_its_own_takes_one_string() -> None:
    class Name:
        text: str

        def __init__(self, text: str) -> None:
            self.text = text.upper()

    made: Any = request(name="a").load_config(make_dataclass("Made", [("name", Name)]))
    assert made.name.text == "A"


class Limits(NamedTuple):
    max_rate: int = 5


@pytest.mark.parametrize("key", ["max_rate", "maxRate", "MaxRate", "maxrate"])
def test_a_key_is_found_in_whatever_case_and_null_leaves_the_default(key: str) -> None:
    assert request(ipam={key: 7, "x": 1}).load_config(Limits, "ipam") == (7,)
    assert request(ipam={key: None}).load_config(Limits, "ipam") == (5,)


class Typed(TypedDict):
    size: int


class Wrong(NamedTuple):
    inner: tuple[Any, ...] = ()
    names: set[str] | None = None


@pytest.mark.parametrize(
    "kind",
    [
        set[str],
        frozenset,
        Typed,
        bytes,
        tuple[int, str],
        dict[int, str],
        Sequence[str],
        list[Typed],
        int | set[str],
        Wrong,
    ],
)
def test_an_annotation_that_json_cannot_fill_is_the_authors_error_whatever_is_configured(kind: Any) -> None:
    made = make_dataclass("Made", [("part", kind, None)])
    with pytest.raises(TypeError, match="cannot be loaded from JSON; use str"):
        request().load_config(made)


def test_a_class_that_contains_itself_can_be_loaded() -> None:
    assert request(inner={"size": 2}).load_config(Nested) == Nested(None, Nested(2))


def test_a_number_of_another_kind_is_the_administrators_error() -> None:
    with pytest.raises(VerbError, match="size") as caught:
        request(size="x").load_config(make_dataclass("Made", [("size", Decimal)]))
    assert caught.value.code == 7


@dataclass
class Nested:
    size: int | None = None
    inner: Nested | None = None


class Args(NamedTuple):
    ip: IPv4Address
    K8S_POD_NAME: str = ""
    wanted: bool = False
    number: int | None = None
    share: float = 0.0


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("IP=10.1.0.2", (IPv4Address("10.1.0.2"), "", False, None, 0.0)),
        (
            "IP=10.1.0.2;K8S_POD_NAME=1;wanted=True;NUMBER=3;share=0.5",
            (IPv4Address("10.1.0.2"), "1", True, 3, 0.5),
        ),
        ("IP=10.1.0.2;IgnoreUnknown=1;FOO=bar;wanted=0", (IPv4Address("10.1.0.2"), "", False, None, 0.0)),
        ("IgnoreUnknown=TRUE;IP=10.1.0.2;FOO=bar", (IPv4Address("10.1.0.2"), "", False, None, 0.0)),
    ],
)
def test_arguments_are_loaded_from_text(args: str, expected: tuple[Any, ...]) -> None:
    assert request(args).load_args(Args) == expected


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("", 'missing key "CNI_ARGS.ip"'),
        ("IP=10.1.0.2;FOO=bar;X=1", "CNI_ARGS: unknown arguments FOO=bar, X=1; IgnoreUnknown=1 allows them"),
        ("IP=10.1.0.2;FOO=bar;IgnoreUnknown=false", "CNI_ARGS: unknown arguments FOO=bar;"),
        ("IP=10.1.0.2;FOO=bar;IgnoreUnknown=yes", "CNI_ARGS.IgnoreUnknown: must be true or false, not 'yes'"),
        ("IP=10.1.0.2;wanted=yes", "CNI_ARGS.wanted: must be true or false, not 'yes'"),
        ("IP=10.1.0.2;wanted=", "CNI_ARGS.wanted: must be true or false, not ''"),
        ("IP=10.1.0.2;number=x", "CNI_ARGS.number: must be an integer, not 'x'"),
        ("IP=10.1.0", "CNI_ARGS.IP: "),
        ("IP", 'CNI_ARGS: invalid pair "IP"'),
    ],
)
def test_wrong_arguments_are_named(args: str, problem: str) -> None:
    received = request("X=1")
    received.env = {**received.env, "CNI_ARGS": args}
    with pytest.raises(VerbError) as caught:
        received.load_args(Args)
    assert caught.value.code == 4
    assert caught.value.msg.startswith(problem)


def test_the_key_as_the_convention_writes_it_wins() -> None:
    assert request(ipam={"MAXRATE": 6, "maxRate": 7}).load_config(Limits, "ipam").max_rate == 7
