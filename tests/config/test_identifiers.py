"""Names: which are good, which are refused, and that a good one is safe in a path."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libcni.config.identifiers import (
    check_plugin_type,
    validate_container_id,
    validate_interface_name,
    validate_network_name,
)
from libcni.errors import InvalidIdentifierError

Check = Callable[[object], str]
NAMES = [(validate_network_name, "network name"), (validate_container_id, "container ID")]


@pytest.mark.parametrize(("check", "kind"), NAMES)
@pytest.mark.parametrize(
    "name",
    ["", "_a", "a/b", "\na", "a\u200b", None, 5, b"a", True],  # the vectors have other texts
)
def test_bad_names(check: Check, kind: str, name: object) -> None:
    with pytest.raises(InvalidIdentifierError) as caught:
        check(name)
    assert caught.value.kind == kind
    assert caught.value.value == name
    assert kind in str(caught.value)


@pytest.mark.parametrize(
    ("ifname", "rule"),
    [
        ("", "empty"),
        (".", "'.'"),
        ("..", "'..'"),
        ("all", "'all'"),
        ("default", "'default'"),
        ("a" * 16, "15 bytes, and has 16"),
        ("ä" * 8, "15 bytes, and has 16"),
        ("a/b", "'/'"),
        ("a:b", "':'"),
        ("eth%d", "'%'"),
        ("a b", "white space"),
        ("eth0\n", "white space"),
        ("a\u2003b", "white space"),
        ("a\0", "NUL"),
        ("a\ud800", "UTF-8"),
        (None, "NoneType"),
        (7, "int"),
    ],
)
def test_bad_interface_names(ifname: object, rule: str) -> None:
    with pytest.raises(InvalidIdentifierError, match="interface name") as caught:
        validate_interface_name(ifname)
    assert rule in caught.value.rule
    assert caught.value.value == ifname


@pytest.mark.parametrize("plugin", ["", ".", "..", "a/b", "/bin/sh", "../x", "a\\b", "a\0b", "a\udcff", None, 1, ["a"]])
def test_bad_plugin_types(plugin: object) -> None:
    with pytest.raises(InvalidIdentifierError, match="plugin type") as caught:
        check_plugin_type(plugin)
    assert caught.value.value == plugin


@given(st.text())
def test_an_accepted_name_is_safe_in_a_path(name: str) -> None:
    try:
        validate_network_name(name)
    except InvalidIdentifierError:
        return
    assert name.isascii()
    assert name not in {".", ".."}
    assert not set(name) & set("/\\\0\n ~")
