"""Rules that the plugin side and the runtime side each implement: here both must agree."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from libcni.config.versions import ALL_VERSIONS
from libcni.plugin import PluginResult, VerbError
from libcni.protocol.result import convert_text
from libcni.testing.shapes import result_problems
from plugin.plugins import ROOT

WHOLE: dict[str, Any] = {
    "interfaces": [{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/run/netns/blue", "x": 1}],
    "ips": [
        {"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0, "y": [1.5]},
        {"address": "fd00::5/64", "interface": 0},
        {"address": "10.1.0.6/16", "interface": 0},
    ],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::1"}, {"dst": "10.2.0.0/16", "gw": "10.1.0.9"}],
    "dns": {"nameservers": ["10.1.0.1"], "search": ["example.org"]},
    "vendor": {"a": [1, {"b": None}]},
}
MAPPED = {"ips": [{"address": "::ffff:10.0.0.2/120"}]}
BARE = {"ips": [{"address": "fd00::5/64"}]}


@pytest.mark.parametrize("whole", [WHOLE, MAPPED, BARE], ids=["whole", "mapped", "bare"])
@pytest.mark.parametrize("source", ALL_VERSIONS)
@pytest.mark.parametrize("target", ALL_VERSIONS)
def test_a_result_is_converted_as_the_runtime_converts_it(whole: dict[str, Any], source: str, target: str) -> None:
    text = convert_text(json.dumps(whole), "1.1.0", source)
    converted = json.loads(convert_text(text, source, target))
    passed_on = PluginResult.from_document(json.loads(text), target).to_document()
    assert passed_on == converted


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_what_a_plugin_prints_is_of_the_form_that_conformance_asks(version: str) -> None:
    assert result_problems(PluginResult.from_document(WHOLE, version).to_document(), version) == []


_TEXT = (ROOT / "testdata/conformance/conversions.yaml").read_text(encoding="utf-8")
VECTORS = yaml.load(_TEXT, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["vectors"]
CONVERSIONS = [(vector["name"], step["convert"]) for vector in VECTORS for step in vector["steps"] if "convert" in step]


@pytest.mark.parametrize(("name", "step"), CONVERSIONS, ids=[name for name, _ in CONVERSIONS])
def test_the_runtimes_vectors_hold_for_a_plugins_results(name: str, step: dict[str, Any]) -> None:
    document = json.loads(step["text"])
    if "error" in step:
        with pytest.raises(VerbError, match=re.escape(step["error"]["contains"])):
            PluginResult.from_document(document, step["to"]).to_document()
        return
    printed = PluginResult.from_document(document, step["to"]).to_document()
    if "result_text" not in step:
        assert printed["ips"][0]["version"] == step["result_has"]["ips"][0]["version"]
        return
    # A plugin leaves out an empty part; the runtime passes it on as it was printed.
    expected = json.loads(step["result_text"])
    assert printed == {key: value for key, value in expected.items() if value not in ({}, [], None)}
