"""The help of the commands, and the manual page that is made of it."""

from __future__ import annotations

import runpy
import shlex

import pytest

from cli.node import REPOSITORY, CommandNode
from libcni.cli.commands import COMMANDS, Command
from libcni.cli.parser import parser_of

OWN = [one for one in COMMANDS if not one.is_of_engines]


def test_the_manual_page_has_every_command_and_option() -> None:
    page = (REPOSITORY / "share/man/man1/libcni.1").read_text(encoding="utf-8")
    assert page == runpy.run_path(str(REPOSITORY / "scripts/manual.py"))["manual_page"](), "call make frozen"
    page = page.replace("\\-", "-")
    for command in COMMANDS:
        assert f"\n.SS libcni {command.name} " in page
    for command in OWN:
        for action in parser_of(command)._actions:
            assert all(flag in page for flag in action.option_strings if flag not in {"-h", "--help"})


@pytest.mark.parametrize("command", OWN, ids=lambda one: one.name)
def test_a_help_text_fits_80_columns(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = parser_of(command).format_help()
    assert max(len(line) for line in text.splitlines() if not line.startswith("  libcni ")) <= 80


def test_a_terminal_and_a_pipe_show_the_same_help(node: CommandNode) -> None:
    assert node.run_in_terminal("repair", "-h", width=80).out == node.run("repair", "--help", COLUMNS="80").out
    assert node.run("--help").out == node.run().err


@pytest.mark.parametrize("command", OWN, ids=lambda one: one.name)
def test_the_example_of_a_command_works(node: CommandNode, command: Command) -> None:
    lines = parser_of(command).format_help().splitlines()
    example = lines[lines.index("Example:") + 1].strip()
    plugins = [{"type": "fake-bridge"}, {"type": "fake-tuning", "capabilities": {"mac": True}}]
    node.write("10-dbnet.conflist", {"cniVersion": "1.1.0", "name": "front", "plugins": plugins})
    (node.bin / "bridge").symlink_to("fake-bridge")
    netns = node.netns("web")
    if command.name != "add":
        assert node.run("add", "front", netns, "-c", "web").code == 0
    ran = node.run(*shlex.split(example.replace("/run/netns/web", netns))[1:])
    assert ran.code == 0, ran.err
