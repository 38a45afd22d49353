"""What a slow verb shows in a terminal."""

from __future__ import annotations

import signal
import subprocess

from cli.node import HANGING, CommandNode
from libcni.testing import wait_until


def test_a_slow_verb_says_which_plugin_runs_and_that_it_rolls_back(node: CommandNode) -> None:
    refusal = {"ADD": {"sleep": 1.6, "error": {"code": 7, "msg": "no"}}, "DEL": {"sleep": 1.6}}
    slow = {"cniVersion": "1.1.0", "name": "slow", "plugins": [{"type": "fake", "fake": refusal}]}
    node.write("slow.conflist", slow)
    shown = node.run_in_terminal("add", "slow", node.netns("a"), "-c", "a", NO_COLOR="1").out
    assert "ADD: plugin fake" in shown
    assert "rolling back, DEL: plugin fake" in shown
    lines = shown.replace("\r", "\n").splitlines()
    assert any(line.startswith("error: ADD of plugin") for line in lines), "the line is erased before the error"
    assert "ADD: plugin fake" not in node.run("add", "slow", node.netns("b"), "-c", "b").err


def test_a_verb_that_waits_says_for_whom(node: CommandNode) -> None:
    node.write("hanging.conflist", HANGING)
    first = subprocess.Popen([*node.command, "add", "hanging", "/ns/a", "-c", "a"], env=node.env)
    try:
        wait_until(lambda: bool(node.cni.get_cached_attachments()))
        shown = node.run_in_terminal("del", "hanging", "/ns/a", "-c", "a", "--timeout", "4").out
        assert "DEL: waiting for a lock of " in shown
        assert f"({first.pid})" in shown
    finally:
        first.send_signal(signal.SIGTERM)
        first.wait(30)
