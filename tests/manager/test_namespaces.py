"""Namespaces that the manager makes and removes, with a fake tool and with the real ones."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import libcni.kernel.namespace as kernel
from libcni import CNIErrorGroup, ConfigError, InvalidIdentifierError, PluginError
from libcni.kernel.namespace import bind
from libcni.manager import Container, NamespaceError, NamespaceIdentity, Namespaces, namespaces
from manager.fakes import AfterAdd, Announce, FakeNamespaces, Killed, Make, ManagerNode, fails, removed


def test_a_container_without_namespace_gets_one_and_loses_it_at_the_end(node: ManagerNode) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    manager = node.manager(namespaces=tool)
    result = manager.set_up(Container("c1"))
    assert result.netns == "/run/netns/c1"
    assert node.last_call("a", "ADD", "eth0").env["CNI_NETNS"] == "/run/netns/c1"
    report = manager.tear_down("c1")
    assert removed(report) == ["/run/netns/c1"]
    assert tool.done == ["create c1", "remove c1"]
    assert removed(manager.tear_down("c1")) == []


def test_no_namespace_is_made_in_the_thread_of_the_event_loop(node: ManagerNode) -> None:
    class Observed(FakeNamespaces):
        def create(self, name: str, announce: Announce = lambda _: None) -> str:
            threads.append(threading.current_thread())
            return super().create(name, announce)

    threads: list[threading.Thread] = []
    node.configure("a")
    asyncio.run(node.async_manager(namespaces=Observed()).set_up(Container("c1")))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_failed_set_up_removes_the_namespace_that_it_made(node: ManagerNode) -> None:
    node.configure("a")
    node.plugin("a", fails("ADD"))
    tool = FakeNamespaces()
    with pytest.raises(PluginError):
        node.manager(namespaces=tool).set_up(Container("c1"))
    assert tool.done[-1] == "remove c1"


def test_a_namespace_that_cannot_be_removed_is_in_the_errors(node: ManagerNode) -> None:
    node.configure("a")
    manager = node.manager(namespaces=FakeNamespaces("remove"))
    manager.set_up(Container("c1"))
    with pytest.raises(CNIErrorGroup) as caught:
        manager.tear_down("c1")
    assert len(caught.value.report.of("detached")) == 1
    node.plugin("a", fails("ADD"))
    with pytest.raises(PluginError) as failed:
        manager.set_up(Container("c2"))
    assert [type(error) for error in failed.value.rollback_errors] == [NamespaceError]


def test_a_namespace_stays_while_something_is_attached(node: ManagerNode) -> None:
    node.configure("a")
    node.configure("b")
    node.plugin("a", fails("DEL"))
    node.plugin("b", fails("ADD"))
    tool = FakeNamespaces()
    manager = node.manager(namespaces=tool)
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", networks=["a", "b"]))
    with pytest.raises(CNIErrorGroup):
        manager.tear_down("c1")
    with pytest.raises(CNIErrorGroup):
        manager.gc([])
    assert "remove c1" not in tool.done
    node.plugin("a")
    assert removed(manager.tear_down("c1")) == ["/run/netns/c1"]


def test_a_namespace_stays_after_a_failed_del_without_a_record(node: ManagerNode) -> None:
    """The next DEL needs it."""
    node.configure("a")
    tool = FakeNamespaces()
    manager = node.manager(namespaces=tool)
    manager.set_up(Container("c1"))
    (node.cache / "results" / "a-c1-eth0").unlink()
    node.plugin("a", fails("DEL"))
    with pytest.raises(CNIErrorGroup):
        manager.tear_down(Container("c1", tool.path("c1")))
    assert list(tool.there) == ["c1"]


def kill(_: object) -> None:
    raise Killed


def test_a_namespace_that_the_caller_made_is_never_removed(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    tool.there["c1"] = (7, 7, 7)
    manager = make(namespaces=tool)
    assert removed(manager.tear_down("c1")) == []
    assert removed(manager.gc([])) == []
    manager.set_up(Container("c1", tool.path("c1")))
    manager.tear_down("c1")
    assert tool.done == []


def test_a_set_up_refuses_a_name_that_somebody_else_made(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    tool.there["c1"] = (7, 7, 7)
    with pytest.raises(NamespaceError, match="did not create"):
        make(namespaces=tool).set_up(Container("c1"))
    assert tool.done == []
    assert node.calls() == []


def test_a_set_up_adopts_the_namespace_that_a_killed_one_left(node: ManagerNode, make: Make) -> None:
    node.configure("a")
    tool = FakeNamespaces()
    with pytest.raises(Killed):
        make(namespaces=tool, client={"observer": AfterAdd(kill)}).set_up(Container("c1"))
    assert "c1" in tool.there
    result = make(namespaces=tool).set_up(Container("c1"), on_existing="replace")
    assert result.netns == "/run/netns/c1"
    assert tool.done == ["create c1"]
    assert removed(make(namespaces=tool).tear_down("c1")) == ["/run/netns/c1"]


def test_a_failed_set_up_leaves_a_namespace_that_an_earlier_one_made(node: ManagerNode, make: Make) -> None:
    """The container's processes may live in it."""
    node.configure("a")
    node.configure("b")
    tool = FakeNamespaces()
    manager = make(namespaces=tool)
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
    tool = FakeNamespaces()
    tool.there["neighbour"] = (7, 7, 7)
    manager = make(namespaces=tool)
    manager.set_up(Container("live"))
    with pytest.raises(Killed):
        make(namespaces=tool, client={"observer": AfterAdd(kill)}).set_up(Container("c1"))
    assert [one.path for one in manager.gc(["live"], dry_run=True).of("namespace-stale")] == ["/run/netns/c1"]
    assert removed(manager.gc(["live"])) == ["/run/netns/c1"]
    assert set(tool.there) == {"neighbour", "live"}
    assert removed(manager.gc([("live", "eth0")])) == []
    assert removed(manager.gc([])) == ["/run/netns/live"]


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
        FakeNamespaces().create("../x")


