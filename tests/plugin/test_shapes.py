"""Results are compared with the specification."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from libcni.plugin import Request
from libcni.testing import call_plugin
from plugin.plugins import Recorder, config, write_plugin


def test_a_returned_document_is_compared_with_the_specification_in_tests() -> None:
    def add(request: Request) -> dict[str, object]:
        return {"ips": [{"address": "10.0.0.2"}]}

    answer = call_plugin(Recorder(add=add).plugin, "ADD", config())
    assert (answer.code, answer.document["msg"]) == (6, "ADD returned no valid result")
    assert "ips[0].address has no prefix" in answer.document["details"]


def test_a_result_is_compared_with_the_specification_if_the_plugin_is_asked_to(tmp_path: Path) -> None:
    body = 'plugin.add(lambda r: {"ips": [{"address": "10.0.0.2"}]})\nplugin.delete(lambda r: None)'
    path = write_plugin(tmp_path, "loose", body)
    assert call_plugin(path, "ADD", config()).status == 0
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_NETNS": "/x", "CNI_IFNAME": "eth0"}
    command = [str(path), "--check"]
    done = subprocess.run(command, env=env, input=json.dumps(config()), capture_output=True, text=True, check=False)
    assert "ips[0].address has no prefix" in json.loads(done.stdout)["details"]
