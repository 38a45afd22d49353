"""The doctor's checks of disks and directories: each test breaks a node, and follows what the doctor says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import document
from nodes import FakeNode

from diagnosis.conftest import OperatorNode, only
from libcni import CNIConfig
from libcni.diagnosis import NodeFinding, diagnose, disk
from libcni.diagnosis.disk import check_disk, writable_by_others
from libcni.diagnosis.node_state import read_node


@contextmanager
def small_disk(path: Path, options: str) -> Iterator[None]:
    path.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "oper", str(path)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(path)], check=True)


@pytest.mark.real
@pytest.mark.parametrize(
    ("options", "files", "seen"),
    [
        ("size=256k", {"big": 250_000}, "bytes are free"),
        ("nr_inodes=40", dict.fromkeys(range(37), 0), "inodes are free"),
    ],
)
def test_a_full_disk(node: OperatorNode, options: str, files: dict[object, int], seen: str) -> None:
    with small_disk(node.cache, options):
        for name, size in files.items():
            (node.cache / str(name)).write_bytes(b"x" * size)
        found = node.finding(seen)
        assert (found.severity, found.subject) == ("error", str(node.cache))
        node.lease(77, "lost\r\neth0")
        said = node.type("libcni doctor", code=2)
        assert said.splitlines()[-2:] == [
            "To repair the node when its disk is writable again:", "  libcni repair --yes"
        ]  # fmt: skip
        assert str(node.cache) in node.type(found.remedy.partition(": ")[2])
        for name in files:
            (node.cache / str(name)).unlink()
        assert [one for one in node.diagnose().findings if one.severity == "error"] == []


def test_a_disk_without_a_fixed_number_of_inodes_is_not_full(cni: CNIConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As btrfs has it."""
    ten_numbers = [4096, 4096, 1000, 1000, 1000, 0, 0, 0, 0, 255]
    monkeypatch.setattr("libcni.diagnosis.disk.os.statvfs", lambda _: os.statvfs_result(ten_numbers))
    assert diagnose(cni).findings == ()


@pytest.mark.real
def test_a_read_only_disk_is_not_blamed_on_rights(node: OperatorNode) -> None:
    with small_disk(node.cache, "size=10m"):
        subprocess.run(["mount", "-o", "remount,ro", str(node.cache)], check=True)
        [found] = node.diagnose().findings
        assert (found.seen, found.subject) == ("the file system is read-only", str(node.cache))


@pytest.mark.real
def test_a_record_directory_of_another_user(node: OperatorNode) -> None:
    node.attach("c1")
    os.chown(node.cache, 65534, 65534)
    node.type(node.finding("it belongs to user 65534").remedy)
    node.assert_healthy()


@pytest.mark.real
def test_records_behind_a_symbolic_link(node: OperatorNode) -> None:
    node.attach("c1")
    (node.cache / "results").rename(node.root / "elsewhere")
    (node.cache / "results").symlink_to(node.root / "elsewhere")
    assert node.finding(f"a symbolic link to {node.root / 'elsewhere'}").remedy == "replace it by a directory"


def test_a_record_directory_behind_a_symbolic_link_is_in_order_unless_the_link_leads_nowhere(cni: CNIConfig) -> None:
    """It may be on a disk of its own. A mount in place of the link would be lost at the next reboot."""
    cache = Path(cni.cache_dir)
    cache.rename(cache.parent / "elsewhere")
    cache.symlink_to(cache.parent / "elsewhere")
    assert diagnose(cni).findings == ()
    (cache.parent / "elsewhere").rename(cache.parent / "nowhere")
    assert only(cni).seen.startswith("it is a symbolic link to ")


@pytest.mark.real
def test_a_record_directory_that_cannot_be_made(node: OperatorNode) -> None:
    node.cache.write_text("", encoding="utf-8")
    # The path may be a mistake: a mend that moves the file could move one of the system.
    assert node.finding("it is not a directory").mends == ()


def test_what_others_may_write_to_is_told(cni: CNIConfig) -> None:
    for directory in (cni.conf_dir, *cni.path, cni.cache_dir):
        os.chmod(directory, 0o777)
        finding = only(cni)
        assert (finding.severity, finding.subject) == ("warning", directory)
        assert finding.remedy == f"chmod o-w {directory}"
        os.chmod(directory, 0o755)
    plugin = Path(cni.path[0], "a")
    plugin.chmod(0o757)
    assert (only(cni).name, only(cni).subject) == ("writable-by-others", str(plugin))


