"""Check the disks and directories that records and reservations are written to."""

from __future__ import annotations

import os
import shlex
import stat
from functools import partial

from libcni.diagnosis.mends import Mend
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import Checked, NodeCheck, NodeFinding, NotChecked, Observations

_error = partial(NodeFinding, "disk", "error")


_FREE = {"bytes": 64 * 1024, "inodes": 4}
"""The free space that an ADD needs for its record."""
_UNRECORDED = "no ADD can be recorded, so none is run"


def check_disk(node: NodeState) -> Observations:
    """Check space, inodes, read-only mounts, symbolic links and rights."""
    top = node.cni.cache_dir
    for path in (top, *(os.path.join(top, name) for name in ("results", "tmp", "partial", "corrupt", "locks"))):
        if os.path.lexists(path):
            yield from _path(path, is_top=path == top)
    checked: set[str] = set()
    for directory in sorted({top, *(os.path.dirname(path) for _, path in node.reservations)}):
        existing = _existing(directory)
        mount = _mount_of(existing)
        if mount not in checked:  # one finding for a disk, however many directories are on it
            checked.add(mount)
            yield from _disk(existing, mount)


def _path(path: str, *, is_top: bool) -> Observations:
    # libcni follows no symbolic link below the record directory.
    mode = (os.stat if is_top and os.path.exists(path) else os.lstat)(path).st_mode
    aside = (Mend("set-aside", path),)
    if os.path.basename(path) == "locks" and not is_top:
        if not stat.S_ISREG(mode):
            yield _error("lock-file", path, "it is not a regular file", "no verb can lock its container", mends=aside)
    elif stat.S_ISLNK(mode) and os.path.isdir(path):
        target = os.path.realpath(path)
        remedy = f"remove the link, and move {target} to its place"
        yield _error("symbolic-link", path, f"a symbolic link to {target}", "no record can be read or written", remedy)
    elif not stat.S_ISDIR(mode):
        # The given path may be a mistake, such as a system file, so no mend moves it.
        remedy = "use another record directory (--cache-dir), or move the file if nobody needs it" if is_top else ""
        yield _error("no-directory", path, "it is not a directory", _UNRECORDED, remedy, mends=() if is_top else aside)
    # A read-only file system is reported for the disk. access() would report it as missing rights.
    elif not os.statvfs(path).f_flag & os.ST_RDONLY and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        remedy = "run as root, or use another record directory (--cache-dir)"
        yield _error("not-writable", path, "this user may not write to it", _UNRECORDED, remedy)
    else:
        yield from writable_by_others("disk", path)


def writable_by_others(check: NodeCheck, directory: str) -> Observations:
    """Report a directory that other users may write to."""
    try:
        status = os.stat(directory)
    except OSError:
        return
    about = partial(NodeFinding, check, "warning", "writable-by-others", directory)
    if status.st_uid not in {0, os.geteuid()}:
        seen = f"it belongs to user {status.st_uid}"
        yield about(seen, "that user can run programs as the runtime's user", f"chown root: {shlex.quote(directory)}")
    if status.st_mode & stat.S_IWOTH:
        seen = "every user may write to it"
        yield about(seen, "every user can run programs as the runtime's user", f"chmod o-w {shlex.quote(directory)}")


def _existing(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _mount_of(path: str) -> str:
    """Return the mount point of a path. A bind mount counts, although it has the device of its parent directory."""
    real = os.path.realpath(path)
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = {line.split()[4].encode(errors="surrogateescape").decode("unicode_escape") for line in file}
    while real not in points and real != "/":
        real = os.path.dirname(real)
    return real


def _disk(path: str, mount: str) -> Observations:
    try:
        disk = os.statvfs(path)
    except OSError as error:
        yield NotChecked("disk", path, f"its file system cannot be read: {error.strerror}")
        return
    yield Checked("disk", f"space, inodes and mount of {path}")
    if disk.f_flag & os.ST_RDONLY:
        # With "bind" the flag of this mount alone changes, not that of the file system.
        command = f"mount -o remount,{'' if os.path.ismount(mount) else 'bind,'}rw {shlex.quote(mount)}"
        remedy = f"find out why (dmesg: a disk error makes the kernel do this); then: {command}"
        yield _error("read-only", mount, "the file system is read-only", _UNRECORDED, remedy)
        return
    # f_bavail, not f_bfree: the rest is reserved for root, and this program may run as another user. File systems
    # without a fixed number of inodes, such as btrfs, report 0.
    for unit, free, size, counter in (
        ("bytes", disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, "du -xah"),
        ("inodes", disk.f_favail, disk.f_files, "du -x --inodes"),
    ):
        if size and free < _FREE[unit]:
            seen = f"{free} of {size} {unit} are free"
            remedy = f"free some; the largest are: {counter} {shlex.quote(mount)} | sort -h | tail"
            yield _error("full", mount, seen, _UNRECORDED, remedy)
