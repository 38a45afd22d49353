"""Namespaces that the manager makes and removes, with a fake tool and with the real ones."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from libcni import CNIErrorGroup, ConfigError, InvalidIdentifierError, PluginError
from libcni.manager import Container, NamespaceError, NamespaceIdentity, Namespaces
from libcni.manager.namespaces import IPRoute2
from manager.fakes import FakeTool, Killed, Make, ManagerNode, fails


def test_a_container_without_namespace_gets_one_and_loses_it_at_the_end(node: ManagerNode) -> None:
    node.configure("a")
    tool = FakeTool()
    manager = node.manager(namespaces=Namespaces(tool))
    result = manager.set_up(Container("c1"))
    assert result.netns == "/run/netns/c1"
    assert node.last_call("a", "ADD", "eth0").env["CNI_NETNS"] == "/run/netns/c1"
    report = manager.tear_down("c1")
    assert report.netns_removed == "/run/netns/c1"
    assert tool.done == ["create c1", "lo_up c1", "remove c1"]
    assert manager.tear_down("c1").netns_removed == ""


def test_the_event_loop_goes_on_while_a_namespace_is_made(node: ManagerNode) -> None:
    class Slow(FakeTool):
        def create(self, name: str) -> None:
            time.sleep(0.4)
            super().create(name)

    node.configure("a")
    manager = node.async_manager(namespaces=Namespaces(Slow()))

    async def go() -> float:
        task = asyncio.create_task(manager.set_up(Container("c1")))
        longest, last = 0.0, time.monotonic()
        while not task.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        await task
        return longest

    assert asyncio.run(go()) < 0.35


def test_a_failed_set_up_removes_the_namespace_that_it_made(node: ManagerNode) -> None:
    node.configure("a")
    node.plugin("a", fails("ADD"))
    tool = FakeTool()
    with pytest.raises(PluginError):
        node.manager(namespaces=Namespaces(tool)).set_up(Container("c1"))
    assert tool.done[-1] == "remove c1"


def test_a_namespace_that_cannot_be_made_stops_the_set_up(node: ManagerNode) -> None:
    node.configure("a")
    with pytest.raises(NamespaceError, match="create c1"):
        node.manager(namespaces=Namespaces(FakeTool("create"))).set_up(Container("c1"))
    assert node.calls("ADD") == []


def test_a_namespace_whose_lo_stays_down_is_removed_again() -> None:
    tool = FakeTool("lo_up")
    with pytest.raises(NamespaceError):
        Namespaces(tool).create("c1")
    assert tool.done == ["create c1", "remove c1"]


def test_a_namespace_that_took_the_name_before_lo_was_up_stays() -> None:
    class Replaced(FakeTool):
        def lo_up(self, name: str) -> None:
            self.there[name] = (0, 99, 0)
            super().lo_up(name)

    tool = Replaced("lo_up")
    with pytest.raises(NamespaceError, match="lo_up"):
        Namespaces(tool).create("c1")
    assert tool.there == {"c1": (0, 99, 0)}


def test_a_namespace_that_cannot_be_removed_is_in_the_errors(node: ManagerNode) -> None:
    node.configure("a")
    namespaces = Namespaces(FakeTool("remove"))
    manager = node.manager(namespaces=namespaces)
    manager.set_up(Container("c1"))
    with pytest.raises(CNIErrorGroup) as caught:
        manager.tear_down("c1")
    assert len(caught.value.report.detached) == 1
    node.plugin("a", fails("ADD"))
    with pytest.raises(PluginError) as failed:
        manager.set_up(Container("c2"))
    assert [type(error) for error in failed.value.rollback_errors] == [NamespaceError]


def test_a_namespace_stays_while_something_is_attached(node: ManagerNode) -> None:
    node.configure("a")
    tool = FakeTool()
    manager = node.manager(namespaces=Namespaces(tool))
    manager.set_up(Container("c1"))
    node.plugin("a", fails("DEL"))
    with pytest.raises(CNIErrorGroup):
        manager.tear_down("c1")
    assert "remove c1" not in tool.done


def test_a_namespace_stays_where_the_roll_back_left_something_attached(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    node.plugin("a", fails("DEL"))
    node.plugin("b", fails("ADD"))
    tool = FakeTool()
    manager = node.manager(namespaces=Namespaces(tool))
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", networks=["a", "b"]))
    assert "remove c1" not in tool.done
    node.plugin("a")
    assert manager.tear_down("c1").netns_removed == "/run/netns/c1"


def test_a_namespace_that_was_given_is_left_alone(node: ManagerNode) -> None:
    node.configure("a")
    tool = FakeTool()
    manager = node.manager(namespaces=Namespaces(tool))
    manager.set_up(Container("c1", "/ns"))
    manager.tear_down("c1")
    assert tool.done == []


def kill_at(manager: Any, kind: str) -> None:
    def observer(event: Any) -> None:
        if event.kind == kind:
            raise Killed

    manager.observe(observer)


def test_a_namespace_that_the_caller_made_is_never_removed(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeTool()
    tool.there["c1"] = (7, 7, 7)
    manager = make(namespaces=Namespaces(tool))
    assert manager.tear_down("c1").netns_removed == ""
    assert manager.gc([]).netns_removed == ()
    manager.set_up(Container("c1", manager_path(tool)))
    manager.tear_down("c1")
    assert tool.done == []


def manager_path(tool: FakeTool) -> str:
    return Namespaces(tool).path("c1")


def test_a_set_up_refuses_a_name_that_somebody_else_made(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeTool()
    tool.there["c1"] = (7, 7, 7)
    with pytest.raises(NamespaceError, match="did not make"):
        make(namespaces=Namespaces(tool)).set_up(Container("c1"))
    assert tool.done == []
    assert node.calls() == []


def test_a_set_up_adopts_the_namespace_that_a_killed_one_left(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeTool()
    manager = make(namespaces=Namespaces(tool))
    kill_at(manager, "attachment-added")
    with pytest.raises(Killed):
        manager.set_up(Container("c1"))
    assert "c1" in tool.there
    result = make(namespaces=Namespaces(tool)).set_up(Container("c1"), on_existing="replace")
    assert result.netns == "/run/netns/c1"
    assert tool.done == ["create c1", "lo_up c1", "lo_up c1"]
    assert make(namespaces=Namespaces(tool)).tear_down("c1").netns_removed == "/run/netns/c1"


def test_a_failed_set_up_leaves_a_namespace_that_an_earlier_one_made(node: ManagerNode, make: Make) -> None:
    """The container's processes may live in it."""
    node.configure("a")
    node.configure("b")
    tool = FakeTool()
    manager = make(namespaces=Namespaces(tool))
    manager.set_up(Container("c1", networks=["a"]))
    manager.tear_down("c1", ifnames=["eth0"])
    node.plugin("b", "[ $CNI_COMMAND != ADD ] || exit 1")
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", networks=["b"]))
    assert list(tool.there) == ["c1"]
    manager.tear_down("c1")
    assert tool.there == {}


