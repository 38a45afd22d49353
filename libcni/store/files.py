"""Read and write the files of records, each under a temporary name first, so that no reader sees half a record."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import libcni.kernel.system as system
from libcni.errors import RecordError
from libcni.kernel.regular_file import UnusableFileError, read_regular

FILE_MODE = 0o600
MAX_RECORD_BYTES = 64 << 20

_DIR_MODE = 0o700
# O_NOFOLLOW in all flags: a symbolic link could lead this root process to a file of another user's choice.
_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FS_IOC_FIEMAP = 0xC020660B
# Its arguments: the whole file, FIEMAP_FLAG_SYNC, no room for extents.
_WRITE_AND_WAIT = struct.pack("=QQIIII", 0, (1 << 64) - 1, 1, 0, 0, 0)
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NOT_SYNCABLE = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}
_serial = itertools.count()
_DRAFT = re.compile(r"\d+-\d+-\d+")


def record_error(problem: str, path: str, error: OSError) -> RecordError:
    """Return the error for a system call that failed on a record, its directory or the lock file."""
    return RecordError(f"{path}: {problem}: {error.strerror or error}", path=path, errno=error.errno)


class Directory:
    """A context manager that opens a directory and returns its descriptor.

    ``create``: create the directory and its missing parents, for this user alone. ``durable``: sync the new ones.
    """

    __slots__ = ("_create", "_descriptor", "_durable", "_path")

    def __init__(self, path: str, *, create: bool = False, durable: bool = False) -> None:
        self._path = path
        self._create = create
        self._durable = durable

    def __enter__(self) -> int:
        try:
            self._descriptor = system.open(self._path, _DIR_FLAGS)
        except FileNotFoundError:
            if not self._create:
                raise
            make_directory(self._path, durable=self._durable)
            self._descriptor = system.open(self._path, _DIR_FLAGS)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        system.close(self._descriptor)


def make_directory(path: str, *, durable: bool = False, mode: int = _DIR_MODE) -> None:
    """Create a directory and its missing parents with this mode, by default for this user alone, whatever the umask is.

    With ``durable``, sync the directory and all its parents on this device, because a power cut that removed one would
    remove its records. This includes existing parents: the lock file's code creates the cache directory without a sync.
    """
    _make_missing(path, mode)
    path = system.realpath(path)  # an operator may have put the cache directory on another disk, with a symbolic link
    above = os.path.dirname(path)
    device = system.stat(path).st_dev
    while durable and above != path and system.stat(above).st_dev == device:
        try:
            with Directory(above) as directory:
                sync_directory(directory)
        except PermissionError:  # so this user has created no directory in it
            return
        path, above = above, os.path.dirname(above)


def _make_missing(path: str, mode: int) -> None:
    if system.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        _make_missing(parent, mode)
    with suppress(FileExistsError):
        # mkdir subtracts the umask from the mode: an unusual umask would lock this user out, or let others in.
        system.mkdir(path, 0o700)
        system.chmod(path, mode)


def check_own_directory(path: str) -> None:
    """Raise RecordError if a directory or its parent belongs to another user, or others may rename files in it."""
    for directory in (path, os.path.dirname(path)):
        status = system.lstat(directory)
        is_sticky = bool(status.st_mode & stat.S_ISVTX) and directory != path
        if not stat.S_ISDIR(status.st_mode):
            problem = "it is not a directory"
        elif status.st_uid not in {0, os.geteuid()}:
            problem = f"it belongs to user {status.st_uid}"
        elif status.st_mode & _WRITABLE_BY_OTHERS and not is_sticky:
            problem = f"other users may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
        else:
            continue
        hint = "find out who made it, then remove it, or give it to root with mode 0700"
        raise RecordError(
            f"{directory}: {problem}, so it cannot hold the names of namespaces", path=directory, hint=hint
        )


def sync_directory(directory: int) -> None:
    """Sync a directory's entries to the disk. File systems that cannot sync directories are accepted."""
    try:
        system.fsync(directory)
    except OSError as error:
        if error.errno not in _NOT_SYNCABLE:
            raise


def keep_mode(descriptor: int) -> None:
    """Let this user read and write the file. An unusual umask removes these rights from a new file."""
    mode = system.fstat(descriptor).st_mode
    # fchmod, not chmod by name: another program could have put another file there.
    if mode & FILE_MODE != FILE_MODE:
        system.fchmod(descriptor, stat.S_IMODE(mode) | FILE_MODE)


