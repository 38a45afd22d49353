"""Signals end a verb and its plugin."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from processes import children, is_running

from cli.node import HANGING, CommandNode
from libcni.testing import wait_until


def test_a_signal_that_is_ignored_stays_ignored(node: CommandNode) -> None:
    node.write("hanging.conflist", HANGING)
    nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh"]
    env = {**node.env, **node.server.coverage}
    process = subprocess.Popen([*nohup, *node.command, "add", "hanging", "/ns/a"], env=env, stderr=subprocess.DEVNULL)
    wait_until(lambda: bool(children(process.pid)) and bool(node.cni.get_cached_attachments()))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 128 + signal.SIGTERM, "SIGHUP has not ended it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_verb_and_its_plugin(node: CommandNode, number: signal.Signals) -> None:
    node.write("hanging.conflist", HANGING)
    other = node.root / "other.d"
    other.symlink_to(node.cni.conf_dir)
    command = [*node.command, "add", "hanging", "/ns/a", "-c", "a", "--conf-dir", str(other)]
    env = {**node.env, **node.server.coverage}  # a command in the fork server cannot be sent a signal
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: bool(node.cni.get_cached_attachments()) and bool(children(process.pid)))
    plugins = children(process.pid)
    time.sleep(0.3)  # the plugin has read its configuration by then; it may be killed earlier, too
    process.send_signal(number)
    _, printed = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert f"{number.name}: an attachment may be unfinished" in printed
    assert f"see: libcni doctor --conf-dir {other}\n" in printed, (
        "the command examines the same directories as the verb"
    )
    assert "Traceback" not in printed
    wait_until(lambda: not any(is_running(pid) for pid in plugins))
    assert [one.state for one in node.cni.get_cached_attachments()] == ["pending"]
