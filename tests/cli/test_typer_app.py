"""Help in a terminal."""

from __future__ import annotations

from cli.node import CommandNode


def test_the_lines_of_a_help_text_are_folded_once(node: CommandNode) -> None:
    shown = node.run_in_terminal("check", "--help", width=100).out
    assert "ID alone: all attachments of the container" in shown
