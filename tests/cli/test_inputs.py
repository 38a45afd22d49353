"""Small parts of the command line, without a process."""

from __future__ import annotations

import io
import json
from typing import Literal

import pytest

from libcni import (
    CNIError,
    CNIErrorGroup,
    ConfigError,
    LockTimeoutError,
    NetworkNotFoundError,
    PluginError,
    PluginTimeoutError,
    RecordError,
)
from libcni.cli.failures import exit_code
from libcni.cli.inputs import capability_args
from libcni.cli.render import Block, Fields, Table, print_block, print_data

HOSTILE = "a\x1b[2J\tb\nc"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PluginError("x"), 1),
        (RecordError("x"), 1),
        (ConfigError("x"), 3),
        (NetworkNotFoundError("x"), 4),
        (PluginTimeoutError("x"), 5),
        (LockTimeoutError("x"), 5),
        (CNIErrorGroup("x", [ConfigError("x"), ConfigError("y")]), 3),
        (CNIErrorGroup("x", [ConfigError("x"), PluginError("y")]), 1),
    ],
)
def test_each_kind_of_error_has_its_exit_code(error: CNIError, code: int) -> None:
    assert exit_code(error) == code


def test_numbers_in_json_are_numbers_although_yaml_would_read_text() -> None:
    assert capability_args('{"rate": 1e3}') == {"rate": 1000.0}
    assert capability_args("{mac: c2:11:22:33:44:55}") == {"mac": "c2:11:22:33:44:55"}


def test_bad_yaml_is_named_with_its_place() -> None:
    with pytest.raises(ConfigError, match="line 1, column") as caught:
        capability_args("{a: [}")
    assert caught.value.file == "capability arguments"


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
