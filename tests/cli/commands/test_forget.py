"""libcni forget."""

from __future__ import annotations

from cli.node import CommandNode


def test_forget_says_once_what_may_be_left(node: CommandNode) -> None:
    node.add("a")
    ran = node.run("forget", "a")
    assert "fake-bridge, fake-tuning" in ran.out
    assert ran.err == ""
