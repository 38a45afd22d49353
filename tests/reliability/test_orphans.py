"""Plugins that outlive their runtime: the next verb waits for them, and not for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from helpers import RT
from nodes import FakeNode
from processes import fork, kill_after

from libcni import CNIError, RuntimeConf
from libcni.executor import CallOptions, ProcessExecutor
from libcni.protocol.invocation import Invocation, Outcome
from libcni.testing import wait_until
from libcni.verbs import locking


@pytest.fixture(params=["never", pytest.param("always", marks=pytest.mark.slow)])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> FakeNode:
    """Return a node whose plugins start in their turn, and one whose plugins start ahead."""
    return FakeNode(tmp_path, start_ahead=request.param)


def test_field_08_the_next_verb_waits_for_a_plugin_that_outlived_its_runtime(node: FakeNode) -> None:
    """DEL here; the simulation has GC and ADD, too, at every moment of the orphan."""
    held = node.root / "held"
    node.plugin(
        "slow", f"case $CNI_COMMAND in ADD) touch {node.root}/begun; sleep 0.5; touch {held};; DEL) rm -f {held};; esac"
    )
    net, cni = node.network("slow"), node.client()
    runtime = fork(lambda: node.client().add_network_list(net, RT))
    wait_until((node.root / "begun").exists)
    assert kill_after(runtime, 0)
    assert node.states() == ["pending"]
    cni.del_network_list(net, RT)
    assert not held.exists()
    time.sleep(0.6)
    assert not held.exists(), "the orphan allocated after it was detached"


def test_the_wait_for_an_orphan_is_bounded(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A daemon that a plugin started on purpose keeps the same descriptor, for ever."""
    monkeypatch.setattr(locking, "_ORPHAN_SECONDS", 0.3)
    begin = f"setsid sh -c 'echo $$ > {node.root}/daemon; exec sleep 120' & "  # the group of a failed plugin is killed
    begin += f"while [ ! -s {node.root}/daemon ]; do sleep 0.01; done"
    node.plugin("daemon", f"[ $CNI_COMMAND = ADD ] && {{ {begin}; exit 1; }}")
    net, cni = node.network("daemon"), node.client()
    with pytest.raises(CNIError):
        cni.add_network_list(net, RT, rollback=False)
    assert node.states() == ["pending"]
    started = time.monotonic()
    cni.del_network_list(net, RT)
    assert time.monotonic() - started >= 0.3
    assert "this verb no longer waits for it" in caplog.text
    assert node.states() == []
    os.kill(int((node.root / "daemon").read_text()), signal.SIGKILL)


def test_a_daemon_of_a_ready_attachment_delays_nothing(node: FakeNode, caplog: pytest.LogCaptureFixture) -> None:
    node.plugin("daemon", f"[ $CNI_COMMAND = ADD ] && {{ sleep 120 >/dev/null 2>&1 & echo $! > {node.root}/daemon; }}")
    net, cni = node.network("daemon"), node.client()
    for verb in (cni.add_network_list, cni.check_network_list, cni.del_network_list):
        verb(net, RT, timeout=20)
    assert "is still running" not in caplog.text, "the wait would end after half of the time"
    os.kill(int((node.root / "daemon").read_text()), signal.SIGKILL)


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
def test_no_effect_comes_after_the_roll_back_unrecorded(node: FakeNode, how: str) -> None:
    held, script = node.root / "held", node.root / "script.py"
    body = HELPERS[how].format(held=held, python=sys.executable, script=script)
    node.plugin("good")
    node.plugin("bad", f"case $CNI_COMMAND in ADD) {body};; DEL) rm -f {held};; esac")
    script.write_text(LEAVES_ITS_GROUP.format(held=str(held)))
    with pytest.raises(CNIError) as caught:
        node.client(plugin_timeout=0.3).add_network_list(node.network("good", "bad"), RT)
    states = node.states()
    assert (states == ["pending"]) == bool(caught.value.rollback_errors)
    time.sleep(1)
    if states == []:
        assert not held.exists()
    node.client().del_network_list(node.network("good", "bad"), RT)
    assert (held.exists(), node.states()) == (False, [])


