"""explain: what each verb would run, with no process and no disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from helpers import RT, document

import libcni
import libcni.diagnosis
from libcni import NetworkConfigList, PluginNotFoundError, RuntimeConf
from libcni.diagnosis import ExplainedVerb


def find(plugin: str, path: Sequence[str]) -> str:
    if plugin == "missing":
        raise PluginNotFoundError(plugin, tuple(path))
    return f"{path[0]}/{plugin}"


def explained(net: dict[str, Any], rt: RuntimeConf = RT) -> libcni.diagnosis.Explanation:
    return libcni.diagnosis.explain(NetworkConfigList.from_dict(net), rt, ["/bin"], find=find)


def verb(found: libcni.diagnosis.Explanation, name: str) -> ExplainedVerb:
    return next(one for one in found.verbs if one.verb == name)


def stdin(one: ExplainedVerb, index: int) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(one.calls[index].invocation.stdin)
    return decoded


def test_each_verb_has_its_order() -> None:
    found = explained(document("a", "b", cniVersion="1.1.0"))
    order = {one.verb: [call.invocation.plugin for call in one.calls] for one in found.verbs}
    assert order == {
        "ADD": ["a", "b"],
        "CHECK": ["a", "b"],
        "DEL": ["b", "a"],
        "GC": ["a", "b"],
        "STATUS": ["a", "b"],
    }
    assert [call.invocation.path for call in verb(found, "ADD").calls] == ["/bin/a", "/bin/b"]


def test_prev_result_says_whose_it_is() -> None:
    found = explained(document("a", "b", cniVersion="1.1.0"))
    assert "prevResult" not in stdin(verb(found, "ADD"), 0)
    assert stdin(verb(found, "ADD"), 1)["prevResult"]["(result)"] == "the result of a"
    assert stdin(verb(found, "DEL"), 0)["prevResult"]["(result)"] == "the result of b"
    assert stdin(verb(found, "CHECK"), 0)["prevResult"]["(result)"] == "the result of b"


def test_what_is_injected_and_removed() -> None:
    plugin = {
        "type": "a", "capabilities": {"mac": True}, "runtimeConfig": {"mac": "on disk"}, "prevResult": {}, "keep": 1,
    }  # fmt: skip
    rt = RuntimeConf("c1", "/ns", "eth0", capability_args={"mac": "00:11:22:33:44:55", "other": 1})
    found = explained(document(plugin), rt)
    (call,) = verb(found, "ADD").calls
    assert call.injected == ("cniVersion", "name", "runtimeConfig")
    assert call.removed == ("capabilities", "prevResult")
    assert found.unused_capabilities == ("other",)


def test_gc_names_the_attachment_as_valid() -> None:
    found = explained(document("a", cniVersion="1.1.0"))
    assert stdin(verb(found, "GC"), 0)["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]


def test_a_missing_plugin_is_named_and_the_rest_is_explained() -> None:
    found = explained(document("a", "missing"))
    assert [error.plugin for error in found.missing] == ["missing"]
    assert [call.invocation.path for call in verb(found, "ADD").calls] == ["/bin/a", ""]
    assert [call.invocation.path for call in verb(found, "DEL").calls] == ["", "/bin/a"]


@pytest.mark.parametrize(
    ("more", "name", "note"),
    [
        ({"cniVersion": "0.3.1"}, "CHECK", "does not support the CHECK command"),
        ({"cniVersion": "1.0.0"}, "GC", "version 1.0.0 has no GC"),
        ({"cniVersion": "1.0.0"}, "STATUS", "version 1.0.0 has no STATUS"),
        ({"disableCheck": True}, "CHECK", "disableCheck is set"),
        ({"disableGC": True, "cniVersion": "1.1.0"}, "GC", "disableGC is set"),
    ],
)
def test_a_verb_without_calls_says_why(more: dict[str, Any], name: str, note: str) -> None:
    one = verb(explained(document("a", **more)), name)
    assert one.calls == ()
    assert note in one.note


@pytest.mark.parametrize("version", libcni.ALL_VERSIONS)
def test_every_version_can_be_explained(version: str) -> None:
    found = explained(document("a", "b", cniVersion=version))
    assert len(verb(found, "ADD").calls) == 2
    assert len(verb(found, "DEL").calls) == 2


def test_nothing_is_found_where_nothing_is() -> None:
    found = libcni.diagnosis.explain(NetworkConfigList.from_dict(document("nosuch")), RT, ["/nowhere"])
    assert found.missing[0].searched == ("/nowhere",)