@pytest.fixture
def name() -> Iterator[str]:
    name = f"libcni-{secrets.token_hex(4)}"
    yield name
    if os.path.exists(f"/run/netns/{name}"):
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.mark.real
def test_the_identity_is_on_record_before_the_namespace_has_its_name(
    node: ManagerNode, make: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(source: str, _path: str) -> None:
        on_record = json.loads((node.cache / "namespaces" / name).read_text())["identity"]
        assert on_record == list(namespaces.namespace_at(source) or ())
        raise Killed

    monkeypatch.setattr(kernel, "bind", look)
    node.configure("a")
    with pytest.raises(Killed):
        make(namespaces=Namespaces()).set_up(Container(name))
    assert removed(make(namespaces=Namespaces()).gc([])) == []
    assert list(node.cache.glob("namespaces/*")) == []


@pytest.mark.real
def test_lo_is_up_before_the_namespace_has_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that finds the name may use 127.0.0.1 at once."""
    shown: list[str] = []

    def look(source: str, path: str) -> None:
        shown.append(run("nsenter", f"--net=/proc/{os.getpid()}/fd/{os.path.basename(source)}", "ip", "link"))
        bind(source, path)

    monkeypatch.setattr(kernel, "bind", look)
    Namespaces().create(name)
    assert "LOWER_UP" in shown[0]
    assert "LOWER_UP" in run("ip", "-netns", name, "link", "show", "lo")


@pytest.mark.real
@pytest.mark.parametrize("step", ["bind", "new_namespace"])
def test_a_namespace_that_cannot_be_made_is_an_error_and_leaves_nothing(
    node: ManagerNode, make: Make, name: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(kernel, step, refuse)
    node.configure("a")
    with pytest.raises(NamespaceError, match=rf"/{name}: .* cannot be created: Operation not permitted.*CAP_SYS_ADMIN"):
        make(namespaces=Namespaces()).set_up(Container(name))
    assert list(node.cache.glob("namespaces/*")) == []
    assert not os.path.lexists(f"/run/netns/{name}")


@pytest.mark.real
def test_a_name_that_another_program_makes_at_the_same_time_is_not_mounted_over(name: str) -> None:
    with pytest.raises(NamespaceError, match="File exists"):
        Namespaces().create(name, lambda _: run("ip", "netns", "add", name) and None)
    assert run("ip", "-netns", name, "link", "show", "lo")


@pytest.mark.real
def test_the_recorded_identity_is_that_of_the_named_namespace(name: str) -> None:
    real, seen = Namespaces(), list[NamespaceIdentity]()
    for _ in range(2):
        real.create(name, seen.append)
        assert seen[-1] == real.identity(name)
        real.remove(name)
    assert seen[0] != seen[1]


@pytest.mark.real
def test_made_used_and_removed(name: str) -> None:
    real = Namespaces()
    path = real.create(name)
    assert path == f"/run/netns/{name}"
    assert real.exists(name)
    with pytest.raises(NamespaceError):
        real.create(name)
    with open(path, "rb"):  # a plugin may still have the file open
        assert real.remove(name)
    assert not os.path.exists(path)
    assert not real.remove(name)


@pytest.mark.real
def test_only_namespaces_are_removed(name: str, tmp_path: Path) -> None:
    """Other files, other mounts and links stay."""
    own = Namespaces(tmp_path)
    (tmp_path / "file").write_text("of another program")
    (tmp_path / "mount").touch()
    run("mount", "--bind", str(tmp_path / "file"), str(tmp_path / "mount"))
    (tmp_path / "link").symlink_to(Namespaces().create(name))
    try:
        assert [own.remove(one) for one in ("file", "mount", "link")] == [False] * 3
        assert (tmp_path / "mount").read_text() == "of another program"
        assert own.exists("link")
    finally:
        run("umount", str(tmp_path / "mount"))


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
