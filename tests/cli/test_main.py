"""The start of the command line: imports, interrupts and streams."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from cli.node import CommandNode, containers
from libcni.cli import main

INTERRUPTED = """
import os, sys
class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), 2)  # SIGINT
sys.meta_path.insert(0, Finder())
sys.argv = ["libcni", {command!r}, "-h"]
from libcni.cli import run
run()
"""


@pytest.mark.parametrize("is_ignored", [False, True])
@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("libcni.cli.app", "doctor"),
        ("libcni.cli.commands.doctor", "doctor"),
        ("libcni.engines.oci", "oci-hook"),
        ("libcni.engines.netavark", "netavark-plugin"),
    ],
)
def test_an_interrupt_while_the_program_is_imported_is_quiet(module: str, command: str, *, is_ignored: bool) -> None:
    code = INTERRUPTED.format(module=module, command=command)
    ignore = "trap '' INT; " if is_ignored else ""
    words = ["sh", "-c", f'{ignore}exec "$@"', "sh", sys.executable, "-c", code]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == ((0, "") if is_ignored else (-signal.SIGINT, ""))


@pytest.mark.parametrize("words", ["attachments", "--version", "--help"])
def test_an_output_that_cannot_be_written_is_an_error_in_one_line(node: CommandNode, words: str) -> None:
    command = [*node.command, *words.split()]
    for env in (node.env, {**node.env, "PYTHONUNBUFFERED": "1"}):
        with open("/dev/full", "w", encoding="utf-8") as full:
            ran = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (1, "error: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_descriptor_is_an_empty_file(node: CommandNode, closed: str) -> None:
    command = f"{' '.join(node.command)} networks --validate - {closed}"
    ran = subprocess.run(["bash", "-c", command], env=node.env, input="", capture_output=True, text=True, check=False)
    assert (ran.returncode, "Traceback" in ran.stderr) == (3, False)


@pytest.mark.parametrize("words", ["explain dbnet", "--version"])
def test_a_closed_pipe_is_no_trace(node: CommandNode, words: str) -> None:
    command = " ".join(node.command)
    env = {**node.env, "PYTHONUNBUFFERED": "1"}
    ran = subprocess.run(
        ["bash", "-c", f"{command} {words} | true"], env=env, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in ran.stderr
    assert "Broken" not in ran.stderr
    assert "error" not in ran.stderr


def test_every_command_works_without_the_extra(node: CommandNode) -> None:
    words = [
        ["--help"],
        ["add", "--help"],
        ["add"],
        ["attachments"],
        ["add", "dbnet", node.netns("a")],
        ["check", "--all"],
    ]
    blocked = "for name in ('argcomplete', 'pydantic'): sys.modules[name] = None\n"
    code = f"import sys\n{blocked}from libcni.cli import main\nsys.stderr.write(str([main(one) for one in {words}]))"
    ran = subprocess.run([sys.executable, "-c", code], env=node.env, capture_output=True, text=True, check=False)
    assert ran.stderr.endswith("[0, 0, 2, 0, 0, 0]"), ran.stderr


def test_a_relative_path_in_a_directory_that_was_removed_is_no_trace(node: CommandNode) -> None:
    gone = node.root / "gone"
    gone.mkdir()
    script = 'rmdir "$PWD"; exec "$@"'
    for words in (["add", "dbnet", "ns/a", "-c", "a"], ["attachments", "--cache-dir", "cache"]):
        ran = subprocess.run(
            ["sh", "-c", script, "sh", *node.command, *words], cwd=gone, env=node.env, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        gone.mkdir()
        assert (ran.returncode, ran.stderr) == (
            1,
            "error: the current directory does not exist any more; give absolute paths\n",
        )
    assert containers(node) == []


def test_main_can_be_called_from_python(node: CommandNode, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("NETCONFPATH", str(node.conf_dir))
    assert main(["networks", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["default"] == "dbnet"


def modules(node: CommandNode, *argv: str) -> set[str]:
    code = "import sys; from libcni.cli import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    command = [sys.executable, "-c", code, *argv]
    ran = subprocess.run(command, env=node.env, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in ran.stderr.split()}


def test_short_answers_start_nothing_slow(node: CommandNode) -> None:
    node.add("a")
    assert not modules(node, "--version") & {"argcomplete", "pydantic", "yaml", "asyncio"}
    assert not modules(node, "attachments") & {"argcomplete", "pydantic", "yaml", "asyncio"}
