"""Tables, fields and data: in any width, without control characters."""

from __future__ import annotations

import io
import json
from typing import Literal

import pytest

from cli.node import DBNET, FIRST, SECOND, CommandNode
from libcni.cli.render import Block, Fields, Table, print_block, print_data


def test_names_of_files_and_texts_of_plugins_cannot_move_the_cursor(node: CommandNode) -> None:
    name = "\x1b[2J\rnet-c1-eth0"
    for folder in ("results", "tmp"):
        (node.cache / folder).mkdir(parents=True)
        (node.cache / folder / name).touch()
    node.write(f"{name}.conflist", "{")
    node.plugin("chatty", "printf '\\033[2Jhello\\n' >&2")
    node.configure("chatty")
    for words in ("doctor", "attachments", "repair", "networks --check", "add chatty /ns/a"):
        ran = node.run(*words.split())
        text = ran.out + ran.err
        assert "\\x1b[2J" in text
        assert text.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("width", [60, 80])
def test_tables_fit_narrow_terminals(node: CommandNode, width: int) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": DBNET["plugins"][:1]})
    for container in (FIRST, SECOND):
        node.add(container)
    for command in (["attachments"], ["networks"], ["check", "--all"], ["doctor"]):
        shown = node.run_in_terminal(*command, width=width, NO_COLOR="1").out
        if command != ["doctor"]:  # which also has long lines of its own, for copying
            assert all(len(line) <= width for line in shown.splitlines()), shown
    assert "3f4c1b2a9d8e7" in node.run_in_terminal("attachments", width=width).out


@pytest.mark.parametrize("width", [95, 101, 107])
def test_a_folded_table_loses_no_word(shown_node: CommandNode, width: int) -> None:
    shown = shown_node.run_in_terminal("repair", width=width, NO_COLOR="1").out
    namespace = shown_node.root / "ns" / "gone"
    assert "its namespace" in shown
    assert shown.split(str(namespace))[1].split()[:2] == ["has", "gone"]


def test_a_cell_that_is_folded_in_a_narrow_terminal_stays_in_its_column(node: CommandNode) -> None:
    node.add("c" * 40)
    node.change_record("c" * 40, "dbnet", bootId="another")
    shown = node.run_in_terminal("repair", width=48, NO_COLOR="1").out.split("\n\n", maxsplit=1)[0]
    assert [line[:10].strip() for line in shown.splitlines()] == ["detach", "what", "", "why"]


def test_no_color_means_no_escapes(node: CommandNode) -> None:
    node.add("a")
    for argv in (["attachments"], ["show", "a"], ["doctor"], ["show", "b"], ["--help"], ["nosuchcommand"]):
        assert "\x1b" not in node.run_in_terminal(*argv, NO_COLOR="1").out
    assert "\x1b" in node.run_in_terminal("doctor").out


HOSTILE = "a\x1b[2J\tb\nc"


class Terminal(io.StringIO):
    """Pretends to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
@pytest.mark.parametrize(
    "block",
    [
        HOSTILE,
        Fields(HOSTILE, [(HOSTILE, HOSTILE)]),
        Table(("x", "y"), [["1", HOSTILE]], title=HOSTILE),
    ],
)
def test_control_characters_are_shown_as_escapes_everywhere(
    kind: type[io.StringIO], block: Block, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe may lead to a pager, which passes them on."""
    monkeypatch.setenv("NO_COLOR", "1")
    file = kind()
    print_block(block, file)
    assert "a\\x1b[2J" in file.getvalue()
    assert file.getvalue().replace("\n", "").replace("\t", "").isprintable()


def test_each_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_block(Table(("x", "y"), [["a\nb", "c"]]))
    assert capsys.readouterr().out == "X     Y\na\\nb  c\n"


def test_plain_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    print_block(Fields("title", [("a", "1\n2"), ("long", "3")]))
    print_block(Table(("x", "y"), [["1", ""], ["22", "z"]]))
    print_block(Table(("x",), [], empty="nothing"))
    assert capsys.readouterr().out == "title\n  a     1\n        2\n  long  3\nX   Y\n1\n22  z\nnothing\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_what_no_encoding_carries_is_escaped_in_data(
    output: Literal["json", "yaml"], capsys: pytest.CaptureFixture[str]
) -> None:
    data = {"name": "a\x1b[31m\x9b\ud800b", "plain": "\u00e4"}
    print_data(data, output)
    printed = capsys.readouterr().out
    printed.encode()
    assert "\u00e4" in printed
    assert not {"\x1b", "\x9b", "\ud800"} & set(printed)
    assert output == "yaml" or json.loads(printed) == data
