"""The disk: what is there now, and what is there after a power cut.

Beliefs, each with a test with real parts:
- link, rename and unlink are one step, and names come back from a power cut in the order of the changes, as of a
  journal: any number of the latest may be missing (tests/store/test_power_cut.py, on ext4).
- the bytes of a file that was never synced may be all there, half, empty, or zeros. Of a file that was synced any page
  may be the synced one or a later one, and pages that came after it may be missing or zeros
  (tests/store/test_power_cut.py).
- a write that is stopped half-way has written its first bytes.
- a sync of a directory makes all earlier changes of names safe.
- locks of bytes belong to an open file, and end with its last descriptor (tests/real/test_beliefs.py).
- who watches a directory is told of each write to a file that was opened there, or was renamed there since; a file that
  was opened elsewhere and linked there is written unseen (tests/kernel/test_watch.py).
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

Choose = Callable[[int], int]
"""Choose one of so many."""

Range = tuple[int, int, bool]
"""First byte, byte after the last, whether exclusive."""


def failure(number: int, what: str = "") -> OSError:
    """Return the error of a system call."""
    return OSError(number, os.strerror(number), what)


_WRITTEN, _CREATED, _REMOVED = 0x2, 0x100, 0x200
"""The kernel's numbers of changes."""

_PAGE_BYTES = 128
"""Small, so that a record has several."""

_FEW_PAGES = 4


@dataclass(eq=False)
class File:
    """A regular file, also without a name.

    Attributes:
        data: its bytes.
        synced: its bytes at the last sync, or None.
        unsynced: its bytes after each write since then.
    """

    ino: int
    mtime: float = 0.0
    data: bytes = b""
    synced: bytes | None = None
    unsynced: list[bytes] = field(default_factory=list)
    locks: dict[OpenFile, list[Range]] = field(default_factory=dict)
    mode: int = stat.S_IFREG | 0o600

    def write(self, data: bytes, at: int, now: float) -> None:
        """Write bytes at an index; what is behind them stays."""
        self._change(self.data[:at].ljust(at, b"\0") + data + self.data[at + len(data) :], now)

    def truncate(self, size: int, now: float) -> None:
        """Cut the file off, or fill it with zeros."""
        self._change(self.data[:size].ljust(size, b"\0"), now)

    def _change(self, data: bytes, now: float) -> None:
        self.data, self.mtime = data, now
        self.unsynced.append(data)

    def sync(self) -> None:
        """Make the bytes safe."""
        self.synced = self.data
        self.unsynced.clear()

    def lose(self, choose: Choose) -> None:
        """Lose some of what is not safe."""
        if self.data != self.synced:
            torn = list(dict.fromkeys(_never_synced(self.data) if self.synced is None else self._pages()))
            self.data = torn[choose(len(torn))]
            self.sync()

    def _pages(self) -> Iterator[bytes]:
        """Yield what a power cut may leave of a file that was synced: of each write all, or some of its pages."""
        old = self.synced or b""
        yield from (self.data, old, *self.unsynced[-3:])
        size = max(len(self.data), len(old))
        new, before = self.data.ljust(size, b"\0"), old.ljust(size, b"\0")
        changed = [at for at in range(0, size, _PAGE_BYTES) if new[at:][:_PAGE_BYTES] != before[at:][:_PAGE_BYTES]]
        for at in changed:
            if at > len(old):
                yield new[:at]
        # Any of the pages that changed: all subsets of a few, else those before or after each, and each alone.
        some = range(1, 1 << len(changed)) if len(changed) <= _FEW_PAGES else ()
        subsets = [[at for bit, at in enumerate(changed) if mask >> bit & 1] for mask in some]
        for index in () if some else range(len(changed)):
            subsets += [changed[:index], changed[index:], [changed[index]]]
        for subset in subsets:
            pages = (new if at in subset else before for at in range(0, size, _PAGE_BYTES))
            yield b"".join(page[at:][:_PAGE_BYTES] for at, page in zip(range(0, size, _PAGE_BYTES), pages, strict=True))


@dataclass(eq=False)
class Directory:
    """A directory: its names now, and those that would come back after a power cut."""

    ino: int
    entries: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    mode: int = stat.S_IFDIR | 0o700
    mtime: float = 0.0
    data: bytes = b""


Inode: TypeAlias = File | Directory
Change = tuple[Directory, str, "Inode | None"]
"""A name gets an inode, or goes."""


@dataclass(eq=False)
class OpenFile:
    """An open file description: what descriptors share, and what locks belong to."""

    inode: object
    path: str
    at: int = 0
    references: int = 1
    on_close: Callable[[], object] = lambda: None
    place: tuple[Directory, str] | None = None

    def close(self) -> None:
        """Drop one descriptor."""
        self.references -= 1
        if not self.references:
            if isinstance(self.inode, File):
                self.inode.locks.pop(self, None)
            self.on_close()


