"""diagnose and find_stale_attachments on a node of fake plugins. See test_breakages for real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import document
from nodes import FakeNode

from libcni import CNIConfig, NodeFinding, RuntimeConf, attachment_age, diagnose, find_stale_attachments, lock_users
from libcni.diagnosis import namespaces
from libcni.diagnosis.netlink import links
from libcni.store.locks import LockRequest, LockSet

BOOTED = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.fixture
def healthy(tmp_path: Path) -> FakeNode:
    """Return a healthy node with the network net and the attachment c1."""
    node = FakeNode(tmp_path)
    node.plugin("a", result={"cniVersion": "1.0.0"})
    node.configure("net", "a")
    node.cni.add_network_list("net", RuntimeConf("c1", node.netns("c1"), "eth0"))
    return node


@pytest.fixture
def cni(healthy: FakeNode) -> CNIConfig:
    return healthy.cni


def only(cni: CNIConfig) -> NodeFinding:
    (finding,) = diagnose(cni).findings
    assert finding.remedy or finding.commands
    return finding


def test_a_healthy_node_has_no_findings(cni: CNIConfig) -> None:
    report = diagnose(cni)
    assert report.findings == ()
    assert [one.what for one in report.checked if one.check == "configuration"] == [f"1 network in {cni.conf_dir}"]
    assert find_stale_attachments(cni) == ()


def test_a_broken_configuration_has_its_file_and_hint(cni: CNIConfig) -> None:
    Path(cni.conf_dir, "bad.conflist").write_text('{"name": "x", "plugins": [{"type": "a",}]}', encoding="utf-8")
    finding = only(cni)
    assert (finding.check, finding.severity) == ("configuration", "error")
    assert finding.subject.endswith("bad.conflist")
    assert finding.remedy == "there is a comma before the closing bracket"


def test_an_empty_and_a_missing_directory_differ(healthy: FakeNode) -> None:
    (healthy.root / "empty").mkdir()
    empty = healthy.client(conf_dir=healthy.root / "empty")
    findings = [one.seen for one in diagnose(empty).findings]
    assert findings[0] == "no usable network configuration"
    assert findings[1].startswith("it has no configuration file, and 1 attachment: c1")
    gone = healthy.client(conf_dir=healthy.root / "gone")
    assert diagnose(gone).findings[0].seen == "there is no such directory"
    file = healthy.client(conf_dir=healthy.netns("c1"))
    assert only(file).seen == "it is not a directory"


def test_what_others_may_write_to_is_told(cni: CNIConfig) -> None:
    for directory in (cni.conf_dir, *cni.path, cni.cache_dir):
        os.chmod(directory, 0o777)
        finding = only(cni)
        assert (finding.severity, finding.subject) == ("warning", directory)
        assert finding.commands == (f"chmod o-w {directory}",)
        os.chmod(directory, 0o755)


def test_plugins_are_looked_for_and_asked(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.plugin("a", versions=("1.0.0", "1.1.0"))
    healthy.write("m.conflist", document("missing", name="m"))
    healthy.write("n.conflist", document("a", name="n", cniVersion="0.4.0"))
    missing, version = diagnose(cni).findings
    assert (missing.check, missing.subject) == ("plugins", "network m, plugin missing")
    assert 'plugin "missing" not found' in missing.seen
    assert "does not support version 0.4.0" in version.seen
    assert "it supports 1.0.0, 1.1.0" in version.seen


def test_no_plugin_directory_at_all(healthy: FakeNode) -> None:
    nowhere = healthy.client(path=["/nowhere"])
    assert (only(nowhere).check, only(nowhere).seen) == ("plugins", "there is no such directory")
    assert only(healthy.client(path=[])).seen == "it is empty"


def test_corrupt_records_and_left_over_files(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    assert only(cni).seen == "it is empty"
    Path(cni.cache_dir, "results", "net-c2-eth0").unlink()
    temporary = Path(cni.cache_dir, "tmp", "4194999-1-1")
    temporary.touch()
    os.utime(temporary, (0, 0))
    assert only(cni).seen.startswith("1 temporary file")


def test_a_file_of_an_add_that_runs_is_not_left_over(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "tmp", "4194999-1-1").touch()
    running = LockSet(cni.cache_dir, LockRequest((), "c2"))
    assert running.try_acquire()
    assert {one.check for one in diagnose(cni).findings} == {"locks"}
    running.close()
    assert only(cni).seen == "1 temporary file of killed programs"


def test_a_record_whose_name_no_command_accepts_is_set_aside(cni: CNIConfig) -> None:
    Path(cni.cache_dir, "results", "net-\x1b[31m-eth0").touch()
    assert only(cni).commands == ("libcni repair --yes",)


def test_a_cache_that_is_no_directory(healthy: FakeNode) -> None:
    wrong = healthy.client(cache_dir=healthy.netns("c1"))
    assert "it is not a directory" in {finding.seen for finding in diagnose(wrong).findings}


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"bootId": "another"}, "before the last reboot"),
        ({"netnsId": [1, 1]}, "was replaced by another one"),
        ({"state": "pending", "uptime": -700.0, "created": BOOTED - 700}, "its ADD has not ended"),
        ({"state": "pending", "created": None, "uptime": None}, "its ADD has not ended"),
    ],
)
def test_what_is_left_over(healthy: FakeNode, cni: CNIConfig, own: dict[str, Any], reason: str) -> None:
    healthy.change_record(**own)
    (left,) = find_stale_attachments(cni)
    assert left.attachment.container_id == "c1"
    assert left.reason.endswith(reason)
    assert only(cni).commands == ("libcni del -c c1 -i eth0",)


def test_a_namespace_that_has_gone(healthy: FakeNode, cni: CNIConfig) -> None:
    Path(healthy.netns("c1")).unlink()
    assert find_stale_attachments(cni)[0].reason.endswith("has gone")
    healthy.change_record(netnsId=None, cniVersion="")
    assert find_stale_attachments(cni)[0].reason.endswith("has gone"), "a record of Go libcni"


def test_a_namespace_in_which_a_process_lives_has_not_gone(
    healthy: FakeNode, cni: CNIConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path may have been unmounted, or lead elsewhere in the mount namespace of a repair."""
    own = os.stat("/proc/self/ns/net")
    healthy.change_record(netnsId=[own.st_dev, own.st_ino])
    assert find_stale_attachments(cni) == ()
    finding = only(cni)
    assert "does not lead to its namespace any more, and process " in finding.seen
    assert finding.commands[0].startswith("touch ")
    path = Path(healthy.netns("c1"))
    path.unlink()
    path.symlink_to("/proc/self/ns/net")  # a namespace, as after another container has taken the path
    healthy.change_record(netnsId=[1, 1])
    monkeypatch.setattr(namespaces._Inhabited, "process_in", lambda *_: "5")
    finding = only(cni)
    assert (finding.commands, finding.remedy.split(":")[0]) == ((), "another container has the path")
    monkeypatch.undo()
    healthy.change_record(bootId="another")
    assert len(find_stale_attachments(cni)) == 1, "after a reboot the numbers are used again"


