"""The configuration of a manager: the set in force, its reload, and a fingerprint that changes when it should."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence

from libcni.config.network import NetworkConfigList
from libcni.errors import NetworkNotFoundError
from libcni.manager.events import Event
from libcni.manager.networks import Default, NetworkSet, Sources, changes, choose_default, load

__all__ = ["Configuration", "Fingerprint"]

Fingerprint = tuple[tuple[str, tuple[int, ...]], ...]
_ENDINGS = (".conflist", ".conf", ".json")


class Configuration:
    """Hold the networks in force; safe to share between threads.

    Args:
        sources: where networks come from.
        default: see Default.
        plugin_dirs: the directories with plugins.
        find: returns a plugin's executable or raises PluginNotFoundError.
        tell: is told of what changes.
    """

    def __init__(
        self,
        sources: Sources,
        default: Default,
        plugin_dirs: Sequence[str],
        find: Callable[[str], str],
        tell: Callable[[Event], None],
    ) -> None:
        self.default = default
        self.sources = sources
        self.plugin_dirs: tuple[str, ...] = tuple(plugin_dirs)
        self._find = find
        self._tell = tell
        self._lock = threading.Lock()
        self._current = NetworkSet(directories=sources.directories)
        self._seen: Fingerprint | None = None
        self.reload()

    @property
    def current(self) -> NetworkSet:
        """The set in force."""
        return self._current

    def defaults(self) -> tuple[NetworkConfigList, ...]:
        """Return the networks of a container that asks for none; raises NetworkNotFoundError."""
        return choose_default(self._current, self.default)

    def network(self, name: str) -> NetworkConfigList:
        """Return a network, after one reload if it is not known; raises NetworkNotFoundError."""
        return self._current.find(name) or self.reload().network(name)

    def defaults_or_reload(self) -> tuple[NetworkConfigList, ...]:
        """Return the default networks, after one reload if there is none; raises NetworkNotFoundError."""
        try:
            return self.defaults()
        except NetworkNotFoundError:
            self.reload()
            return self.defaults()

    def reload(self, *, keep: bool = True) -> NetworkSet:
        """Read everything again; ``keep=False``: also give up what was kept because its file cannot be used."""
        with self._lock:
            before = self.fingerprint()
            old = self._current
            self._current = new = load(self.sources, old if keep else NetworkSet(), self._find)
            self._seen = before if self.fingerprint() == before else None  # it changed meanwhile: look again
        self._tell_changes(old, new)
        return new

    def reload_if_changed(self) -> bool:
        """Read everything again if anything on disk is not as it was; return whether it was."""
        if self.fingerprint() == self._seen:
            return False
        self.reload()
        return True

    def _tell_changes(self, old: NetworkSet, new: NetworkSet) -> None:
        self._tell(Event("reload", detail=", ".join(net.name for net in new.networks)))
        ready, gone, problems = changes(old, new)
        for net in new.all:
            if net.name in ready:
                net.log_warnings()
                self._tell(Event("network-ready", net.name))
        for name in gone:
            self._tell(Event("network-gone", name))
        for error in problems:
            self._tell(Event("problem", detail=str(error), error=error))

    def fingerprint(self) -> Fingerprint:
        """Return what tells the files of two moments apart: identity, size and times of each that counts."""
        return tuple(self._fingerprints())

    def _fingerprints(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        for directory in self.sources.directories:
            yield directory, _identity(directory)[:2]
            yield from _files(directory, _ENDINGS)
            for inside in _directories_in(directory):
                yield from _files(inside, (".conf",))
        for directory in self.plugin_dirs:
            yield directory, _identity(directory)[:2]
            yield from _files(directory, ())

    def paths(self) -> tuple[str, ...]:
        """Return the directories to watch, those of drop-in plugins included; some may not exist."""
        inside = [path for directory in self.sources.directories for path in _directories_in(directory)]
        return (*self.sources.directories, *inside, *self.plugin_dirs)


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _directories_in(directory: str) -> list[str]:
    paths = [os.path.join(directory, name) for name in _names_in(directory)]
    return [path for path in paths if os.path.isdir(path)]


def _files(directory: str, endings: tuple[str, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name in _names_in(directory):
        if not endings or name.endswith(endings):
            path = os.path.join(directory, name)
            yield path, _identity(path)


def _identity(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
