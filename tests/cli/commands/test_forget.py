"""libcni forget."""

from __future__ import annotations

from cli.node import CommandNode, containers


def test_forget_shows_what_would_be_lost_and_wants_yes(node: CommandNode) -> None:
    node.add("a")
    shown = node.run("forget", "a")
    assert (shown.code, shown.err, containers(node)) == (0, "", ["a"])
    assert "ready  fake-bridge, fake-tuning, 10.9.7.2/24" in shown.out
    assert shown.out.endswith("\nnothing was changed; to do it: libcni forget a --yes\n")
    done = node.run("forget", "a", "--yes")
    assert "fake-bridge, fake-tuning" in done.out
    assert (done.err, containers(node)) == ("", [])
