"""Examine the present interfaces of attachments, in their namespaces, and compare them with the records.

Plugins delete an interface by its name, in the namespace at a path. By then the path may lead to another container, or
another interface may have the name. With an empty CNI_NETNS plugins free their other resources, and touch no interface.
"""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import errno
import os
import stat
import struct
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

import libcni.kernel.system as system
from libcni._dataclass import replace
from libcni.kernel.namespace import (
    AF_NETLINK,
    CLONE_NEWNET,
    cookie_of,
    namespace_identity,
    netlink_socket,
    open_namespace,
)
from libcni.store.model import LOST_PATH, Record, State, is_certain, needs_look, state_of
from libcni.store.other_records import OtherRecords
from libcni.store.place import ABSENT, UNKNOWN, Interface, Known, Place, compare, is_other_mac, is_same_index
from libcni.store.recorded_interface import place_of

if TYPE_CHECKING:
    from libcni.kernel.life import Life
    from libcni.kernel.netlink import Conversation, Link

_NS_GET_NSTYPE = 0xB703
_SO_BINDTODEVICE = 25
_SIOCGIFHWADDR, _SIOCGIFINDEX, _ARPHRD_ETHER = 0x8927, 0x8933, 1
_IFREQ_BYTES, _LONGEST_NAME = 40, 15
_SHORT, _INT = struct.Struct("=H"), struct.Struct("=i")
_KINDS_WITH_ADDRESS_OF_PARENT = {"ipvlan", "vlan"}
_SHARED_DIRECTORIES = ("/run/netns/", "/var/run/netns/")


OWN_NETNS = "/proc/self/ns/net"
"""A path that leads each process to its own namespace, so a plugin to another one than this program."""


def is_own_namespace(netns: str) -> bool:
    """Return whether a path leads to the network namespace of this process or of the calling thread."""
    identity = namespace_identity(netns)
    if identity is None:
        return False
    # "self" is the main thread.
    is_main = threading.get_native_id() == system.getpid()
    paths = (OWN_NETNS,) if is_main else ("/proc/thread-self/ns/net", OWN_NETNS)
    return identity in map(namespace_identity, paths)


def lasting_path(netns: str) -> str:
    """Return a path of this program's own namespace that stays valid when the process in ``netns`` has ended.

    A path that is not below /proc stays unchanged. If the calling thread is in another namespace than the main thread,
    every path stays unchanged: a plugin starts in the thread's namespace.
    """
    own = {namespace_identity(path) for path in (netns, OWN_NETNS, "/proc/thread-self/ns/net")}
    return OWN_NETNS if netns.startswith("/proc/") and len(own) == 1 else netns


def is_no_namespace(netns: str) -> bool:
    """Return whether a path certainly leads to no network namespace; False if this is unknown."""
    try:
        descriptor = open_namespace(netns)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    try:
        return system.ioctl(descriptor, _NS_GET_NSTYPE) != CLONE_NEWNET
    except OSError as error:
        return error.errno == errno.ENOTTY
    finally:
        system.close(descriptor)


