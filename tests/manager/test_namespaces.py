"""Namespaces that the manager makes and removes: in memory, and the kernel's. Only recorded ones are removed."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import libcni.kernel.namespace as kernel
from libcni import CNIErrorGroup, ConfigError, InvalidIdentifierError, PluginError, RuntimeConf
from libcni.kernel.namespace import bind
from libcni.manager import Container, NamespaceError, namespaces
from libcni.manager.namespaces import ContainerNamespaces
from libcni.store import files
from libcni.store.boot import boot_id
from libcni.store.records import RecordStore
from manager.fakes import AfterAdd, FakeNamespaces, Killed, Make, ManagerNode, fails, removed


def test_a_container_without_namespace_gets_one_and_loses_it_at_the_end(
    node: ManagerNode, tool: FakeNamespaces
) -> None:
    node.configure("a")
    manager = node.manager(namespaces=tool)
    result = manager.set_up(Container("c1"))
    assert result.netns == "/run/netns/c1"
    assert node.last_call("a", "ADD", "eth0").env["CNI_NETNS"] == "/run/netns/c1"
    report = manager.tear_down("c1")
    assert removed(report) == ["/run/netns/c1"]
    assert tool.done == ["create c1", "remove c1"]
    assert removed(manager.tear_down("c1")) == []


def test_no_namespace_is_made_in_the_thread_of_the_event_loop(
    node: ManagerNode, tool: FakeNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(path: str, announce: Callable[[str], object]) -> None:
        threads.append(threading.current_thread())
        tool.make(path, announce)

    threads: list[threading.Thread] = []
    monkeypatch.setattr(namespaces, "make_namespace", make)
    node.configure("a")
    asyncio.run(node.async_manager(namespaces=tool).set_up(Container("c1")))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_namespace_that_cannot_be_removed_is_in_the_errors(node: ManagerNode, tool: FakeNamespaces) -> None:
    node.configure("a")
    manager = node.manager(namespaces=tool)
    manager.set_up(Container("c1"))
    tool.broken = True
    with pytest.raises(CNIErrorGroup) as caught:
        manager.tear_down("c1")
    assert len(caught.value.report.of("detached")) == 1
    node.plugin("a", fails("ADD"))
    with pytest.raises(PluginError) as failed:
        manager.set_up(Container("c2"))
    assert [type(error) for error in failed.value.rollback_errors] == [NamespaceError]


def test_a_namespace_stays_while_something_is_attached(node: ManagerNode, tool: FakeNamespaces) -> None:
    node.configure_each("a", "b")
    node.plugin("a", fails("DEL"))
    node.plugin("b", fails("ADD"))
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


def kill(_: object) -> None:
    raise Killed


def test_a_namespace_that_the_caller_made_is_never_removed(node: ManagerNode, make: Make, tool: FakeNamespaces) -> None:
    node.configure("a")
    tool.there["c1"] = (7, 7, 7)
    manager = make(namespaces=tool)
    assert removed(manager.tear_down("c1")) == []
    assert removed(manager.gc([])) == []
    manager.set_up(Container("c1", "/run/netns/c1"))
    manager.tear_down("c1")
    assert tool.done == []


def test_a_set_up_refuses_a_name_that_somebody_else_made(node: ManagerNode, make: Make, tool: FakeNamespaces) -> None:
    node.configure("a")
    tool.there["c1"] = (7, 7, 7)
    with pytest.raises(NamespaceError, match="did not create"):
        make(namespaces=tool).set_up(Container("c1"))
    assert tool.done == []
    assert node.calls() == []


def test_a_set_up_adopts_the_namespace_that_a_killed_one_left(
    node: ManagerNode, make: Make, tool: FakeNamespaces
) -> None:
    node.configure("a")
    with pytest.raises(Killed):
        make(namespaces=tool, client={"observer": AfterAdd(kill)}).set_up(Container("c1"))
    assert "c1" in tool.there
    result = make(namespaces=tool).set_up(Container("c1"), on_existing="replace")
    assert result.netns == "/run/netns/c1"
    assert tool.done == ["create c1"]
    assert removed(make(namespaces=tool).tear_down("c1")) == ["/run/netns/c1"]


def test_a_failed_set_up_leaves_a_namespace_that_an_earlier_one_made(
    node: ManagerNode, make: Make, tool: FakeNamespaces
) -> None:
    """The container's processes may live in it."""
    node.configure_each("a", "b")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1", networks=["a"]))
    node.client().del_network_list("a", RuntimeConf("c1", None, "eth0"))
    node.plugin("b", "[ $CNI_COMMAND != ADD ] || exit 1")
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", networks=["b"]))
    assert list(tool.there) == ["c1"]
    manager.tear_down("c1")
    assert tool.there == {}


