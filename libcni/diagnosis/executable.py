"""Find out why a plugin's file cannot be started, without starting it."""

from __future__ import annotations

import os
import shutil

__all__ = ["executable_problem"]

_HEAD = 4096
_REINSTALL = "install the plugin again"
_INTERPRETER = "install it, or correct the first line"


def executable_problem(path: str) -> tuple[str, str] | None:
    """Return why an executable cannot be started and what to do, or None. Reads the file's start, runs nothing."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"cannot be read: {error.strerror}", "correct its permissions, or install the plugin again"
    if not head:
        return "the file is empty", _REINSTALL
    if head.startswith(b"#!"):
        return _script_problem(head)
    if head.startswith(b"\x7fELF"):
        return None
    return "neither a script (its first line has no #!) nor a Linux executable", _REINSTALL


def _script_problem(head: bytes) -> tuple[str, str] | None:
    line = head.partition(b"\n")[0][2:]
    if line.endswith(b"\r"):
        return "a script with CRLF line ends, which the kernel cannot start", "convert its line ends"
    words = line.decode(errors="replace").split()
    interpreter = words[0] if words else ""
    if not os.path.exists(interpreter):
        return f"its interpreter {interpreter or '(none)'} does not exist", _INTERPRETER
    # env takes options such as -S, and assignments, before the program's name
    names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if os.path.basename(interpreter) == "env" and names and shutil.which(names[0]) is None:
        return f"its interpreter {names[0]} is not in PATH", _INTERPRETER
    return None
