"""Namespaces that the manager makes and removes, with a fake tool and with the real ones."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

from libcni import CNIErrorGroup, InvalidIdentifierError, PluginError
from libcni.manager import Container, NamespaceError, NamespaceIdentity, Namespaces
from manager.fakes import Place, fails


class Fake:
    """A tool that keeps namespaces in memory; ``broken``: what fails."""

    def __init__(self, *broken: str) -> None:
        self.done: list[str] = []
        self.there: dict[str, NamespaceIdentity] = {}
        self.broken = broken

    def _do(self, what: str, name: str) -> None:
        if what in self.broken:
            raise NamespaceError(f"{what} {name}: broken", name=name)
        self.done.append(f"{what} {name}")

    def create(self, name: str, announce: Callable[[NamespaceIdentity], None]) -> None:
        identity = (0, len(self.done), 0)
        announce(identity)
        self._do("create", name)
        self.there[name] = identity

    def pin(self, name: str, pid: int) -> None:
        self._do(f"pin {pid}", name)

    def remove(self, name: str) -> None:
        self._do("remove", name)
        self.there.pop(name)

    def lo_up(self, name: str) -> None:
        self._do("lo_up", name)

    def identity(self, name: str) -> NamespaceIdentity | None:
        return self.there.get(name)


def test_a_container_without_namespace_gets_one_and_loses_it_at_the_end(place: Place) -> None:
    place.network("a")
    tool = Fake()
    manager = place.manager(namespaces=Namespaces(tool))
    result = manager.set_up(Container("c1"))
    assert result.netns == "/run/netns/c1"
    assert place.variable("netns", "ADD", "a", "eth0") == "/run/netns/c1"
    report = manager.tear_down("c1")
    assert report.netns_removed == "/run/netns/c1"
    assert tool.done == ["create c1", "lo_up c1", "remove c1"]
    assert manager.tear_down("c1").netns_removed == ""


def test_the_event_loop_goes_on_while_a_namespace_is_made(place: Place) -> None:
    class Slow(Fake):
        def create(self, name: str, announce: Callable[[NamespaceIdentity], None]) -> None:
            time.sleep(0.4)
            super().create(name, announce)

    place.network("a")
    manager = place.async_manager(namespaces=Namespaces(Slow()))

    async def go() -> float:
        task = asyncio.create_task(manager.set_up(Container("c1")))
        longest, last = 0.0, time.monotonic()
        while not task.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        await task
        return longest

    assert asyncio.run(go()) < 0.35


def test_a_failed_set_up_removes_the_namespace_that_it_made(place: Place) -> None:
    place.network("a")
    place.plugin("a", fails("ADD"))
    tool = Fake()
    with pytest.raises(PluginError):
        place.manager(namespaces=Namespaces(tool)).set_up(Container("c1"))
    assert tool.done[-1] == "remove c1"


def test_a_namespace_that_cannot_be_made_stops_the_set_up(place: Place) -> None:
    place.network("a")
    with pytest.raises(NamespaceError, match="create c1"):
        place.manager(namespaces=Namespaces(Fake("create"))).set_up(Container("c1"))
    assert place.calls("ADD") == []


def test_a_namespace_whose_lo_stays_down_is_removed_again() -> None:
    tool = Fake("lo_up")
    with pytest.raises(NamespaceError):
        Namespaces(tool).create("c1")
    assert tool.done == ["create c1", "remove c1"]


def test_a_namespace_that_cannot_be_removed_is_in_the_errors(place: Place) -> None:
    place.network("a")
    namespaces = Namespaces(Fake("remove"))
    manager = place.manager(namespaces=namespaces)
    manager.set_up(Container("c1"))
    with pytest.raises(CNIErrorGroup) as caught:
        manager.tear_down("c1")
    assert len(caught.value.report.detached) == 1
    place.plugin("a", fails("ADD"))
    with pytest.raises(PluginError) as failed:
        manager.set_up(Container("c2"))
    assert [type(error) for error in failed.value.rollback_errors] == [NamespaceError]


def test_a_namespace_stays_while_something_is_attached(place: Place) -> None:
    place.network("a")
    tool = Fake()
    manager = place.manager(namespaces=Namespaces(tool))
    manager.set_up(Container("c1"))
    place.plugin("a", fails("DEL"))
    with pytest.raises(CNIErrorGroup):
        manager.tear_down("c1")
    assert "remove c1" not in tool.done


def test_a_namespace_stays_where_the_roll_back_left_something_attached(place: Place) -> None:
    place.network("a")
    place.network("b")
    place.plugin("a", fails("DEL"))
    place.plugin("b", fails("ADD"))
    tool = Fake()
    manager = place.manager(namespaces=Namespaces(tool))
    with pytest.raises(PluginError):
        manager.set_up(Container("c1", networks=["a", "b"]))
    assert "remove c1" not in tool.done
    place.plugin("a")
    assert manager.tear_down("c1").netns_removed == "/run/netns/c1"


def test_a_namespace_that_was_given_is_left_alone(place: Place) -> None:
    place.network("a")
    tool = Fake()
    manager = place.manager(namespaces=Namespaces(tool))
    manager.set_up(Container("c1", "/ns"))
    manager.tear_down("c1")
    assert tool.done == []


def test_names_follow_the_rule_for_container_ids() -> None:
    with pytest.raises(InvalidIdentifierError):
        Namespaces(Fake()).create("../x")


def test_a_missing_program_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(NamespaceError, match="install iproute2"):
        Namespaces().create("c1")


def test_missing_pyroute2_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
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
