"""Files of records: read whole or not at all, and written under another name before they get theirs."""

from __future__ import annotations

import atexit
import errno
import itertools
import os
import stat
import time
from collections import deque
from contextlib import suppress
from typing import Self

__all__ = ["Directory", "Drafts", "make_directory", "read_file"]

_DIR_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_RDONLY
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_DAY = 86400.0
_TRIES = 4
_serial = itertools.count()


class Directory:
    """A directory that is open as long as the context lasts; its descriptor is what ``with`` gives.

    ``create``: make it, and what is missing above it, for this user alone.
    """

    __slots__ = ("_create", "_descriptor", "_path")

    def __init__(self, path: str, *, create: bool = False) -> None:
        self._path = path
        self._create = create
        self._descriptor = -1

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, _DIR_FLAGS)
        except FileNotFoundError:
            if not self._create:
                raise
            make_directory(self._path)
            self._descriptor = os.open(self._path, _DIR_FLAGS)
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


class Drafts:
    """The directory where files are written before they get the name under which others look for them.

    ext4 looks at each inode that was freed in the last minutes whenever it makes a file, which then takes ten times as
    long. So a draft that got a second name keeps its first. When the file of that other name has been replaced, the
    draft is written over where a new file would be made and another one be freed. Kept drafts go with the process.
    Durable files are not kept: the disk may learn of what is written over them before it learns that they have gone.
    """

    most_kept = 256

    def __init__(self, path: str) -> None:
        self.path: str = path
        self._kept: deque[str] = deque()

    @classmethod
    def of(cls, path: str) -> Self:
        """Return the one of this process for a directory."""
        return _drafts.setdefault(path, cls(path))  # type: ignore[return-value]

    def write(self, directory: int, data: bytes, *, durable: bool, new: bool) -> str:
        """Write a draft and return its name in ``directory``. Unless it has to be ``new``, it may be a kept one."""
        name, descriptor, size = (None if new else self._kept_one(directory)) or _new_file(directory)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                if size > len(data):
                    os.ftruncate(descriptor, len(data))
                if durable:
                    os.fsync(descriptor)  # the name comes after the bytes: a 0-byte record is the field's oldest bug
            finally:
                os.close(descriptor)
        except BaseException:
            self.remove(name, directory)
            raise
        return name

    def keep(self, name: str, directory: int) -> None:
        """Keep a draft for a later one while it is linked to another name, as far as the file system counts names."""
        with suppress(FileNotFoundError):
            # sshfs says 1 always: nobody could tell when the other name has gone
            if len(self._kept) < self.most_kept and os.stat(name, dir_fd=directory, follow_symlinks=False).st_nlink > 1:
                self._kept.append(name)
            else:
                self.remove(name, directory)

    def remove(self, name: str, directory: int) -> None:
        """Remove a draft, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)

    def left_over(self, directory: int, older_than: float) -> list[str]:
        """Return the names of what writers that were killed have left, not written to for ``older_than`` seconds.

        A file whose writer lives is among them after a day: its number may be another process's by now.
        """
        return [name for name in sorted(os.listdir(directory)) if _is_left_over(name, directory, older_than)]

    def _kept_one(self, directory: int) -> tuple[str, int, int] | None:
        """Return a kept draft that nothing else links to, open: its name, descriptor and size."""
        for _ in range(_TRIES):
            try:
                name = self._kept.popleft()
                if not name.startswith(f"{os.getpid()}-"):  # a C program's child, of which Python was not told
                    continue
                descriptor = os.open(name, _WRITE_FLAGS, dir_fd=directory)
            except IndexError:
                return None
            except OSError:
                continue
            status = os.fstat(descriptor)
            if status.st_nlink == 1 and stat.S_ISREG(status.st_mode):
                return name, descriptor, status.st_size
            os.close(descriptor)
            self._kept.append(name)
        return None


_drafts: dict[str, Drafts] = {}


@atexit.register
def _remove_kept() -> None:
    for path, drafts in _drafts.items():
        with suppress(OSError), Directory(path) as directory:
            while drafts._kept:  # noqa: SLF001 - one mechanism
                drafts.remove(drafts._kept.pop(), directory)  # noqa: SLF001


def _forget_kept() -> None:
    for drafts in _drafts.values():
        drafts._kept.clear()  # noqa: SLF001
    Drafts.most_kept = 0


# a forked child must not write over, nor remove, what its parent keeps; and it keeps none itself: most of them end with
# os._exit, and worker after worker would leave some
os.register_at_fork(after_in_child=_forget_kept)


def _new_file(directory: int) -> tuple[str, int, int]:
    name = f"{os.getpid()}-{time.monotonic_ns()}-{next(_serial)}"
    return name, os.open(name, _WRITE_FLAGS | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory), 0


def _is_left_over(name: str, directory: int, older_than: float) -> bool:
    try:
        age = time.time() - os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return False
    return age >= older_than and (age >= _DAY or not os.path.exists(f"/proc/{name.partition('-')[0]}"))


def make_directory(path: str) -> None:
    """Make a directory and what is missing above it, for this user alone."""
    if not os.path.isdir(path):
        parent = os.path.dirname(path)
        if parent and parent != path:
            make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)


def read_file(name: str, directory: int) -> bytes | None:
    """Return what is in a file, or None where it is something else, such as a symbolic link."""
    while True:
        try:
            descriptor = os.open(name, _READ_FLAGS, dir_fd=directory)
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENXIO}:
                return None
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return None
            data = os.read(descriptor, status.st_size + 1)
            while len(data) > status.st_size and (more := os.read(descriptor, 1 << 20)):  # it grows
                data += more
            # replaced meanwhile, it may be written over already, and even have its name again: what was read is of two
            # records then
            now = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if (now.st_ino, now.st_mtime_ns) == (status.st_ino, status.st_mtime_ns):
                return data
        finally:
            os.close(descriptor)