def test_gc_finds_the_namespace_that_a_killed_set_up_left(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeTool()
    tool.there["neighbour"] = (7, 7, 7)
    manager = make(namespaces=Namespaces(tool))
    manager.set_up(Container("live"))
    kill_at(manager, "attachment-added")
    with pytest.raises(Killed):
        manager.set_up(Container("c1"))
    manager = make(namespaces=Namespaces(tool))
    assert manager.gc(["live"], dry_run=True).netns_removed == ("/run/netns/c1",)
    assert manager.gc(["live"]).netns_removed == ("/run/netns/c1",)
    assert set(tool.there) == {"neighbour", "live"}
    assert manager.gc([("live", "eth0")]).netns_removed == ()
    assert manager.gc([]).netns_removed == ("/run/netns/live",)


@pytest.mark.real
def test_the_identity_is_on_record_before_the_namespace_has_its_name(node: ManagerNode, make: Make, name: str) -> None:
    class Looking(IPRoute2):
        def pin(self, name: str, pid: int) -> None:
            status = os.stat(f"/proc/{pid}/ns/net")
            on_record = json.loads((node.cache / "namespaces" / name).read_text())["identity"]
            assert on_record == [status.st_dev, status.st_ino, status.st_ctime_ns]
            raise Killed

    node.configure("a")
    with pytest.raises(Killed):
        make(namespaces=Namespaces(Looking())).set_up(Container(name))
    assert make(namespaces=Namespaces()).gc([]).netns_removed == ()
    assert list(node.cache.glob("namespaces/*")) == []


def test_a_tool_that_was_killed_while_it_made_a_namespace_leaves_one_that_nobody_takes_for_its_own(
    node: ManagerNode, make: Make
) -> None:
    class Dying(FakeTool):
        def create(self, name: str) -> None:
            super().create(name)
            raise Killed

    node.configure("a")
    tool = Dying()
    with pytest.raises(Killed):
        make(namespaces=Namespaces(tool)).set_up(Container("c1"))
    with pytest.raises(NamespaceError, match="did not make"):
        make(namespaces=Namespaces(tool)).set_up(Container("c1"))
    assert make(namespaces=Namespaces(tool)).gc([]).netns_removed == ()
    assert "c1" in tool.there


def test_a_tool_without_identities_is_asked_by_name(node: ManagerNode, make: Make) -> None:
    class Plain:
        """The methods of NamespaceTool alone, and namespaces that have no file."""

        def __init__(self) -> None:
            self.done: list[str] = []

        def create(self, name: str) -> None:
            self.done.append(f"create {name}")

        def pin(self, name: str, pid: int) -> None:
            raise AssertionError

        def remove(self, name: str) -> None:
            self.done.append(f"remove {name}")

        def lo_up(self, name: str) -> None:
            self.done.append(f"lo_up {name}")

    node.configure("a")
    tool = Plain()
    manager = make(namespaces=Namespaces(tool))
    manager.set_up(Container("c1"))
    manager.set_up(Container("c1"), on_existing="replace")
    assert manager.tear_down("c1").netns_removed == "/run/netns/c1"
    assert manager.tear_down("c1").netns_removed == ""
    assert tool.done == ["create c1", "lo_up c1", "lo_up c1", "remove c1"]


def test_after_a_cancelled_set_up_the_next_one_works(node: ManagerNode) -> None:
    node.configure("a")
    node.plugin("a", "[ $CNI_COMMAND = ADD ] && sleep 5")
    tool = FakeTool()
    manager = node.async_manager(namespaces=Namespaces(tool))

    async def go() -> None:
        task = asyncio.create_task(manager.set_up(Container("c1")))
        while not node.calls("ADD"):  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        node.plugin("a")
        assert (await manager.set_up(Container("c1"))).netns == "/run/netns/c1"

    asyncio.run(go())
    assert tool.done == ["create c1", "lo_up c1", "lo_up c1"]


def test_a_container_without_namespace_is_refused_by_a_manager_that_makes_none(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    for container in (Container("c1"), Container("c1", "")):
        with pytest.raises(ConfigError, match="no network namespace"):
            make().set_up(container)
    assert node.calls() == []


def test_an_id_in_place_of_a_container_is_named_as_the_mistake(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    with pytest.raises(TypeError, match=r"Container\('c1', netns\)"):
        make().set_up("c1")


def test_names_follow_the_rule_for_container_ids() -> None:
    with pytest.raises(InvalidIdentifierError):
        Namespaces(FakeTool()).create("../x")


def test_a_missing_program_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(NamespaceError, match="install iproute2"):
        Namespaces().create("c1")


@pytest.mark.real
def test_a_node_without_descriptors_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refuse(path: str, *arguments: int) -> int:
        if str(path).endswith("/ns/net"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NamespaceError, match="Too many open files"):
        Namespaces().create("mgr-none")


def test_missing_pyroute2_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyroute2.netns", None)
    with pytest.raises(NamespaceError, match=r"libcni\[netns\]"):
        Namespaces("pyroute2")


Tool = Literal["iproute2", "pyroute2"]


@pytest.fixture(params=["iproute2", "pyroute2"])
def real(request: pytest.FixtureRequest) -> Namespaces:
    if request.param == "pyroute2":
        pytest.importorskip("pyroute2")
    tool: Tool = request.param
    return Namespaces(tool)


@pytest.mark.real
@pytest.mark.parametrize("tool", ["iproute2", "pyroute2"])
def test_the_directory_is_a_setting(tool: Tool, tmp_path: Path) -> None:
    if tool == "pyroute2":
        pytest.importorskip("pyroute2")
    namespaces = Namespaces(tool, tmp_path / "netns")
    try:
        path = namespaces.create("mgr-own")
        assert path == str(tmp_path / "netns" / "mgr-own")
        shown = subprocess.run(["nsenter", f"--net={path}", "ip", "link"], check=True, capture_output=True, text=True)
        assert "LOWER_UP" in shown.stdout
        assert not os.path.exists("/run/netns/mgr-own")
        with pytest.raises(NamespaceError):
            namespaces.create("mgr-own")
    finally:
        assert namespaces.remove("mgr-own")
        subprocess.run(["umount", tmp_path / "netns"], check=False, capture_output=True)  # pyroute2 mounts it on itself
    assert not namespaces.exists("mgr-own")


@pytest.mark.real
def test_the_recorded_identity_is_that_of_the_named_namespace(real: Namespaces, name: str) -> None:
    seen: list[NamespaceIdentity | None] = []
    real.create(name, seen.append)
    assert seen == [real.identity(name)]
    real.remove(name)
    real.create(name, seen.append)
    assert seen[0] != seen[1]
    real.remove(name)


@pytest.fixture
def name() -> Iterator[str]:
    name = f"libcni-{secrets.token_hex(4)}"
    yield name
    if os.path.exists(f"/run/netns/{name}"):
        subprocess.run(["ip", "netns", "delete", name], check=True)


def ip(*arguments: str) -> Any:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.mark.real
def test_made_used_and_removed(real: Namespaces, name: str) -> None:
    path = real.create(name)
    assert path == f"/run/netns/{name}"
    assert "LOWER_UP" in ip("-netns", name, "link", "show", "lo")
    assert real.exists(name)
    with pytest.raises(NamespaceError):
        real.create(name)
    assert real.exists(name)
    assert real.remove(name)
    assert not os.path.exists(path)
    assert not real.remove(name)


@pytest.mark.real
def test_the_namespace_of_a_process_is_pinned(real: Namespaces, name: str) -> None:
    process = subprocess.Popen(["unshare", "--net", "sleep", "60"])
    try:
        while os.stat(f"/proc/{process.pid}/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino:
            assert process.poll() is None
        path = real.pin(name, process.pid)
        inode = os.stat(f"/proc/{process.pid}/ns/net").st_ino
    finally:
        process.kill()
        process.wait()
    assert os.stat(path).st_ino == inode
    real.lo_up(name)
    assert "LOWER_UP" in ip("-netns", name, "link", "show", "lo")
    assert real.remove(name)