@pytest.mark.root
def test_an_owner_that_the_user_namespace_cannot_name_is_no_finding(tmp_path: Path) -> None:
    """Without root everything of the host's root is of nobody there."""
    os.chown(tmp_path, 1, 1)
    assert [one.seen for one in writable_by_others("plugins", str(tmp_path)) if isinstance(one, NodeFinding)] == [
        "it belongs to user 1"
    ]
    code = f"from libcni.diagnosis.disk import *; print(*writable_by_others('plugins', {str(tmp_path)!r}))"
    ran = subprocess.run(
        ["unshare", "--user", "--map-root-user", sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "\n"


@pytest.mark.real
def test_a_program_that_keeps_the_lock_of_host_local_is_named(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.attach("c1")
    lock = node.leases / "net" / "lock"
    assert [one.name for one in check_disk(read_node(node.cni)) if isinstance(one, NodeFinding)] == []
    monkeypatch.setattr(disk, "_LOCK_SECONDS", 0.1)
    with subprocess.Popen(["flock", lock, "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        [found] = [one for one in check_disk(read_node(node.cni)) if isinstance(one, NodeFinding)]
        holder.kill()
    assert (found.name, found.subject) == ("held-lock", str(lock))
    assert f"the lock is held for more than 0.1 s by flock ({holder.pid}), which has run for " in found.seen


@pytest.mark.real
@pytest.mark.parametrize("part", ["", "results", "leases", "leases/net"])
def test_a_disk_that_was_mounted_over_records_or_reservations_is_the_cause(node: OperatorNode, part: str) -> None:
    """Everything is there below it: nobody has to be restarted."""
    for name in ("c1", "c2"):
        node.attach(name)
    place = node.root / part if part.startswith("leases") else node.cache / part
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "data", place], check=True)
    try:
        found = next(one for one in node.diagnose().findings if one.check == "disk")
        assert (found.name, found.subject) == ("hidden-records", str(place))
        what = f"reservations of {node.net}.2, {node.net}.3"
        what = what if part.startswith("leases") else "records of c1:eth0, c2:eth0"
        assert found.seen == f"data (tmpfs) is mounted over it, and hides {what}, which are in use"
        node.type(found.remedy.rpartition(": ")[2])
        node.assert_healthy()
    finally:
        subprocess.run(["umount", place], check=False, capture_output=True)


@pytest.mark.real
def test_a_disk_that_was_mounted_over_the_disk_of_the_records_is_the_cause_too(node: OperatorNode) -> None:
    with small_disk(node.cache, "size=10m"):
        node.attach("c1")
        node.assert_healthy()
        with small_disk(node.cache, "size=9m"):
            found = next(one for one in node.diagnose().findings if one.check == "disk")
            assert (found.name, found.subject) == ("hidden-records", str(node.cache))
            assert f"may have the records of the unrecorded addresses {node.net}.2" in found.seen
            for name in ("c2", "c3"):
                node.attach(name)
            names = {one.name for one in node.diagnose().findings}
            assert "hidden-records" not in names, "most records are here"


@pytest.mark.real
def test_a_disk_of_its_own_with_the_records_is_in_order(node: OperatorNode) -> None:
    """The old files are still below the disk to which they were moved."""
    node.attach("c1")
    subprocess.run(["cp", "-a", node.cache, node.root / "copy"], check=True)
    with small_disk(node.cache, "size=10m"):
        subprocess.run(f"cp -a {node.root}/copy/. {node.cache}", shell=True, check=True)
        node.assert_healthy()


@pytest.mark.real
@pytest.mark.parametrize(("options", "seen"), [("nr_inodes=10", "inodes are free"), ("ro", "read-only")])
def test_the_directory_of_the_namespaces_is_on_a_disk_too(
    node: OperatorNode, monkeypatch: pytest.MonkeyPatch, options: str, seen: str
) -> None:
    place = node.root / "names"
    monkeypatch.setattr(disk, "_NAMED", str(place))
    place.mkdir()
    node.assert_healthy()
    with small_disk(place, "nr_inodes=10"):
        if options == "ro":
            subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        else:
            for number in range(7):
                (place / str(number)).touch()
        found = node.finding(seen)
        assert (found.subject, found.meaning) == (str(place), disk._UNNAMED)
        if options != "ro":
            assert found.remedy.startswith(f"enlarge it (mount -o remount,nr_inodes=20 {place}), or free some inodes; ")
            node.type(found.remedy.partition("(")[2].partition(")")[0])
            node.assert_healthy()


@pytest.mark.real
def test_doctor_and_repair_go_on_if_the_records_are_on_a_disk_that_is_not_mounted(node: OperatorNode) -> None:
    node.cache.mkdir()
    (node.cache / "results").symlink_to(node.root / "disk")
    for command in ("libcni doctor", "libcni repair --yes"):
        said = node.type(command, code=2 if "doctor" in command else 1)
        assert f"it is a symbolic link to {node.root}/disk, which does not exist" in " ".join(said.split())
    node.type(node.finding("does not exist").remedy.rpartition(": ")[2])


@pytest.mark.parametrize("place", ["cache", "cache/results", "leases", "leases/net"])
@pytest.mark.parametrize("kind", ["link", "loop", "file"])
def test_what_is_in_the_place_of_a_directory_is_said_as_it_is(tmp_path: Path, place: str, kind: str) -> None:
    """And the other checks go on."""
    healthy = FakeNode(tmp_path)
    healthy.plugin("bridge")
    healthy.plugin("host-local")
    ipam = {"type": "host-local", "subnet": "10.99.0.0/24", "dataDir": str(tmp_path / "leases")}
    healthy.write("net.conflist", document({"type": "bridge", "ipam": ipam}))
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    seen = "it is not a directory"
    if kind == "file":
        path.touch()
    else:
        target = tmp_path / "disk" / "records" if kind == "link" else path
        path.symlink_to(target)
        seen = f"it is a symbolic link to {target}, which " + (
            "does not exist" if kind == "link" else "is no directory"
        )
    report = diagnose(healthy.cni)
    found = [(one.name, one.subject, one.seen) for one in report.findings if one.check == "disk"]
    assert found == [("no-directory", str(path), seen)]
    assert {"plugins", "configuration"} <= {one.check for one in report.checked}
    assert "bridges of net" in {one.what for one in report.checked}
    if kind == "link":
        remedy = next(one.remedy for one in report.findings if one.check == "disk")
        assert remedy.endswith(f"mount the disk with that directory; if there is no such disk: mkdir -p {target}")
