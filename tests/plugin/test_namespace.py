"""Code that runs in the container's network namespace."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from libcni.kernel.netlink import open_netlink
from libcni.plugin import Request, VerbError
from libcni.plugin.namespace import in_namespace
from libcni.testing import NetworkNamespace, call_plugin
from plugin.plugins import Recorder, config


@pytest.mark.real
def test_a_block_and_its_programs_run_in_the_containers_namespace(cni_netns: NetworkNamespace) -> None:
    seen: list[int] = []
    before = os.stat("/proc/thread-self/ns/net").st_ino

    def add(request: Request) -> None:
        with request.in_namespace():
            seen.append(os.stat("/proc/thread-self/ns/net").st_ino)
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        with pytest.raises(RuntimeError), request.in_namespace():
            raise RuntimeError

    assert call_plugin(Recorder(add=add).plugin, "ADD", config(), netns=cni_netns.path).status == 0
    assert seen == [os.stat(cni_netns.path).st_ino]
    assert os.stat("/proc/thread-self/ns/net").st_ino == before
    assert cni_netns.interfaces()["lo"]


@pytest.mark.parametrize("missing", [True, False])
def test_a_namespace_that_cannot_be_entered_is_an_error(tmp_path: Path, missing: bool) -> None:
    path = tmp_path / "netns"
    if not missing:
        path.touch()

    def add(request: Request) -> None:
        with request.in_namespace():
            raise AssertionError("not reached")

    answer = call_plugin(Recorder(add=add).plugin, "ADD", config(), netns=str(path))
    assert answer.code == 8
    assert str(path) in answer.document["msg"]


def test_a_fifo_at_the_path_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(path := str(tmp_path / "fifo"))
    with pytest.raises(VerbError, match="cannot enter"), in_namespace(path):
        pass
    with pytest.raises(OSError, match=path):
        open_netlink(path)


def test_a_thread_that_cannot_come_back_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from libcni.plugin import namespace

    calls: list[int] = []

    def setns(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise PermissionError(1, "no")

    monkeypatch.setattr(namespace, "enter_namespace", setns)
    with pytest.raises(VerbError, match="cannot return"), namespace.in_namespace("/proc/self/ns/net"):
        pass
