"""Check the disks and directories that records and reservations are written to."""

from __future__ import annotations

import fcntl
import os
import shlex
import stat
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import libcni.kernel.system as system
from libcni.config.host_local import reservation_directories
from libcni.diagnosis.hidden_records import hidden_records
from libcni.diagnosis.lock_holders import users_in_words
from libcni.diagnosis.mounts import mount_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import Checked, NodeCheck, NodeFinding, Observations

_error = partial(NodeFinding, "disk", "error")

POOL_LOCK_MODE = 0o750
"""The mode of host-local's file ``lock``. Any user who may open it can hold the lock and stop every ADD and DEL."""
_LOCK_SECONDS = 1.0
"""Seconds after which a held lock of host-local is a fault: the plugin holds it for milliseconds only."""
_FREE = {"bytes": 64 * 1024, "inodes": 4}
"""The free space that an ADD needs for its record."""
_UNRECORDED = "no ADD can write its record, so every ADD fails"
_UNNAMED = "no network namespace can get a name there, so no container can be started"
_NAMED = "/run/netns"
"""The directory in which ip, containerd, CRI-O and podman give namespaces their names."""


def check_disk(node: NodeState) -> Observations:
    """Check directories, space, inodes, read-only mounts, mounts over records, and rights."""
    yield from hidden_records(node)
    top = node.cni.cache_dir
    for path in (top, *(os.path.join(top, name) for name in ("results", "tmp", "corrupt"))):
        if os.path.lexists(path):
            yield from _directory(path, is_top=path == top)
    reserving = sorted({path for _, path in node.reservations} | _configured(node))
    for path in reserving:
        if obstacle := obstacle_at(path):
            yield _in_the_way(obstacle, "no address can be reserved, so every ADD fails")
        yield from writable_by_others("disk", path)
        yield from _pool_lock(os.path.join(path, "lock"))
        yield from _held_lock(os.path.join(path, "lock"))
    places = {attachment.netns for attachment in node.attachments if attachment.netns.startswith("/")}
    named = {os.path.dirname(path) for path in places if not path.startswith("/proc/")}
    checked: set[tuple[int, int]] = set()
    for directory, need in (
        *((one, _UNRECORDED) for one in sorted({top, *map(os.path.dirname, reserving)})),
        *((one, _UNRECORDED) for one in (os.path.join(top, "results"),)),
        *((one, "no address can be reserved, so every ADD fails") for one in reserving),
        *((one, _UNNAMED) for one in sorted(named | {_NAMED})),
    ):
        while not os.path.exists(directory):
            directory = os.path.dirname(directory) or "/"  # noqa: PLW2901 - the nearest parent that exists
        # One finding for a file system, however many directories are on it.
        key = os.stat(directory).st_dev, os.statvfs(directory).f_flag & os.ST_RDONLY
        if key not in checked:
            checked.add(key)
            yield from _file_system(directory, need)


def _configured(node: NodeState) -> set[str]:
    return {path for net in node.networks for path in reservation_directories(net)}


class Obstacle(NamedTuple):
    """Something that stands where a directory should be: its path, what it is, and what to do."""

    path: str
    seen: str
    remedy: str


def obstacle_at(path: str) -> Obstacle | None:
    """Return the file or link that prevents the creation of a directory; None if it exists or can be created."""
    parts = path.rstrip("/").split("/")
    for length in range(2, len(parts) + 1):
        part = "/".join(parts[:length])
        if os.path.isdir(part):
            continue
        if not os.path.islink(part):
            return Obstacle(part, "it is not a directory", "move it away") if os.path.lexists(part) else None
        target = os.path.join(os.path.dirname(part), os.readlink(part))
        if os.path.lexists(os.path.realpath(part)):
            seen = f"it is a symbolic link to {target}, which is no directory"
            return Obstacle(part, seen, f"remove the link: rm {shlex.quote(part)}")
        return Obstacle(
            part, f"it is a symbolic link to {target}, which does not exist",
            f"mount the disk with that directory; if there is no such disk: mkdir -p {shlex.quote(target)}",
        )  # fmt: skip
    return None


def _in_the_way(obstacle: Obstacle, meaning: str) -> NodeFinding:
    return _error("no-directory", obstacle.path, obstacle.seen, meaning, obstacle.remedy)


