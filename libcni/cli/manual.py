"""Write the manual page and the completion scripts from the commands' own help.

python -m libcni.cli.manual man > libcni.1
python -m libcni.cli.manual bash|zsh|fish
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import typer.main
from typer import Context
from typer.completion import get_completion_script  # type: ignore[attr-defined]  # documented, and not in __all__

from libcni import __version__
from libcni.cli.app import COMMANDS, EPILOG
from libcni.cli.typer_app import make_app

_FILES = (
    ("/etc/cni/net.d", "network configurations; drop-in plugins are in NETWORK/*.conf"),
    ("/opt/cni/bin, /usr/lib/cni", "plugins"),
    ("/var/lib/cni/results", "records of attachments"),
    ("/var/lib/cni/partial", "the result so far of each ADD that has not ended"),
    ("/var/lib/cni/corrupt", "records that could not be read"),
    ("/var/lib/cni/locks", "locks; there is nothing to delete in it"),
)


def manual_page() -> str:
    """Return libcni(1) in roff."""
    group: Any = typer.main.get_command(make_app())
    lines = [
        f'.TH LIBCNI 1 "" "libcni {__version__}" "User Commands"',
        ".SH NAME",
        "libcni \\- run, see and repair CNI networks",
        ".SH SYNOPSIS",
        ".B libcni",
        "\\fICOMMAND\\fR [\\fIARGUMENT\\fR]... [\\fIOPTION\\fR]...",
        ".SH DESCRIPTION",
        "Attach containers to networks with CNI plugins, list and check the attachments of a node, and repair it.",
        "The commands add, check, del, gc and status take the arguments and the environment of cnitool.",
    ]
    for section in dict.fromkeys(section for _, _, section in COMMANDS):
        lines.append(f".SH {_escaped(section.upper())}")
        for name in (name for name, _, its in COMMANDS if its == section):
            lines += _command(group, name)
    common = _options(group, COMMANDS[0][0], common=True)
    lines += [".SH COMMON OPTIONS", "All commands except oci\\-hook have these options.", *common]
    lines += [".SH EXIT STATUS", _escaped(EPILOG.removeprefix("Exit codes: "))]
    lines += ["libcni doctor exits with 0 (ok), 1 (warnings) or 2 (errors).", ".SH FILES"]
    for path, text in _FILES:
        lines += [".TP", f"\\fI{_escaped(path)}\\fR", _escaped(text)]
    lines += [".SH SEE ALSO", ".BR cnitool (8),", ".BR ip-netns (8)"]
    return "\n".join(lines) + "\n"


def _command(group: Any, name: str) -> Iterator[str]:
    command = group.commands[name]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = " ".join(one.metavar if one.required else f"[{one.metavar}]" for one in arguments)
    yield f".SS libcni {_escaped(f'{name} {words}'.rstrip())}"
    yield "\n.PP\n".join(map(_escaped, command.help.split("\n\n")))
    for one in arguments:
        if one.help:
            yield from (".TP", f"\\fI{_escaped(one.metavar)}\\fR", _escaped(one.help))
    yield from _options(group, name, common=False)


def _options(group: Any, name: str, *, common: bool) -> Iterator[str]:
    """Yield the options of a command: those that all commands have, or its own."""
    command = group.commands[name]
    context = Context(command, info_name=name)
    for one in command.params:
        if one.param_type_name == "argument" or (one.rich_help_panel is not None) != common:
            continue
        flags, text = one.get_help_record(context)
        yield from (".TP", f"\\fB{_escaped(flags)}\\fR", _escaped(text))


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    # A line that begins with one of these would be a command of roff.
    return f"\\&{text}" if text[:1] in {".", "'"} else text


def completion_script(shell: str) -> str:
    """Return the completion script of a shell: bash, zsh or fish."""
    return get_completion_script(prog_name="libcni", complete_var="_LIBCNI_COMPLETE", shell=shell) + "\n"


if __name__ == "__main__":
    sys.stdout.write(manual_page() if sys.argv[1:] == ["man"] else completion_script(sys.argv[1]))
