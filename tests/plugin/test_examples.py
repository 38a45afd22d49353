"""The chained plugin of examples/, alone: what each verb does to the file that it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from libcni.plugin import ErrorCode
from libcni.testing import Answer, call_plugin
from plugin.plugins import config, example

RESULT = {"cniVersion": "1.1.0", "ips": [{"address": "10.9.0.5/24"}, {"address": "fd00::5/64"}]}


@pytest.fixture
def hosts_file(tmp_path: Path) -> Path:
    return tmp_path / "hosts"


def hosts(verb: str, file: Path, container: str = "c1", **more: Any) -> Answer:
    document = config(file=str(file), **{"prevResult": RESULT, **more})
    return call_plugin(example("hosts"), verb, document, container_id=container, path="/nowhere")


def test_add_writes_lines_and_passes_the_result_on(hosts_file: Path) -> None:
    assert hosts("ADD", hosts_file, runtimeConfig={"aliases": ["db", "primary-db"]}).document == RESULT
    hosts("ADD", hosts_file, "c2")
    assert hosts_file.read_text(encoding="utf-8").splitlines() == [
        "10.9.0.5 db primary-db # net c1 eth0",
        "fd00::5 db primary-db # net c1 eth0",
        "10.9.0.5 c2 # net c2 eth0",
        "fd00::5 c2 # net c2 eth0",
    ]


def test_what_cannot_work_is_said(hosts_file: Path) -> None:
    assert hosts("ADD", hosts_file, prevResult=None).code == ErrorCode.INVALID_NETWORK_CONFIG
    assert hosts("ADD", Path("relative")).code == ErrorCode.INVALID_NETWORK_CONFIG
    assert hosts("STATUS", hosts_file).status == 0
    assert hosts("STATUS", hosts_file / "x" / "y").code == ErrorCode.PLUGIN_NOT_AVAILABLE
