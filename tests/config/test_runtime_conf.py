"""The parameters of an attachment: what is taken, what is refused, and that it is a value."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from libcni.config.cni_args import RecordedArgs
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import ConfigError, InvalidIdentifierError


def conf(**more: Any) -> RuntimeConf:
    return RuntimeConf(**{"container_id": "c1", "netns": "/run/netns/blue", "ifname": "eth0", **more})


def test_nothing_given_is_not_the_same_as_nothing_wanted() -> None:
    bare, empty = conf(), conf(args=[], capability_args={}, network_args={})
    assert (bare.args, bare.capability_args, bare.network_args) == (None, None, None)
    assert (empty.args, empty.capability_args, empty.network_args) == ((), {}, {})


def test_a_value_that_every_plugin_refuses_is_refused_but_not_that_of_an_attachment() -> None:
    with pytest.raises(InvalidIdentifierError, match=r"CNI_ARGS value '2=3': it must not contain ';' or '='"):
        conf(args=[("B", "2=3")])
    recorded = conf(args=RecordedArgs([("B", "2=3")]))
    assert recorded.args == pickle.loads(pickle.dumps(recorded)).args == (("B", "2=3"),)
    assert conf(args=recorded.args).args == (("B", "2=3"),)


def test_args_keep_their_order() -> None:
    pairs = [("B", "1"), ("A", ""), ("B", "2")]
    assert conf(args=pairs).args == tuple(pairs)
    assert conf(args=iter(pairs)).args == tuple(pairs)
    assert conf(args={"B": "1", "A": "2"}).args == (("B", "1"), ("A", "2"))


@pytest.mark.parametrize(
    ("pair", "what", "value"),
    [
        (("", "v"), "CNI_ARGS key", ""),
        (("a;b", "v"), "CNI_ARGS key", "a;b"),
        (("a=b", "v"), "CNI_ARGS key", "a=b"),
        (("a\0", "v"), "CNI_ARGS key", "a\0"),
        ((1, "v"), "CNI_ARGS key", 1),
        (("k", "v;w"), "CNI_ARGS value", "v;w"),
        (("k", "v\0"), "CNI_ARGS value", "v\0"),
        (("k", "\ud800"), "CNI_ARGS value", "\ud800"),
        (("k", None), "CNI_ARGS value", None),
    ],
)
def test_what_cni_args_cannot_carry_is_refused(pair: tuple[Any, Any], what: str, value: object) -> None:
    with pytest.raises(InvalidIdentifierError) as caught:
        conf(args=[pair])
    assert (caught.value.kind, caught.value.value) == (what, value)


@pytest.mark.parametrize("name", ["capability_args", "network_args"])
@pytest.mark.parametrize("value", [{"a": float("nan")}, {"a": {1}}, {"a": b"x"}, {"a": 10**5000}])
def test_what_json_cannot_say_is_refused(name: str, value: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no JSON form") as caught:
        conf(**{name: value})
    assert caught.value.location == name


def test_a_model_raises_its_own_error() -> None:
    class Broken:
        def to_json(self) -> dict[str, Any]:
            raise InvalidIdentifierError("port", 0, "it must not be 0")

    with pytest.raises(InvalidIdentifierError, match="port"):
        conf(capability_args={"portMappings": Broken()})


@pytest.mark.parametrize("name", ["capability_args", "network_args"])
def test_later_changes_do_not_reach_it(name: str) -> None:
    given: dict[str, Any] = {"a": {"b": [1]}}
    made = getattr(conf(**{name: given}), name)
    given["a"]["b"].append(2)
    assert made == {"a": {"b": [1]}}
    with pytest.raises(TypeError):
        made["c"] = 1


GOOD = [{}, {"netns": None}, {"netns": ""}, {"netns": "not-a-path"}, {"netns": "/a b/\udcff"}, {"ifname": "a" * 15}]
BAD = [
    ("container_id", "a/b", "container ID"),
    ("container_id", "", "container ID"),
    ("container_id", None, "container ID"),
    ("ifname", "a" * 16, "interface name"),
    ("ifname", "", "interface name"),
    ("netns", "/a\0b", "network namespace"),
    ("netns", "\ud800", "network namespace"),
    ("netns", 5, "network namespace"),
]


@pytest.mark.parametrize("more", GOOD)
def test_good_parameters(more: dict[str, Any]) -> None:
    conf(**more).check()


@pytest.mark.parametrize(("name", "value", "kind"), BAD)
def test_bad_parameters(name: str, value: object, kind: str) -> None:
    with pytest.raises(InvalidIdentifierError) as caught:
        conf(**{name: value}).check()
    assert (caught.value.kind, caught.value.value) == (kind, value)


def test_it_is_a_value() -> None:
    one, other = (conf(args={"a": "b"}, capability_args={"x": [1]}, network_args={"cni": {}}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != conf()
    assert pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(conf())) == conf()
    with pytest.raises(AttributeError):
        one.ifname = "other"  # type: ignore[misc]


def test_another_namespace() -> None:
    one = conf(args={"a": "b"}, capability_args={"x": [1]}, network_args={"cni": {}})
    moved = one.with_netns("/elsewhere")
    assert moved.netns == "/elsewhere"
    assert moved.with_netns(one.netns) == one


@pytest.mark.parametrize("name", ["capability_args", "network_args"])
@pytest.mark.parametrize("value", [[1], "mac", 5])
def test_arguments_that_are_no_mapping_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: it must be a mapping of names to values, not "):
        RuntimeConf("c1", None, "eth0", **{name: value})
