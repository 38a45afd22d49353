"""Find the processes that hold a lock of the records."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Container, Iterator
from contextlib import suppress

import libcni.kernel.system as system
from libcni.errors import printable, some
from libcni.kernel.namespace import (
    CLONE_NEWUTS,
    call_in_thread,
    enter_namespace,
    namespace_identity,
    open_namespace,
)

__all__ = ["lock_users"]

_RANGE = re.compile(rb"^lock:.* (\d+) (?:\d+|EOF)$", re.MULTILINE)
"""A lock in /proc/PID/fdinfo, with its first byte."""


def lock_users(path: str, offsets: Collection[int] | None = None) -> Iterator[str]:
    """Yield ``name (PID)`` of each other process that holds a lock in a lock file or in the file of plugins' locks.

    Args:
        path: the lock file; ``{path}.plugins`` has the locks of running plugins.
        offsets: only locks that begin at these bytes; None: any lock.
    """
    for pid in _holders(path, offsets):
        yield _named(pid)


def users_in_words(path: str, offsets: Collection[int] | None = None) -> str:
    """Return as text which processes hold a lock that is held now, and how long they have run.

    The kernel does not say since when a lock is held. The arguments are those of ``lock_users``.
    """
    users = []
    for pid in _holders(path, offsets):
        age = process_age(str(pid))
        users.append(_named(pid) + (f", which has run for {age:.0f} s" if age is not None else ""))
    return some(users) or "a thread of this program, or a process that it cannot see"


def process_age(process: str) -> float | None:
    """Return for how many seconds a process has run; None if that is unknown."""
    with suppress(IndexError, ValueError):
        # The name of the program, in parentheses, may have any character.
        ticks = int(_proc(f"{process}/stat").rpartition(b")")[2].split()[19])
        return max(0.0, system.uptime() - ticks / os.sysconf("SC_CLK_TCK"))
    return None


def _holders(path: str, offsets: Collection[int] | None) -> Iterator[int]:
    # Device and inode, not the path: a process in another mount namespace sees the file under another path.
    identities = {namespace_identity(path), namespace_identity(f"{path}.plugins")} - {None}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        held = _locks(pid, identities) if pid != os.getpid() and identities else set()
        if held if offsets is None else not held.isdisjoint(offsets):
            yield pid


def _named(pid: int) -> str:
    return f"{_proc(f'{pid}/comm').decode(errors='replace').strip() or '?'} ({pid})"


def _locks(pid: int, identities: Container[tuple[int, int] | None]) -> set[int]:
    """Return the first bytes of the locks that a process holds in files."""
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return set()
    same_file = []
    for number in numbers:
        with suppress(OSError):
            # Not stat(2): a user's file system, or a server on the network, may never answer.
            if system.identify(f"/proc/{pid}/fd/{number}") in identities:
                same_file.append(number)
    # A runtime keeps the file open between its verbs. Only fdinfo shows whether a descriptor holds a lock.
    return {int(first) for number in same_file for first in _RANGE.findall(_proc(f"{pid}/fdinfo/{number}"))}


def _proc(path: str) -> bytes:
    """Return the content of a file in /proc, or b"" if the process has ended or belongs to another user."""
    try:
        with open(f"/proc/{path}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def container_id_of(process: str) -> str:
    """Return the container ID (64 hex digits) in the path of a process's control group, or ""."""
    found = re.findall(rb"[0-9a-f]{64}", _proc(f"{process}/cgroup")) if process else []
    return found[-1].decode() if found else ""


def host_name_of(process: str) -> str:
    """Return the host name of a process in another UTS namespace, which is its pod's name in Kubernetes; or ""."""

    def ask() -> str:
        enter_namespace(descriptor, CLONE_NEWUTS)
        return printable(os.uname().nodename)

    with suppress(OSError):
        if namespace_identity(f"/proc/{process}/ns/uts") != namespace_identity("/proc/self/ns/uts"):
            descriptor = open_namespace(f"/proc/{process}/ns/uts")
            try:
                return call_in_thread(ask)
            finally:
                os.close(descriptor)
    return ""
