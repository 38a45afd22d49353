"""diagnose and find_leftovers: each thing that can be wrong is found, with its remedy; a healthy node has none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import document

from libcni import CNIConfig, Finding, RuntimeConf, diagnose, find_leftovers
from libcni.store.locks import LockRequest, LockSet

RESULT = '{"cniVersion":"1.0.0"}'
VERSION = '{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}'


@pytest.fixture
def cni(tmp_path: Path) -> CNIConfig:
    """Return a client of a healthy node with the network net and the attachment c1."""
    conf, plugins = tmp_path / "net.d", tmp_path / "bin"
    conf.mkdir()
    plugins.mkdir()
    plugin = plugins / "a"
    script = f"[ $CNI_COMMAND = VERSION ] && echo '{VERSION}' || echo '{RESULT}'"
    plugin.write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n", encoding="utf-8")
    plugin.chmod(0o755)
    (conf / "net.conflist").write_text(json.dumps(document("a")), encoding="utf-8")
    netns = tmp_path / "ns"
    netns.touch()
    client = CNIConfig([plugins], tmp_path / "cache", conf_dir=conf, durable=False)
    client.add_network_list("net", RuntimeConf("c1", str(netns), "eth0"))
    return client


def only(cni: CNIConfig) -> Finding:
    (finding,) = diagnose(cni)
    assert finding.remedy
    return finding


def change(cni: CNIConfig, **own: Any) -> None:
    path = Path(cni.cache_dir, "results", "net-c1-eth0")
    record = json.loads(path.read_text(encoding="utf-8"))
    record["libcni"] |= own
    path.write_text(json.dumps(record), encoding="utf-8")


def test_a_healthy_node_has_no_findings(cni: CNIConfig) -> None:
    assert diagnose(cni) == ()
    assert find_leftovers(cni) == ()


def test_a_broken_configuration_has_its_file_and_hint(cni: CNIConfig) -> None:
    Path(cni.conf_dir, "bad.conflist").write_text('{"name": "x", "plugins": [{"type": "a",}]}', encoding="utf-8")
    finding = only(cni)
    assert (finding.area, finding.severity) == ("configuration", "error")
    assert finding.subject.endswith("bad.conflist")
    assert finding.remedy == "there is a comma before the closing bracket"


def test_an_empty_and_a_missing_directory_differ(cni: CNIConfig, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    empty = CNIConfig(cni.path, cni.cache_dir, conf_dir=tmp_path / "empty")
    assert only(empty).problem == "no usable network configuration"
    gone = CNIConfig(cni.path, cni.cache_dir, conf_dir=tmp_path / "gone")
    assert only(gone).problem == "there is no such directory"
    file = CNIConfig(cni.path, cni.cache_dir, conf_dir=tmp_path / "ns")
    assert only(file).problem == "cannot be read: Not a directory"


def test_what_others_may_write_to_is_told(cni: CNIConfig) -> None:
    for directory in (cni.conf_dir, *cni.path, cni.cache_dir):
        os.chmod(directory, 0o777)
        finding = only(cni)
        assert (finding.severity, finding.subject) == ("warning", directory)
        assert finding.remedy == f"chmod o-w {directory}"
        os.chmod(directory, 0o755)


def test_plugins_are_looked_for_and_asked(cni: CNIConfig) -> None:
    for name, plugin in (("m", "missing"), ("n", "a")):
        net = {**document(plugin), "name": name, "cniVersion": "0.4.0" if plugin == "a" else "1.0.0"}
        Path(cni.conf_dir, f"{name}.conflist").write_text(json.dumps(net), encoding="utf-8")
    missing, version = diagnose(cni)
    assert (missing.area, missing.subject) == ("plugins", "network m")
    assert 'plugin "missing" not found' in missing.problem
    assert 'does not support version "0.4.0"' in version.problem
    assert version.remedy == "it supports 1.0.0, 1.1.0"


def test_no_plugin_directory_at_all(cni: CNIConfig) -> None:
    nowhere = CNIConfig(["/nowhere"], cni.cache_dir, conf_dir=cni.conf_dir)
    assert (only(nowhere).area, only(nowhere).problem) == ("plugins", "there is no such directory")
    none = CNIConfig([], cni.cache_dir, conf_dir=cni.conf_dir)
    assert only(none).problem == "it is empty"


def test_corrupt_records_and_left_over_files(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    assert only(cni).problem == "it is empty"
    Path(cni.cache_dir, "results", "net-c2-eth0").unlink()
    temporary = Path(cni.cache_dir, "tmp", "4194999-1-1")
    temporary.touch()
    os.utime(temporary, (0, 0))
    assert only(cni).problem.startswith("1 temporary file")


def test_a_cache_that_is_no_directory(cni: CNIConfig, tmp_path: Path) -> None:
    wrong = CNIConfig(cni.path, tmp_path / "ns", conf_dir=cni.conf_dir)
    assert "it is not a directory" in {finding.problem for finding in diagnose(wrong)}


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"bootId": "another"}, "made before the last reboot"),
        ({"netnsId": [1, 1]}, "is another one by now"),
        ({"state": "pending", "created": time.time() - 700}, "its ADD has not ended"),
        ({"state": "pending", "created": None}, "its ADD has not ended"),
    ],
)
def test_what_is_left_over(cni: CNIConfig, own: dict[str, Any], reason: str) -> None:
    change(cni, **own)
    (left,) = find_leftovers(cni)
    assert left.attachment.container_id == "c1"
    assert left.reason.endswith(reason)
    assert only(cni).remedy == "libcni repair detaches it"


def test_a_namespace_that_has_gone(cni: CNIConfig, tmp_path: Path) -> None:
    (tmp_path / "ns").unlink()
    assert find_leftovers(cni)[0].reason.endswith("has gone")
    change(cni, netnsId=None)
    assert find_leftovers(cni)[0].reason.endswith("has gone")


def test_a_young_pending_attachment_is_only_a_note(cni: CNIConfig) -> None:
    change(cni, state="pending", created=time.time() - 5)
    assert find_leftovers(cni) == ()
    assert (only(cni).severity, only(cni).area) == ("note", "attachments")
    assert len(find_leftovers(cni, pending_after=1)) == 1


def test_who_holds_a_lock_is_named(cni: CNIConfig) -> None:
    hold = LockSet(cni.cache_dir, LockRequest((), "c1"))
    assert hold.try_acquire()
    try:
        assert only(cni).area == "locks"
    finally:
        hold.close()
    assert diagnose(cni) == ()
