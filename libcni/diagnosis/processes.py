"""Find the processes that hold a lock, and the plugins that run for an attachment."""

from __future__ import annotations

import os
from collections.abc import Iterator

from libcni.client import CNIConfig
from libcni.kernel.namespace import namespace_identity
from libcni.store.attachments import Attachment
from libcni.store.locks import TOKEN_VARIABLE

__all__ = ["lock_users"]


def plugin_processes(cni: CNIConfig, attachment: Attachment) -> dict[int, str]:
    """Return the plugins that run for an attachment now, by PID, each as text. They are known by their environment.

    Another runtime on this machine can use the same container ID. So the namespace, the interface and the lock file
    must match as well, because the doctor advises to end these processes.
    """
    identity = namespace_identity(f"{cni.cache_dir}/locks") or (0, 0)
    wanted = {
        f"CNI_CONTAINERID={attachment.container_id}".encode(),
        f"CNI_IFNAME={attachment.ifname}".encode(),
        f"CNI_NETNS={attachment.netns}".encode(),
    }
    token = f"{TOKEN_VARIABLE}={identity[0]}:{identity[1]}:".encode()
    found = {}
    for pid in _processes():
        variables = _proc(f"{pid}/environ").split(b"\0")
        command = _proc(f"{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
        verbs = [one.partition(b"=")[2].decode() for one in variables if one.startswith(b"CNI_COMMAND=")]
        if verbs and command and wanted.issubset(variables) and any(one.startswith(token) for one in variables):
            found[pid] = f"{command} (PID {pid}, {verbs[0]})"
    return found


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
