"""explain: what each verb would run, with no process and no disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import RT, document

import libcni
import libcni.diagnosis
from libcni import NetworkConfigList, RuntimeConf
from libcni.diagnosis import ExplainedVerb

Explained = dict[str, ExplainedVerb]
Explain = Callable[..., Explained]


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """Return a directory with the plugins a and b."""
    for name in ("a", "b"):
        (tmp_path / name).touch(0o755)
    return tmp_path


@pytest.fixture
def explained(bin_dir: Path) -> Explain:
    def explain(net: dict[str, Any], rt: RuntimeConf = RT) -> Explained:
        verbs = libcni.diagnosis.explain(NetworkConfigList.from_dict(net), rt, [str(bin_dir)])
        return {one.verb: one for one in verbs}

    return explain


def stdin(one: ExplainedVerb, index: int) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(one.calls[index].invocation.stdin)
    return decoded


def test_each_verb_has_its_order(explained: Explain, bin_dir: Path) -> None:
    found = explained(document("a", "b", cniVersion="1.1.0"))
    order = {name: [call.invocation.plugin for call in one.calls] for name, one in found.items()}
    assert order == {
        "ADD": ["a", "b"],
        "CHECK": ["a", "b"],
        "DEL": ["b", "a"],
        "GC": ["a", "b"],
        "STATUS": ["a", "b"],
    }
    assert [call.invocation.path for call in found["ADD"].calls] == [f"{bin_dir}/a", f"{bin_dir}/b"]


def test_prev_result_says_whose_it_is(explained: Explain) -> None:
    found = explained(document("a", "b", cniVersion="1.1.0"))
    assert "prevResult" not in stdin(found["ADD"], 0)
    assert stdin(found["ADD"], 1)["prevResult"]["(result)"] == "the result of a"
    assert stdin(found["DEL"], 0)["prevResult"]["(result)"] == "the result of b"
    assert stdin(found["CHECK"], 0)["prevResult"]["(result)"] == "the result of b"


def test_what_is_injected_and_removed(explained: Explain) -> None:
    plugin = {
        "type": "a", "capabilities": {"mac": True}, "runtimeConfig": {"mac": "on disk"}, "prevResult": {}, "keep": 1,
    }  # fmt: skip
    rt = RuntimeConf("c1", "/ns", "eth0", capability_args={"mac": "00:11:22:33:44:55", "other": 1})
    found = explained(document(plugin), rt)
    (call,) = found["ADD"].calls
    assert call.injected == ("cniVersion", "name", "runtimeConfig")
    assert call.removed == ("capabilities", "prevResult")


def test_gc_names_the_attachment_as_valid(explained: Explain) -> None:
    found = explained(document("a", cniVersion="1.1.0"))
    assert stdin(found["GC"], 0)["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]


def test_a_missing_plugin_is_named_and_the_rest_is_explained(explained: Explain, bin_dir: Path) -> None:
    found = explained(document("a", "missing"))
    for name, plugins in (("ADD", ["a", "missing"]), ("DEL", ["missing", "a"])):
        calls = found[name].calls
        assert [call.invocation.plugin for call in calls] == plugins
        assert [call.missing.searched for call in calls if call.missing] == [(str(bin_dir),)]


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
def test_a_verb_without_calls_says_why(explained: Explain, more: dict[str, Any], name: str, note: str) -> None:
    one = explained(document("a", **more))[name]
    assert one.calls == ()
    assert note in one.note


@pytest.mark.parametrize("version", libcni.ALL_VERSIONS)
def test_every_version_can_be_explained(explained: Explain, version: str) -> None:
    found = explained(document("a", "b", cniVersion=version))
    assert len(found["ADD"].calls) == 2
    assert len(found["DEL"].calls) == 2
