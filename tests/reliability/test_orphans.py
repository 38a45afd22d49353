"""Plugins that outlive their runtime: the next verb waits for them, and not for ever."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from libcni import CNIError, RuntimeConf
from libcni.verbs import node as drive
from reliability.forked import fork, kill_after, wait
from reliability.shell import RT, Shell
from reliability.support import Place

CONTAINER = RuntimeConf("c1", None, "eth0")


def wait_for(path: Path) -> None:
    end = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.002)


@pytest.mark.parametrize("verb", ["del", "gc", "add"])
def test_field_08_the_next_verb_waits_for_a_plugin_that_outlived_its_runtime(shell: Shell, verb: str) -> None:
    held = shell.root / "held"
    shell.plugin(
        "slow",
        f"case $CNI_COMMAND in ADD) touch {shell.root}/begun; sleep 0.5; touch {held};; DEL) rm -f {held};; esac",
    )
    net, cni = shell.network("slow"), shell.client()
    runtime = fork(lambda: shell.client().add_network_list(net, RT))
    wait_for(shell.root / "begun")
    assert kill_after(runtime, 0)
    assert shell.states() == ["pending"]
    if verb == "del":
        cni.del_network_list(net, RT)
    elif verb == "gc":
        cni.gc_network_list(net, [])
    else:
        shell.plugin("quick")
        cni.add_network_list(shell.network("quick", name="other"), RT)
    assert not held.exists()
    time.sleep(0.6)
    assert not held.exists(), "the orphan allocated after it was detached"


def test_the_next_verb_waits_for_a_del_that_outlived_its_runtime(shell: Shell) -> None:
    """Otherwise the orphan, which began before, would free what the next ADD has allocated."""
    held = shell.root / "held"
    body = f"case $CNI_COMMAND in ADD) touch {held};; DEL) touch {shell.root}/begun; sleep 0.5; rm -f {held};; esac"
    shell.plugin("slow", body)
    net, cni = shell.network("slow"), shell.client()
    cni.add_network_list(net, RT)
    runtime = fork(lambda: shell.client().del_network_list(net, RT))
    wait_for(shell.root / "begun")
    assert kill_after(runtime, 0)
    shell.plugin("slow", f"case $CNI_COMMAND in ADD) touch {held};; DEL) rm -f {held};; esac")
    cni.del_network_list(net, RT)
    cni.add_network_list(net, RT)
    time.sleep(0.6)
    assert held.exists(), "the orphan undid a later ADD"


def test_the_wait_for_an_orphan_is_bounded(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that a plugin started on purpose keeps the same descriptor, for ever."""
    monkeypatch.setattr(drive, "_ORPHAN_SECONDS", 0.3)
    begin = f"setsid sh -c 'echo $$ > {shell.root}/daemon; exec sleep 30' & "  # the group of a failed plugin is killed
    begin += f"while [ ! -s {shell.root}/daemon ]; do sleep 0.01; done"
    shell.plugin("daemon", f"[ $CNI_COMMAND = ADD ] && {{ {begin}; exit 1; }}")
    net, cni = shell.network("daemon"), shell.client()
    with pytest.raises(CNIError):
        cni.add_network_list(net, RT, rollback=False)
    assert shell.states() == ["pending"]
    started = time.monotonic()
    cni.del_network_list(net, RT)
    assert 0.3 <= time.monotonic() - started < 1.0
    assert shell.states() == []
    os.kill(int((shell.root / "daemon").read_text()), signal.SIGKILL)


def test_a_daemon_of_a_ready_attachment_delays_nothing(shell: Shell) -> None:
    shell.plugin("daemon", f"[ $CNI_COMMAND = ADD ] && {{ sleep 30 >/dev/null 2>&1 & echo $! > {shell.root}/daemon; }}")
    net, cni = shell.network("daemon"), shell.client()
    started = time.monotonic()
    cni.add_network_list(net, RT)
    cni.check_network_list(net, RT)
    cni.del_network_list(net, RT)
    assert time.monotonic() - started < 1.0
    os.kill(int((shell.root / "daemon").read_text()), signal.SIGKILL)


def test_a_runtime_that_is_killed_releases_its_locks(place: Place) -> None:
    net = place.network(slow=200)
    runtime = fork(lambda: place.client().add_network_list(net, CONTAINER))
    assert kill_after(runtime, 0.1)
    place.calm()
    place.client(timeout=5).del_network_list(net, CONTAINER)
    place.wait_for_plugins()
    assert place.owners() == []


def test_a_forked_child_does_not_keep_the_locks_of_its_parent(shell: Shell) -> None:
    """The host program forks a worker while a verb runs in another thread; the worker lives on, the parent dies."""
    shell.plugin("quick")
    shell.plugin("slow", f"touch {shell.root}/begun; sleep 0.3")
    worker = shell.root / "worker"

    def runtime() -> None:
        import threading

        verb = threading.Thread(target=lambda: shell.client().add_network_list(shell.network("slow"), RT))
        verb.start()
        wait_for(shell.root / "begun")
        worker.write_text(str(fork(lambda: time.sleep(20))))
        os.kill(os.getpid(), signal.SIGKILL)

    assert wait(fork(runtime)) == -signal.SIGKILL
    try:
        shell.plugin("slow")
        shell.client().del_network_list(shell.network("slow"), RT, timeout=5)
    finally:
        os.kill(int(worker.read_text()), signal.SIGKILL)
