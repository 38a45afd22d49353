"""Learn from the kernel which files of a directory have changed (inotify)."""

from __future__ import annotations

import os
import struct
import weakref
from contextlib import suppress
from typing import Final

import libcni.kernel.system as system

_EVENT = struct.Struct("=iIII")
_IN_MODIFY, _IN_ATTRIB, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF, _IN_UNMOUNT, _IN_Q_OVERFLOW, _IN_IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
_IN_ONLYDIR = 0x1000000
_GETS, _LOSES = _IN_CREATE | _IN_MOVED_TO, _IN_DELETE | _IN_MOVED_FROM
_MASK = _IN_MODIFY | _IN_ATTRIB | _GETS | _LOSES | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_ENDS = _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_UNMOUNT | _IN_IGNORED
_MOST_READS = 100
"""The kernel keeps 16,384 events by default, which is fewer reads. More is a program that writes all the time."""


class DirectoryWatch:
    """The changes of the files in a directory, from the moment at which the watch was made.

    The kernel reports a change before the system call that made it returns. It reports the name under which a file was
    *opened*. So a program that opens a file in another directory, and then links it to this one, has to open it again.

    Raises OSError if the kernel would not report every change.

    Args:
        directory: a descriptor of the directory.

    Attributes:
        is_over: whether the directory was removed, moved or unmounted. No further change is reported.
    """

    def __init__(self, directory: int) -> None:
        self.is_over: bool = False
        self._descriptor: int = system.watch_directory(directory, _MASK)
        self._process = system.getpid()
        for other in list(_watches):
            other.lose(self._process, self._descriptor)
        _watches.add(self)

    def changed(self) -> dict[str, bool | None] | None:
        """Return the files that have changed since the previous call; None: any file may have changed.

        The value tells whether a file has got the name, or has lost it; None: a file of this name was written.
        """
        names: dict[str, bool | None] = {}
        for _ in range(_MOST_READS):
            try:
                data = system.read_events(self._descriptor)
            except OSError:  # something has closed the descriptor; another file may have the number
                self._descriptor, self.is_over = -1, True
                return None
            if not data:
                return names
            if not self._add(data, names):
                return None
        return None

    def _add(self, data: bytes, names: dict[str, bool | None]) -> bool:
        """Add the files of events; return False if events were lost, or if no more will come."""
        at, is_whole = 0, True
        while at < len(data):
            _, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size
            self.is_over = self.is_over or bool(mask & _ENDS)
            is_whole = is_whole and not mask & (_ENDS | _IN_Q_OVERFLOW)
            if length:
                name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
                # A file that has lost its name is still reported when it is written.
                names[name] = bool(mask & _GETS) if mask & (_GETS | _LOSES) else names.get(name)
            at += length
        return is_whole

    def close(self) -> None:
        """End the watch."""
        descriptor, self._descriptor, self.is_over = self._descriptor, -1, True
        if descriptor >= 0 and system.is_watch(descriptor):
            with suppress(OSError):  # something has closed it
                system.close(descriptor)

    def lose(self, process: int, descriptor: int) -> None:
        """End the watch if it has this descriptor of a process: something has closed it, and another watch has it."""
        if (self._process, self._descriptor) == (process, descriptor):
            self._descriptor, self.is_over = -1, True

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            self.close()


_watches: Final[weakref.WeakSet[DirectoryWatch]] = weakref.WeakSet()


def _after_fork() -> None:
    # Parent and child would take each other's events. Close it now: later another file may have the number.
    for watch in list(_watches):
        watch.close()


os.register_at_fork(after_in_child=_after_fork)
