"""The place of an attachment in the kernel: take it, and compare what an ADD made with what is there now.

Plugins delete an interface by its name in the namespace at a path. Both may be another's by now. With an empty
CNI_NETNS they free their other resources and touch no interface.
"""

from __future__ import annotations

import _socket  # the C part alone: importing socket takes 3 ms
import errno
import os
import struct
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import libcni._system as system
from libcni._namespace import AF_NETLINK, CLONE_NEWNET, namespace_identity, netlink_socket, open_namespace

if TYPE_CHECKING:
    from libcni._netlink import Link

_SO_NETNS_COOKIE = 71
_NS_GET_NSTYPE = 0xB703
_SO_BINDTODEVICE = 25
_SIOCGIFHWADDR, _SIOCGIFINDEX, _ARPHRD_ETHER = 0x8927, 0x8933, 1
_IFREQ_BYTES, _LONGEST_NAME = 40, 15
_SHORT, _INT = struct.Struct("=H"), struct.Struct("=i")
_KINDS_WITH_ADDRESS_OF_PARENT = {"ipvlan", "vlan"}
_SHARED_DIRECTORIES = ("/run/netns/", "/var/run/netns/")

NOWHERE: Final = (0, 0)
"""The identity of a namespace that did not exist when the ADD began."""

NOT_OURS: Final = -1
"""The number of an interface that appeared during an ADD and that no plugin of this ADD reported."""

Comparison = Literal["same", "other", "gone", "renamed", "unknown"]


@dataclass(frozen=True, slots=True)
class Place:
    """A network namespace and the interface of one name in it.

    Attributes:
        netns: (device, inode) of the namespace's file; NOWHERE if there was none; None if it is not known.
        cookie: the kernel's number of the namespace; 0 if it is not known (before Linux 5.14). Inode numbers are used
            again, cookies are not.
        ifindex: the number of the interface; 0 if there is none; None if it is not known.
        mac: its hardware address, such as "0a:58:0a:00:00:02"; "" if it is not known.
        found_as: where the interface of the ADD is now, if its name or its namespace has changed; else "".
    """

    netns: tuple[int, int] | None = None
    cookie: int = 0
    ifindex: int | None = None
    mac: str = ""
    found_as: str = ""


def compare(made: Place, now: Place) -> Comparison:  # noqa: PLR0911 - a table: one return for each row
    """Compare what an ADD made with what is at its path and name now."""
    if now.netns in {None, NOWHERE}:
        return "unknown" if made.netns in {None, NOWHERE} else "gone"
    if made.netns and made.netns != now.netns:
        return "other"
    if made.cookie and now.cookie and made.cookie != now.cookie:
        return "other"  # the kernel gives the inode number of a removed namespace to the next one
    if now.found_as:
        return "renamed"
    if now.ifindex is None:
        return "unknown"  # this program may not enter the namespace
    if not now.ifindex:
        return _compare_missing(made)
    if is_other_mac(made.mac, now.mac):
        return "other"  # numbers are unique in one namespace only, and a person can choose them
    if made.ifindex is None and ":" in made.mac and not now.mac:
        return "other"  # Go records the hardware address alone, and this interface has none
    if made.ifindex is None:
        return "same" if made.mac and now.mac == made.mac else "unknown"
    return "same" if made.ifindex == now.ifindex else "other"


def _compare_missing(made: Place) -> Comparison:
    if made.ifindex == 0:
        return "same"  # the plugins of the ADD made no interface of this name
    return "gone" if made.ifindex or made.mac else "unknown"


def netns_for_del(made: Place, now: Place, path: str) -> str:
    """Return the CNI_NETNS for the next plugin of a DEL: the path, or "" if what is there is not of this ADD."""
    compared = compare(made, now)
    if compared == "other":
        return ""
    if compared == "gone" and now.netns in {None, NOWHERE}:
        return ""  # another namespace may appear at the path at any time
    return path


def is_other_mac(made: str, now: str) -> bool:
    """Return whether two hardware addresses are known to differ. Plugins may print them in another notation."""
    return bool(made and now) and made != now and ":" in made and len(made) == len(now)


def is_own_namespace(netns: str) -> bool:
    """Return whether a path leads to the network namespace of this process or of the calling thread."""
    given = namespace_identity(netns)
    if given is None:
        return False
    # "self" is the main thread.
    is_main = threading.get_native_id() == system.getpid()
    paths = ("/proc/self/ns/net",) if is_main else ("/proc/thread-self/ns/net", "/proc/self/ns/net")
    return given in map(namespace_identity, paths)


def is_no_namespace(netns: str) -> bool:
    """Return whether something else than a network namespace is at a path, or nothing. If that is unknown: False."""
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


def path_for_plugins(netns: str) -> str:
    """Return the path of a namespace that leads to the same file in each process.

    /proc/self and relative paths lead elsewhere in a plugin, and the program may change its directory before its next
    verb. A text that leads to no file may be no path at all: it stays.
    """
    if netns.startswith(_SHARED_DIRECTORIES) or not netns or namespace_identity(netns) is None:
        return netns
    # Not abspath: it cuts "..", even after a symbolic link that leads elsewhere.
    path = os.path.join(system.getcwd(), netns)
    directory, _, name = path.rpartition("/")
    resolved = f"{system.realpath(directory)}/{name}"
    # A link in /proc, such as /proc/PID/fd/3, has a text that is no path.
    if system.islink(resolved) and not resolved.startswith("/proc/"):
        resolved = path_for_plugins(os.path.join(os.path.dirname(resolved), system.readlink(resolved)))
    return resolved if resolved.startswith(f"/proc/{system.getpid()}/") else path


