"""The configuration of a manager: the networks in force, and their reload."""

from __future__ import annotations

import threading
from collections.abc import Callable

from libcni.config.network import NetworkConfigList
from libcni.errors import NetworkNotFoundError
from libcni.manager.events import Event, problem_event
from libcni.manager.networks import Default, NetworkSet, Sources, changes, choose_default, load


class Configuration:
    """The networks in force; safe to share between threads.

    Args:
        sources: the origins of networks.
        default: see Default.
        minimum: the minimum number of networks; None: the number of default networks.
        find: returns a plugin's executable or raises PluginNotFoundError.
        emit: passes an event on.
    """

    def __init__(
        self,
        sources: Sources,
        default: Default,
        minimum: int | None,
        find: Callable[[str], str],
        emit: Callable[[Event], None],
    ) -> None:
        self.default = default
        self.minimum = minimum
        self.sources = sources
        self._find = find
        self._emit = emit
        # Reloads run in the watch's thread and in callers' threads. Readers need no lock: they read one reference.
        self._lock = threading.Lock()
        self._current = NetworkSet(directories=sources.directories)
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

    def reload(self, *, keep: bool = True, only_changes: bool = False) -> NetworkSet:
        """Read all sources again.

        Args:
            keep: keep networks whose file cannot be used.
            only_changes: emit no event if everything is as before.
        """
        with self._lock:
            old = self._current
            self._current = new = load(self.sources, old if keep else NetworkSet(), self._find)
        # Outside the lock: an observer may call the manager, which may reload.
        if not (only_changes and new.is_same(old)):
            self._emit_changes(old, new)
        return new

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
