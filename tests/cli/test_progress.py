"""What a slow verb shows in a terminal."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import Any

import pytest

from cli.node import HANGING, CommandNode
from cli.test_render import Terminal
from libcni import CNIConfig
from libcni.cli import main
from libcni.testing import wait_until


def test_a_slow_verb_says_which_plugin_runs_and_that_it_rolls_back(node: CommandNode) -> None:
    refusal = {"ADD": {"sleep": 1.6, "error": {"code": 7, "msg": "no"}}, "DEL": {"sleep": 1.6}}
    slow = {"cniVersion": "1.1.0", "name": "slow", "plugins": [{"type": "fake", "fake": refusal}]}
    node.write("slow.conflist", slow)
    shown = node.run_in_terminal("add", "slow", node.netns("a"), "-c", "a").out
    assert "ADD: plugin fake runs" in shown
    assert "rolling back, DEL: plugin fake runs" in shown
    lines = shown.replace("\r", "\n").splitlines()
    assert not any(line.strip().startswith("ADD:") for line in lines[-3:]), "the line is erased"
    assert "plugin fake runs" not in node.run("add", "slow", node.netns("b"), "-c", "b").err


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


@pytest.mark.parametrize("words", ["attachments", "diff", "repair", "gc dbnet --valid a", "doctor"])
def test_a_command_that_reads_many_records_says_so(
    node: CommandNode, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.add("a")
    for name, value in node.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("libcni.cli.progress._AFTER", 0.05)
    monkeypatch.setattr("libcni.cli.progress._EVERY", 0.05)
    records, terminal = CNIConfig.get_cached_attachments, Terminal()

    def read_slowly(*args: Any) -> Any:
        time.sleep(0.3)
        return records(*args)

    monkeypatch.setattr(CNIConfig, "get_cached_attachments", read_slowly)
    monkeypatch.setattr("sys.stderr", terminal)
    main(words.split())
    shown = terminal.getvalue()
    assert f"\r{words.split(maxsplit=1)[0]} of 1 record" in shown
    assert shown.endswith("\r"), "the line is erased"
    main([*words.split(), "--verbose"])
    assert "\r" not in terminal.getvalue().removeprefix(shown), "the calls are printed there"