class EnteredNamespace:
    """A namespace that was entered once, to look at its interfaces several times. It cannot end before ``close``.

    A socket stays in the namespace in which it was made, and every thread can use it.
    """

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._socket = system.socket(AF_NETLINK, _socket.SOCK_RAW, 0, descriptor)
        cookie = b""
        with suppress(OSError):  # before Linux 5.14
            cookie = self._socket.getsockopt(_socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8)
        self.namespace: Place = Place(identity, int.from_bytes(cookie, sys.byteorder))
        _entered.add(self)

    @classmethod
    def enter(cls, netns: str) -> EnteredNamespace | None:
        """Enter the namespace at a path; return None if that is not possible."""
        try:
            descriptor = open_namespace(netns)
        except (OSError, ValueError):
            return None
        try:
            status = system.fstat(descriptor)
            made = netlink_socket(descriptor)
        finally:
            system.close(descriptor)
        return None if made < 0 else cls(made, (status.st_dev, status.st_ino))

    def is_at(self, netns: str) -> bool:
        """Return whether a path leads to this namespace now."""
        return namespace_identity(netns) == self.namespace.netns

    def look(self, ifname: str) -> Place:
        """Return the place of the interface of a name. lo is in each namespace, so it is nobody's: ifindex is None."""
        ifindex, mac = (None, "") if ifname == "lo" else self._interface(ifname)
        return Place(self.namespace.netns, self.namespace.cookie, ifindex, mac)

    def _interface(self, name: str) -> tuple[int | None, str]:
        """Return the number and the hardware address of an interface; (0, "") if there is none of this name."""
        encoded = os.fsencode(name)
        if len(encoded) > _LONGEST_NAME:  # the kernel would cut it, and find another interface
            return 0, ""
        request = encoded.ljust(_IFREQ_BYTES, b"\0")
        try:
            # Binding has no effect on a netlink socket but to tell whether the name exists. For a name that does not
            # exist, an ordinary kernel starts modprobe if the first question is SIOCGIFINDEX.
            self._socket.setsockopt(_socket.SOL_SOCKET, _SO_BINDTODEVICE, encoded)
            number = system.ioctl(self._socket, _SIOCGIFINDEX, request)
            answer = system.ioctl(self._socket, _SIOCGIFHWADDR, request)
            # Ask twice: the interface may be replaced between two questions, and the address be another one's.
            is_same = system.ioctl(self._socket, _SIOCGIFINDEX, request) == number
            if is_same and _SHORT.unpack_from(answer, 16)[0] == _ARPHRD_ETHER:
                return _INT.unpack_from(number, 16)[0], answer[18:24].hex(":")
        except OSError as error:
            if error.errno == errno.ENODEV:
                return 0, ""
        # An address of another kind can be too long for the answer; and without CAP_NET_RAW a socket is bound once.
        try:
            # By number: plugins delete an interface by its alternative names, too, and the list lacks them.
            number = system.ioctl(self._socket, _SIOCGIFINDEX, request)
            links = self._links()
        except OSError as error:
            return (0 if error.errno == errno.ENODEV else None), ""
        found = [link for link in links if link.index == _INT.unpack_from(number, 16)[0]]
        found = found or [link for link in links if link.name == name]  # it was replaced meanwhile
        return (found[0].index, found[0].mac) if found else (0, "")

    def find(self, made: Place, *, everywhere: bool = False) -> Iterator[Place]:
        """Yield the places where the interface of an ADD may be now, this namespace first."""
        for place in self._all_interfaces():
            is_it = made.ifindex == place.ifindex if made.ifindex else made.mac == place.mac
            if is_it and not is_other_mac(made.mac, place.mac):
                yield place
        # The namespace of this program has the devices that a plugin such as host-device puts back.
        if everywhere and made.mac:
            yield from _find_elsewhere(made.mac, {self.namespace.netns, namespace_identity("/proc/thread-self/ns/net")})

    def _all_interfaces(self) -> list[Place]:
        """Return the place of each interface, with its name in ``found_as``, and without an address of its parent."""
        found = []
        with suppress(OSError):
            for link in self._links():
                mac = "" if link.kind in _KINDS_WITH_ADDRESS_OF_PARENT else link.mac
                found.append(replace(self.namespace, ifindex=link.index, mac=mac, found_as=link.name))
        return found

    def _links(self) -> list[Link]:
        from libcni._netlink import read_links  # few verbs come here

        return list(read_links(self._socket))  # read all: the next dump would begin with what is left

    def close(self) -> None:
        """Leave the namespace."""
        _entered.discard(self)
        self._socket.close()


_entered: weakref.WeakSet[EnteredNamespace] = weakref.WeakSet()


def _leave_all() -> None:
    # A forked worker that lives on would keep the container's namespace, even when all else has left it.
    for entered in list(_entered):
        entered.close()


os.register_at_fork(after_in_child=_leave_all)


def _find_elsewhere(mac: str, known: set[tuple[int, int] | None]) -> Iterator[Place]:
    """Yield the interfaces with a hardware address in all namespaces of the node but those in ``known``."""
    for path in _paths_of_namespaces():
        identity = namespace_identity(path)
        if identity in known or (entered := EnteredNamespace.enter(path)) is None:
            continue
        known.add(identity)
        try:
            for place in entered._all_interfaces():  # noqa: SLF001 - of the same module
                if place.mac == mac:
                    yield replace(place, found_as=f"{place.found_as} in {path}")
        finally:
            entered.close()


def _paths_of_namespaces() -> Iterator[str]:
    for folder, ending in (("/run/netns", ""), ("/proc", "/ns/net")):
        with suppress(OSError):
            yield from [f"{folder}/{name}{ending}" for name in system.listdir(folder) if ending == "" or name.isdigit()]
