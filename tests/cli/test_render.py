"""Tables, fields and data: in any width, without control characters."""

from __future__ import annotations

import io
import json

import pytest

from cli.node import DBNET, FIRST, SECOND, CommandNode
from libcni.cli.render import Block, Fields, Table, Verbatim, print_block, print_data, with_short_ids


def test_names_of_files_and_texts_of_plugins_cannot_move_the_cursor(node: CommandNode) -> None:
    name = "\x1b[2J\rnet-c1-eth0"
    for folder in ("results", "tmp"):
        (node.cache / folder).mkdir(parents=True)
        (node.cache / folder / name).touch()
    node.write(f"{name}.conflist", "{")
    node.plugin("chatty", "printf '\\033[2Jhello\\n' >&2")
    node.configure("chatty")
    for words in ("doctor", "attachments", "repair", "networks --validate", "add chatty /ns/a"):
        ran = node.run(*words.split())
        text = ran.out + ran.err
        assert "\\x1b[2J" in text
        assert text.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("words", ["attachments", "networks", "check --all"])
def test_tables_fit_a_narrow_terminal_and_columns(node: CommandNode, width: int, words: str) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "plugins": DBNET["plugins"][:1]})
    for container in (FIRST, SECOND):
        node.add(container)
    shown = node.run_in_terminal(*words.split(), width=width, NO_COLOR="1").out
    assert all(len(line) <= max(width, len(FIRST)) for line in shown.splitlines()), shown
    assert shown == node.run(*words.split(), COLUMNS=str(width)).out


def test_the_lines_in_a_pipe_are_whole(node: CommandNode) -> None:
    node.add(FIRST)
    assert len(node.run("attachments").out.splitlines()) == 2
    assert len(node.run("attachments", COLUMNS="0").out.splitlines()) == 2


TABLE = Table(("name", "why"), [["aaa", "one two three"], ["b", "/a/long/path and more"]])


def printed(block: Block, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    print_block(block)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [18, 20, 22, 26, 30])
def test_a_folded_table_loses_no_word(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = printed(TABLE, width, monkeypatch, capsys)
    words = " ".join(line[5:].strip() for line in lines[1:])
    assert words == "one two three /a/long/path and more"
    assert all(len(line) <= width for line in lines)


def test_a_table_of_several_folded_columns_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = ["a first cell with some words", "and a second one of the same kind, but longer", "12 warnings"]
    for width in range(30, 90):
        lines = printed(Table(("check", "checked", "result"), [cells]), width, monkeypatch, capsys)
        assert max(map(len, lines)) <= width


def test_a_terminal_that_is_too_narrow_for_a_table_gets_a_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(TABLE, 16, monkeypatch, capsys) == [
        "aaa", "  why  one two three", "b", "  why  /a/long/path and", "       more",
    ]  # fmt: skip
    continued = Table(("check", "checked", "result"), [["next", "the next container", "ok"], ["", "bridges", ""]])
    assert printed(continued, 16, monkeypatch, capsys) == [
        "next", "  checked  the next container", "           bridges", "  result   ok",
    ]  # fmt: skip


def test_fields_are_folded_except_what_is_copied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "libcni del web --cache-dir /a/long/path"
    fields = Fields("error: the disk is full", [("hint", "free some space, then:"), ("type", Verbatim(command))])
    assert printed(fields, 22, monkeypatch, capsys) == [
        "error: the disk is", "    full", "  hint  free some space,", "        then:", f"  type  {command}",
    ]  # fmt: skip


def test_no_color_means_no_escapes(node: CommandNode) -> None:
    node.add("a")
    for argv in (["attachments"], ["show", "a"], ["doctor"], ["show", "b"], ["--help"], ["nosuchcommand"]):
        assert "\x1b" not in node.run_in_terminal(*argv, NO_COLOR="1").out
        assert "\x1b" not in node.run_in_terminal(*argv, TERM="dumb").out
    assert "\x1b" in node.run_in_terminal("attachments").out


HOSTILE = "a\x1b[2J\tb\nc"


@pytest.mark.parametrize(
    "block",
    [
        HOSTILE,
        Fields(HOSTILE, [(HOSTILE, HOSTILE), (HOSTILE, Verbatim(HOSTILE))]),
        Table(("x", "y"), [["1", HOSTILE]], title=HOSTILE),
    ],
)
@pytest.mark.parametrize("columns", ["", "30"])
def test_control_characters_are_shown_as_escapes_everywhere(
    block: Block, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe may lead to a pager, which passes them on."""
    monkeypatch.setenv("COLUMNS", columns)
    file = io.StringIO()
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


def test_what_no_encoding_carries_is_escaped_in_data(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"name": "a\x1b[31m\x9b\ud800b", "plain": "\u00e4"}
    print_data(data)
    printed = capsys.readouterr().out
    printed.encode()
    assert "\u00e4" in printed
    assert not {"\x1b", "\x9b", "\ud800"} & set(printed)
    assert json.loads(printed) == data


def test_the_ids_of_engines_are_short_wherever_they_stand_in_a_text_except_in_paths() -> None:
    ids = [f"{number:x}" * 64 for number in range(10, 16)]
    path = f"/run/netns/{ids[5]} net-{ids[5]}-eth0 {ids[5]}.conf {ids[5]}0"
    text = f"{ids[0]}, {ids[1]}:eth0; {ids[2]}; changed: ({ids[3]}) '{ids[4]}'. {path}"
    shown = with_short_ids(Fields("", [("seen", text), ("type", Verbatim(ids[0]))]))
    assert isinstance(shown, Fields)
    assert shown.rows[0][1] == (
        f"{ids[0][:12]}, {ids[1][:12]}:eth0; {ids[2][:12]}; changed: ({ids[3][:12]}) '{ids[4][:12]}'. {path}"
    )
    assert shown.rows[1][1] == ids[0]
