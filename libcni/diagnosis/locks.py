"""Find verbs that run now, and the processes of plugins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from libcni._namespace import namespace_identity
from libcni.client import CNIConfig
from libcni.diagnosis.reading import Reading
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations
from libcni.errors import RecordError
from libcni.store.attachments import Attachment
from libcni.store.locks import TOKEN_VARIABLE, LockRequest, is_locked

__all__ = ["lock_users"]


@dataclass(frozen=True, slots=True)
class PluginProcess:
    """A plugin that runs now.

    Attributes:
        pid: its process ID.
        command: its command line.
        verb: the value of CNI_COMMAND.
    """

    pid: int
    command: str
    verb: str


def check_locks(node: Reading) -> Observations:
    """Find verbs that run now."""
    path = f"{node.cni.cache_dir}/locks"
    if not os.path.exists(path):
        return
    try:
        locked = is_locked(node.cni.cache_dir, LockRequest(all_containers=True))
    except RecordError as error:
        yield NotChecked("locks", path, str(error))
        return
    yield Checked("locks", path)
    if locked:
        processes = ", ".join(lock_users(path)) or "a process that this user may not see"
        yield NodeFinding(
            "locks", "note", path, f"a verb runs now: {processes}", "other verbs of its container wait",
            "wait for it, or end it if it hangs",
        )  # fmt: skip


def plugin_processes(cni: CNIConfig, attachment: Attachment) -> list[PluginProcess]:
    """Return the plugins that run for an attachment now, found by their environment.

    Another runtime on this machine can use the same container ID. So the namespace, the interface and the lock file
    must match, too: the doctor tells people to end these processes.
    """
    identity = namespace_identity(f"{cni.cache_dir}/locks") or (0, 0)
    wanted = {
        f"CNI_CONTAINERID={attachment.container_id}".encode(),
        f"CNI_IFNAME={attachment.ifname}".encode(),
        f"CNI_NETNS={attachment.netns}".encode(),
    }
    token = f"{TOKEN_VARIABLE}={identity[0]}:{identity[1]}:".encode()
    return [found for pid in _processes() if (found := _plugin_process(pid, wanted, token)) is not None]


def _plugin_process(pid: int, wanted: set[bytes], token: bytes) -> PluginProcess | None:
    variables = _proc(f"{pid}/environ").split(b"\0")
    command = _proc(f"{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    if not wanted.issubset(variables) or not any(one.startswith(token) for one in variables) or not command:
        return None
    verb = next((one.partition(b"=")[2].decode() for one in variables if one.startswith(b"CNI_COMMAND=")), "")
    return PluginProcess(pid, command, verb) if verb else None


def _proc(path: str) -> bytes:
    """Return the content of a file in /proc, or b"" if the process has ended or belongs to another user."""
    try:
        with open(f"/proc/{path}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def lock_users(path: str) -> Iterator[str]:
    """Yield the processes that hold a lock in a file, as ``name (PID)``; not this process."""
    # Device and inode, not the path: a process in another mount namespace sees the file under another path.
    identity = namespace_identity(path)
    for pid in _processes():
        if pid != os.getpid() and identity is not None and _holds_lock(pid, identity):
            yield f"{_proc(f'{pid}/comm').decode(errors='replace').strip() or '?'} ({pid})"


def _processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _holds_lock(pid: int, identity: tuple[int, int]) -> bool:
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    same_file = [number for number in descriptors if namespace_identity(f"/proc/{pid}/fd/{number}") == identity]
    # A runtime keeps the file open between its verbs. Only fdinfo shows whether a descriptor holds a lock.
    return any(b"\nlock:" in _proc(f"{pid}/fdinfo/{number}") for number in same_file)
