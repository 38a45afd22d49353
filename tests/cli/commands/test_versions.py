"""``libcni versions``."""

from __future__ import annotations

from cli.node import CommandNode


def test_versions_says_why_a_plugin_does_not_answer(node: CommandNode) -> None:
    node.plugin("mute", 'echo "out of order" >&2; exit 3')
    assert "exit status 3" in node.run("versions", "mute").out


def test_versions_of_a_network_name_the_right_command(node: CommandNode) -> None:
    ran = node.run("versions", "dbnet")
    assert ran.code == 4
    assert "libcni validate dbnet" in ran.out
