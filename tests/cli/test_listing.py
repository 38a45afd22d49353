"""The attachments that the arguments of a command select."""

from __future__ import annotations

import pytest

from cli.node import CommandNode


def test_a_misspelt_name_is_not_an_empty_answer(node: CommandNode) -> None:
    node.add("a")
    assert (node.run("diff", "dbnet").code, node.run("diff", "dbent").code) == (0, 4)
    (node.conf_dir / "10-dbnet.conflist").unlink()
    assert node.run("diff", "dbnet").code == 1
    assert "there is no directory /nowhere" in node.run("attachments", "--cache-dir", "/nowhere").out


@pytest.mark.parametrize("words", [["check", "-c", "a"], ["del", "-c", "a"], ["show", "a"], ["forget", "a"]])
def test_a_corrupt_record_is_not_a_missing_one(node: CommandNode, words: list[str]) -> None:
    node.add("a")
    (record,) = (node.cache / "results").iterdir()
    record.write_bytes(record.read_bytes()[:100])
    ran = node.run(*words)
    assert ran.code == 1
    assert "it may be the record of container a" in ran.err
