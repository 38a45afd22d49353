"""What a person sees: every command in a pipe, and each kind of output in a terminal and as JSON, against testdata/cli.

UPDATE_GOLDEN=1 writes the files. What a command does is in ``commands/``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import pytest

from cli.node import REPOSITORY, CommandNode, Ran

GOLDEN = REPOSITORY / "testdata" / "cli"

LOOKS: dict[str, Sequence[str]] = {
    "networks": ["networks"],
    "attachments": ["attachments"],
    "show": ["show", "good"],
    "explain": ["explain", "dbnet", "/run/netns/x", "--capabilities", "{mac: 'c2:11:22:33:44:55', foo: 1}"],
    "networks-check": ["networks", "--check"],
    "usage": ["gc", "--vlaid", "good"],
    "help": ["repair", "--help"],
    "commands": ["--help"],
    "doctor": ["doctor"],
    "repair-dry-run": ["repair"],
    "no-such-network": ["add", "nothere", "/run/netns/x"],
    "no-such-container": ["show", "nobody"],
    "no-plugin": ["add", "other", "/run/netns/x"],
    "broken-configuration": ["add", "net.d/05-broken.conflist", "/run/netns/x"],
    "attached-already": ["add", "dbnet", "/run/netns/x", "--container", "good"],
    "gc-dry-run": ["gc", "dbnet", "--valid", "good", "--dry-run"],
    "gc-without-a-set": ["gc", "dbnet", "x"],
    "status": ["status", "dbnet", "--verbose"],
    "exec": ["exec", "fake", "VERSION"],
}


IN_TERMINAL = ["attachments", "networks-check", "doctor", "repair-dry-run", "no-such-network"]
"""A table, two tables, findings, a folded table, and an error."""
AS_DATA = ["attachments", "networks", "doctor", "show"]


def compare(name: str, seen: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(seen, encoding="utf-8")
    assert seen == path.read_text(encoding="utf-8")


def in_pipe(node: CommandNode, argv: Sequence[str]) -> str:
    return _shown(node, argv, node.run(*argv))


def _shown(node: CommandNode, argv: Sequence[str], ran: Ran) -> str:
    return node.normal(f"$ libcni {' '.join(argv)}\n{ran.out}--- stderr\n{ran.err}--- exit {ran.code}\n")


def in_terminal(node: CommandNode, argv: Sequence[str]) -> str:
    ran = node.run_in_terminal(*argv)
    return node.normal(f"$ libcni {' '.join(argv)}\n{ran.out}--- exit {ran.code}\n")


# argparse shows options in another form from 3.13 on.
@pytest.mark.parametrize("name", [name for name in LOOKS if name != "help" or sys.version_info < (3, 13)])
def test_looking_in_a_pipe(shown_node: CommandNode, name: str) -> None:
    """Each command once with the installed script, so that its own imports are seen to be enough."""
    is_first = name == next(one for one, look in LOOKS.items() if look[0] == LOOKS[name][0])
    run = shown_node.run_script if is_first else shown_node.run
    seen = _shown(shown_node, LOOKS[name], run(*LOOKS[name]))
    assert "\x1b" not in seen
    compare(f"{name}.pipe", seen)


@pytest.mark.parametrize("name", IN_TERMINAL)
def test_looking_in_a_terminal(shown_node: CommandNode, name: str) -> None:
    compare(f"{name}.terminal", in_terminal(shown_node, LOOKS[name]))


@pytest.mark.parametrize("name", AS_DATA)
def test_looking_as_data(shown_node: CommandNode, name: str) -> None:
    compare(f"{name}.json", in_pipe(shown_node, [*LOOKS[name], "-o", "json"]))


def test_doing(broken_node: CommandNode) -> None:
    refusing = {"cniVersion": "1.1.0", "name": "refusing", "plugins": [{"type": "fake", "fake": {
        "ADD": {"error": {"code": 11, "msg": "the pool is busy", "details": "held by c9"}, "stderr": "one\ntwo\n"},
    }}]}  # fmt: skip
    broken_node.write("30-refusing.conflist", refusing)
    netns = broken_node.netns("web")
    steps: list[Sequence[str]] = [
        ["repair", "--yes"],
        ["doctor"],
        ["add", "dbnet", netns, "-c", "web", "-v"],
        ["check", "dbnet", netns, "-c", "web"],
        ["add", "refusing", netns, "-c", "other"],
        ["del", "--container", "web"],
        ["del", "dbnet", netns, "-c", "good"],
        ["attachments"],
    ]
    compare("doing.pipe", "\n".join(in_pipe(broken_node, step) for step in steps))