def test_gc_finds_the_namespace_that_a_killed_set_up_left(node: ManagerNode, make: Make, tool: FakeNamespaces) -> None:
    node.configure("a")
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
    with pytest.raises(TypeError, match="container must be a Container, not 'c1'"):
        make().set_up("c1")


def test_names_follow_the_rule_for_container_ids(node: ManagerNode, tool: FakeNamespaces) -> None:
    node.configure("a")
    with pytest.raises(InvalidIdentifierError):
        node.manager(namespaces=tool).set_up(Container("../x"))
    assert tool.done == []


@pytest.fixture
def on_disk(tool: FakeNamespaces, tmp_path: Path) -> Path:
    """Return the directory of the names of the namespaces in memory."""
    tool.directory = str(tmp_path / "netns")
    return tmp_path / "netns"


def test_a_name_that_lost_its_namespace_is_used_again(
    node: ManagerNode, make: Make, tool: FakeNamespaces, on_disk: Path
) -> None:
    node.configure("a")
    make(namespaces=tool).set_up(Container("c1"))
    (on_disk / "c1").touch()  # what is left of a removal that was killed
    tool.there.clear()
    make(namespaces=tool).set_up(Container("c1"), on_existing="replace")
    assert tool.done == ["create c1", "remove c1", "create c1"]


again = pytest.mark.parametrize("again", [False, True])
"""Whether another set-up, and not a tear-down, finds the name."""


@again
def test_a_file_that_took_the_name_meanwhile_is_left_alone(
    node: ManagerNode, make: Make, tool: FakeNamespaces, on_disk: Path, *, again: bool
) -> None:
    node.configure("a")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    (on_disk / "c1").write_text("of another program")
    tool.there.clear()
    if again:
        with pytest.raises(ConfigError, match="is a file, but not a network namespace"):
            manager.set_up(Container("c1"), on_existing="replace")
    else:
        assert removed(manager.tear_down("c1")) == []
    assert (on_disk / "c1").read_text() == "of another program"


def test_a_namespace_that_took_the_name_meanwhile_is_left_alone(
    node: ManagerNode, make: Make, tool: FakeNamespaces
) -> None:
    node.configure("a")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    tool.there["c1"] = (0, 0, 99)
    assert removed(manager.tear_down("c1")) == []
    assert tool.there == {"c1": (0, 0, 99)}
    assert list(node.cache.glob("namespaces/*")) == []