@contextmanager
def draft(directory: int, data: bytes, *, durable: bool) -> Iterator[tuple[str, int]]:
    """Write a file under a temporary name. The block of the context manager renames or removes it.

    Yields the name and the descriptor of the file, which stays open. An exception closes and removes the file.
    ``durable``: its bytes reach the disk before any name that it gets later.
    """
    name = f"{system.getpid()}-{system.monotonic_ns()}-{next(_serial)}"
    descriptor = system.open(name, _WRITE_FLAGS, FILE_MODE, dir_fd=directory)
    try:
        keep_mode(descriptor)
        write_at(descriptor, data, 0)
        if durable:
            _order_before_names(descriptor)
        yield name, descriptor
    except BaseException:
        system.close(descriptor)
        with suppress(OSError):  # repair removes it later
            remove(name, directory)
        raise


def write_at(descriptor: int, data: bytes, index: int) -> None:
    """Write all bytes at an offset of a file."""
    view = memoryview(data)
    # pwrite(2) may write only a part, for example when the disk is nearly full or a signal arrives.
    while view:
        written = system.pwrite(descriptor, view, index)
        view, index = view[written:], index + written


def replace_file(name: str, data: bytes, drafts: int, directory: int, *, durable: bool) -> None:
    """Write a file under a temporary name in ``drafts``, and rename it to its own name in ``directory``.

    ``durable``: its bytes reach the disk before its name. The name itself is not synced.
    """
    with draft(drafts, data, durable=durable) as (temporary, descriptor):
        # rename(2), so that a kill at any moment leaves the old file or the new file.
        system.rename(temporary, name, src_dir_fd=drafts, dst_dir_fd=directory)
    system.close(descriptor)


def _order_before_names(descriptor: int) -> None:
    """Make a file's bytes reach the disk before any name that it gets from now on.

    Otherwise a power cut could leave a record of 0 bytes under its final name.
    """
    # On ext4 written bytes need no sync of their own: each commit of the journal flushes the disk's cache, so one sync
    # of the directory is enough. That takes half the time of two syncs. Wait for the write: with dioread_nolock, ext4's
    # default, the journal may otherwise name a file before its bytes are written, even with data=ordered. After a power
    # cut that file has only zeros.
    with suppress(OSError):
        # The key includes the file system's ID, because device numbers are reused.
        if _is_ordered(system.fstat(descriptor).st_dev, system.fstatvfs(descriptor).f_fsid):
            system.ioctl(descriptor, _FS_IOC_FIEMAP, _WRITE_AND_WAIT)
            return
    system.fsync(descriptor)


@functools.lru_cache  # data= cannot change while the device is mounted
def _is_ordered(device: int, _file_system: int) -> bool:
    """Return whether a device has an ext4 file system with the mount option data=ordered, which is ext4's default."""
    try:
        name = os.path.basename(system.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"))
        with open(f"/proc/fs/ext4/{name}/options", encoding="utf-8") as options:
            return "data=ordered\n" in options.read()
    except OSError:
        return False


def remove(name: str, directory: int) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError):
        system.unlink(name, dir_fd=directory)


def is_draft(name: str) -> bool:
    """Return whether a name has the form of ``draft``'s temporary names."""
    return _DRAFT.fullmatch(name) is not None


def read_file(name: str, directory: int) -> bytes:
    """Return the bytes of a regular file of at most MAX_RECORD_BYTES.

    Raises:
        UnusableFileError: it is not a regular file, for example a symbolic link, or it is larger.
        OSError: it cannot be read.
    """
    return read_regular(open_file(name, directory), MAX_RECORD_BYTES)


def open_file(name: str, directory: int, *, writable: bool = False) -> int:
    """Open a file and return its descriptor. The file need not be a regular file.

    Raises:
        UnusableFileError: it is a symbolic link, a socket, or a FIFO without a reader.
        OSError: it cannot be opened.
    """
    try:
        return system.open(name, _READ_FLAGS | (os.O_RDWR if writable else 0), dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise UnusableFileError("it is not a regular file") from None
        raise


def is_strangers(status: os.stat_result, directory: int) -> bool:
    """Return whether a file belongs to a user other than root and this one, in a directory open to others."""
    if status.st_uid in {0, os.geteuid()}:
        return False
    return bool(system.fstat(directory).st_mode & _WRITABLE_BY_OTHERS)
