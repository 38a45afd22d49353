"""The cases of Go's pkg/skel tests in which a plugin of this library answers otherwise."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from libcni.errors import VersionError
from libcni.plugin import Plugin
from libcni.testing import call_plugin
from plugin.plugins import ROOT, nothing

_TEXT = (ROOT / "testdata/skel-differences.yaml").read_text(encoding="utf-8")
CASES = yaml.load(_TEXT, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))["cases"]
ENV = {
    "CNI_CONTAINERID": "some-container-id",
    "CNI_NETNS": "/some/netns/path",
    "CNI_IFNAME": "eth0",
    "CNI_ARGS": "some;extra;args",
    "CNI_PATH": "/some/cni/path",
}
STDIN = b'{ "name":"skel-test", "some": "config", "cniVersion": "1.0.0" }'


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_the_answer_is_the_published_one(case: dict[str, Any]) -> None:
    expected = case["answer"]
    versions = case.get("versions", ["0.4.0", "1.0.0"])
    if "raises" in expected:
        with pytest.raises(VersionError, match=expected["raises"]):
            Plugin("skel-test", versions=versions)
        return
    plugin = Plugin("skel-test", versions=versions)
    for register in (plugin.add, plugin.check, plugin.delete, plugin.gc):
        register(nothing)
    env = {**ENV, **case.get("env", {}), "CNI_COMMAND": case["verb"]}
    answer = call_plugin(plugin, case["verb"] or "", case["stdin"].encode() if "stdin" in case else STDIN, env=env)
    assert answer.code == expected.get("code")
    if "msg" in expected:
        assert re.match(expected["msg"], answer.document["msg"])
    if "document" in expected:
        assert answer.document == expected["document"]
    assert expected.get("stderr", "") in answer.stderr
