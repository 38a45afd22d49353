"""Container IDs: short in tables, and found by their beginning."""

from __future__ import annotations

from cli.node import FIRST, SECOND, CommandNode, containers


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
    assert node.run("del", "-c", "3f4").code == 0
    assert containers(node) == []


def test_a_script_that_detaches_twice_detaches_no_neighbour(node: CommandNode) -> None:
    node.add("web")
    node.add("web-2")
    assert node.run("del", "-c", "web").code == 0
    again = node.run("del", "-c", "web")
    assert (again.code, again.out) == (0, "")
    assert "there is no record of container web" in again.err
    assert containers(node) == ["web-2"]
    assert node.run_in_terminal("del", "-c", "web").code == 0
    assert containers(node) == [], "a person on a terminal may abbreviate"
