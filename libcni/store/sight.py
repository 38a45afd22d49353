"""Examine the interfaces of attachments, and compare them with the records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import libcni.kernel.system as system
from libcni.kernel.namespace import namespace_identity
from libcni.store.entered_namespace import EnteredNamespace, is_no_namespace, is_own_namespace
from libcni.store.model import UNKNOWN, Known, Place, Record, State, compare, needs_look, same_namespace, state_of
from libcni.store.recorded_interfaces import RecordedInterfaces, place_of


class Sight:
    """An examiner of namespaces and interfaces. The last examined namespace cannot end before ``close``.

    ``remembers``: whether to search all namespaces of the node only once, for many attachments at about the same time.
    """

    is_own_namespace: ClassVar[staticmethod[[str], bool]] = staticmethod(is_own_namespace)
    is_no_namespace: ClassVar[staticmethod[[str], bool]] = staticmethod(is_no_namespace)

    def __init__(self, recorded: RecordedInterfaces, *, remembers: bool = False) -> None:
        self._recorded = recorded
        self._entered: EnteredNamespace | None = None
        self._remembers = remembers
        self._everywhere: list[Place] | None = None

    def namespace(self, netns: str) -> Place:
        """Return the Place of the namespace at a path, with an UNKNOWN interface."""
        entered = self._enter(netns)
        return Place(namespace_identity(netns)) if entered is None else entered.namespace

    def look(self, netns: str, ifname: str) -> Place:
        """Examine an interface in the namespace at a path; UNKNOWN if this program cannot enter the namespace."""
        entered = self._enter(netns)
        return Place(namespace_identity(netns)) if entered is None else entered.look(ifname)

    def find(
        self, record: Record | None, recorded: Place, path: str, ifname: str, *, everywhere: bool = False
    ) -> Place:
        """Return the present place at an attachment's path and name. If its interface is not there, search for it.

        ``everywhere``: search in all namespaces of the node if no interface in its own namespace has its name.
        """
        seen = self.look(path, ifname)
        is_known = isinstance(recorded.interface, Known)
        if seen.netns is None or seen.interface is UNKNOWN or not is_known or compare(recorded, seen) == "same":
            return seen
        if not same_namespace(recorded, seen):
            return seen
        # A path that Go recorded may lead to another container while this one still exists.
        everywhere = everywhere and (not isinstance(seen.interface, Known) or recorded.netns is None)
        for place in self._candidates(path, recorded, everywhere=everywhere):
            # Hardware addresses are not unique: a user can choose them.
            self._recorded.refresh()
            if next(self._recorded.with_interface(place, record), None) is None:
                return replace(seen, found_as=place.found_as)
        return seen

    def _candidates(self, netns: str, recorded: Place, *, everywhere: bool) -> Iterator[Place]:
        """Yield the possible present places of a recorded interface; ``found_as``: its name there."""
        entered = self._enter(netns)
        if entered is None:
            return
        yield from entered.find(recorded)
        # Search this program's namespace too: plugins such as host-device move their device back to it.
        known = {entered.namespace.netns, namespace_identity("/proc/thread-self/ns/net")}
        if everywhere and recorded.mac:
            yield from (place for place in self._walk() if place.mac == recorded.mac and place.netns not in known)

    def _walk(self) -> Iterable[Place]:
        if self._remembers and self._everywhere is None:
            self._everywhere = list(_walk())
        return _walk() if self._everywhere is None else self._everywhere

    def _enter(self, netns: str) -> EnteredNamespace | None:
        # The path may lead to another namespace than at the last call.
        if self._entered is None or not self._entered.is_at(netns):
            self.close()
            self._entered = EnteredNamespace.enter(netns) if netns else None
        return self._entered

    def state_of(self, record: Record, path: str | None = None) -> State:
        """Return the state of an attachment; ``path``: its namespace's path, if it is not the recorded one."""
        recorded = place_of(record)
        if not needs_look(record):
            return state_of(record, recorded, Place())
        seen = self.find(record, recorded, record.netns if path is None else path, record.ifname, everywhere=True)
        return state_of(record, recorded, seen)

    def close(self) -> None:
        """Close the socket, so that the namespace can end."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()


def _walk() -> Iterator[Place]:
    """Yield the interfaces in all namespaces of the node."""
    known: set[tuple[int, int] | None] = set()
    for path in _paths_of_namespaces():
        identity = namespace_identity(path)
        if identity in known or (entered := EnteredNamespace.enter(path)) is None:
            continue
        known.add(identity)
        try:
            for place in entered.all_interfaces():
                yield replace(place, found_as=f"{place.found_as} in {path}")
        finally:
            entered.close()


def _paths_of_namespaces() -> Iterator[str]:
    for folder, ending in (("/run/netns", ""), ("/proc", "/ns/net")):
        with suppress(OSError):
            yield from [f"{folder}/{name}{ending}" for name in system.listdir(folder) if ending == "" or name.isdigit()]
