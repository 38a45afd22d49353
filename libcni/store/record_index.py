"""An index of the files of all records, by the addresses, namespaces and host ports that they mention."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

import libcni.kernel.system as system
from libcni.kernel.regular_file import UnusableFileError, read_with_status
from libcni.kernel.watch import DirectoryWatch
from libcni.store.files import MAX_RECORD_BYTES, Directory, open_file, record_error
from libcni.store.model import Stamp
from libcni.store.record_format import Gist, gist_of

logger: logging.Logger = logging.getLogger("libcni")

_SECOND_NS = 1_000_000_000
_FEW = 500
"""The number of files that are examined in a millisecond or two, if they have not changed."""
_FEW_CHANGED = 100
"""The number of files that are read in that time."""

_MOST_MARKED = 10_000
"""The number of changed files above which examining all files costs less than the memory of their names."""

_FEW_QUESTIONS = 16
"""The number of questions after which a client watches a small directory. A short-lived command asks fewer."""
_LARGE_BYTES = 1 << 15
"""The size of a directory with hundreds of files or more: a client watches it from its first question on."""

_ANYTHING = b""
"""The word of files that only decoding can read."""

_HASH = "~"
"""The token of names that are a hash."""

_Where = tuple[int, int, int]
"""A directory's device and inode, and the process."""


class RecordIndex:
    """The index of one directory of records. The kernel reports which files have changed since the previous look.

    Where the kernel reports nothing, each look examines all files, and reads those that have changed. So do the looks
    of a client that asks rarely: each watch counts towards a limit of all programs of a user, by default 128.
    """

    def __init__(self, results: str) -> None:
        self._results = results
        self._view: View = View(results, (0, 0, 0))
        self._has_listed = False
        self._questions = 0

    def is_quick(self) -> bool:
        """Return whether a look now takes less than a millisecond or two."""
        try:
            with Directory(self._results) as directory:
                return self._current(directory).is_quick()
        except OSError:
            return False

    def look(self) -> View:
        """Return the files as they are now.

        Raises:
            RecordError: the directory cannot be listed.
        """
        try:
            with Directory(self._results) as directory:
                view = self._current(directory)
                view.update(directory)
                return view
        except FileNotFoundError:
            return View(self._results, (0, 0, 0))
        except OSError as error:
            raise record_error("cannot be listed", self._results, error) from error

    def names_with(self, part: str, directory: int) -> Iterator[str]:
        """Yield the names of files that contain ``part``, and those that are a hash, which may stand for it.

        Raises OSError if they cannot be listed. ``directory``: a descriptor of the directory of records.
        """
        # Most programs that ask once ask no more, and a watch takes longer than one listing of a few files. Whoever
        # wants all may pause in between, so it gets one at a time.
        if part and self._has_listed and (view := self._current(directory)).is_watched:
            yield from view.names_with(part, directory)
            return
        self._has_listed = self._has_listed or bool(part)
        with system.scandir(directory) as entries:
            yield from (entry.name for entry in entries if part in entry.name or entry.name[0] == "~")

    def _current(self, directory: int) -> View:
        """Return the view of a directory; a new one if there is none, or if its watch is over."""
        status = system.fstat(directory)
        # In a child process the watch is closed: parent and child would take each other's events.
        where = status.st_dev, status.st_ino, system.getpid()
        self._questions += 1
        view = self._view
        if view.where != where or not view.collect():
            # Several threads may make a view each. Each uses its own.
            view = self._view = View(self._results, where)
            needs_watch = self._questions > _FEW_QUESTIONS or status.st_size >= _LARGE_BYTES
        else:
            # A kernel that has refused is asked again, ever more rarely: this user may have had too many watches.
            is_power_of_two = not self._questions & (self._questions - 1)
            needs_watch = not view.is_watched and is_power_of_two and self._questions >= _FEW_QUESTIONS
        if needs_watch:
            with suppress(OSError, ImportError):  # this Python has no ctypes, or shuts down
                view.watch(DirectoryWatch(directory))
        return view


