"""Records of the namespaces that set-ups made: only these are removed."""

from __future__ import annotations

from typing import Any

import pytest

from libcni import repair_records
from libcni.manager import Container
from libcni.manager.namespace_records import ContainerNamespaces
from libcni.store import files
from libcni.store.boot import boot_id
from manager.fakes import FakeNamespaces, Make, ManagerNode, removed


def test_a_name_that_lost_its_namespace_is_used_again(node: ManagerNode, make: Make) -> None:
    class OnDisk(FakeNamespaces):
        def remove(self, name: str) -> bool:
            (node.root / "netns" / name).unlink()
            return super().remove(name)

    node.configure("a")
    (node.root / "netns").mkdir()
    tool = OnDisk(directory=node.root / "netns")
    make(namespaces=tool).set_up(Container("c1"))
    (node.root / "netns" / "c1").touch()  # what is left of a removal that was killed
    tool.there.clear()
    make(namespaces=tool).set_up(Container("c1"), on_existing="replace")
    assert tool.done == ["create c1", "remove c1", "create c1"]


@pytest.mark.parametrize("again", [False, True])
def test_a_file_that_took_the_name_meanwhile_is_left_alone(node: ManagerNode, make: Make, *, again: bool) -> None:
    class OnDisk(FakeNamespaces):
        def remove(self, name: str) -> bool:
            (node.root / "netns" / name).unlink()
            return True

    node.configure("a")
    (node.root / "netns").mkdir()
    tool = OnDisk(directory=node.root / "netns")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    (node.root / "netns" / "c1").write_text("of another program")
    tool.there.clear()
    if again:
        manager.set_up(Container("c1"), on_existing="replace")
    else:
        assert removed(manager.tear_down("c1")) == []
    assert (node.root / "netns" / "c1").read_text() == "of another program"


def test_a_namespace_that_took_the_name_meanwhile_is_left_alone(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    tool.there["c1"] = (0, 0, 99)
    assert removed(manager.tear_down("c1")) == []
    assert tool.there == {"c1": (0, 0, 99)}
    assert list(node.cache.glob("namespaces/*")) == []


def test_a_namespace_of_another_boot_is_made_anew(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    make(namespaces=tool).set_up(Container("c1"))
    (record,) = node.cache.glob("namespaces/*")
    record.write_text(record.read_text().replace(boot_id(), "another-boot"))
    tool.there.clear()
    next(node.cache.glob("results/*")).unlink()
    make(namespaces=tool).set_up(Container("c1"))
    assert tool.done.count("create c1") == 2


def test_a_torn_record_of_a_namespace_removes_nothing(
    node: ManagerNode, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    (record,) = node.cache.glob("namespaces/*")
    record.write_bytes(b"")
    manager.tear_down("c1")
    assert "c1" in tool.there
    assert str(record) in caplog.text


def test_a_repair_leaves_the_record_of_a_namespace_that_is_being_written(
    node: ManagerNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of another program removes old drafts only."""
    write = files.write_draft

    def write_and_repair(*args: Any, **options: Any) -> tuple[str, int]:
        draft = write(*args, **options)
        monkeypatch.setattr(files, "write_draft", write)
        repair_records(node.cache)
        return draft

    namespaces = ContainerNamespaces(FakeNamespaces(), str(node.cache))
    monkeypatch.setattr(files, "write_draft", write_and_repair)
    assert namespaces.ensure("c1") == "/run/netns/c1"
    assert namespaces.recorded() == ["c1"]
