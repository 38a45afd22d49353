"""The configuration of a manager: the networks in force, their reload, and a fingerprint of all files."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from libcni.config.network import NetworkConfigList
from libcni.errors import NetworkNotFoundError
from libcni.executor.start_ahead import file_identity
from libcni.manager.events import Event, problem_event
from libcni.manager.networks import ENDINGS, Default, NetworkSet, Sources, changes, choose_default, load

Fingerprint = tuple[tuple[str, tuple[int, ...]], ...]


class Configuration:
    """The networks in force; safe to share between threads.

    Args:
        sources: the origins of networks.
        default: see Default.
        minimum: the minimum number of networks; None: the number of default networks.
        plugin_dirs: the directories with plugins.
        find: returns a plugin's executable or raises PluginNotFoundError.
        emit: passes an event on.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - only the manager makes one
        self,
        sources: Sources,
        default: Default,
        minimum: int | None,
        plugin_dirs: Sequence[str],
        find: Callable[[str], str],
        emit: Callable[[Event], None],
    ) -> None:
        self.default = default
        self.minimum = minimum
        self.sources = sources
        self.plugin_dirs: tuple[str, ...] = tuple(plugin_dirs)
        self._find = find
        self._emit = emit
        # Reloads run in the watch's thread and in callers' threads. Readers need no lock: they read one reference.
        self._lock = threading.Lock()
        self._current = NetworkSet(directories=sources.directories)
        self._seen: Fingerprint | None = None
        self.reload()

    @property
    def current(self) -> NetworkSet:
        """The set in force."""
        return self._current

    def defaults(self) -> tuple[NetworkConfigList, ...]:
        """Return the default networks; raises NetworkNotFoundError."""
        return choose_default(self._current, self.default, self.minimum)

    def network(self, name: str) -> NetworkConfigList:
        """Return a network, after one reload if it is not known; raises NetworkNotFoundError."""
        return self._current.find(name) or self.reload().network(name)

    def defaults_or_reload(self) -> tuple[NetworkConfigList, ...]:
        """Return the default networks; if one is missing, reload once. Raises NetworkNotFoundError."""
        try:
            return self.defaults()
        except NetworkNotFoundError:
            self.reload()
            return self.defaults()

    def reload(self, *, keep: bool = True) -> NetworkSet:
        """Read all sources again. ``keep=False``: drop networks whose file cannot be used."""
        with self._lock:
            # Taken before the load: a change during the load must not go unnoticed.
            before = self.fingerprint()
            old = self._current
            self._current = new = load(self.sources, old if keep else NetworkSet(), self._find)
            # If a file changed during the load, neither fingerprint describes the loaded networks: load again later.
            self._seen = before if self.fingerprint() == before else None
        # Outside the lock: an observer may call the manager, which may reload.
        self._emit_changes(old, new)
        return new

    def reload_if_changed(self) -> bool:
        """Read all sources again if a file has changed; return whether one had."""
        if self.fingerprint() == self._seen:
            return False
        self.reload()
        return True

    def _emit_changes(self, old: NetworkSet, new: NetworkSet) -> None:
        self._emit(Event("reload", detail=", ".join(net.name for net in new.networks)))
        ready, gone, problems = changes(old, new)
        for net in new.all:
            if net.name in ready:
                net.log_warnings()
                self._emit(Event("network-ready", net.name))
        for name in gone:
            self._emit(Event("network-gone", name))
        for error in problems:
            self._emit(problem_event(error))

    def fingerprint(self) -> Fingerprint:
        """Return the identity, size and times of every relevant file, to compare with an earlier fingerprint."""
        states: list[tuple[str, tuple[int, ...]]] = []
        for directory in self.sources.directories:
            # Device and inode only: the directory's times also change for files that do not matter here.
            states += [(directory, _identity(directory)[:2]), *_files(directory, ENDINGS)]
            # Drop-in plugins are in <dir>/<network>/; every subdirectory may become one.
            for inside in _directories_in(directory):
                states += _files(inside, (".conf",))
        for directory in self.plugin_dirs:
            states += [(directory, _identity(directory)[:2]), *_files(directory)]
        return tuple(states)


def _paths_in(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    except OSError:
        return []


def _directories_in(directory: str) -> list[str]:
    return [path for path in _paths_in(directory) if os.path.isdir(path)]


def _files(directory: str, endings: tuple[str, ...] = ("",)) -> list[tuple[str, tuple[int, ...]]]:
    """Return the state of each file whose name has one of the endings; every name ends in ""."""
    return [(path, _identity(path)) for path in _paths_in(directory) if path.endswith(endings)]


def _identity(path: str) -> tuple[int, ...]:
    try:
        return file_identity(path)
    except OSError:
        return ()
