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


def test_the_printed_command_removes_what_was_shown_and_no_more(node: CommandNode) -> None:
    node.add("a")
    node.run("add", "dbnet", node.netns("a"), "-c", "a", "-i", "eth1")
    shown = node.run("forget", "a:eth0").out
    command = shown.rpartition("to do it: libcni ")[2].split()
    assert node.run(*command).code == 0
    assert [one.ifname for one in node.cni.get_cached_attachments("a")] == ["eth1"]
