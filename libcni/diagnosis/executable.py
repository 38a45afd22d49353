"""Find out why a plugin's file cannot be started, without starting it."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import dataclass

from libcni.diagnosis.report import quoted

__all__ = ["executable_problem"]

_HEAD = 4096
_REINSTALL = "install the plugin again"
_INTERPRETER = "install it, or correct the first line"


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why an executable cannot be started, what to do, and the commands that do it, if there are any."""

    seen: str
    remedy: str
    commands: tuple[str, ...] = ()


def executable_problem(path: str) -> tuple[str, str] | None:
    """Return why an executable cannot be started and what to do, or None. Reads the file's start, runs nothing."""
    problem = examine_executable(path)
    return None if problem is None else (problem.seen, problem.remedy)


def examine_executable(path: str) -> FileProblem | None:
    """Return why an executable cannot be started, or None. Reads the file's start, runs nothing."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        remedy = "correct its permissions" if error.errno in {errno.EACCES, errno.EPERM} else _REINSTALL
        return FileProblem(f"cannot be read: {error.strerror}", remedy)
    if not head:
        return FileProblem("the file is empty", _REINSTALL)
    if head.startswith(b"#!"):
        return _script_problem(path, head)
    if head.startswith(b"\x7fELF"):
        return None
    return FileProblem("neither a script (its first line has no #!) nor a Linux executable", _REINSTALL)


def _script_problem(path: str, head: bytes) -> FileProblem | None:
    line = head.partition(b"\n")[0][2:]
    if line.endswith(b"\r"):
        command = f"sed -i 's/\\r$//' {quoted(path)}"
        seen = "a script with CRLF line ends, which the kernel cannot start"
        return FileProblem(seen, "convert its line ends:", (command,))
    words = line.decode(errors="replace").split()
    interpreter = words[0] if words else ""
    if not os.path.exists(interpreter):
        return FileProblem(f"its interpreter {interpreter or '(none)'} does not exist", _INTERPRETER)
    # env takes options such as -S, and assignments, before the program's name
    names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if os.path.basename(interpreter) == "env" and names and shutil.which(names[0]) is None:
        return FileProblem(f"its interpreter {names[0]} is not in PATH", _INTERPRETER)
    return None