class View:
    """The files of a directory, for this process and the threads in it.

    A file is marked as changed before it is read, and the mark is removed only if it was not marked again meanwhile.
    So no lock is held while files are read, and no look misses a change that came before it. A signal handler may raise
    or look at any point. A view whose ``collect`` was interrupted is not used again, because the kernel reports each
    change once.

    Args:
        results: the path of the directory.
        where: the directory.
    """

    def __init__(self, results: str, where: _Where) -> None:
        self._results = results
        self.where: _Where = where
        self._watch: DirectoryWatch | None = None
        self._lock = threading.RLock()  # a signal handler may look while this thread holds the lock
        self._is_whole = True
        self._looks = 0
        self._files: dict[str, tuple[int, Gist]] = {}
        self._by_word: Index[bytes] = Index()
        self._changed: dict[str, int] = {}
        self._serial = 0
        # How often the changes were unknown, and up to which time all files were examined since then.
        self._losses, self._examined, self._listed = 1, 0, 0
        self._by_token: Index[str] = Index()

    @property
    def is_watched(self) -> bool:
        """Whether the kernel reports the changes."""
        return self._watch is not None

    def is_quick(self) -> bool:
        """Return whether ``update`` takes less than a millisecond or two."""
        if self.is_watched and self._examined == self._losses:
            return len(self._changed) < _FEW_CHANGED
        return 0 < len(self._files) < _FEW

    def watch(self, watch: DirectoryWatch) -> None:
        """Let a watch that has just begun report the changes from now on."""
        with self._lock:
            self._losses += 1
            self._by_token = Index()
            self._watch = watch

    def collect(self) -> bool:
        """Mark the files that have changed; return False if the watch is over, or if changes may have been lost."""
        with self._lock:
            if not self._is_whole:
                return False
            self._is_whole = False
            names = self._watch.changed() if self._watch is not None else None
            if names is None:
                self._losses += 1
                self._by_token = Index()
            elif names:
                self._mark(names)
                for name, is_there in names.items():
                    if is_there:
                        self._by_token.add(_tokens(name), name)
                    elif is_there is False:
                        self._by_token.remove(_tokens(name), name)
                # Some clients ask only for names. Others look once. A look that goes on needs its marks.
                if not self._looks and len(self._changed) > _MOST_MARKED:
                    self._losses += 1
                    self._changed.clear()
            self._is_whole = True
            return self._watch is None or not self._watch.is_over

    def names_with(self, part: str, directory: int) -> list[str]:
        """Return the names that contain ``part``, and those that are a hash; see ``RecordIndex.names_with``."""
        with self._lock:
            # Another thread may lose changes meanwhile, and begin another index.
            losses, by_token, is_listed = self._losses, self._by_token, self._listed >= self._losses
        listed = () if is_listed else system.listdir(directory)
        with self._lock:
            # Names that came since the loss are there already. Those that have gone meanwhile lead to no file.
            for name in listed:
                by_token.add(_tokens(name), name)
            self._listed = losses if losses == self._losses else self._listed
            # Only the inner ones of the part are whole tokens.
            found = by_token.with_all(part.split("-")[1:-1]) | by_token.with_any([_HASH])
        return [name for name in found if part in name or name[0] == "~"]

    def _mark(self, names: Iterable[str]) -> None:
        self._serial += 1
        self._changed.update(dict.fromkeys(names, self._serial))

    def update(self, directory: int) -> None:
        """Read the files that are marked. Raises OSError if the directory cannot be listed."""
        with self._lock:
            self._looks += 1
            losses = self._losses
        try:
            self._update(directory, losses)
        finally:
            with self._lock:
                self._looks -= 1

    def _update(self, directory: int, losses: int) -> None:
        if self._examined < losses:
            names = system.listdir(directory)
            with self._lock:
                known = dict(self._files)
            changed = [name for name in {*names, *known} if not _is_unchanged(known.get(name), name, directory)]
            with self._lock:
                self._mark(changed)
                self._examined = max(self._examined, losses)
        if not self._changed:
            return
        with self._lock:
            marked = list(self._changed.items())
        now = system.file_time_ns()
        read = [(name, serial, *self._gist(name, directory, now)) for name, serial in marked]
        with self._lock:
            for name, serial, gist, is_final in read:
                self._put(name, serial, gist, is_final=is_final)

    def _gist(self, name: str, directory: int, now: int) -> tuple[Gist | None, bool]:
        """Read a file; return (None, True) if it does not exist or is no regular file, (None, False) after an error."""
        try:
            status, data = read_with_status(open_file(name, directory), MAX_RECORD_BYTES)
        except (FileNotFoundError, UnusableFileError):
            return None, True
        except OSError as error:  # it must not hide the other files
            problem = record_error("cannot be read", f"{self._results}/{name}", error)
            logger.warning("the interface, addresses and ports of this attachment are unknown: %s", problem)
            return None, False
        return gist_of(data, settled_stamp(status, now)), True

    def _put(self, name: str, serial: int, gist: Gist | None, *, is_final: bool) -> None:
        """Store what was read of a file after it had been marked with ``serial``."""
        before, old = self._files.get(name, (0, None))
        if before > serial:  # another thread has read it later
            return
        if (new_words := _words(gist)) != (old_words := _words(old)):
            self._by_word.add(new_words, name)
            self._by_word.remove(set(old_words).difference(new_words), name)
        if gist is None:
            self._files.pop(name, None)
        else:
            self._files[name] = serial, gist
        # The mark goes last: a signal handler may raise here, and the next look has to repeat it.
        if is_final and self._changed.get(name) == serial:
            del self._changed[name]

    def mentioning(self, words: Collection[bytes]) -> list[str]:
        """Return the names of the files that may record one of these words."""
        with self._lock:
            return [*self._by_word.with_any([*words, _ANYTHING])] if words else []


