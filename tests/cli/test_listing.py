"""The attachments that the arguments of a command select: IDs are short in tables, and found by their beginning."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from cli.node import FIRST, SECOND, CommandNode, Ran, containers


def test_a_misspelt_name_is_not_an_empty_answer(node: CommandNode) -> None:
    node.add("a")
    assert (node.run("diff", "dbnet").code, node.run("diff", "dbent").code) == (0, 4)
    (node.conf_dir / "10-dbnet.conflist").unlink()
    assert node.run("diff", "dbnet").code == 1
    assert "no attachment matches; there are 1" in node.run("attachments", "-n", "dbent").out
    assert "there is no directory /nowhere" in node.run("attachments", "--cache-dir", "/nowhere").out


def test_states_select_attachments(shown_node: CommandNode) -> None:
    assert shown_node.run("attachments", "-s", "gone", "-q").out == "gone\n"
    assert shown_node.run("reload", "--all", "--dry-run").err == "would interrupt good eth0 on dbnet\n"


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


def test_tables_show_whole_ids_because_del_takes_no_others(node: CommandNode) -> None:
    for container in (FIRST, "web"):
        node.add(container)
    lines = node.run("attachments").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [FIRST, "web"]
    assert node.run("attachments", "-q").out.split() == [FIRST, "web"]
    assert node.run("networks", "-q").out == "dbnet\n"


def test_the_beginning_of_an_id_is_enough(node: CommandNode) -> None:
    for container in (FIRST, SECOND):
        node.add(container)
    assert node.run("show", "3f4c1b2a9d8e7", "-o", "json").data[0]["container_id"] == FIRST
    assert [one["container_id"] for one in node.run("attachments", "-c", "3f4c1b2a9d8e1", "-o", "json").data] == [
        SECOND
    ]
    ambiguous = node.run("show", "3f4c")
    assert ambiguous.code == 2
    assert FIRST in ambiguous.err
    assert SECOND in ambiguous.err
    assert node.run("gc", "dbnet", "--valid", "3f4c1b2a9d8e7").code == 0
    assert containers(node) == [FIRST]
    assert node.run("check", "-c", "3f4").code == 0


@pytest.mark.parametrize("run", [CommandNode.run, CommandNode.run_in_terminal])
def test_what_changes_records_takes_whole_ids(node: CommandNode, run: Callable[..., Ran]) -> None:
    """The up-arrow key repeats a command: after c1 has been detached, "c1" must not mean c12."""
    for container in ("c1", "c12"):
        node.add(container)
    assert run(node, "del", "-c", "c1").code == 0
    again = run(node, "del", "-c", "c1")
    assert again.code == 0, "a DEL may be repeated"
    assert "there is no record of container c1; this needs a whole ID, such as c12" in again.out + again.err
    for words in (["forget", "c1"], ["take-over", "-c", "c1", "--owner", "x"], ["reload", "c1"]):
        refused = run(node, *words)
        assert refused.code == 4
        assert "this needs a whole ID, such as c12" in refused.out + refused.err
    assert [(one.container_id, one.owner) for one in node.cni.get_cached_attachments()] == [("c12", "")]
