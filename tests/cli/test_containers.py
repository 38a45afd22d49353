"""Container IDs: short in tables, and found by their beginning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cli.node import FIRST, SECOND, CommandNode, Ran, containers


def test_tables_show_as_much_of_an_id_as_tells_it_apart(node: CommandNode) -> None:
    for container in (FIRST, SECOND, "web"):
        node.add(container)
    lines = node.run("attachments").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["3f4c1b2a9d8e1", "3f4c1b2a9d8e7", "web"]
    node.run("del", "-c", SECOND)
    assert node.run("attachments").out.splitlines()[1].split()[0] == FIRST[:12]
    assert FIRST in node.run("attachments", "--no-trunc").out
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
