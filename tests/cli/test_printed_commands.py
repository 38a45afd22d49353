"""Each command that is printed is one that its own parser takes."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import libcni
from libcni import Hint
from libcni.cli.commands import COMMANDS
from libcni.cli.parser import refusal
from libcni.cli.repair_text import repair_commands, words_of
from libcni.cli.session import Session
from libcni.diagnosis import DoctorReport, Mend, MendOutcome, NodeRepair
from libcni.diagnosis.mends import MendKind

ROOT = Path(libcni.__file__).parent


def hints() -> list[tuple[str, Hint]]:
    """Return each hint with a command in the sources, as far as it is written there."""
    found = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {"Hint", "libcni.Hint", "Hint.about"}:
                continue
            command = node.args[2 if ast.unparse(node.func) == "Hint.about" else 1 :][:1]
            if not command or not isinstance(command[0], ast.Constant):
                continue
            keywords = {one.arg: one.value for one in node.keywords}
            options = keywords.get("options")
            words = [
                one.value if isinstance(one, ast.Constant) else "WORD"
                for one in (options.elts if isinstance(options, ast.Tuple) else ())
                if not isinstance(one, ast.Starred)
            ]
            fields = ("container_id", "ifname", "network")
            names = {name: "c1" for name in fields if name in keywords or ast.unparse(node.func) == "Hint.about"}
            where = f"{path.name}:{node.lineno}"
            found.append((where, Hint("", str(command[0].value), options=tuple(map(str, words)), **names)))
    return found


def test_each_hint_in_the_sources_is_a_command_that_is_taken() -> None:
    found = hints()
    assert len(found) > 10
    refused = {where: why for where, hint in found if (why := refusal(hint.shell_command({})))}
    assert refused == {}


def test_commands_in_the_texts_of_findings_exist() -> None:
    names = {command.name for command in COMMANDS}
    for path in [*ROOT.glob("diagnosis/*.py"), *ROOT.glob("verbs/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ": libcni " in node.value:
                word = node.value.partition(": libcni ")[2].partition(" ")[0]
                assert word in {*names, ""}, f"{path.name}:{node.lineno}: {word}"


@pytest.mark.parametrize("owner", ["", "podman"])
@pytest.mark.parametrize("needs", [(), (("include_go", ""),), (("owner", "other"),)])
@pytest.mark.parametrize("kind", get_args(MendKind))
def test_each_mend_has_words_and_a_command(
    tmp_path: Path, kind: MendKind, needs: tuple[tuple[str, str], ...], owner: str
) -> None:
    session = Session(str(tmp_path), "/bin", str(tmp_path), owner, 60.0, "text", verbose=False)
    mend = Mend(kind, "target", ("detail",), ("c1:eth0",), ("c1:eth0",))
    assert "target" in words_of(mend) or "c1:eth0" in words_of(mend)
    interrupting = (*needs, ("interrupt", "c1:eth0"))
    outcomes = tuple(MendOutcome(mend, "name", "left", one) for one in (needs, interrupting))
    for options in ([], ["--include-go", "--check"] if not owner else ["--check"]):
        commands = repair_commands(session, NodeRepair(outcomes, DoctorReport()), options)
        assert len(commands) == 2
        assert all(command and not refusal(command) for command in commands), commands
        assert " --interrupt c1 " in f"{commands[1]} ", "a container is named whole if it has no other interface"


def test_a_command_that_would_be_refused_is_not_printed(tmp_path: Path) -> None:
    session = Session(str(tmp_path), "/bin", str(tmp_path), "podman", 60.0, "text", verbose=False)
    assert session.hint_command(Hint("", "doctor")).startswith("libcni doctor")
    assert session.hint_command(Hint("", "repair", options=("--include-go",))) == ""
    assert session.hint_command(Hint("", "doctor", options=("--nonsense",))) == ""
    assert "no such command" in refusal("libcni nosuch")
