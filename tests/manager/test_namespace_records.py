"""Records of the namespaces that set-ups made: only these are removed."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from libcni import repair_records
from libcni.manager import Container, NamespaceError, Namespaces
from libcni.manager.namespace_records import ContainerNamespaces
from libcni.store import files
from libcni.store.locks import LockRequest, LockSet
from libcni.store.record import boot_id
from manager.fakes import FakeTool, Make, ManagerNode


class LinkingTool:
    """A tool that needs no root: each name is a link to this program's own namespace."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory

    def create(self, name: str) -> None:
        (self.directory / name).symlink_to("/proc/self/ns/net")

    def remove(self, name: str) -> None:
        (self.directory / name).unlink()

    def pin(self, name: str, pid: int) -> None: ...

    def lo_up(self, name: str) -> None: ...


def test_the_record_of_another_managers_namespace_is_not_replaced(tmp_path: Path) -> None:
    """Otherwise that manager could never remove its namespace."""

    def manager(owner: str) -> ContainerNamespaces:
        directory = tmp_path / owner
        return ContainerNamespaces(Namespaces(LinkingTool(directory), directory), str(tmp_path / "cache"), owner)

    first, second = manager("first"), manager("second")
    with open("/proc/self/ns/net", "rb"):  # the kernel gives an inode that nothing uses another time
        path = first.ensure("c1")
        with pytest.raises(NamespaceError, match=r"/first/c1 of another manager \(owner 'first'\)"):
            second.ensure("c1")
        assert os.listdir(tmp_path / "second") == []
        assert second.remove_if_unused("c1") == ""
        assert first.remove_if_unused("c1") == path
        second.ensure("c1")
        os.unlink(second.path("c1"))
        assert first.ensure("c1") == path


def test_a_name_that_lost_its_namespace_is_used_again(node: ManagerNode, make: Make) -> None:
    class OnDisk(FakeTool):
        def remove(self, name: str) -> None:
            self.done.append(f"remove {name}")
            (node.root / "netns" / name).unlink()

    node.configure("a")
    (node.root / "netns").mkdir()
    tool = OnDisk()
    namespaces = Namespaces(tool, node.root / "netns")
    make(namespaces=namespaces).set_up(Container("c1"))
    (node.root / "netns" / "c1").touch()  # what is left of a removal that was killed
    tool.there.clear()
    make(namespaces=namespaces).set_up(Container("c1"), on_existing="replace")
    assert tool.done == ["create c1", "lo_up c1", "remove c1", "create c1", "lo_up c1"]


@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_took_the_name_meanwhile_is_left_alone(node: ManagerNode, make: Make, *, again: bool) -> None:
    class OnDisk(FakeTool):
        def remove(self, name: str) -> None:
            (node.root / "netns" / name).unlink()

    node.configure("a")
    (node.root / "netns").mkdir()
    tool = OnDisk()
    manager = make(namespaces=Namespaces(tool, node.root / "netns"))
    manager.set_up(Container("c1"))
    (node.root / "netns" / "c1").write_text("of another program")
    tool.there.clear()
    if again:
        manager.set_up(Container("c1"), on_existing="replace")
    else:
        assert manager.tear_down("c1").netns_removed == ""
    assert (node.root / "netns" / "c1").read_text() == "of another program"


def test_a_namespace_that_took_the_name_meanwhile_is_left_alone(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeTool()
    manager = make(namespaces=Namespaces(tool))
    manager.set_up(Container("c1"))
    tool.there["c1"] = (0, 0, 99)
    assert manager.tear_down("c1").netns_removed == ""
    assert tool.there == {"c1": (0, 0, 99)}
    assert list(node.cache.glob("namespaces/*")) == []


def test_a_namespace_of_another_boot_is_made_anew(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeTool()
    make(namespaces=Namespaces(tool)).set_up(Container("c1"))
    (record,) = node.cache.glob("namespaces/*")
    record.write_text(record.read_text().replace(boot_id(), "another-boot"))
    tool.there.clear()
    next(node.cache.glob("results/*")).unlink()
    make(namespaces=Namespaces(tool)).set_up(Container("c1"))
    assert tool.done.count("create c1") == 2


def test_a_torn_record_of_a_namespace_removes_nothing(
    node: ManagerNode, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    node.configure("a")
    tool = FakeTool()
    manager = make(namespaces=Namespaces(tool))
    manager.set_up(Container("c1"))
    (record,) = node.cache.glob("namespaces/*")
    record.write_bytes(b"")
    manager.tear_down("c1")
    assert "c1" in tool.there
    assert str(record) in caplog.text


def test_a_repair_waits_while_the_record_of_a_namespace_is_written(
    node: ManagerNode, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of another program, which excludes the verbs, would remove the draft of the record."""
    node.configure("a")
    write = files.write_draft
    repairs: list[threading.Thread] = []

    def write_and_repair(*args: Any, **options: Any) -> str:
        draft = write(*args, **options)
        if not repairs:
            repairs.append(threading.Thread(target=repair_records, args=(node.cache,)))
            repairs[0].start()
            repairs[0].join(0.2)
        return draft

    monkeypatch.setattr(files, "write_draft", write_and_repair)
    manager = make(namespaces=Namespaces(FakeTool()))
    assert manager.set_up(Container("c1")).netns == "/run/netns/c1"
    repairs[0].join()
    # A verb of the container may run for minutes, for example one of another program.
    hold = LockSet(str(node.cache), LockRequest((), "c2"))
    assert hold.try_acquire()
    ContainerNamespaces(Namespaces(FakeTool()), str(node.cache)).ensure("c2")
    hold.close()
