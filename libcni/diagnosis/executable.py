"""Find out why a plugin's file cannot be started, without starting it."""

from __future__ import annotations

import errno
import os
import platform
import shutil
import struct
from dataclasses import dataclass

from libcni.diagnosis.report import quoted

__all__ = ["executable_problem"]

_HEAD = 4096
_MACHINES = {
    "x86_64": {62, 3}, "i686": {3}, "aarch64": {183, 40}, "armv7l": {40}, "ppc64le": {21}, "s390x": {22},
    "riscv64": {243}, "loongarch64": {258},
}  # fmt: skip
"""The ELF machine numbers that each architecture runs."""

_MACHINE_NAMES = {62: "x86_64", 3: "i386", 183: "aarch64", 40: "arm", 21: "ppc64", 22: "s390x", 243: "riscv"}
_PT_INTERP = 3
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
        return _elf_problem(head)
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


def _elf_problem(head: bytes) -> FileProblem | None:
    order = "<" if head[5:6] == b"\x01" else ">"
    is_64_bit = head[4:5] == b"\x02"
    try:
        (machine,) = struct.unpack_from(f"{order}H", head, 18)
        loader = _loader(head, order, is_64_bit=is_64_bit)
    except struct.error:
        return FileProblem("the file is cut off", _REINSTALL)
    here = platform.machine()
    if here in _MACHINES and machine not in _MACHINES[here]:
        name = _MACHINE_NAMES.get(machine, f"machine {machine}")
        return FileProblem(f"it is built for {name}, and this machine is {here}", f"install the plugin for {here}")
    if loader and not os.path.exists(loader):
        remedy = "install a static build, or the C library that it was built with"
        return FileProblem(f"its loader {loader} does not exist", remedy)
    return None


def _loader(head: bytes, order: str, *, is_64_bit: bool) -> str:
    """Return the path of a dynamic executable's loader (PT_INTERP), or "" if it is static."""
    table, size, count = (
        (struct.unpack_from(f"{order}Q", head, 32)[0], *struct.unpack_from(f"{order}HH", head, 54))
        if is_64_bit
        else (struct.unpack_from(f"{order}I", head, 28)[0], *struct.unpack_from(f"{order}HH", head, 42))
    )
    for index in range(count):
        entry = table + index * size
        if entry + size > len(head):
            break
        if struct.unpack_from(f"{order}I", head, entry)[0] == _PT_INTERP:
            layout = (f"{order}Q", 8, 32) if is_64_bit else (f"{order}I", 4, 16)
            (offset,), (length,) = (struct.unpack_from(layout[0], head, entry + at) for at in layout[1:])
            return head[offset : offset + length].rstrip(b"\0").decode(errors="replace")
    return ""