def test_a_helper_that_does_not_end_keeps_the_record(node: FakeNode) -> None:
    held = node.root / "held"
    helper = f"setsid sh -c 'sleep 1.5; touch {held}' & sleep 0.1; exit 1"
    node.plugin("bad", f"case $CNI_COMMAND in ADD) {helper};; DEL) rm -f {held};; esac")
    with pytest.raises(CNIError, match="still running, so the record stays pending") as caught:
        node.client().add_network_list(node.network("bad"), RT)
    assert len(caught.value.rollback_errors) == 1
    assert node.states() == ["pending"]
    node.client().del_network_list(node.network("bad"), RT)  # it waits for the helper
    assert (held.exists(), node.states()) == (False, [])
    time.sleep(1)
    assert not held.exists()


@pytest.mark.parametrize("held", ["before DEL", "after DEL"])
def test_a_descriptor_that_another_start_copied_is_no_process_of_the_plugin(node: FakeNode, held: str) -> None:
    """Between its fork and its new program, a process that this program starts has all descriptors of this program."""
    node.plugin("bad", "[ $CNI_COMMAND = ADD ] && exit 1")
    copies: list[int] = []

    class Copying(ProcessExecutor):
        def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
            if (invocation.verb == "ADD") == (held == "before DEL"):
                assert options.inherit is not None
                copies.append(os.dup(options.inherit()))
                threading.Timer(0.2, os.close, copies).start()
            return super().execute(invocation, options)

    with pytest.raises(CNIError) as caught:
        node.client(executor=Copying(), start_ahead="never").add_network_list(node.network("bad"), RT)
    assert (len(copies), caught.value.rollback_errors, node.states()) == (1, (), [])


def test_a_daemon_that_del_stops_is_no_helper_that_works_on(node: FakeNode) -> None:
    daemon = node.root / "daemon"
    start = f"setsid sleep 120 >/dev/null 2>&1 & echo $! > {daemon}"
    stop = f"kill $(cat {daemon}); while kill -0 $(cat {daemon}) 2>/dev/null; do sleep 0.01; done"
    node.plugin("daemon", f"case $CNI_COMMAND in ADD) {start};; DEL) {stop};; esac")
    node.plugin("bad", "[ $CNI_COMMAND = ADD ] && exit 1")
    with pytest.raises(CNIError) as caught:
        node.client().add_network_list(node.network("daemon", "bad"), RT)
    assert caught.value.rollback_errors == ()
    assert node.states() == []


def killed_in_add(node: FakeNode) -> Path:
    """Kill a runtime whose ADD of eth0 is under way; its plugin works on for a while, and writes a file at its end."""
    ended = node.root / "ended"
    node.plugin("slow", f"[ $CNI_COMMAND = ADD ] && {{ touch {node.root}/begun; sleep 0.6; touch {ended}; }}")
    runtime = fork(lambda: node.client().add_network_list(node.network("slow"), RT))
    wait_until((node.root / "begun").exists)
    assert kill_after(runtime, 0)
    assert "pending" in node.states()
    return ended


@pytest.mark.parametrize("verb", ["check", "del"])
def test_verbs_of_another_interface_wait_for_the_orphan_too(node: FakeNode, verb: str) -> None:
    quick, second = node.network("quick", name="other"), RuntimeConf("c1", None, "eth1")
    node.plugin("quick")
    node.client().add_network_list(quick, second)
    ended = killed_in_add(node)
    node.plugin("quick", f"[ -e {ended} ] || {{ echo beside the orphan >&2; exit 1; }}")
    getattr(node.client(), f"{verb}_network_list")(quick, second)


def test_the_plugins_gc_does_not_run_beside_an_orphan(node: FakeNode) -> None:
    ended = killed_in_add(node)
    node.plugin("quick", f"[ -e {ended} ] || {{ echo beside the orphan >&2; exit 1; }}")
    net = node.network("quick", cniVersion="1.1.0")
    assert node.client().gc_network_list(net, [("c1", "eth0")]).plugins == ("quick",)
    assert node.states() == ["pending"]