def is_other_file(netns: str) -> bool:
    """Return whether there is a regular file, a directory or a namespace of another kind at a path.

    Plugins refuse such a path. The kernel shows a namespace as a regular file, too.
    """
    try:
        mode = system.stat(netns).st_mode
    except (OSError, ValueError):
        return False
    return (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and is_no_namespace(netns)


def path_for_plugins(netns: str) -> str:
    """Return a path of a namespace that leads to the same file in every process.

    /proc/self and relative paths lead elsewhere in a plugin, and the program may change its directory before its next
    verb. A text that leads to no file stays unchanged: it may have a meaning for the plugins.
    """
    if netns.startswith(_SHARED_DIRECTORIES) or not netns or namespace_identity(netns) is None:
        return netns
    # Not abspath: it removes "link/.." as text, but the link may lead to another directory.
    path = os.path.join(system.getcwd(), netns)
    directory, _, name = path.rpartition("/")
    resolved = f"{system.realpath(directory)}/{name}"
    # The target of a link in /proc, such as /proc/PID/fd/3, is a text like "net:[4026531840]", not a path.
    if system.islink(resolved) and not resolved.startswith("/proc/"):
        resolved = path_for_plugins(os.path.join(os.path.dirname(resolved), system.readlink(resolved)))
    return resolved if resolved.startswith(f"/proc/{system.getpid()}/") else path


class EnteredNamespace:
    """A socket in a namespace, to examine its interfaces from any thread. The namespace cannot end before ``close``.

    A socket stays in the namespace in which it was created.
    """

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._socket = system.socket(AF_NETLINK, _socket.SOCK_RAW, 0, descriptor)
        self.namespace: Place = Place(identity, cookie_of(self._socket))
        _entered.add(self)

    @classmethod
    def enter(cls, netns: str) -> EnteredNamespace | None:
        """Return the namespace at a path, with a socket in it; None if that is not possible."""
        try:
            descriptor = open_namespace(netns)
        except (OSError, ValueError):
            return None
        with system.Closing(descriptor):
            status = system.fstat(descriptor)
            socket = netlink_socket(descriptor)
        return None if socket < 0 else cls(socket, (status.st_dev, status.st_ino))

    def is_at(self, netns: str) -> bool:
        """Return whether a path leads to this namespace now."""
        return namespace_identity(netns) == self.namespace.netns

    def look(self, ifname: str) -> Place:
        """Return the Place of the interface with this name. lo exists in each namespace, so no attachment owns it."""
        return self.namespace.with_interface(UNKNOWN if ifname == "lo" else self._interface(ifname))

    def _interface(self, name: str) -> Interface:
        """Return the interface with this name; ABSENT if there is none."""
        encoded = os.fsencode(name)
        if len(encoded) > _LONGEST_NAME:  # the kernel would truncate it, and find another interface
            return ABSENT
        request = encoded.ljust(_IFREQ_BYTES, b"\0")
        try:
            # On a netlink socket this option has no effect, but it fails if the name does not exist. For such a name
            # SIOCGIFINDEX makes an ordinary kernel start modprobe.
            self._socket.setsockopt(_socket.SOL_SOCKET, _SO_BINDTODEVICE, encoded)
            number = system.ioctl(self._socket, _SIOCGIFINDEX, request)
            answer = system.ioctl(self._socket, _SIOCGIFHWADDR, request)
            # Read the index again: if the interface was replaced, the address may be that of the new interface.
            is_same = system.ioctl(self._socket, _SIOCGIFINDEX, request) == number
            if is_same and _SHORT.unpack_from(answer, 16)[0] == _ARPHRD_ETHER:
                return Known(_INT.unpack_from(number, 16)[0], answer[18:24].hex(":"))
        except OSError as error:
            if error.errno == errno.ENODEV:
                return ABSENT
        # A link-layer address can be too long for the answer, and without CAP_NET_RAW a socket can be bound only once.
        return self._listed_interface(name)

    def _listed_interface(self, name: str) -> Interface:
        """Return the interface with this name from the list of all; ABSENT if there is none."""
        request = os.fsencode(name).ljust(_IFREQ_BYTES, b"\0")
        try:
            # Plugins also delete an interface by an alternative name. The list lacks these names, so ask for the index.
            number = system.ioctl(self._socket, _SIOCGIFINDEX, request)
            links = self._links()
        except OSError as error:
            return ABSENT if error.errno == errno.ENODEV else UNKNOWN
        matches = [link for link in links if link.index == _INT.unpack_from(number, 16)[0]]
        # No link has the index if another interface took the name between the two calls.
        matches = matches or [link for link in links if link.name == name]
        return Known(matches[0].index, matches[0].mac) if matches else ABSENT

    def find(self, recorded: Place) -> Iterator[Place]:
        """Yield the places in this namespace that may be the present place of a recorded interface.

        Raises OSError if the interfaces cannot be read.
        """
        for place in _places(self.namespace, self._links()):
            is_it = recorded.number == place.number if recorded.number else recorded.mac == place.mac
            if is_same_index(recorded, place) or (is_it and not is_other_mac(recorded.mac, place.mac)):
                yield place

    def carrier(self, addresses: Collection[str]) -> str:
        """Return the name of an interface that has one of these IP addresses, or "". Raises OSError."""
        kernel = self._kernel()
        found = {index for index, address in kernel.addresses() if address.partition("/")[0] in addresses}
        return next((link.name for link in kernel.links() if link.index in found), "")

    def remove(self, number: int) -> None:
        """Remove the interface with an index. Raises OSError."""
        self._kernel().remove_link(number)

    def _links(self) -> list[Link]:
        return self._kernel().links()

    def _kernel(self) -> Conversation:
        from libcni.kernel.netlink import Conversation  # few verbs need it

        return Conversation(self._socket)

    def close(self) -> None:
        """Close the socket, so that the namespace can end."""
        _entered.discard(self)
        self._socket.close()


def _places(namespace: Place, links: Iterable[Link]) -> Iterator[Place]:
    """Yield the places of interfaces in a namespace, each with its name in ``found_as``."""
    for link in links:
        mac = "" if link.kind in _KINDS_WITH_ADDRESS_OF_PARENT else link.mac
        yield replace(namespace, interface=Known(link.index, mac), found_as=link.name)


class OpenedNamespace:
    """A namespace to which the recorded path no longer leads, with a path that plugins can use until ``close``."""

    def __init__(self, descriptor: int, record: Record) -> None:
        self._descriptor = descriptor
        self.recorded: tuple[tuple[int, int] | None, int | None] = (record.netns_id, record.netns_cookie)
        self.path: str = f"/proc/{system.getpid()}/fd/{descriptor}"
        _entered.add(self)

    def close(self) -> None:
        """Close the descriptor, so that the namespace can end."""
        _entered.discard(self)
        system.close(self._descriptor)


_entered: weakref.WeakSet[EnteredNamespace | OpenedNamespace] = weakref.WeakSet()


def _leave_all() -> None:
    # Otherwise a forked worker that keeps running would keep the container's namespace alive.
    for entered in list(_entered):
        entered.close()


os.register_at_fork(after_in_child=_leave_all)


class Sight:
    """An examiner of namespaces and interfaces. The last examined namespace cannot end before ``close``.

    ``remembers``: whether to look at the whole node only once, for many attachments at about the same time.
    """

    is_own_namespace: ClassVar[staticmethod[[str], bool]] = staticmethod(is_own_namespace)
    is_no_namespace: ClassVar[staticmethod[[str], bool]] = staticmethod(is_no_namespace)
    is_other_file: ClassVar[staticmethod[[str], bool]] = staticmethod(is_other_file)

    def __init__(self, others: OtherRecords, *, remembers: bool = False) -> None:
        self._others = others
        self._entered: EnteredNamespace | None = None
        self._opened: OpenedNamespace | None = None
        self._ended: set[object] = set()
        self._remembers = remembers
        self._last_life: Life | None = None

    def namespace(self, netns: str) -> Place:
        """Return the Place of the namespace at a path, with an UNKNOWN interface."""
        entered = self._enter(netns)
        return Place(namespace_identity(netns)) if entered is None else entered.namespace

    def look(self, netns: str, ifname: str) -> Place:
        """Return the Place of an interface in the namespace at a path; UNKNOWN if this program cannot enter it."""
        entered = self._enter(netns)
        return Place(namespace_identity(netns)) if entered is None else entered.look(ifname)

    def find(
        self, record: Record | None, recorded: Place, path: str, ifname: str, *, everywhere: bool = False
    ) -> Place:
        """Return the present place at an attachment's path and name. If the interface is not there, search for it.

        ``everywhere``: search in all namespaces of the node if no interface in its own namespace has its name.
        """
        seen = self.look(path, ifname)
        if seen.interface is UNKNOWN or not isinstance(recorded.interface, Known):
            return seen
        if compare(recorded, seen) in {"same", "no namespace", "other namespace"}:
            return seen
        searches_node = everywhere and self._may_be_elsewhere(record, recorded, seen)
        try:
            for place in self._candidates(path, recorded, everywhere=searches_node):
                # Hardware addresses are not unique: a user can choose them.
                is_proved = is_certain(record, recorded, place)
                if is_proved or next(self._others.with_interface(place, record), None) is None:
                    return replace(seen, found_as=place.found_as)
        except OSError:  # its container may prevent the reading, so an interface that was not seen may be there
            return replace(seen, interface=UNKNOWN)
        return seen

    def _may_be_elsewhere(self, record: Record | None, recorded: Place, seen: Place) -> bool:
        """Return whether an interface that is not at its name may be in another namespace of the node."""
        # A path that Go recorded may lead to another container while this one still exists.
        if recorded.is_identified and isinstance(seen.interface, Known):
            return False
        return record is None or not self._has_lost_host_end(record)

    def carrier(self, netns: str, addresses: Collection[str]) -> str:
        """Return the name of an interface in a namespace that has one of these IP addresses, or "".

        A container may prevent the reading of its own namespace. Then no interface was seen.
        """
        entered = self._enter(netns)
        with suppress(OSError):
            return entered.carrier(addresses) if entered is not None else ""
        return ""

    def remove(self, netns: str, recorded: Place) -> None:
        """Remove a recorded interface by its index. Raises OSError, also if the path leads to another namespace now.

        Each namespace has interfaces with the same small indexes.
        """
        entered = self._enter(netns)
        if entered is None or not recorded.cookie or entered.namespace.cookie != recorded.cookie:
            raise OSError(errno.ESTALE, "another namespace is at the path now", netns)
        entered.remove(recorded.number)

    def _candidates(self, netns: str, recorded: Place, *, everywhere: bool) -> Iterator[Place]:
        """Yield the possible present places of a recorded interface; ``found_as``: its name there."""
        entered = self._enter(netns)
        if entered is None:
            return
        yield from entered.find(recorded)
        if not everywhere or not recorded.mac:
            return
        # Not in this program's namespace: plugins such as host-device move their device back to it.
        known = {entered.namespace.netns, namespace_identity("/proc/thread-self/ns/net")}
        for identity, space in self._life().spaces.items():
            if space.network is None or identity in known:
                continue
            for place in _places(Place(identity, space.network.cookie), space.evidence):
                # Users can choose hardware addresses. An interface that was moved keeps its index if it is free there.
                if recorded.number in {0, place.number} and place.mac == recorded.mac:
                    yield replace(place, found_as=f"{place.found_as} in {space.path}")

    def _life(self) -> Life:
        from libcni.kernel.life import Life  # few verbs need it

        if self._last_life is None or not self._remembers:
            self._last_life = Life()
        return self._last_life

    def _has_lost_host_end(self, record: Record) -> bool:
        """Return whether the other end of a record's interface has gone: then the interface is nowhere."""
        from libcni.store.life_of_record import subject_of

        return self._life().has_lost_host_end(subject_of(record))

    def _is_held(self, record: Record) -> bool:
        """Return whether something holds the namespace of a record, although the recorded path does not lead to it."""
        from libcni.store.life_of_record import is_held

        return is_held(record, self._life())

    def reach(self, record: Record) -> str:
        """Return another path to a record's namespace if the namespace exists, but not at the recorded path; else "".

        The path is valid until ``close``. Without a cookie the namespace may be a later one with the same number.
        """
        recorded = record.netns_id, record.netns_cookie
        if self._opened is not None and self._opened.recorded == recorded:
            return self._opened.path
        if not all(recorded) or recorded in self._ended:
            return ""
        from libcni.store.life_of_record import has_ended, subject_of

        life = self._life()
        try:
            if has_ended(record, life):
                raise FileNotFoundError
            descriptor = life.open(subject_of(record))
        except OSError:
            self._ended.add(recorded)
            return ""
        self._forget_opened()
        self._opened = OpenedNamespace(descriptor, record)
        return self._opened.path

    def _forget_opened(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _enter(self, netns: str) -> EnteredNamespace | None:
        # The path may lead to another namespace than at the last call.
        if self._entered is None or not self._entered.is_at(netns):
            self._leave()
            self._entered = EnteredNamespace.enter(netns) if netns else None
        return self._entered

    def _leave(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()

    def state_of(self, record: Record, path: str | None = None) -> State:
        """Return the state of an attachment. ``path``: the namespace's path, if it is not the recorded path."""
        recorded = place_of(record)
        if not needs_look(record):
            return state_of(record, recorded, Place())
        seen = self.find(record, recorded, record.netns if path is None else path, record.ifname, everywhere=True)
        state = state_of(record, recorded, seen)
        return LOST_PATH if state == "gone" and self._is_held(record) else state

    def close(self) -> None:
        """Close the socket and the descriptor, so that the namespaces can end."""
        self._leave()
        self._forget_opened()
