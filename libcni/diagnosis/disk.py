"""Check the disks and directories that records and reservations are written to."""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from functools import partial

from libcni.diagnosis.reading import Reading
from libcni.diagnosis.report import Checked, NodeCheck, NodeFinding, NotChecked, Observations, quoted

_error, _warning = partial(NodeFinding, "disk", "error"), partial(NodeFinding, "disk", "warning")

_FREE_BYTES_ERROR, _FREE_BYTES_WARNING = 64 * 1024, 64 * 1024 * 1024
_FREE_FILES_ERROR, _FREE_FILES_WARNING = 4, 100
_WARNING_SHARE = 0.05
_ANOTHER = "use another record directory (--cache-dir, LIBCNI_CACHE_DIR), or move the file if nobody needs it"


def check_disk(node: Reading) -> Observations:
    """Check space, inodes, read-only mounts, owners, symbolic links and rights."""
    yield from _records(node.cni.cache_dir)
    directories = {node.cni.cache_dir, *(os.path.dirname(path) for _, path in node.reservations)}
    checked: set[int] = set()
    for directory in sorted(directories):
        existing = _existing(directory)
        device = os.stat(existing).st_dev
        if device not in checked:  # one finding for a disk, however many directories are on it
            checked.add(device)
            yield from _disk(existing)


def _existing(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path) or "/"
    return path


def _mount_point(path: str) -> str:
    # A symbolic link can lead to another file system, so the path is resolved first.
    path = os.path.realpath(path)
    while not os.path.ismount(path):
        path = os.path.dirname(path)
    return path


def _disk(path: str) -> Observations:
    try:
        disk = os.statvfs(path)
    except OSError as error:
        yield NotChecked("disk", path, f"its file system cannot be read: {error.strerror}")
        return
    mount = _mount_point(path)
    yield Checked("disk", f"space, inodes and mount of {path}")
    if disk.f_flag & os.ST_RDONLY:
        yield _error(
            mount, "the file system is read-only", "no ADD can be recorded, so none is run",
            "find out why (dmesg: a disk error makes the kernel do this); then:",
            (f"mount -o remount,rw {quoted(mount)}",),
        )  # fmt: skip
        return
    # f_bavail, not f_bfree: the rest is reserved for root, and this program may run as another user.
    free, size = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
    yield from _scarce(mount, "bytes", free, size, (_FREE_BYTES_ERROR, _FREE_BYTES_WARNING))
    # File systems without a fixed number of inodes, such as btrfs, report 0.
    if disk.f_files:
        yield from _scarce(mount, "inodes", disk.f_favail, disk.f_files, (_FREE_FILES_ERROR, _FREE_FILES_WARNING))


def _scarce(mount: str, unit: str, free: int, size: int, limits: tuple[int, int]) -> Observations:
    error, warning = limits
    if free < error or (free < warning and free < _WARNING_SHARE * size):
        counter = "du -xah" if unit == "bytes" else "du -x --inodes"
        yield NodeFinding(
            "disk", "error" if free < error else "warning", mount, f"{free} of {size} {unit} are free",
            "an ADD that cannot be recorded is not run" if free < error else "soon no ADD can be recorded",
            "free some; the largest are:", (f"{counter} {quoted(mount)} | sort -h | tail",),
        )  # fmt: skip


def _records(directory: str) -> Observations:
    if not os.path.lexists(directory):
        parent = _existing(directory)
        if not os.path.isdir(parent):
            yield _error(
                directory, f"it cannot be made: {parent} is not a directory", "no ADD can be recorded", _ANOTHER,
            )  # fmt: skip
        elif not os.access(parent, os.W_OK | os.X_OK):
            yield _error(
                directory, f"it cannot be made: this user may not write to {parent}", "no ADD can be recorded",
                "run as root, or use another record directory (--cache-dir)",
            )  # fmt: skip
        return
    yield from _rights(directory, is_top=True)
    for path in (os.path.join(directory, name) for name in ("results", "tmp", "partial", "corrupt")):
        if os.path.islink(path):
            target = os.path.realpath(path)
            yield _error(
                path, f"a symbolic link to {target}", "libcni does not follow it, so no record can be read or written",
                commands=(f"rm {quoted(path)}", f"mv {quoted(target)} {quoted(path)}"),
            )  # fmt: skip
        elif os.path.lexists(path):
            yield from _rights(path, is_top=False)
    locks = os.path.join(directory, "locks")
    if os.path.lexists(locks) and not stat.S_ISREG(os.lstat(locks).st_mode):
        yield _error(
            locks, "it is not a regular file", "no verb can lock its container",
            commands=(f"mv {quoted(locks)} {quoted(locks)}.old",),
        )  # fmt: skip


def _rights(path: str, *, is_top: bool) -> Observations:
    name = quoted(path)
    if not os.path.isdir(path):
        # The given path may be a mistake, such as a file of the system: no command moves that.
        commands = () if is_top else (f"mv {name} {name}.old",)
        remedy = _ANOTHER if is_top else ""
        yield _error(path, "it is not a directory", "no ADD can be recorded", remedy, commands)
        return
    status = os.stat(path)
    if status.st_uid not in {0, os.geteuid()}:
        user = str(status.st_uid)
        with suppress(KeyError):
            user = pwd.getpwuid(status.st_uid).pw_name
        yield _warning(
            path, f"it belongs to user {user}",
            "that user can change records, and so what DEL runs as this user", commands=(f"chown root: {name}",),
        )  # fmt: skip
    # A read-only file system is reported for the disk. access() would blame the rights for it.
    is_read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    if not is_read_only and not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        yield _error(
            path, "this user may not write to it", "no ADD can be recorded",
            "run as root, or use another record directory (--cache-dir)",
        )  # fmt: skip
    yield from writable_by_others("disk", path)


def writable_by_others(check: NodeCheck, directory: str) -> Observations:
    """Report a directory that every user may write to."""
    try:
        status = os.stat(directory)
    except OSError:
        return
    if status.st_mode & stat.S_IWOTH:
        yield NodeFinding(
            check, "warning", directory, "every user may write to it",
            "every user can run programs as the runtime's user", commands=(f"chmod o-w {quoted(directory)}",),
        )  # fmt: skip
