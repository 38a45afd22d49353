"""Completion at the Tab key, in each shell that is installed."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest

from cli.node import REPOSITORY, CommandNode

SHARE = REPOSITORY / "share"
SHELLS = {
    "bash": (["--norc"], f"source {SHARE}/bash-completion/completions/libcni"),
    "zsh": (["-f"], f"fpath=({SHARE}/zsh/site-functions $fpath); autoload -U compinit; compinit -u -D"),
    "fish": (["--no-config"], f"source {SHARE}/fish/vendor_completions.d/libcni.fish"),
}


class Shell:
    """A shell in a terminal."""

    def __init__(self, name: str, node: CommandNode) -> None:
        words, setup = SHELLS[name]
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            path = f"{os.path.dirname(node.command[0])}:{node.env['PATH']}"
            # fish makes /tmp/fish.USER otherwise.
            env = {**node.env, "PATH": path, "XDG_RUNTIME_DIR": str(node.root)}
            os.chdir(node.root)
            os.execvpe(name, [name, *words], env)
        self.type(f"{setup}; echo re''ady\r", "ready")

    def type(self, text: str, wanted: str) -> None:
        """Type a text; wait until the terminal shows ``wanted``."""
        os.write(self.descriptor, text.encode())
        shown, deadline = b"", time.monotonic() + 30
        while wanted not in re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]|\x1b[()].", "", shown.decode(errors="replace")):
            assert time.monotonic() < deadline, (text, wanted, shown)
            if select.select([self.descriptor], [], [], 0.1)[0]:
                shown += os.read(self.descriptor, 65536)

    def close(self) -> None:
        os.close(self.descriptor)
        os.waitpid(self.pid, 0)


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, node: CommandNode) -> Iterator[Shell]:
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    node.add("alpha")
    shell = Shell(request.param, node)
    yield shell
    shell.close()


def test_a_shell_completes_commands_networks_containers_and_options(shell: Shell) -> None:
    for word, whole in (
        ("att", "attachments"),
        ("show al", "show alpha"),
        ("add db", "add dbnet"),
        ("add --on-e", "add --on-existing"),
    ):
        # Ctrl-A goes to the beginning of the line: what Tab made of it is printed, and not run.
        shell.type(f"libcni {word}\t\x01echo \r", f"libcni {whole}")


def complete(node: CommandNode, line: str) -> set[str]:
    """Return what the installed command offers at the end of a line, as bash asks it."""
    env = {
        **node.env,
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "bash",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = ["bash", "-c", '"$@" 8>&1 9>/dev/null', "bash", *node.command]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=node.root)
    assert ran.stderr == ""
    return {word.strip() for word in ran.stdout.split("\v") if word}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("do", {"doctor"}),
        ("del -c ", {"alpha", "beta"}),
        ("del --keep-going d", {"dbnet"}),
        ("gc dbnet --valid b", {"beta"}),
        ("attachments --network=d", {"--network=dbnet"}),
        ("attachments -s s", {"stale-boot"}),
        ("networks --validate d", {"dbnet"}),
        ("attachments --owner p", {"pod"}),
        ("add dbnet ns/al", {"ns/alpha"}),
        ("explain dbnet x --verb AD", {"ADD"}),
        ("show --cache-dir /nowhere a", set()),
        ("oci-hook --o", set()),
        ("add --conf-dir /nowhere d", set()),
    ],
)
def test_the_values_of_an_argument_are_those_of_the_node(node: CommandNode, line: str, offered: set[str]) -> None:
    for name in ("alpha", "beta"):
        node.add(name)
    node.change_record("beta", "dbnet", owner="pod")
    assert complete(node, f"libcni {line}") == offered
