"""The list of the commands, which is printed without importing them."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from libcni.cli import main
from libcni.cli.commands import COMMANDS, Command
from libcni.cli.overview import overview


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_line_of_a_command_is_that_of_its_own_help(command: Command) -> None:
    function, _ = command.load()
    assert command.summary == inspect.cleandoc(function.__doc__ or "").splitlines()[0]
    assert f"\n  {command.name:17}{command.summary}\n" in overview()


@pytest.mark.parametrize("words", [["--help"], ["-h"], []])
def test_the_list_imports_no_command(words: list[str]) -> None:
    code = "import sys; before = {*sys.modules}; from libcni.cli import main; code = main(sys.argv[1:])"
    code += "; print(code, *sys.modules.keys() - before)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    *_, last = done.stdout.splitlines()
    exit_code, *modules = last.split()
    assert exit_code == ("0" if words else "2")
    assert overview() in (done.stdout if words else done.stderr)
    slow = {"argparse", "shutil", "textwrap", "typing", "re"}
    assert not {*slow, "libcni.client", "libcni.cli.app", "libcni.cli.session"}.intersection(modules)


def test_a_narrow_or_unknown_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for columns, longest in (("1", 20), ("40", 38), ("nonsense", 100), ("-5", 100), ("1000", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["--help"]) == 0
        folded = capsys.readouterr().out.partition("Exit codes")[2].splitlines()
        assert max(len(line) for line in folded[1:] or [""]) <= longest
