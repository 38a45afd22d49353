"""The manual page, and completion in each shell."""

from __future__ import annotations

import os
import subprocess
import textwrap

import pytest
import typer.main

from cli.node import REPOSITORY, CommandNode
from libcni.cli.manual import completion_script, manual_page
from libcni.cli.typer_app import make_app


def complete(node: CommandNode, shell: str, line: str) -> str:
    variables = {"_LIBCNI_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    if shell == "bash":
        words = line.split(" ")
        variables = {
            "_LIBCNI_COMPLETE": "complete_bash",
            "COMP_WORDS": "\n".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
    return node.run(_TYPER_COMPLETE_FISH_ACTION="get-args", **variables).out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_completes_commands_containers_networks_and_options(node: CommandNode, shell: str) -> None:
    node.add("alpha")
    containers = ["show al", "forget al", "del -c al", "check -c al", "attachments -c al", "diff -c al"]
    networks = ["add db", "gc db", "attachments -n db", "watch --network db"]
    only = None if shell == "bash" else 1  # what a shell makes of the words is the same for every command
    for command in containers[:only]:
        assert "alpha" in complete(node, shell, f"libcni {command}")
    for command in networks[:only]:
        assert "dbnet" in complete(node, shell, f"libcni {command}")
    assert "--on-existing" in complete(node, shell, "libcni add --on-e")
    assert "doctor" in complete(node, shell, "libcni d")


def test_the_manual_page_has_every_command_and_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    page = manual_page().replace("\\-", "-")
    group = typer.main.get_command(make_app())
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        assert f"\n.SS libcni {name}" in page
        for one in command.params:
            assert all(flag in page for flag in one.opts if flag.startswith("--"))


def test_a_help_text_names_the_value_of_each_option_and_fits_80_columns(node: CommandNode) -> None:
    group = typer.main.get_command(make_app())
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        text = command.get_help(typer.Context(command, info_name=f"libcni {name}", terminal_width=80))
        options = text.partition("Options:")[2]
        assert "--verbose" in options or name == "oci-hook"
        assert not {"<str>", "<bool>", "<float", "<int"} & set(options.split())
        assert max(map(len, text.splitlines())) <= 80
    assert node.run_in_terminal("repair", "--help", width=80).out == node.run("repair", "--help", COLUMNS="80").out


def test_the_shipped_pages_are_those_that_scripts_manual_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    shipped = {
        "man/man1/libcni.1": manual_page(),
        "bash-completion/completions/libcni": completion_script("bash"),
        "zsh/site-functions/_libcni": completion_script("zsh"),
        "fish/vendor_completions.d/libcni.fish": completion_script("fish"),
    }
    for path, text in shipped.items():
        assert (REPOSITORY / "share" / path).read_text(encoding="utf-8") == text, f"run scripts/manual for {path}"


def test_the_completion_script_works_in_bash(node: CommandNode) -> None:
    script = textwrap.dedent("""
        eval "$(libcni --show-completion bash)"
        complete() { COMP_WORDS=(libcni "$@"); COMP_CWORD=$#; _libcni_completion libcni; echo "${COMPREPLY[@]}"; }
        complete add db
    """)
    env = {**node.env, "PATH": f"{os.path.dirname(node.command[0])}:{node.env['PATH']}"}
    ran = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert ran.stdout == "dbnet\n"