def _directory(path: str, *, is_top: bool) -> Observations:
    if obstacle := obstacle_at(path):
        # The given path may be a mistake, such as a system file.
        remedy = f"use another record directory (--cache-dir), or {obstacle.remedy}" if is_top else obstacle.remedy
        yield _in_the_way(obstacle._replace(remedy=remedy), _UNRECORDED)
    # libcni follows no symbolic link below the record directory.
    elif not is_top and os.path.islink(path):
        seen = f"it is a symbolic link to {os.path.realpath(path)}"
        yield _error("no-directory", path, seen, _UNRECORDED, "replace it by a directory")
    # A read-only file system is reported for the disk. access() would report it as missing rights.
    elif not os.statvfs(path).f_flag & os.ST_RDONLY and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        remedy = "run as root, or use another record directory (--cache-dir)"
        yield _error("not-writable", path, "this user may not write to it", _UNRECORDED, remedy)
    else:
        yield from writable_by_others("disk", path)


def _pool_lock(path: str) -> Observations:
    with suppress(OSError):
        if stat.S_IMODE(os.stat(path).st_mode) & 0o007:
            yield NodeFinding(
                "disk", "warning", "open-lock", path, "every user may open the file, and hold the lock",
                "whoever holds it stops every ADD and DEL of the network",
                f"chmod {POOL_LOCK_MODE:o} {shlex.quote(path)}",
            )  # fmt: skip


def _held_lock(path: str) -> Observations:
    """Find a lock of host-local that somebody keeps: the plugin needs it for milliseconds."""
    deadline = system.monotonic() + _LOCK_SECONDS
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            while _is_held(descriptor):
                if system.monotonic() >= deadline:
                    yield _error(
                        "held-lock", path,
                        f"the lock is held for more than {_LOCK_SECONDS:g} s by {users_in_words(path)}",
                        "ADD and DEL of the network wait for the lock",
                        "if the process hangs, end it: that releases the lock. Do not delete the file",
                    )  # fmt: skip
                    return
                system.sleep(_LOCK_SECONDS / 20)
        finally:
            os.close(descriptor)


def _is_held(descriptor: int) -> bool:
    """Return whether another process holds a lock of flock(2). Takes a shared lock for a moment."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    return False


def writable_by_others(check: NodeCheck, directory: str) -> Observations:
    """Report a directory, or a plugin's file, that other users may write to."""
    try:
        status = os.stat(directory)
    except OSError:
        return
    about = partial(NodeFinding, check, "warning", "writable-by-others", directory)
    if status.st_uid not in {0, os.geteuid(), _unmapped_user()}:
        seen = f"it belongs to user {status.st_uid}"
        yield about(seen, "that user can run programs as the runtime's user", f"chown root: {shlex.quote(directory)}")
    if status.st_mode & stat.S_IWOTH:
        seen = "every user may write to it"
        yield about(seen, "every user can run programs as the runtime's user", f"chmod o-w {shlex.quote(directory)}")


def _unmapped_user() -> int:
    """Return the number of each owner that this user namespace cannot name, for example the host's root; -1: none."""
    with suppress(OSError, ValueError), open("/proc/self/uid_map", encoding="ascii") as map_file:
        if map_file.read().split() != ["0", "0", "4294967295"]:
            with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
                return int(file.read())
    return -1


def _file_system(path: str, need: str) -> Observations:
    disk = os.statvfs(path)
    yield Checked("disk", f"space, inodes and mount of {path}")
    if disk.f_flag & os.ST_RDONLY:
        remedy = "find the cause (dmesg: a disk error makes the kernel do this), then mount it read-write"
        yield _error("read-only", path, "the file system is read-only", need, remedy)
        return
    # f_bavail, not f_bfree: the rest is reserved for root, and this program may run as another user. File systems
    # without a fixed number of inodes, such as btrfs, report 0. The name of a namespace is an empty file.
    for unit, option, free, size, counter in (
        ("bytes", "size", disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, "du -xah"),
        ("inodes", "nr_inodes", disk.f_favail, disk.f_files, "du -x --inodes"),
    ):
        if size and free < _FREE[unit] and not (unit == "bytes" and need == _UNNAMED):
            mount = mount_of(path)
            more = f"enlarge it (mount -o remount,{option}={2 * size} {shlex.quote(mount.point)}), or "
            remedy = f"free some {unit}; the largest users are: {counter} {shlex.quote(path)} | sort -h | tail"
            seen = f"{free} of {size} {unit} are free"
            yield _error("full", path, seen, need, f"{more * (mount.kind == 'tmpfs')}{remedy}")
