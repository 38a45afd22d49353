"""What a person sees: every command in a pipe, and each kind of output in a terminal and as JSON, against testdata/cli.

``make frozen`` writes the files. What a command does is in ``commands/``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

import pytest

from cli.node import GOOD, KILLED, REPOSITORY, CommandNode, Ran
from libcni import RuntimeConf

GOLDEN = REPOSITORY / "testdata" / "cli"

LOOKS: dict[str, Sequence[str]] = {
    "networks": ["networks"],
    "attachments": ["attachments"],
    "show": ["show", GOOD[:12]],
    "explain": ["explain", "dbnet", "/run/netns/x", "--capabilities", "{mac: 'c2:11:22:33:44:55', foo: 1}"],
    "networks-validate": ["networks", "--validate"],
    "help": ["repair", "--help"],
    "commands": ["--help"],
    "doctor": ["doctor"],
    "repair-dry-run": ["repair"],
    "no-such-network": ["add", "nothere", "/run/netns/x"],
    "no-such-container": ["show", "nobody"],
    "no-plugin": ["add", "other", "/run/netns/x"],
    "broken-configuration": ["add", "net.d/05-broken.conflist", "/run/netns/x"],
    "attached-already": ["add", "dbnet", "/run/netns/x", "--container", GOOD],
    "gc-dry-run": ["gc", "dbnet", "--valid", GOOD, "--dry-run"],
    "forget": ["forget", KILLED[:12]],
    "check-all": ["check", "--all"],
    "status": ["status", "dbnet", "--verbose"],
}


IN_TERMINAL = ["attachments", "networks-validate", "no-such-network"]
"""A table, two tables of which one is folded, and an error."""
AS_DATA = ["attachments", "networks", "doctor", "show"]


def compare(name: str, seen: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(seen, encoding="utf-8")
    assert seen == path.read_text(encoding="utf-8"), (
        f"if this change is meant, call make frozen: testdata/cli/{path.name}"
    )


def in_pipe(node: CommandNode, argv: Sequence[str]) -> str:
    return _shown(node, argv, node.run(*argv, COLUMNS="80"))


def _shown(node: CommandNode, argv: Sequence[str], ran: Ran) -> str:
    return node.normal(f"$ libcni {' '.join(argv)}\n{ran.out}--- stderr\n{ran.err}--- exit {ran.code}\n")


# argparse shows options in another form from 3.13 on.
@pytest.mark.parametrize("name", [name for name in LOOKS if name != "help" or sys.version_info < (3, 13)])
def test_looking_in_a_pipe(shown_node: CommandNode, name: str) -> None:
    """Each command once with the installed script, so that its own imports are seen to be enough."""
    is_first = name == next(one for one, look in LOOKS.items() if look[0] == LOOKS[name][0])
    # Only root's script sees what other users' processes hold.
    run = shown_node.run_script if is_first and os.geteuid() == 0 else shown_node.run
    seen = _shown(shown_node, LOOKS[name], run(*LOOKS[name], COLUMNS="80"))
    assert "\x1b" not in seen
    compare(f"{name}.pipe", seen)


@pytest.mark.parametrize("name", IN_TERMINAL)
def test_looking_in_a_terminal(shown_node: CommandNode, name: str) -> None:
    """The same lines as in a pipe of 80 columns, in colours."""
    argv = LOOKS[name]
    shown = shown_node.run_in_terminal(*argv, width=80).out
    piped = shown_node.run(*argv, COLUMNS="80")
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == piped.out + piped.err
    compare(f"{name}.terminal", shown_node.normal(shown))


@pytest.mark.parametrize("name", AS_DATA)
def test_looking_as_data(shown_node: CommandNode, name: str) -> None:
    compare(f"{name}.json", in_pipe(shown_node, [*LOOKS[name], "-o", "json"]))


def test_many_dead_containers(node: CommandNode) -> None:
    """One cause is one finding: three examples and the number; all of them are in the data."""
    node.plugin("quiet", result={"cniVersion": "1.0.0"})
    node.configure("quiet")
    for number in range(58):
        node.cni.add_network_list("quiet", RuntimeConf(f"pod-{number:02}", node.netns(f"pod-{number:02}"), "eth0"))
        node.change_record(f"pod-{number:02}", "quiet", bootId="another")
    compare("many-dead.pipe", "\n".join(in_pipe(node, [command]) for command in ("doctor", "repair")))
    assert len(node.run("repair", "-o", "json").data["outcomes"]) == 58
    [finding] = [one for one in node.run("doctor", "-o", "json").data["findings"] if one["name"] == "dead"]
    assert (len(finding["mends"]), len(finding["containers"])) == (58, 58)


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
        ["del", "dbnet", netns, "-c", GOOD],
        ["attachments"],
    ]
    compare("doing.pipe", "\n".join(in_pipe(broken_node, step) for step in steps))
