"""What plugins print on stderr reaches stderr."""

from __future__ import annotations

from cli.node import DBNET, CommandNode


def test_what_a_plugin_says_on_stderr_arrives(node: CommandNode) -> None:
    node.write("loud.conflist", {**DBNET, "name": "loud", "plugins": [{"type": "fake", "fake": {"stderr": "hello\n"}}]})
    assert "hello\n" in node.run("add", "loud", "/ns/a").err
