"""Search all objects that can hold a network namespace: threads, mounts in every mount namespace, descriptors.

A holder proves life. A walk cannot see a namespace that only a socket holds. A namespace may pass from one holder to
the next behind the walk, so everything is examined twice. ``blind`` names what the walk may not examine.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Literal

import libcni.kernel.system as system
from libcni._dataclass import dataclass, field
from libcni.kernel.foreign import is_trusted
from libcni.kernel.namespace import call_in_thread, open_known, open_namespace

Sign = Literal["thread", "mount", "descriptor"]

FIRST_PID_NAMESPACE, FIRST_USER_NAMESPACE = 0xEFFFFFFC, 0xEFFFFFFD
_CAP_SYS_PTRACE, CAP_SYS_ADMIN = 19, 21
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_PASSES = 2
_MOST_OTHERS = 8
_SECONDS = 20.0
_MOST_BYTES = 1 << 26
"""The largest size of a mountinfo: a user may mount 100,000 times in each of his mount namespaces."""
_GONE = {errno.ENOENT, errno.ESRCH}
_DETACHED = "/"
"""The target of the link in ``/proc/PID/fd`` to a namespace whose mount was detached while the file was open."""


@dataclass(slots=True)
class Held:
    """The holders of a network namespace: threads, mounts, descriptors.

    Attributes:
        process: the PID of a process with a thread in it, or "".
        paths: a path to it for each sign that was seen. A path is "" if it must not be used, because it goes through a
            mount namespace of another user, where an open may wait for ever.
        mounts: the paths of its mounts, in whatever mount namespace, as they are seen there.
        others: some more paths to it. The first one may be below another mount that covers it.
    """

    process: str = ""
    paths: dict[Sign, str] = field(default_factory=dict)
    mounts: set[str] = field(default_factory=set)
    others: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        """A path to the namespace, or ""."""
        return next(iter(self.all_paths), "")

    @property
    def all_paths(self) -> list[str]:
        """All paths that lead to the namespace, as far as the walk has found them."""
        return [path for path in (*self.paths.values(), *self.others) if path]


def why_blind() -> str:
    """Return why processes of the node may be hidden from this program, even from root; "" if none are hidden."""
    try:
        fields = dict(
            line.partition(":")[::2] for line in _read("/proc/self/status").decode(errors="replace").split("\n")
        )
        mounts = _read("/proc/self/mountinfo").split(b"\n")
        sees_all = has_capability(_CAP_SYS_PTRACE, fields.get("CapEff", "0"))
    except (OSError, ValueError) as error:
        return f"/proc cannot be read: {error}"
    if not sees_all:
        return "the processes of other users are hidden: run this as root (CAP_SYS_PTRACE)"
    own = [line.partition(b" - ") for line in mounts if line.split(b" ")[4:5] == [b"/proc"] and b" - proc " in line]
    if own and b"subset=pid" in own[-1][2]:
        return "/proc is mounted with subset=pid"
    return ""


def _who_looks() -> tuple[str, int | None]:
    """Return this process's number in /proc, and the PID namespace whose processes /proc has."""
    try:
        fields = [line.split() for line in _read("/proc/self/status").decode(errors="replace").split("\n")]
        numbers = next((words[1:] for words in fields if words[:1] == ["NSpid:"]), [])
        if len(numbers) > 1:  # /proc is of a PID namespace above this process's
            return numbers[0], next(filter(None, map(_inode_or_none, ("/proc/1/ns/pid", "/proc/2/ns/pid"))), None)
    except OSError:
        return "", None
    return str(system.getpid()), _inode_or_none("/proc/self/ns/pid")


