"""``--verbose``: each plugin call as it happens."""

from __future__ import annotations

from cli.node import CommandNode


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
