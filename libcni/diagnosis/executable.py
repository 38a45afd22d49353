"""Find out why a plugin cannot be started, without starting it."""

from __future__ import annotations

import os
import shutil

from libcni.client import CNIConfig
from libcni.errors import CNIError

__all__ = ["executable_problem"]

_REINSTALL = "install the plugin again"
_INTERPRETER = "install the interpreter, or correct the first line"


def executable_problem(path: str) -> tuple[str, str] | None:
    """Return (why an executable cannot be started, what to do), or None. Read only the beginning of the file."""
    try:
        with open(path, "rb") as file:
            line = file.readline(4096)
    except OSError as error:
        return f"cannot be read: {error.strerror}", "correct the file's permissions, or install the plugin again"
    if not line.startswith(b"#!"):
        problem = "neither a script (its first line has no #!) nor a Linux executable" if line else "the file is empty"
        return None if line.startswith(b"\x7fELF") else (problem, _REINSTALL)
    if line.endswith(b"\r\n"):
        return "a script with CRLF line ends, which the kernel cannot start", "convert the line ends to LF"
    interpreter, *words = line[2:].decode(errors="replace").split() or [""]
    if not os.path.exists(interpreter):
        return f"the interpreter {interpreter or '(none)'} does not exist", _INTERPRETER
    # env takes options such as -S, and assignments, before the program's name
    names = [word for word in words if not word.startswith("-") and "=" not in word]
    if os.path.basename(interpreter) == "env" and names and shutil.which(names[0]) is None:
        return f"the interpreter {names[0]} is not in PATH", _INTERPRETER
    return None


def plugin_problem(cni: CNIConfig, plugin: str) -> tuple[str, str] | None:
    """Return (why a plugin cannot be started, what to do), or None. Runs nothing."""
    try:
        path = cni.find_plugin(plugin)
    except CNIError as error:
        return error.text, error.hint.words("--path") if error.hint else _REINSTALL
    problem = executable_problem(path)
    return problem and (f"{path}: {problem[0]}", problem[1])
