"""Find the files that may hold the records of one interface, without listing 10,000 names for each ADD.

Only the last part of a record's name is known: a record of the same interface may belong to another network, and Go
libcni may have written it. So this module keeps the names in memory. The kernel (inotify) reports each change of the
directory before the system call that makes the change returns. Reading the events first gives the names of a new
listing, also if another program writes.

An index in a directory of its own would miss Go's records. The directory's modification time does not show every
change, because its clock ticks only every few milliseconds. inotify costs a descriptor for each record directory with
more than 300 names, and some 200 bytes for each name, in processes that run many verbs; a command that runs one verb
lists the directory once. If the kernel gives no watch, each call lists the directory.
"""

from __future__ import annotations

import os
import re
import struct
import threading
from contextlib import suppress

_MANY, _TOO_MANY = 300, 200_000
_WATCHES = 8
_KEY_LENGTH = 8
_EVENT = struct.Struct("iIII")
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_ONLYDIR = 0x01000000
_APPEARED, _DISAPPEARED = _CREATE | _MOVED_TO, _DELETE | _MOVED_FROM
_EVENT_BYTES = 1 << 16
_HASH = re.compile(r"~[0-9a-f]{32}\Z")

_Identity = tuple[int, int]


def without_hash(name: str) -> str:
    """Return a record's file name without its hash; "" if it is only a hash. An interface's name may contain a ~."""
    return _HASH.sub("", name)


def names_of_interface(directory: int, container_id: str, ifname: str) -> list[str]:
    """Return the names in an open directory that a record of this interface may have; raises OSError.

    Records of other interfaces may be among them, so the caller must read the files.
    """
    ending = f"-{container_id}-{ifname}"
    with _lock:
        watched = _watched_directory(directory)
        names = os.listdir(directory) if watched is None else watched.names_with(ending)
        if watched is None and _MANY < len(names) < _TOO_MANY:
            _watch(directory)
    # A name that is only a hash may belong to any attachment.
    return [name for name in names if ending in name or name[0] == "~"]


class _WatchedDirectory:
    """The names in a directory, kept up to date by the kernel's events."""

    def __init__(self, descriptor: int, directory: int) -> None:
        self._descriptor = descriptor
        self._names: dict[str, list[str]] = {}
        # The watch exists already: a change after this listing comes as an event. An event for a change before it does
        # no harm, because adding and removing a name can be repeated.
        for name in os.listdir(directory):
            self._add(name)

    def _add(self, name: str) -> None:
        names = self._names.setdefault(_key(name), [])
        if name not in names:
            names.append(name)

    def _remove(self, name: str) -> None:
        names = self._names.get(_key(name), [])
        if name in names:
            names.remove(name)
        if not names:
            self._names.pop(_key(name), None)

    def names_with(self, ending: str) -> list[str]:
        """Return all names with this ending, or with a hash after it, or that are only a hash, and perhaps others."""
        if len(ending) < _KEY_LENGTH:
            return [name for names in self._names.values() for name in names]
        return [*self._names.get(ending[-_KEY_LENGTH:], ()), *self._names.get("", ())]

    def update(self) -> bool:
        """Apply the kernel's events; return False if the names are not known any more. Raises OSError."""
        while True:
            try:
                data = os.read(self._descriptor, _EVENT_BYTES)
            except BlockingIOError:
                return True
            at = 0
            while at < len(data):
                _, mask, _, size = _EVENT.unpack_from(data, at)
                at += _EVENT.size
                name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
                at += size
                if mask & _APPEARED:
                    self._add(name)
                elif mask & _DISAPPEARED:
                    self._remove(name)
                else:  # the queue overflowed, or the directory was removed
                    return False

    def close(self) -> None:
        """Close the kernel's queue."""
        with suppress(OSError):
            os.close(self._descriptor)


_lock = threading.Lock()
# By device and inode: the same path may lead to another directory later.
_watched: dict[_Identity, _WatchedDirectory] = {}


def _key(name: str) -> str:
    return without_hash(name)[-_KEY_LENGTH:]


def _identity(directory: int) -> _Identity:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino


def _watched_directory(directory: int) -> _WatchedDirectory | None:
    """Return the names of a directory if they are known. Stop a watch that has failed."""
    if not _watched:
        return None
    identity = _identity(directory)
    watched = _watched.get(identity)
    if watched is None:
        return None
    known = False
    try:
        known = watched.update()
    # Also after an exception of a signal handler: events that were read may be lost.
    finally:
        if not known:
            _watched.pop(identity).close()
    return watched if known else None


def _watch(directory: int) -> None:
    """Start to watch a directory, if the kernel gives a watch."""
    import ctypes  # takes 10 ms, and most directories are too small to need it

    # Watch the open directory, not its path, which may lead to another directory by now.
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return
    try:
        path = f"/proc/self/fd/{directory}".encode()
        if libc.inotify_add_watch(descriptor, path, _APPEARED | _DISAPPEARED | _ONLYDIR) < 0:
            os.close(descriptor)
            return
        new = _WatchedDirectory(descriptor, directory)
    except BaseException:
        with suppress(OSError):
            os.close(descriptor)
        raise
    while len(_watched) >= _WATCHES:
        _watched.pop(next(iter(_watched))).close()
    _watched[_identity(directory)] = new


def _forget_all() -> None:
    """Drop all watches in a forked child: it shares the queues, and events that it reads are lost for its parent."""
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it at the fork
    _lock = threading.Lock()
    for watched in _watched.values():
        watched.close()
    _watched.clear()


os.register_at_fork(after_in_child=_forget_all)
