"""Check the disks and directories that records and reservations are written to."""

from __future__ import annotations

import os
import stat
from functools import partial

from libcni.diagnosis.reading import Reading
from libcni.diagnosis.report import Checked, NodeCheck, NodeFinding, NotChecked, Observations, quoted

_error = partial(NodeFinding, "disk", "error")

_FREE = {"bytes": 64 * 1024, "inodes": 4}
"""With less than this an ADD may not be recorded."""
_UNRECORDED = "no ADD can be recorded, so none is run"


def check_disk(node: Reading) -> Observations:
    """Check space, inodes, read-only mounts, symbolic links and rights."""
    top = node.cni.cache_dir
    for path in (top, *(os.path.join(top, name) for name in ("results", "tmp", "partial", "corrupt", "locks"))):
        if os.path.lexists(path):
            yield from _path(path, is_top=path == top)
    checked: set[int] = set()
    for directory in sorted({top, *(os.path.dirname(path) for _, path in node.reservations)}):
        existing = _existing(directory)
        device = os.stat(existing).st_dev
        if device not in checked:  # one finding for a disk, however many directories are on it
            checked.add(device)
            yield from _disk(existing)


def _path(path: str, *, is_top: bool) -> Observations:
    name = quoted(path)
    # libcni follows no symbolic link below the record directory.
    mode = (os.stat if is_top and os.path.exists(path) else os.lstat)(path).st_mode
    if os.path.basename(path) == "locks" and not is_top:
        if not stat.S_ISREG(mode):
            yield _error(
                path, "it is not a regular file", "no verb can lock its container", commands=(f"mv {name} {name}.old",)
            )
    elif stat.S_ISLNK(mode) and os.path.isdir(path):
        target = os.path.realpath(path)
        yield _error(
            path, f"a symbolic link to {target}", "no record can be read or written",
            commands=(f"rm {name}", f"mv {quoted(target)} {name}"),
        )  # fmt: skip
    elif not stat.S_ISDIR(mode):
        # The given path may be a mistake, such as a file of the system: no command moves that.
        commands = () if is_top else (f"mv {name} {name}.old",)
        remedy = "use another record directory (--cache-dir), or move the file if nobody needs it" if is_top else ""
        yield _error(path, "it is not a directory", _UNRECORDED, remedy, commands)
    # A read-only file system is reported for the disk. access() would blame the rights for it.
    elif not os.statvfs(path).f_flag & os.ST_RDONLY and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        remedy = "run as root, or use another record directory (--cache-dir)"
        yield _error(path, "this user may not write to it", _UNRECORDED, remedy)
    else:
        yield from writable_by_others("disk", path)


def writable_by_others(check: NodeCheck, directory: str) -> Observations:
    """Report a directory that other users may write to."""
    try:
        status = os.stat(directory)
    except OSError:
        return
    about = partial(NodeFinding, check, "warning", directory)
    meaning = "that user can run programs as the runtime's user"
    if status.st_uid not in {0, os.geteuid()}:
        yield about(f"it belongs to user {status.st_uid}", meaning, commands=(f"chown root: {quoted(directory)}",))
    if status.st_mode & stat.S_IWOTH:
        seen, meaning = "every user may write to it", meaning.replace("that", "every")
        yield about(seen, meaning, commands=(f"chmod o-w {quoted(directory)}",))


def _existing(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _disk(path: str) -> Observations:
    try:
        disk = os.statvfs(path)
    except OSError as error:
        yield NotChecked("disk", path, f"its file system cannot be read: {error.strerror}")
        return
    # A symbolic link can lead to another file system, so the path is resolved first.
    mount = os.path.realpath(path)
    while not os.path.ismount(mount):
        mount = os.path.dirname(mount)
    yield Checked("disk", f"space, inodes and mount of {path}")
    if disk.f_flag & os.ST_RDONLY:
        remedy = "find out why (dmesg: a disk error makes the kernel do this); then:"
        yield _error(
            mount, "the file system is read-only", _UNRECORDED, remedy, (f"mount -o remount,rw {quoted(mount)}",)
        )
        return
    # f_bavail, not f_bfree: the rest is reserved for root, and this program may run as another user. File systems
    # without a fixed number of inodes, such as btrfs, report 0.
    for unit, free, size, counter in (
        ("bytes", disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize, "du -xah"),
        ("inodes", disk.f_favail, disk.f_files, "du -x --inodes"),
    ):
        if size and free < _FREE[unit]:
            seen = f"{free} of {size} {unit} are free"
            command = f"{counter} {quoted(mount)} | sort -h | tail"
            yield _error(mount, seen, _UNRECORDED, "free some; the largest are:", (command,))
