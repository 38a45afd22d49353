"""What reaches stderr while a verb runs: the plugins' stderr, each call with --verbose, a slow verb's line."""

from __future__ import annotations

import signal
import subprocess

import pytest

from cli.node import DBNET, HANGING, CommandNode
from libcni.testing import wait_until


def test_what_a_plugin_says_on_stderr_arrives(node: CommandNode) -> None:
    node.write("loud.conflist", {**DBNET, "name": "loud", "plugins": [{"type": "fake", "fake": {"stderr": "hello\n"}}]})
    assert "hello\n" in node.run("add", "loud", "/ns/a").err


def test_verbose_tells_each_call_as_it_happens(node: CommandNode) -> None:
    ran = node.run("add", "dbnet", node.netns("a"), "-c", "a", "--verbose")
    calls = [line for line in ran.err.splitlines() if line[:2] in {"> ", "< "}]
    assert [line.split()[:3] for line in calls] == [
        [">", "fake-bridge", "ADD"],
        ["<", "fake-bridge", "ADD"],
        [">", "fake-tuning", "ADD"],
        ["<", "fake-tuning", "ADD"],
    ]
    assert calls[1].endswith(" s")


@pytest.mark.slow
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


@pytest.mark.slow
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
