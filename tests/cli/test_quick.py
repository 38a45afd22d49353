"""Words that are read without typer mean the same with it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from cli.node import CommandNode
from libcni.cli import typer_app
from libcni.cli.app import COMMANDS, function_of
from libcni.cli.quick import read_words

RIGHT = [
    "add net /ns",
    "add net /ns -c c1 --ifname eth1 --args A=1;B= --capabilities {} --on-existing replace",
    "add --no-rollback --strict net /ns --no-strict --negotiate --timeout 1.5 -v",
    "add net /ns -i eth1 -i eth2",
    "check --all",
    "del -c c1 --keep-going --use-given --skip-missing",
    "gc net --valid a:eth0 --valid b --none-valid --dry-run --runtime runc",
    "status net",
    "networks -o json",
    "attachments -q --no-trunc -s stale-boot -n net",
    "watch -c c1",
    "show c1",
    "diff c1:eth0",
    "explain net --verb add --verb del",
    "versions bridge tuning",
    "versions --all",
    "validate - net",
    "doctor --check --output openmetrics",
    "repair --yes --pending-after 3",
    "reload c1 c2:eth1 --network net --dry-run",
    "forget c1",
    "take-over -c a --from",
    "exec bridge VERSION --netns /ns --config -",
]
FOR_TYPER = [
    "add net /ns more",
    "add net /ns --nosuch",
    "add net /ns -c",
    "add net /ns --container=c1",
    "add net /ns -cc1",
    "add net /ns --on-existing never",
    "add net /ns --timeout -1",
    "add net /ns --timeout nan",
    "add net /ns --timeout ٣",
    "add -- net /ns",
    "attachments -qv",
    "attachments --help",
    "attachments -h",
    "attachments --state nosuch",
    "show",
    "exec bridge",
]


def by_typer(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(typer_app, "run_command", lambda _, given: seen.append(given))
    command = tuple(one for one in COMMANDS if one[0] == argv[0])
    with pytest.raises(SystemExit):
        typer_app.make_app(command * 2)(args=argv, prog_name="libcni")
    return seen[0] if seen else None


def quickly(argv: list[str]) -> Any:
    return read_words(function_of(next(one for one in COMMANDS if one[0] == argv[0])), argv[1:])


@pytest.mark.parametrize("line", RIGHT)
@pytest.mark.parametrize("env", [{}, {"CNI_PATH": "/a:/b", "CNI_IFNAME": "net1", "CNI_ARGS": "", "LIBCNI_OWNER": "o"}])
def test_right_words_mean_the_same(line: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in env.items():
        monkeypatch.setenv(name, text)
    argv = [*line.split(), *([""] if line.endswith("--from") else [])]
    given = quickly(argv)
    assert given is not None
    assert given == by_typer(argv, monkeypatch)


@pytest.mark.parametrize("line", FOR_TYPER)
def test_help_errors_and_rare_forms_are_left_to_typer(line: str) -> None:
    assert quickly(line.split()) is None


def test_every_command_has_right_words_here() -> None:
    assert {line.split()[0] for line in RIGHT} == {name for name, _, _ in COMMANDS} - {"oci-hook"}


def test_right_words_need_neither_typer_nor_pydantic_nor_rich(node: CommandNode) -> None:
    node.add("c1")
    words = [
        ["attachments"],
        ["add", "dbnet", node.netns("c2")],
        ["check", "-c", "c1"],
        ["del", "-c", "c1"],
        ["show", "x"],
    ]
    blocked = "for name in ('typer', 'rich', 'pydantic'): sys.modules[name] = None\n"
    code = f"import sys\n{blocked}from libcni.cli import main\nsys.stderr.write(str([main(one) for one in {words}]))"
    ran = subprocess.run([sys.executable, "-c", code], env=node.env, capture_output=True, text=True, check=False)
    assert ran.stderr.endswith("[0, 0, 0, 0, 4]"), ran.stderr
