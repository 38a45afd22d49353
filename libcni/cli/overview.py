"""The help of the program: the list of the commands, made without importing a command."""

from __future__ import annotations

import os
import sys

from libcni.cli.commands import COMMANDS

EXIT_CODES = "0 done, 1 a plugin or record failed, 2 usage, 3 configuration, 4 not found, 5 timeout or lock."
_WIDTH, _NARROWEST = 100, 20


def overview() -> str:
    """Return the help of the program."""
    lines = ["usage: libcni COMMAND [ARGUMENT]... [OPTION]...", "", "Run, see and repair CNI networks."]
    section = ""
    for command in COMMANDS:
        if command.section != section:
            section = command.section
            lines += ["", f"{section}:"]
        lines.append(f"  {command.name:17}{command.summary}")
    lines += ["", "libcni COMMAND --help lists the options."]
    lines += ["For plugin authors: python -m libcni.plugin --help, python -m libcni.testing --help."]
    # Not with textwrap, whose import takes a tenth of this help.
    line, most = "Exit codes:", width()
    for word in EXIT_CODES.split():
        if len(line) + len(word) >= most:
            lines.append(line)
            line = word
        else:
            line += f" {word}"
    return "\n".join([*lines, line])


def width() -> int:
    """Return the width of the help: that of the terminal, within limits."""
    # Not with shutil, whose import takes longer than the rest of this help.
    try:
        columns = int(os.environ.get("COLUMNS", "0"))
        columns = columns if columns > 0 else os.get_terminal_size((sys.__stdout__ or sys.stdout).fileno()).columns
    except (AttributeError, OSError, ValueError):
        columns = 0
    return min(_WIDTH, max(_NARROWEST, (columns if columns > 0 else 80) - 2))