def has_capability(number: int, effective: str | None = None) -> bool:
    """Return whether the calling thread has a capability; ``effective``: its CapEff, if it is known."""
    if effective is None:
        lines = _read("/proc/thread-self/status").decode(errors="replace").split("\n")
        effective = next((line.partition(":")[2] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> number & 1)


class Walk:
    """A completed search of the node's threads, mounts and descriptors for the holders of network namespaces.

    Args:
        seconds: the longest time that it may take.
        only_threads: whether to look only at threads, not at mounts and descriptors.

    Attributes:
        held: what holds each namespace, by its inode.
        blind: why the walk may have missed holders of namespaces; "" if it saw all.
        outside: a process outside this program's user namespace that could not be looked at, or "". The containers of
            a rootless program are inside; what root holds is not seen.
        pid_namespace: the inode of the PID namespace whose processes /proc has; None if it is unknown.
        sees_containers: whether it saw a process of a PID namespace below ``pid_namespace``, in a network namespace
            that is also mounted. If ``pid_namespace`` is not the machine's first one, this shows that a runtime's
            processes are seen.
    """

    def __init__(self, *, seconds: float = _SECONDS, only_threads: bool = False) -> None:
        self.held: dict[int, Held] = {}
        self._only_threads = only_threads
        self.blind: str = why_blind()
        self.outside: str = ""
        self._is_rootless: bool = _inode_or_none("/proc/self/ns/user") not in {FIRST_USER_NAMESPACE, None}
        self.sees_containers: bool = False
        self._until = system.monotonic() + seconds
        self._slowest = (-1.0, "")
        self._own_net = _inode_or_none("/proc/thread-self/ns/net")
        self._own_pid: str
        self.pid_namespace: int | None
        self._own_pid, self.pid_namespace = _who_looks()
        self._below: set[int] = set()
        self._read_mounts: set[int] = set()
        self._open_mounts: dict[int, str] = {}
        self._hidden: dict[str, OSError] = {}
        self._mounted_names: set[str] = set()
        for _ in range(_PASSES):
            self._read_mounts.clear()
            self._walk()
        if self._is_late():
            self._note(f"the search of the processes took too long, longest for process {self._slowest[1]}")
        self._look_at_hidden()
        if self._own_net is not None:
            self._hold(self._own_net, "thread", "/proc/thread-self/ns/net")
        # A mount of a user has no path here: he can make all of it by himself.
        self.sees_containers = any(self.held[inode].paths.get("mount") for inode in self._below)

    def _hold(self, inode: int, sign: Sign, path: str) -> Held:
        held = self.held.setdefault(inode, Held())
        if not held.paths.get(sign):
            held.paths[sign] = path
        elif path and path != held.paths[sign] and path not in held.others and len(held.others) < _MOST_OTHERS:
            held.others.append(path)
        return held

    def _is_late(self) -> bool:
        return system.monotonic() > self._until

    def _note(self, reason: str, error: OSError | None = None) -> None:
        text = reason if error is None else f"{reason}: {error.strerror}"
        # Whoever has CAP_SYS_PTRACE in a user namespace may look at every process in it and below.
        if error is not None and error.errno == errno.EACCES and self._is_rootless:
            self.outside = self.outside or text
        else:
            self.blind = self.blind or text

    def _walk(self) -> None:
        try:
            numbers = [name for name in system.listdir("/proc") if name.isdigit()]
        except OSError as error:
            self._note("/proc", error)
            return
        if not self._only_threads:
            self._mounts_of("/proc/self")
        for pid in numbers:
            if self._is_late():
                return
            began = system.monotonic()
            self._process(pid)
            # A user can have millions of descriptors.
            self._slowest = max(self._slowest, (system.monotonic() - began, pid))
        self._look_into_open_mount_namespaces()

    def _process(self, pid: str) -> None:
        base = f"/proc/{pid}"
        try:
            threads = system.listdir(f"{base}/task")
        except OSError as error:
            if error.errno not in _GONE:
                self._note(f"{base}/task", error)
            return
        tables: list[int] = []
        for thread in threads:
            # The first thread of a process may have ended while the others run.
            task = f"{base}/task/{thread}" if len(threads) > 1 else base
            if self._thread(task, pid) and not self._only_threads and not self._is_late():
                self._mounts_of(task)
                if not any(system.shares_descriptors(int(thread), other) for other in tables):
                    tables.append(int(thread))
                    self._descriptors(task, pid)

    def _thread(self, task: str, pid: str) -> bool:
        """Look at a thread's network namespace; return whether the thread exists."""
        try:
            inode: int = system.stat(f"{task}/ns/net").st_ino
        except OSError as error:
            if error.errno not in _GONE:
                self._hidden[task] = error.with_traceback(None)  # which would keep the readings of a repair
            return error.errno not in _GONE
        held = self._hold(inode, "thread", f"{task}/ns/net")
        held.process = held.process or pid
        if inode != self._own_net and inode not in self._below:
            below = _inode_or_none(f"{task}/ns/pid")
            if below is not None and below != self.pid_namespace:
                self._below.add(inode)
        return True

    def _look_at_hidden(self) -> None:
        """Note the threads that hide their namespace, unless it is one that others are in: an init may hide itself."""
        if not self._hidden:
            return
        # The files in /proc/PID/net can be looked at without any right. Each namespace has its own ones.
        paths = [held.paths["thread"].removesuffix("/ns/net") for held in self.held.values() if "thread" in held.paths]
        seen = {_inode_or_none(f"{path}/net/dev") for path in paths} - {None}
        for task, error in self._hidden.items():
            if _inode_or_none(f"{task}/net/dev") not in seen and not _has_ended(task, error):
                self._note(f"{task}/ns/net", error)

    def _mounts_of(self, task: str) -> None:
        """Look at the mounts of a thread's mount namespace."""
        root = "" if task == "/proc/self" else f"{task}/root"  # the prefix of their paths
        descriptor = -1
        try:
            inode = _inode_or_none(f"{task}/ns/mnt")
            if inode is not None:
                if inode in self._read_mounts:
                    return
                descriptor = open_namespace(f"{task}/ns/mnt")
                # mountinfo omits what is above the root of a chroot.
                if system.readlink(f"{task}/root") != "/":
                    self._by_entering(descriptor, inode, task)
                    return
            trusted = inode is not None and (task == "/proc/self" or is_trusted(descriptor))
            self._mounts(_read(f"{task}/mountinfo"), inode, root, is_trusted=trusted)
        except OSError as error:
            # EINVAL: the thread has left its namespaces. Who is rootless cannot ask about others' zombies again.
            if error.errno != errno.EINVAL and not _has_ended(task, error):
                self._note(f"{task}/mountinfo", error)
        finally:
            if descriptor >= 0:
                system.close(descriptor)

    def _mounts(self, mountinfo: bytes, inode: int | None, root: str | None, *, is_trusted: bool) -> None:
        if inode is not None:
            self._read_mounts.add(inode)
        lines = [line.split(b" ") for line in mountinfo.split(b"\n")] if b" - nsfs " in mountinfo else []
        mounts = {words[0]: words for words in lines if len(words) > 5}  # noqa: PLR2004 - the fifth is the path
        if mounts:
            is_covered = _cover_of(mounts)
            for words in mounts.values():
                if b"nsfs" not in words:
                    continue
                kind, path = words[3], _unescaped(words[4])
                is_usable = is_trusted and root is not None and not is_covered(words)
                usable = f"{root}{path}" if is_usable else ""
                if kind.startswith(b"net:["):
                    self._hold(_inode(kind), "mount", usable).mounts.add(path)
                    self._mounted_names.add(path)
                elif kind.startswith(b"mnt:[") and usable:
                    self._open_mounts.setdefault(_inode(kind), usable)

    def _by_entering(self, descriptor: int, inode: int, where: str) -> None:
        try:
            self._mounts(_mountinfo_inside(descriptor), inode, None, is_trusted=False)
        except OSError as error:
            self._note(f"the mounts of {where}", error)

    def _descriptors(self, task: str, pid: str) -> None:
        try:
            numbers = system.listdir(f"{task}/fd")
        except OSError as error:
            if pid != "1" and not _has_ended(task, error):
                self._note(f"{task}/fd", error)
            return
        for number in takewhile(lambda _: not self._is_late(), numbers):
            path = f"{task}/fd/{number}"
            try:
                link = system.readlink(path)
            except OSError as error:
                # An init that hides itself: see ``_look_at_hidden``.
                if pid != "1" and not _has_ended(task, error):
                    self._note(path, error)
                    return
                continue
            if link.startswith("mnt:["):
                self._open_mounts.setdefault(_inode(link.encode()), path)
            elif pid == self._own_pid:  # opened to look
                continue
            elif link.startswith("net:["):
                self._hold(_inode(link.encode()), "descriptor", path)
            elif link == _DETACHED or link in self._mounted_names:
                self._named(path)

    def _named(self, path: str) -> None:
        """Look at an open file with the name of a mount, or of which the mount was detached: it may be a namespace."""
        with suppress(OSError):
            device, inode = system.identify(path)
            if device == system.stat("/proc/self/ns/net").st_dev:
                self._hold(inode, "descriptor", path)

    def _look_into_open_mount_namespaces(self) -> None:
        """Look into mount namespaces without a process, which a mount or a descriptor keeps (snapd, ``unshare -m``)."""
        while left := {inode: path for inode, path in self._open_mounts.items() if inode not in self._read_mounts}:
            for inode, path in left.items():
                if self._is_late():
                    return
                self._read_mounts.add(inode)
                try:
                    # A user may put another file in the place of his descriptor, of which the open never ends.
                    descriptor = open_known(path, (system.stat("/proc/self/ns/mnt").st_dev, inode))
                except OSError as error:
                    is_another = error.errno == errno.ESTALE
                    if not is_another and not _has_ended(_task_of(path), error):
                        self._note(f"a mount namespace at {path}", error)
                    continue
                with system.Closing(descriptor):
                    self._by_entering(descriptor, inode, path)


def _task_of(path: str) -> str:
    """Return the directory in ``/proc`` of the thread through which a path leads; this program's for other paths."""
    return path.partition("/root/")[0].partition("/fd/")[0] if path.startswith("/proc/") else "/proc/self"


def _has_ended(task: str, error: OSError) -> bool:
    """Return whether an error of a file in ``/proc`` shows only that the thread has ended, or is about to end.

    The kernel answers EACCES for a link if the thread ended after the link was found. This hides nothing: such a thread
    has no namespace, mount or descriptor.
    """
    if error.errno in _GONE:
        return True
    try:
        system.stat(f"{task}/ns/mnt")
    except OSError as second:
        return second.errno in _GONE
    return False


def _mountinfo_inside(descriptor: int) -> bytes:
    """Return the whole mountinfo of an open mount namespace, as a thread sees it whose root is the namespace's."""
    with system.Closing(system.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as proc:

        def read() -> bytes:
            system.call_libc("unshare", _CLONE_FS)
            system.call_libc("setns", descriptor, _CLONE_NEWNS)
            return _read("thread-self/mountinfo", proc)

        return call_in_thread(read)


def _read(path: str, directory: int | None = None) -> bytes:
    with system.Closing(system.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)) as descriptor:
        data = b""
        while chunk := system.read(descriptor, 1 << 20):
            data += chunk
            if len(data) > _MOST_BYTES:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return data


def _cover_of(mounts: Mapping[bytes, list[bytes]]) -> Callable[[list[bytes]], bool]:
    """Return a function that says whether another mount covers the path of a mount; both as words of mountinfo."""
    mounted_on: dict[tuple[bytes, bytes], bytes] = {}  # by the parent mount, b"" for none, and the path
    for number, words in mounts.items():
        parent, path = words[1], words[4]
        # The first mount of the machine, an initramfs, is its own parent.
        has_parent = parent in mounts and parent != number
        mounted_on[parent if has_parent else b"", path] = number

    def is_covered(words: list[bytes]) -> bool:
        # Follow the path as the kernel does. A mount at the same path may itself be covered, and then it hides nothing.
        number, path = b"", b""
        for part in words[4].split(b"/"):
            path = path.rstrip(b"/") + b"/" + part
            while (number, path) in mounted_on:
                number = mounted_on[number, path]
        return number != words[0]

    return is_covered


def _inode_or_none(path: str) -> int | None:
    try:
        return int(system.stat(path).st_ino)
    except OSError:
        return None


def _inode(text: bytes) -> int:
    """Return the inode in a text such as ``net:[4026531840]``."""
    digits = text[text.index(b"[") + 1 : -1]
    return int(digits) if digits.isdigit() else 0


def _unescaped(path: bytes) -> str:
    """Return a path of mountinfo, in which blanks and backslashes are octal numbers."""
    parts = path.split(b"\\")
    text = parts[0] + b"".join(_character(part[:3]) + part[3:] for part in parts[1:])
    return os.fsdecode(text)


def _character(octal: bytes) -> bytes:
    return bytes([int(octal, 8) & 255]) if octal.isdigit() else b"\\" + octal


def is_mounted_here(inode: int) -> bool:
    """Return whether a network namespace is mounted in this program's mount namespace, perhaps below another mount."""
    with suppress(OSError):
        return b" net:[%d] " % inode in _read("/proc/self/mountinfo")
    return True


def signs_of(held: Held) -> Iterator[tuple[Sign, str]]:
    """Yield (kind, path) of the objects that hold a namespace: a thread first, then a descriptor, then a mount."""
    for sign in ("thread", "descriptor", "mount"):
        if sign in held.paths:
            yield sign, held.paths[sign]