def test_a_process_in_another_pid_namespace_cannot_be_seen(healthy: FakeNode, cni: CNIConfig) -> None:
    """The agent's pod has no hostPID, for example: it sees no process of a container that runs."""
    healthy.change_record(netnsId=[1, 1], pidNamespace=1)
    assert find_stale_attachments(cni) == ()
    report = diagnose(cni)
    assert report.findings == ()
    assert ["another PID namespace" in one.reason for one in report.not_checked if one.check == "namespaces"] == [True]
    healthy.change_record(bootId="another")
    assert len(find_stale_attachments(cni)) == 1, "no process survives a reboot"


def test_an_attachment_whose_namespace_never_existed_stays(cni: CNIConfig) -> None:
    """Some plugins need no namespace: ``netns`` is any text that the plugins understand."""
    cni.add_network_list("net", RuntimeConf("c2", "/nowhere/c2", "eth0"))
    assert [one.state for one in cni.get_cached_attachments("c2")] == ["ready"]
    assert find_stale_attachments(cni) == ()
    report = diagnose(cni)
    assert report.findings == ()
    (skipped,) = [one for one in report.not_checked if one.check == "namespaces"]
    assert skipped.reason == "/nowhere/c2 did not exist at its ADD"


def test_an_interrupted_add_is_found_at_once_and_stale_only_later(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(state="pending", created=time.time() - 5, uptime=None)
    assert find_stale_attachments(cni) == ()
    assert (only(cni).severity, only(cni).seen) == ("warning", "its ADD was interrupted, or its roll-back failed")
    assert len(find_stale_attachments(cni, pending_after=1)) == 1


def test_who_holds_a_lock_is_named(cni: CNIConfig) -> None:
    locks = LockSet(cni.cache_dir, LockRequest((), "c1"))
    assert locks.try_acquire()
    try:
        assert only(cni).check == "locks"
    finally:
        locks.close()
    assert diagnose(cni).findings == ()


def test_one_check_that_fails_does_not_hide_the_others(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr("libcni.diagnosis.disk.os.statvfs", fail)
    Path(cni.cache_dir, "results", "net-c2-eth0").touch()
    report = diagnose(cni)
    assert [one.check for one in report.findings] == ["records"]
    assert any("no such luck" in one.reason for one in report.not_checked if one.check == "disk")


def test_an_age_is_never_negative(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() + 1000)
    (one,) = cni.get_cached_attachments()
    assert attachment_age(one) is not None
    assert attachment_age(one) >= 0  # type: ignore[operator]


def test_an_age_is_measured_with_the_boot_clock(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(created=time.time() - 86400)
    (one,) = cni.get_cached_attachments()
    age = attachment_age(one)
    assert age is not None
    assert age < 3600, "the wall clock was set forward by a day since"
    assert only(cni).seen.startswith("the wall clock was set forward by 86")


def test_another_owners_attachments_are_not_stale(healthy: FakeNode, cni: CNIConfig) -> None:
    healthy.change_record(bootId="another", owner="podman")
    assert find_stale_attachments(cni) == ()
    assert "before the last reboot" in only(cni).seen


def test_a_program_that_only_has_the_lock_file_open_holds_no_lock(cni: CNIConfig) -> None:
    path = f"{cni.cache_dir}/locks"
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(lock_users(path)) == []
        process.communicate()


def test_a_file_that_is_no_namespace_is_not_entered(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Invalid argument") as caught:
        links(str(tmp_path / "file"))
    assert caught.value.filename == str(tmp_path / "file")
