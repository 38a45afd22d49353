"""Plugins that outlive their runtime: the next verb waits for them, and not for ever."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from libcni import CNIError, RuntimeConf
from libcni.verbs import add
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
        worker.write_text(str(fork(lambda: time.sleep(3))))
        os.kill(os.getpid(), signal.SIGKILL)

    assert wait(fork(runtime)) == -signal.SIGKILL
    try:
        shell.plugin("slow")
        shell.client().del_network_list(shell.network("slow"), RT, timeout=5)
    finally:
        os.kill(int(worker.read_text()), signal.SIGKILL)


# Processes that outlive the plugin that failed: what they do comes after the roll-back, unless it waits for them.

LEAVES_ITS_GROUP = """
import os, sys, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    time.sleep(3)
time.sleep(0.1)
os.setpgid(0, child)
time.sleep(0.6)
open({held!r}, "w")
"""

HELPERS = {
    "timeout(1), as the plugin is stopped": "timeout 20 sh -c 'sleep 0.6; touch {held}'",
    "bash -m, as the plugin is stopped": "bash -mc '(sleep 0.6; touch {held}) & wait'",
    "a session of its own": "setsid sh -c 'sleep 0.6; touch {held}' & sleep 0.1; exit 1",
    "a helper after exit 1": "(sleep 0.6; touch {held}) & exit 1",
    "bash -m after exit 1": "bash -mc '(sleep 0.6; touch {held}) &'; exit 1",
    "a plugin that leaves its group": "exec {python} {script}",
}


@pytest.mark.parametrize("how", HELPERS)
@pytest.mark.parametrize("plugins", [("bad",), ("good", "bad")], ids=["alone", "second"])
def test_no_effect_comes_after_the_roll_back_unrecorded(shell: Shell, how: str, plugins: tuple[str, ...]) -> None:
    held, script = shell.root / "held", shell.root / "script.py"
    body = HELPERS[how].format(held=held, python=sys.executable, script=script)
    shell.plugin("good")
    shell.plugin("bad", f"case $CNI_COMMAND in ADD) {body};; DEL) rm -f {held};; esac")
    script.write_text(LEAVES_ITS_GROUP.format(held=str(held)))
    with pytest.raises(CNIError) as caught:
        shell.client(plugin_timeout=0.3).add_network_list(shell.network(*plugins), RT)
    states = shell.states()
    assert (states == ["pending"]) == bool(caught.value.rollback_errors)
    time.sleep(1)
    if states == []:
        assert not held.exists()
    shell.client().del_network_list(shell.network(*plugins), RT)
    assert (held.exists(), shell.states()) == (False, [])


def test_a_helper_that_does_not_end_keeps_the_record(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_PLUGIN_END_SECONDS", 0.2)
    held = shell.root / "held"
    helper = f"setsid sh -c 'sleep 1.5; touch {held}' & sleep 0.1; exit 1"
    shell.plugin("bad", f"case $CNI_COMMAND in ADD) {helper};; DEL) rm -f {held};; esac")
    with pytest.raises(CNIError, match="still running, so the record stays pending") as caught:
        shell.client().add_network_list(shell.network("bad"), RT)
    assert len(caught.value.rollback_errors) == 1
    assert shell.states() == ["pending"]
    shell.client().del_network_list(shell.network("bad"), RT)  # it waits for the helper
    assert (held.exists(), shell.states()) == (False, [])
    time.sleep(1)
    assert not held.exists()


def test_a_daemon_that_del_stops_is_no_helper_that_works_on(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(add, "_PLUGIN_END_SECONDS", 0.5)
    daemon = shell.root / "daemon"
    start = f"setsid sleep 30 >/dev/null 2>&1 & echo $! > {daemon}"
    shell.plugin("daemon", f"case $CNI_COMMAND in ADD) {start};; DEL) kill $(cat {daemon}) || true;; esac")
    shell.plugin("bad", "[ $CNI_COMMAND = ADD ] && exit 1")
    with pytest.raises(CNIError) as caught:
        shell.client().add_network_list(shell.network("daemon", "bad"), RT)
    assert caught.value.rollback_errors == ()
    assert shell.states() == []


def killed_in_add(shell: Shell) -> Path:
    """Kill a runtime whose ADD of eth0 is under way; its plugin works on for a while, and writes a file at its end."""
    ended = shell.root / "ended"
    shell.plugin("slow", f"[ $CNI_COMMAND = ADD ] && {{ touch {shell.root}/begun; sleep 0.6; touch {ended}; }}")
    runtime = fork(lambda: shell.client().add_network_list(shell.network("slow"), RT))
    wait_for(shell.root / "begun")
    assert kill_after(runtime, 0)
    assert "pending" in shell.states()
    return ended


@pytest.mark.parametrize("verb", ["add", "check", "del"])
def test_verbs_of_another_interface_wait_for_the_orphan_too(shell: Shell, verb: str) -> None:
    quick, second = shell.network("quick", name="other"), RuntimeConf("c1", None, "eth1")
    shell.plugin("quick")
    if verb != "add":
        shell.client().add_network_list(quick, second)
    ended = killed_in_add(shell)
    shell.plugin("quick", f"[ -e {ended} ] || {{ echo beside the orphan >&2; exit 1; }}")
    getattr(shell.client(), f"{verb}_network_list")(quick, second)


@pytest.mark.parametrize("is_valid", [True, False], ids=["valid", "stale"])
def test_the_plugins_gc_does_not_run_beside_an_orphan(shell: Shell, *, is_valid: bool) -> None:
    ended = killed_in_add(shell)
    shell.plugin("quick", f"[ -e {ended} ] || {{ echo beside the orphan >&2; exit 1; }}")
    net = shell.network("quick", version="1.1.0")
    report = shell.client().gc_network_list(net, [("c1", "eth0")] if is_valid else [])
    assert report.plugins == ("quick",)
    assert shell.states() == (["pending"] if is_valid else [])
