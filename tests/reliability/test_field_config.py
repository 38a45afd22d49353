"""Rows of field.md about configurations, versions and STATUS. The number is the row's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from libcni import (
    NetworkConfigList,
    read_config_directory,
)
from reliability.shell import RT, Shell

VERSIONS = """[ $CNI_COMMAND = VERSION ] && {{ echo '{{"cniVersion": "1.0.0", "supportedVersions": {0}}}'; exit 0; }}"""


def write(directory: Path, name: str, document: Any) -> Path:
    path = directory / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def a_list(name: str, *types: str, **more: Any) -> dict[str, Any]:
    plugins = [{"type": kind} for kind in types or ("a",)]
    return {"cniVersion": "1.0.0", "name": name, "plugins": plugins, **more}


def test_field_11_every_look_at_the_directory_sees_what_is_there_now(shell: Shell, tmp_path: Path) -> None:
    cni = shell.client(conf_dir=tmp_path / "net.d")
    assert cni.networks() == ()
    (tmp_path / "net.d").mkdir()
    write(tmp_path / "net.d", "10.conflist", a_list("first"))
    assert [net.name for net in cni.networks()] == ["first"]
    (tmp_path / "net.d").rename(tmp_path / "old.d")
    (tmp_path / "net.d").mkdir()
    write(tmp_path / "net.d", "10.conflist", a_list("second")).rename(tmp_path / "net.d" / "20.conflist")
    assert [net.name for net in cni.networks()] == ["second"]


def test_field_28_what_was_attached_without_a_version_can_be_detached(shell: Shell) -> None:
    shell.plugin("a", result='{"ip4": {"ip": "10.1.0.5/16"}}')
    net = NetworkConfigList.from_dict({"name": "net", "plugins": [{"type": "a"}]})
    cni = shell.client()
    assert cni.add_network_list(net, RT).cni_version == "0.1.0"
    cni.del_network_list(net, RT)
    assert json.loads(shell.stdin("a"))["cniVersion"] == "0.1.0"


def test_field_39_a_network_cannot_name_another_directory(tmp_path: Path) -> None:
    (tmp_path / "net.d").mkdir()
    (tmp_path / "etc").mkdir()
    write(tmp_path / "etc", "10.conf", {"type": "evil"})
    write(tmp_path / "net.d", "10.conflist", a_list("../etc"))
    found = read_config_directory(tmp_path / "net.d")
    assert found.networks == ()
    assert "invalid network name '../etc'" in str(found.problems[0])


def test_a_pipe_in_the_configuration_directory_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "00.conflist")
    (tmp_path / "01.conflist").symlink_to("/dev/zero")
    write(tmp_path, "10.conflist", a_list("net"))
    found = read_config_directory(tmp_path)
    assert [net.name for net in found.networks] == ["net"]
    assert len(found.problems) == 2
    assert all("not a regular file" in str(problem) for problem in found.problems)