_Key = TypeVar("_Key", bytes, str)


_Names = dict[str, None]
"""Names in the order in which they came: the order of a set would be another in each process."""


class Index(Generic[_Key]):
    """The names of files by a key."""

    def __init__(self) -> None:
        self._names: dict[_Key, str | _Names] = {}

    def add(self, keys: Iterable[_Key], name: str) -> None:
        """Add the keys of a file."""
        for key in keys:
            names = self._names.setdefault(key, name)  # a dict only for the keys that several files have
            if isinstance(names, dict):
                names[name] = None
            elif names != name:
                self._names[key] = {names: None, name: None}

    def remove(self, keys: Iterable[_Key], name: str) -> None:
        """Remove the keys of a file."""
        for key in keys:
            names = self._names.get(key)
            if isinstance(names, dict) and len(names) > 1:
                names.pop(name, None)
            elif names in (name, {name: None}):
                del self._names[key]

    def _of(self, key: _Key) -> _Names:
        names = self._names.get(key, {})
        return {names: None} if isinstance(names, str) else names

    def with_any(self, keys: Iterable[_Key]) -> _Names:
        """Return the names of the files that have one of the keys."""
        found: _Names = {}
        for key in keys:
            found.update(self._of(key))
        return found

    def with_all(self, keys: Iterable[_Key]) -> _Names:
        """Return the names of the files that have all keys, at least one."""
        first, *others = sorted(map(self._of, keys), key=len)
        return {name: None for name in first if all(name in other for other in others)}


def _tokens(name: str) -> set[str]:
    """Return the parts of a record's name between hyphens; of a name that is a hash, one word for all of them."""
    return {_HASH} if name[0] == "~" else set(name.split("-"))


def _words(gist: Gist | None) -> tuple[bytes, ...]:
    if gist is None:
        return ()
    return (_ANYTHING,) if gist.words is None else gist.words


def _is_unchanged(known: tuple[int, Gist] | None, name: str, directory: int) -> bool:
    """Return whether a file is the one that was read."""
    stamp = known[1].stamp if known is not None else None
    try:
        return stamp is not None and stamp_of(system.stat(name, dir_fd=directory, follow_symlinks=False)) == stamp
    except OSError:  # reading the file tells whether it still exists
        return False


def settled_stamp(status: os.stat_result, now: int) -> Stamp | None:
    """Return the stamp of a file; None if a further change may keep it. ``now``: the file time before the status.

    A change within the same tick of the kernel's clock keeps the time, and may keep the size. If a container is
    detached and attached again, its new file may have the inode of the old one.
    """
    changed = status.st_ctime_ns
    # Some file systems store whole seconds, or even ones.
    tick = 0 if changed % _SECOND_NS else 2 * _SECOND_NS
    return stamp_of(status) if changed + tick < now else None


def stamp_of(status: os.stat_result) -> Stamp:
    """Return a file's stamp, which changes with the file."""
    return status.st_ino, status.st_size, status.st_ctime_ns