@dataclass(eq=False)
class Watch:
    """A watch on a directory: the files that have changed since they were last read, each with the kind of change."""

    directory: Directory
    names: list[tuple[str, int]] = field(default_factory=list)


class Disk:
    """One file system. Each method is one step, without anybody in between."""

    def __init__(self) -> None:
        self._numbers = itertools.count(100)
        self.root = Directory(1)
        self.watches: list[Watch] = []
        self._journal: list[tuple[Change, ...]] = []
        for path in ("/var", "/var/lib", "/run"):
            self.make_directory(path)
        self.commit()

    def find(self, path: str, start: Directory | None = None) -> Inode:
        """Return what is at a path; a relative one begins at ``start``."""
        at: Inode = self.root if path.startswith("/") or start is None else start
        for part in filter(None, path.split("/")):
            if not isinstance(at, Directory):
                raise failure(errno.ENOTDIR, path)
            if part not in at.entries:
                raise failure(errno.ENOENT, path)
            at = at.entries[part]
        return at

    def directory(self, path: str, start: Directory | None = None) -> Directory:
        """Return the directory at a path."""
        found = self.find(path, start)
        if not isinstance(found, Directory):
            raise failure(errno.ENOTDIR, path)
        return found

    def open(self, path: str, flags: int, start: Directory | None, now: float) -> OpenFile:
        """Open a file or a directory, and make the file if ``flags`` say so."""
        try:
            inode = self.find(path, start)
            if flags & os.O_EXCL:
                raise failure(errno.EEXIST, path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            inode = File(next(self._numbers), now)
            parent, _, name = path.rpartition("/")
            self.change((self.directory(parent, start), name, inode), now=now)
        if flags & os.O_DIRECTORY and not isinstance(inode, Directory):
            raise failure(errno.ENOTDIR, path)
        above, _, name = path.rpartition("/")
        place = (self.directory(above, start), name) if isinstance(inode, File) else None
        opened = OpenFile(inode, path, place=place)
        if flags & os.O_TRUNC and isinstance(inode, File):
            inode.truncate(0, now)
            self.tell(opened)
        return opened

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        parent, _, name = path.rpartition("/")
        at = self.directory(parent)
        if name in at.entries:
            raise failure(errno.EEXIST, path)
        self.change((at, name, Directory(next(self._numbers))))

    def change(self, *names: Change, now: float = 0.0) -> None:
        """Change names in one step."""
        for directory, name, inode in names:
            directory.mtime = now
            if inode is None:
                del directory.entries[name]
            else:
                directory.entries[name] = inode
            self._tell(directory, name, _REMOVED if inode is None else _CREATED)
        self._journal.append(names)

    def tell(self, file: OpenFile) -> None:
        """Tell those who watch its directory that a file was written."""
        if file.place is not None:
            self._tell(*file.place, _WRITTEN)

    def _tell(self, directory: Directory, name: str, kind: int) -> None:
        for watch in self.watches:
            if watch.directory is directory:
                watch.names.append((name, kind))

    def commit(self, count: int | None = None) -> None:
        """Make the oldest changes of names safe, or all."""
        for names in self._journal[:count]:
            for directory, name, inode in names:
                if inode is None:
                    directory.durable.pop(name, None)
                else:
                    directory.durable[name] = inode
        del self._journal[:count]

    def power_cut(self, choose: Choose) -> None:
        """Lose some of what is not safe."""
        self.commit(len(self._journal) - choose(len(self._journal) + 1))
        self._journal.clear()
        self._revert(self.root, choose)

    def _revert(self, directory: Directory, choose: Choose) -> None:
        directory.entries = dict(directory.durable)
        for inode in directory.entries.values():
            if isinstance(inode, Directory):
                self._revert(inode, choose)
            else:
                inode.lose(choose)


def _never_synced(data: bytes) -> list[bytes]:
    return [data, b"", bytes(len(data)), data[: len(data) // 2]]


def has_conflict(file: OpenFile, start: int, end: int, *, exclusive: bool) -> bool:
    """Return whether another open file has a lock that excludes this one."""
    assert isinstance(file.inode, File)
    return any(
        other is not file and low < end and start < high and (exclusive or is_exclusive)
        for other, held in file.inode.locks.items()
        for low, high, is_exclusive in held
    )


def set_lock(file: OpenFile, start: int, end: int, *, exclusive: bool | None) -> bool:
    """Lock bytes, or unlock them (None); return False if another open file has them."""
    assert isinstance(file.inode, File)
    if exclusive is not None and has_conflict(file, start, end, exclusive=exclusive):
        return False
    rest: list[Range] = []
    for low, high, kind in file.inode.locks.get(file, []):
        if low < start:
            rest.append((low, min(high, start), kind))
        if high > end:
            rest.append((max(low, end), high, kind))
    file.inode.locks[file] = rest if exclusive is None else [*rest, (start, end, exclusive)]
    return True
