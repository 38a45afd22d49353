"""Check the executables of plugins, and ask them for VERSION and STATUS."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import struct
from collections.abc import Iterator

from libcni.client import CNIConfig
from libcni.config.network import NetworkConfigList
from libcni.config.versions import supports
from libcni.diagnosis.disk import writable_by_others
from libcni.diagnosis.node_view import NodeView
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observation, Observations
from libcni.errors import CNIError, PluginNotFoundError, PluginTimeoutError

__all__ = ["check_network_plugins", "check_plugins", "executable_problem"]

_SECONDS = 5.0
_HEAD = 4096
_MACHINES = {
    "x86_64": {62, 3}, "i686": {3}, "aarch64": {183, 40}, "armv7l": {40}, "ppc64le": {21}, "s390x": {22},
    "riscv64": {243}, "loongarch64": {258},
}  # fmt: skip
"""The ELF machine numbers that each architecture runs."""

_MACHINE_NAMES = {62: "x86_64", 3: "i386", 183: "aarch64", 40: "arm", 21: "ppc64", 22: "s390x", 243: "riscv"}
_PT_INTERP = 3


def check_plugins(node: NodeView) -> Observations:
    """Check the plugins of all configured networks: executables, VERSION, STATUS."""
    directories = [directory for directory in node.cni.path if os.path.isdir(directory)]
    if not directories:
        where = ", ".join(node.cni.path) or "CNI_PATH"
        seen = "there is no such directory" if node.cni.path else "it is empty"
        yield NodeFinding(
            "plugins", "error", where, seen, "no plugin can be run", "install CNI plugins, or set CNI_PATH"
        )
        return
    for directory in directories:
        yield from writable_by_others("plugins", directory)
    reported: set[Observation] = set()
    for net in node.networks:
        for found in check_network_plugins(node.cni, net):
            if found not in reported:
                reported.add(found)
                yield found


def check_network_plugins(cni: CNIConfig, net: NetworkConfigList) -> Iterator[Observation]:
    """Check the executables of a network, IPAM plugins included. Asks for VERSION and, from 1.1.0 on, for STATUS.

    Each call ends after 5 seconds.
    """
    names = dict.fromkeys(name for one in net.plugins for name in (one.type, one.ipam_type) if name)
    usable = True
    for name in names:
        for found in _check_plugin(cni, net, name):
            usable = False
            yield found
    yield Checked("plugins", f"executables and VERSION of network {net.name}: {', '.join(names)}")
    if not supports(net.cni_version, "STATUS"):
        yield NotChecked("plugins", f"network {net.name}", f"STATUS: version {net.cni_version} does not have it")
    elif usable:
        yield from _check_status(cni, net)


def _check_plugin(cni: CNIConfig, net: NetworkConfigList, name: str) -> Iterator[NodeFinding]:
    subject = f"network {net.name}, plugin {name}"
    meaning = "ADD of this network fails"
    try:
        path = cni.find_plugin(name)
    except PluginNotFoundError as error:
        text = str(error).removesuffix(f" ({error.hint})")
        rejected = [one.rpartition(" is ")[0] for one in error.rejected]
        commands = tuple(f"chmod +x {shlex.quote(one)}" for one in rejected if os.path.isfile(one))
        remedy = "make it executable:" if commands else error.hint or "install it, or set CNI_PATH"
        yield NodeFinding("plugins", "error", subject, text, meaning, remedy, commands)
        return
    except CNIError as error:
        yield NodeFinding("plugins", "error", subject, str(error), meaning, f"correct the type in {net.file}")
        return
    problem = executable_problem(path)
    if problem:
        seen, remedy = problem
        commands = (f"sed -i 's/\\r$//' {shlex.quote(path)}",) if "CRLF" in seen else ()
        yield NodeFinding("plugins", "error", subject, f"{path}: {seen}", meaning, remedy, commands)
        return
    try:
        versions = cni.get_version_info(name, timeout=_SECONDS).supported_versions
    except PluginTimeoutError:
        by_hand = f'echo \'{{"cniVersion":"1.0.0"}}\' | CNI_COMMAND=VERSION timeout {_SECONDS:.0f} {shlex.quote(path)}'
        yield NodeFinding(
            "plugins", "error", subject, f"{path} did not answer VERSION within {_SECONDS:.0f} s and was ended",
            f"{meaning}, or hangs", "install the plugin again; a longer timeout does not help. To see it by hand:",
            (by_hand,),
        )  # fmt: skip
        return
    except CNIError as error:
        yield NodeFinding("plugins", "error", subject, str(error), meaning, error.hint or "install the plugin again")
        return
    if net.cni_version not in versions:
        yield NodeFinding(
            "plugins", "error", subject,
            f"it does not support version {net.cni_version}; it supports {', '.join(versions)}", meaning,
            f"change cniVersion in {net.file}, or install another version of the plugin",
        )  # fmt: skip


def _check_status(cni: CNIConfig, net: NetworkConfigList) -> Observations:
    try:
        status = cni.network_status(net, timeout=_SECONDS)
    except CNIError as error:
        yield NotChecked("plugins", f"network {net.name}", f"STATUS: {error}")
        return
    yield Checked("plugins", f"STATUS of network {net.name}")
    for one in status.plugins:
        if one.error is not None:
            yield NodeFinding(
                "plugins", "error", f"network {net.name}, plugin {one.plugin}", f"STATUS: {one.error}",
                "the plugin says that it cannot serve ADD", one.error.hint or "do what its message says; then:",
                (shlex.join(["libcni", "status", net.name, "-v"]),),
            )  # fmt: skip


def executable_problem(path: str) -> tuple[str, str] | None:
    """Return why an executable cannot be started and what to do, or None. Reads the file's start, runs nothing."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        return f"cannot be read: {error.strerror}", "correct its permissions"
    if not head:
        return "the file is empty", "install the plugin again"
    if head.startswith(b"#!"):
        return _script_problem(head)
    if head.startswith(b"\x7fELF"):
        return _elf_problem(head)
    return "neither a script (its first line has no #!) nor a Linux executable", "install the plugin again"


def _script_problem(head: bytes) -> tuple[str, str] | None:
    line = head.partition(b"\n")[0][2:]
    if line.endswith(b"\r"):
        return "a script with CRLF line ends, which the kernel cannot start", "convert its line ends:"
    words = line.decode(errors="replace").split()
    interpreter = words[0] if words else ""
    if not os.path.exists(interpreter):
        return f"its interpreter {interpreter or '(none)'} does not exist", "install it, or correct the first line"
    # env takes options such as -S, and assignments, before the program's name
    names = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if os.path.basename(interpreter) == "env" and names and shutil.which(names[0]) is None:
        return f"its interpreter {names[0]} is not in PATH", "install it, or correct the first line"
    return None


def _elf_problem(head: bytes) -> tuple[str, str] | None:
    order = "<" if head[5:6] == b"\x01" else ">"
    is_64_bit = head[4:5] == b"\x02"
    try:
        (machine,) = struct.unpack_from(f"{order}H", head, 18)
        loader = _loader(head, order, is_64_bit=is_64_bit)
    except struct.error:
        return "the file is cut off", "install the plugin again"
    here = platform.machine()
    if here in _MACHINES and machine not in _MACHINES[here]:
        name = _MACHINE_NAMES.get(machine, f"machine {machine}")
        return f"it is built for {name}, and this machine is {here}", f"install the plugin for {here}"
    if loader and not os.path.exists(loader):
        return f"its loader {loader} does not exist", "install a static build, or the C library that it was built with"
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
