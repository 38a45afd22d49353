#!/usr/bin/env python3
"""Write the manual page and the completion scripts, which the wheel installs below share/.

Run it with .venv/bin/python. The page has the help of the commands; the scripts are argcomplete's.
"""

from __future__ import annotations

import inspect
from argparse import BooleanOptionalAction
from collections.abc import Iterator
from pathlib import Path

from argcomplete import shellcode

from libcni import __version__
from libcni.cli.commands import COMMANDS, Command
from libcni.cli.options import COMMON, Argument
from libcni.cli.overview import EXIT_CODES
from libcni.cli.parser import usage_of

SHARE = Path(__file__).parent.parent / "share"
SCRIPTS = {
    "bash": "bash-completion/completions/libcni",
    "zsh": "zsh/site-functions/_libcni",
    "fish": "fish/vendor_completions.d/libcni.fish",
}
FILES = (
    ("/etc/cni/net.d", "network configurations; drop-in plugins are in NETWORK/*.conf"),
    ("/opt/cni/bin, /usr/lib/cni", "plugins"),
    ("/var/lib/cni/results", "records of attachments"),
    ("/var/lib/cni/corrupt", "records that could not be read"),
    ("/var/lib/cni/locks", "locks; there is nothing to delete in it"),
)


def manual_page() -> str:
    """Return libcni(1) in roff."""
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
    for section in dict.fromkeys(one.section for one in COMMANDS):
        lines.append(f".SH {escaped(section.upper())}")
        for command in COMMANDS:
            lines += of_command(command) if command.section == section else []
    lines += [".SH COMMON OPTIONS", "All commands except oci\\-hook and netavark\\-plugin have these options."]
    for one in COMMON:
        lines += of_argument(one)
    lines += [".SH EXIT STATUS", escaped(EXIT_CODES)]
    lines += ["libcni doctor exits with 0 (ok), 1 (warnings), 2 (errors) or 3 (it could not run).", ".SH FILES"]
    for path, text in FILES:
        lines += [".TP", f"\\fI{escaped(path)}\\fR", escaped(text)]
    lines += [".SH SEE ALSO", ".BR cnitool (8),", ".BR ip-netns (8)"]
    return "\n".join(lines) + "\n"


def of_command(command: Command) -> Iterator[str]:
    """Yield the lines of a command."""
    function, arguments = command.load()
    yield f".SS {escaped(usage_of(command))}"
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    for index, part in enumerate(paragraphs):
        title, _, example = part.partition("\n")
        if index:
            yield ".PP"
        if title == "Example:":
            yield from ("Example:", ".RS", ".nf", escaped(inspect.cleandoc(example)), ".fi", ".RE")
        else:
            yield escaped(part)
    for one in arguments:
        yield from of_argument(one)


def of_argument(one: Argument) -> Iterator[str]:
    """Yield the lines of an argument or option."""
    flags = [*one.flags]
    if one.keywords.get("action") is BooleanOptionalAction:
        flags += [flag.replace("--", "--no-") for flag in flags]
    value = one.keywords.get("metavar", "")
    shown = f"{', '.join(flags)} {value}".strip() if flags[0].startswith("-") else value
    yield from (".TP", f"\\fB{escaped(shown)}\\fR", escaped(one.help))


def escaped(text: str) -> str:
    """Return a text in roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    # A line that begins with a dot would be a command of roff.
    return f"\\&{text}" if text.startswith(".") else text


if __name__ == "__main__":
    (SHARE / "man/man1/libcni.1").write_text(manual_page(), encoding="utf-8")
    for shell, path in SCRIPTS.items():
        (SHARE / path).write_text(shellcode(["libcni"], shell=shell), encoding="utf-8")
