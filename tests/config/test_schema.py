"""A document that is not as it should be is refused, with file and location."""

from __future__ import annotations

from typing import Any

import pytest

from config.test_network import load
from libcni.errors import ConfigError


def a_list(**more: Any) -> dict[str, Any]:
    return {"name": "n", "plugins": [{"type": "a"}], **more}


def _without(key: str) -> dict[str, Any]:
    return {name: value for name, value in a_list().items() if name != key}


# the document, the location of its problem, and a further part of the error
BAD_DOCUMENTS: list[tuple[Any, str | None, str]] = [
    (b"", None, "it is empty"),
    (b" \n", None, "it is empty"),
    (b'{"name":"n","plug', "line 1, column 13", "Unterminated string"),
    (b'{"name":"n","plugins":[{"type":"a"}', "line 1, column 36", "ends too early"),
    (b'{"name":"n\xff"}', None, "not UTF-8"),
    (b"\xef\xbb\xbf{}", None, "byte order mark"),
    (b'{"name":' + b"[" * 50_000, None, "nested too deeply"),
    (b'{"name":"n", // comment\n"plugins":[]}', "line 1, column 14", "remove the comment"),
    (b'{"name":"n"} {"name":"m"}', "line 1, column 14", "more text after the end"),
    (b"[1]", None, "not an object"),
    (b'{"name":"n","plugins":[{"type":"a","x":NaN}]}', "line 1, column 40", "NaN"),
    (_without("name"), "name", 'missing "name"'),
    (a_list(name=5), "name", "5"),
    (a_list(name=None), "name", "not null"),
    (a_list(name=""), "name", "must not be empty"),
    (a_list(name="../x"), "name", "../x"),
    ({"type": "a"}, "name", 'missing "name"'),
    ({"type": "a", "name": "a b"}, "name", "a b"),
    ({"type": "a", "name": 7}, "name", "7"),
    (a_list(plugins=None), "plugins", "not null"),
    (a_list(plugins={"type": "a"}), "plugins", "a list, not"),
    (a_list(plugins=[]), "plugins", "empty"),
    (a_list(plugins="a"), "plugins", "'a'"),
    (a_list(plugins=["a"]), "plugins[0]", "not an object"),
    (a_list(plugins=[{"type": "a"}, {}]), "plugins[1].type", 'missing "type"'),
    (a_list(plugins=[{"type": "a"}, {"type": 5}]), "plugins[1].type", "5"),
    (a_list(plugins=[{"type": ""}]), "plugins[0].type", "must not be empty"),
    (a_list(plugins=[{"type": "../bin/sh"}]), "plugins[0].type", "../bin/sh"),
    (a_list(plugins=[{"type": "a\\b"}]), "plugins[0].type", "file name"),
    (a_list(plugins=[{"type": "a", "capabilities": ["mac"]}]), "plugins[0].capabilities", "mac"),
    (a_list(plugins=[{"type": "a", "capabilities": {"mac": "true"}}]), "plugins[0].capabilities.mac", "'true'"),
    (a_list(plugins=[{"type": "a", "ipam": "x"}]), "plugins[0].ipam", "'x'"),
    (a_list(plugins=[{"type": "a", "ipam": {"type": 1}}]), "plugins[0].ipam.type", "1"),
    (a_list(plugins=[{"type": "a", "dns": {"search": "x"}}]), "plugins[0].dns.search", "'x'"),
    (a_list(plugins=[{"type": "a", "dns": {"nameservers": [1]}}]), "plugins[0].dns.nameservers[0]", "1"),
    (a_list(plugins=[{"type": "a", "args": [1]}]), "plugins[0].args", "[1]"),
    (a_list(plugins=[{"type": "a", "name": 1}]), "plugins[0].name", "1"),
    (a_list(cniVersion=1), "cniVersion", "1"),
    (a_list(cniVersion="9.9.9"), "cniVersion", "9.9.9"),
    (a_list(cniVersion="1.0"), "cniVersion", 'write "1.0.0"'),
    (a_list(cniVersion="bogus"), "cniVersion", "bogus"),
    (a_list(cniVersions="1.0.0"), "cniVersions", "1.0.0"),
    (a_list(cniVersions=None), "cniVersions", "null"),
    (a_list(cniVersions=["1.0.0", 2]), "cniVersions[1]", "2"),
    (a_list(cniVersions=["9.9.9"]), "cniVersions", "9.9.9"),
    (a_list(cniVersions=["x"]), "cniVersions", "x"),
    ({**_without("plugins"), "loadOnlyInlinedPlugins": True}, "plugins", 'missing "plugins"'),
    ({"Name": "n", "plugins": [{"type": "a"}]}, "name", 'there is "Name", but keys are case-sensitive'),
    (a_list(plugins=[{"Type": "a"}]), "plugins[0].type", 'there is "Type"'),
]


@pytest.mark.parametrize(
    ("data", "location", "problem"),
    BAD_DOCUMENTS,
    ids=[f"{location}: {problem}" for _, location, problem in BAD_DOCUMENTS],
)
def test_a_bad_document_is_refused_with_file_and_location(data: Any, location: str | None, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(data)
    error = caught.value
    assert error.file == "/etc/cni/net.d/x.conflist"
    assert error.location == location
    assert problem in str(error)
    assert str(error).startswith(f"/etc/cni/net.d/x.conflist: {location + ': ' if location else ''}{error.problem}")
    assert len(str(error)) < 500
