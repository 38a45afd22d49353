"""libcni reload."""

from __future__ import annotations

import json

from cli.node import CommandNode


def test_reload_says_before_what_it_interrupts(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    ran = node.run("reload", "--all", "--dry-run")
    assert ran.err.splitlines() == ["would interrupt a eth0 on dbnet", "would interrupt b eth0 on dbnet"]
    ran = node.run("reload", "b:eth0")
    assert ran.err.startswith("interrupting b eth0 on dbnet\n")
    done = json.loads(node.run("reload", "--all", "-o", "json").out)
    assert [(one["container_id"], one["done"], one["before"] == one["after"]) for one in done] == [
        ("a", "reloaded", True),
        ("b", "reloaded", True),
    ]


def test_one_failure_does_not_stop_the_others(node: CommandNode) -> None:
    node.add("a")
    node.add("b")
    assert node.run("reload").code == 2
    node.change_record("a", "dbnet", state="pending")
    ran = node.run("reload", "a", "b")
    assert ran.code == 4
    assert "is pending" in ran.err
    assert node.states() == ["pending", "ready"]
