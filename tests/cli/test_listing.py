"""The attachments that the arguments of a command select."""

from __future__ import annotations

import os
import subprocess

import pytest

from cli.node import CommandNode, Ran, containers


def test_a_misspelt_name_is_not_an_empty_answer(node: CommandNode) -> None:
    node.add("a")
    assert (node.run("diff", "dbnet").code, node.run("diff", "dbent").code) == (0, 4)
    (node.conf_dir / "10-dbnet.conflist").unlink()
    assert node.run("diff", "dbnet").code == 1
    assert "no attachment matches; there are 1" in node.run("attachments", "-n", "dbent").out
    assert "there is no directory /nowhere" in node.run("attachments", "--cache-dir", "/nowhere").out


@pytest.mark.parametrize("words", [["check", "-c", "a"], ["del", "-c", "a"], ["show", "a"], ["forget", "a"]])
def test_a_corrupt_record_is_not_a_missing_one(node: CommandNode, words: list[str]) -> None:
    node.add("a")
    (record,) = (node.cache / "results").iterdir()
    record.write_bytes(record.read_bytes()[:100])
    ran = node.run(*words)
    assert ran.code == 1
    assert "it may be the record of container a" in ran.err


@pytest.mark.parametrize("words", [["forget", ""], ["forget", ":eth0"], ["show", ""]])
def test_an_empty_id_names_no_container(node: CommandNode, words: list[str]) -> None:
    node.add("a")
    for ran in (node.run(*words), node.run_in_terminal(*words)):
        assert ran.code == 2
    assert containers(node) == ["a"]


@pytest.fixture
def denied_node(node: CommandNode) -> CommandNode:
    """Return a node with a good record that the user of ``run_without_rights`` may not read."""
    node.add("a")
    (record,) = node.results.iterdir()
    record.chmod(0)
    return node


def run_without_rights(node: CommandNode, *words: str) -> Ran:
    # root may read every file, except without these capabilities.
    drop = [] if os.geteuid() else ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    ran = subprocess.run([*drop, *node.command, *words], env=node.env, capture_output=True, text=True, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check", "-c", "a"], 1),
        (["del", "-c", "a"], 1),
        (["show", "a"], 1),
        (["forget", "a"], 1),
        (["take-over", "-c", "a", "--owner", "x"], 1),
        (["take-over", "--from", "", "--owner", "x"], 0),
        (["attachments"], 0),
        (["diff"], 0),
    ],
)
def test_who_may_not_read_a_record_is_told_to_be_root_and_nothing_else(
    denied_node: CommandNode, words: list[str], code: int
) -> None:
    ran = run_without_rights(denied_node, *words)
    assert ran.code == code
    assert "run it as root" in ran.err
    assert "repair" not in ran.err + ran.out


def test_the_doctor_detaches_nothing_because_it_may_not_read_a_record(denied_node: CommandNode) -> None:
    ran = run_without_rights(denied_node, "doctor", "-o", "json")
    assert not any("libcni" in one for finding in ran.data["findings"] for one in finding["commands"])
    (record,) = denied_node.results.iterdir()
    assert [one["reason"] for one in ran.data["not_checked"] if one["subject"] == str(record)] == [
        "cannot be read: Permission denied; run it as root"
    ]
