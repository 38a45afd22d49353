"""Rows of field.md about configurations, versions and STATUS. The number is the row's."""

from __future__ import annotations

import json
import os
from pathlib import Path

from helpers import RT, document
from nodes import FakeNode

from libcni import (
    NetworkConfigList,
    read_config_directory,
)

VERSIONS = """[ $CNI_COMMAND = VERSION ] && {{ echo '{{"cniVersion": "1.0.0", "supportedVersions": {0}}}'; exit 0; }}"""


def test_field_11_every_look_at_the_directory_sees_what_is_there_now(node: FakeNode) -> None:
    node.conf_dir.rmdir()
    assert node.cni.networks() == ()
    node.conf_dir.mkdir()
    node.configure("first", file="10.conflist")
    assert [net.name for net in node.cni.networks()] == ["first"]
    node.conf_dir.rename(node.root / "old.d")
    node.conf_dir.mkdir()
    node.configure("second", file="10.conflist").rename(node.conf_dir / "20.conflist")
    assert [net.name for net in node.cni.networks()] == ["second"]


def test_field_28_what_was_attached_without_a_version_can_be_detached(node: FakeNode) -> None:
    node.plugin("a", result='{"ip4": {"ip": "10.1.0.5/16"}}')
    net = NetworkConfigList.from_dict({"name": "net", "plugins": [{"type": "a"}]})
    cni = node.client()
    assert cni.add_network_list(net, RT).cni_version == "0.1.0"
    cni.del_network_list(net, RT)
    assert node.last_call("a").config["cniVersion"] == "0.1.0"


def test_field_39_a_network_cannot_name_another_directory(node: FakeNode) -> None:
    node.write("../etc/10.conf", {"type": "evil"})
    node.write("10.conflist", document("a", name="../etc"))
    found = read_config_directory(node.conf_dir)
    assert found.networks == ()
    assert "invalid network name '../etc'" in str(found.problems[0])


def test_a_pipe_in_the_configuration_directory_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "00.conflist")
    (tmp_path / "01.conflist").symlink_to("/dev/zero")
    (tmp_path / "10.conflist").write_text(json.dumps(document("a")))
    found = read_config_directory(tmp_path)
    assert [net.name for net in found.networks] == ["net"]
    assert len(found.problems) == 2
    assert all("not a regular file" in str(problem) for problem in found.problems)