@again
def test_a_namespace_that_comes_after_the_look_keeps_its_name(
    node: ManagerNode, make: Make, tool: FakeNamespaces, monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    node.configure("a")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    monkeypatch.setattr(namespaces, "identity_of", lambda _: None)  # the look was before the namespace came
    if again:
        manager.set_up(Container("c1"), on_existing="replace")
    else:
        assert removed(manager.tear_down("c1")) == []
    assert "remove c1" not in tool.done


def test_a_namespace_with_the_numbers_of_one_of_another_boot_is_somebody_elses(
    node: ManagerNode, make: Make, tool: FakeNamespaces
) -> None:
    node.configure("a")
    make(namespaces=tool).set_up(Container("c1"))
    (record,) = node.cache.glob("namespaces/*")
    record.write_text(record.read_text().replace(boot_id(), "another-boot"))
    next(node.cache.glob("results/*")).unlink()
    with pytest.raises(NamespaceError, match="did not create"):
        make(namespaces=tool).set_up(Container("c1"))
    assert removed(make(namespaces=tool).gc([])) == []
    assert list(tool.there) == ["c1"]
    tool.there.clear()
    make(namespaces=tool).set_up(Container("c1"))
    assert tool.done == ["create c1", "create c1"]


@pytest.mark.parametrize("torn", [b"", b'{"path":"","owner":"","bootId":"","identity":[1e400]}'])
def test_a_torn_record_of_a_namespace_removes_nothing(
    node: ManagerNode, make: Make, tool: FakeNamespaces, caplog: pytest.LogCaptureFixture, torn: bytes
) -> None:
    node.configure("a")
    manager = make(namespaces=tool)
    manager.set_up(Container("c1"))
    (record,) = node.cache.glob("namespaces/*")
    record.write_bytes(torn)
    manager.tear_down("c1")
    manager.gc([])
    assert "c1" in tool.there
    assert str(record) in caplog.text


def test_a_repair_leaves_the_record_of_a_namespace_that_is_being_written(
    node: ManagerNode, tool: FakeNamespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of another program removes old drafts only."""
    keep = files.keep_mode

    def keep_and_repair(descriptor: int) -> None:
        monkeypatch.setattr(files, "keep_mode", keep)
        keep(descriptor)
        RecordStore(str(node.cache)).remove_old_drafts()

    own = ContainerNamespaces(tool, str(node.cache), "")
    monkeypatch.setattr(files, "keep_mode", keep_and_repair)
    assert own.ensure("c1") == "/run/netns/c1"
    assert own.recorded() == ["c1"]


@pytest.fixture
def name() -> Iterator[str]:
    name = f"libcni-{secrets.token_hex(4)}"
    yield name
    if os.path.exists(f"/run/netns/{name}"):
        subprocess.run(["ip", "netns", "delete", name], check=True)


@pytest.fixture
def real(node: ManagerNode) -> ContainerNamespaces:
    return ContainerNamespaces("/run/netns", str(node.cache), "")


@pytest.mark.real
def test_the_identity_is_on_record_before_the_namespace_has_its_name(
    node: ManagerNode, make: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look(source: str, _path: str) -> None:
        on_record = json.loads((node.cache / "namespaces" / name).read_text())["identity"]
        assert on_record == list(namespaces.identity_of(source) or ())
        raise Killed

    monkeypatch.setattr(kernel, "bind", look)
    node.configure("a")
    with pytest.raises(Killed):
        make(namespaces="/run/netns").set_up(Container(name))
    assert removed(make(namespaces="/run/netns").gc([])) == []
    assert list(node.cache.glob("namespaces/*")) == []


@pytest.mark.real
def test_lo_is_up_before_the_namespace_has_its_name(
    real: ContainerNamespaces, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that finds the name may use 127.0.0.1 at once."""
    shown: list[str] = []

    def look(source: str, path: str) -> None:
        shown.append(run("nsenter", f"--net=/proc/{os.getpid()}/fd/{os.path.basename(source)}", "ip", "link"))
        bind(source, path)

    monkeypatch.setattr(kernel, "bind", look)
    real.ensure(name)
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
        make(namespaces="/run/netns").set_up(Container(name))
    assert list(node.cache.glob("namespaces/*")) == []
    assert not os.path.lexists(f"/run/netns/{name}")


@pytest.mark.real
def test_a_name_that_another_program_makes_at_the_same_time_is_not_mounted_over(
    real: ContainerNamespaces, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def race(source: str, path: str) -> None:
        run("ip", "netns", "add", name)
        bind(source, path)

    monkeypatch.setattr(kernel, "bind", race)
    with pytest.raises(NamespaceError, match="File exists"):
        real.ensure(name)
    assert run("ip", "-netns", name, "link", "show", "lo")
    assert real.remove_if_unused(name) == ""
    assert real.exists(name)


@pytest.mark.real
def test_made_used_and_removed(real: ContainerNamespaces, name: str) -> None:
    seen = []
    for _ in range(2):
        path = real.ensure(name)
        assert path == real.ensure(name) == f"/run/netns/{name}"
        seen.append(namespaces.identity_of(path))
        with open(path, "rb"):  # a plugin may still have the file open
            assert real.remove_if_unused(name) == path
        assert not os.path.exists(path)
        assert real.remove_if_unused(name) == ""
    assert seen[0] != seen[1], "the kernel may use the inode's number again"


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
