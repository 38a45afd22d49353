"""/proc of the machine, as the library's walk sees it: threads, mounts of each mount namespace, descriptors.

Beliefs, each with a test with real namespaces in tests/kernel/test_life.py:
- of a process whose first thread has ended, only the other threads are in a network namespace.
- a mount in another mount namespace is in no mountinfo but that of its processes.
- a socket, and a descriptor that is on its way between two processes, are seen nowhere.
"""

from __future__ import annotations

import errno
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.disk import Directory, File, failure
from sim.world import Namespace, Process

if TYPE_CHECKING:
    from sim.world import World

FIRST_PID_NAMESPACE, FIRST_USER_NAMESPACE, FIRST_MOUNT_NAMESPACE = 0xEFFFFFFC, 0xEFFFFFFD, 4026531841
USERS_NAMESPACE = 4026531900
_THREADS = 100_000
_STATUS = b"NSpid:\t%d\nCapEff:\t000001ffffffffff\n"


@dataclass(frozen=True)
class Other:
    """A namespace of another kind than network."""

    ino: int
    owner: int = FIRST_USER_NAMESPACE


def threads_of(process: Process) -> list[int]:
    """Return the numbers of a process's threads."""
    return [process.pid, process.pid + _THREADS] if process.leader_has_ended else [process.pid]


def mounts_of(world: World, process: Process) -> dict[str, Namespace]:
    """Return the namespaces that are mounted in the mount namespace of a process, by path."""
    return world.namespaces if process.mounts is None else process.mounts


def _mountinfo(mounts: dict[str, Namespace]) -> bytes:
    lines = [
        f"{number} 1 0:4 net:[{one.ino}] {path} rw - nsfs nsfs rw\n"
        for number, (path, one) in enumerate(mounts.items(), 2)
    ]
    return "".join(lines).encode() or b"1 1 8:1 / / rw - ext4 disk rw\n"


class Proc:
    """/proc, for the process ``me``."""

    def __init__(self, world: World, me: Process) -> None:
        self._world, self._me = world, me

    def _split(self, path: str) -> tuple[Process, int, str]:
        """Return the process and the thread that a path names, and the rest of it."""
        name, _, rest = path.removeprefix("/proc/").partition("/")
        process = self._me if name in {"self", "thread-self"} else self._world.processes.get(int(name))
        if process is None:
            raise failure(errno.ENOENT, path)
        thread = process.pid
        if rest.startswith("task/"):
            number, _, rest = rest.removeprefix("task/").partition("/")
            thread = int(number)
            if thread not in threads_of(process):
                raise failure(errno.ENOENT, path)
        return process, thread, rest

    def find(self, path: str) -> Namespace | Other | File | Directory:
        """Return what is at a path."""
        process, thread, rest = self._split(path)
        has_ended = process.leader_has_ended and thread == process.pid
        if rest.startswith("root/"):
            found = mounts_of(self._world, process).get(rest.removeprefix("root"))
            if found is None:
                raise failure(errno.ENOENT, path)
            return found
        if rest.startswith("fd/"):
            file = process.descriptors.get(int(posixpath.basename(rest)))
            if file is None or not isinstance(file.inode, (Namespace, Other, File, Directory)):
                raise failure(errno.ENOENT, path)
            return file.inode
        if has_ended and rest.startswith("ns/"):
            raise failure(errno.ENOENT, path)
        found_there: dict[str, Namespace | Other | File] = {
            "ns/net": process.namespace,
            "ns/pid": Other(FIRST_PID_NAMESPACE),
            "ns/user": Other(process.namespace.owner),
            "ns/mnt": Other(FIRST_MOUNT_NAMESPACE if process.mounts is None else FIRST_MOUNT_NAMESPACE + process.pid),
            "status": File(9, data=_STATUS % process.pid),
            "mountinfo": File(9, data=_mountinfo(mounts_of(self._world, process))),
        }
        return found_there.get(rest, Directory(7))

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory."""
        process, _, rest = self._split(path)
        if rest == "task":
            return [str(number) for number in threads_of(process)]
        if rest == "fd":
            return [str(number) for number in process.descriptors]
        raise failure(errno.ENOENT, path)

    def readlink(self, path: str) -> str:
        """Return the text of a link."""
        if path.endswith("/root"):
            self._split(path)
            return "/"
        found = self.find(path)
        return f"net:[{found.ino}]" if isinstance(found, Namespace) else "anon_inode:[file]"
