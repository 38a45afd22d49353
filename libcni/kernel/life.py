"""Decide whether a container lives: alive, dead or unknown, with the sign that decided.

The signs, in the order in which they are asked:

1. the recorded path leads to the recorded namespace: alive.
2. the kernel, asked by a handle (Linux 6.18): it finds the namespace, or there is none. Nothing else sees a namespace
   that only a socket keeps, or a descriptor that is in flight between two processes.
3. the host end of the recorded veth: while it exists, so does the container's end.
4. a walk over all threads, mounts and descriptors of the node, done once for all questions and only if one needs it.

A sign proves life. A walk without a sign proves death only if it saw everything twice, and if no sign can appear later:
the host end of the veth has gone, or the attachment is older than five minutes. Otherwise the answer is unknown.

``conclude`` decides by the facts and reads nothing. ``Life`` reads the signs.
"""

from __future__ import annotations

import _socket
import errno
import functools
import math
import os
import struct
from collections.abc import Collection
from contextlib import suppress
from typing import Literal, NamedTuple

import libcni.kernel.system as system
from libcni._dataclass import dataclass, replace
from libcni.kernel.cached import cached_property
from libcni.kernel.foreign import Space, is_trusted, read_space
from libcni.kernel.namespace import (
    AF_NETLINK,
    NamespaceId,
    cookie_of,
    namespace_identity,
    netlink_socket,
    new_namespace,
    open_known,
)
from libcni.kernel.namespace_holders import (
    CAP_SYS_ADMIN,
    FIRST_PID_NAMESPACE,
    FIRST_USER_NAMESPACE,
    Held,
    Sign,
    Walk,
    has_capability,
    is_mounted_here,
    signs_of,
)
from libcni.kernel.netlink import Conversation, Link, open_netlink

Verdict = Literal["alive", "dead", "unknown"]
OLD_AFTER = 300.0
"""The age, in seconds, from which an attachment or a reservation has shown all its signs."""

_SECONDS_FOR_USERS = 5.0
"""Seconds to read the namespaces that users can have made. The namespaces that are left then are not read."""
_NS_GET_ID = 0x8008B70D  # Linux 6.18
_CONTAINER_PORTS = {"veth", "tun"}


class Answer(NamedTuple):
    """Whether a container lives.

    Attributes:
        verdict: ``alive``, ``dead`` or ``unknown``.
        sign: what decided: ``path``, ``inode``, ``kernel``, ``host end``, ``thread``, ``descriptor``, ``mount``,
            ``address``, ``reboot``, ``walk`` (a complete one without a sign), ``blind``, ``port``, ``unread`` or
            ``young``.
        reason: the verdict's reason in words.
        path: a present path to the container's namespace, or "" if none is known; see ``Life.open``.
        netns: the container's namespace, or None if it is unknown.
    """

    verdict: Verdict
    sign: str
    reason: str
    path: str = ""
    netns: NamespaceId | None = None

    @property
    def is_dead(self) -> bool:
        """Whether death is proved. ``unknown`` is not dead."""
        return self.verdict == "dead"

    @property
    def is_alive(self) -> bool:
        """Whether life is proved."""
        return self.verdict == "alive"


@dataclass(frozen=True, slots=True)
class Subject:
    """The recorded facts about an attachment, or about a reservation without a record.

    Attributes:
        path: the recorded path of its namespace; "" for none. A text that does not begin with / is no path.
        netns: the recorded (device, inode) of the namespace; None if it is unknown, as in records of Go.
        cookie: the recorded cookie of the namespace; 0 if it is unknown.
        index: the number of its interface in the namespace, or 0.
        host_ends: (name, hardware address or "") of the host ends of its veths.
        addresses: its IP addresses without prefix lengths. They count only if ``netns`` is None.
        macs: the hardware addresses of its interfaces, in lower case; (): unknown.
        bridges: the bridges of its network, on the host.
        pid_namespace: the inode of the PID namespace of the program that attached it; None if it is unknown.
        age: seconds since it was attached or reserved; None if it is unknown.
        has_rebooted: whether it is from before the last reboot.
    """

    path: str = ""
    netns: NamespaceId | None = None
    cookie: int = 0
    index: int = 0
    host_ends: tuple[tuple[str, str], ...] = ()
    addresses: tuple[str, ...] = ()
    macs: tuple[str, ...] = ()
    bridges: tuple[str, ...] = ()
    pid_namespace: int | None = None
    age: float | None = None
    has_rebooted: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """The signs that were seen of a container. The fields after ``has_walked`` count only if it is true.

    Attributes:
        has_rebooted: the subject is from before the last reboot.
        path: where the recorded path leads: ``same`` namespace, ``other``, ``gone``, ``none`` (none is recorded).
        is_inode_reused: a living namespace has the recorded inode number and another cookie. Numbers of living
            namespaces are unique.
        was_namespace: whether the recorded file was a network namespace.
        kernel: whether the kernel finds the namespace; None if it cannot say.
        host_end: the host end of the veth: ``there``, ``gone``, ``another's`` (the name is another container's now) or
            ``none`` (none is recorded).
        has_walked: whether the walk was done.
        held: (sign, path) of an object that holds the namespace, or None.
        address: where one of its addresses is, on an interface that only root can have made; or "".
        similar: where such an address is on an interface with another hardware address; or "".
        blind: why the walk may have missed something, or "".
        outside: why processes outside this program's user namespace were not seen, or "".
        port: an interface of the host that leads to a namespace that nobody saw, or "".
        unread: a namespace that may be the subject's and could not be read, with the reason; or "".
        is_old: whether the subject is old enough to have shown all its signs.
        is_nameless: whether the record has nothing by which a walk could find the namespace.
    """

    has_rebooted: bool = False
    path: Literal["same", "other", "gone", "none"] = "none"
    is_inode_reused: bool = False
    was_namespace: bool = True
    kernel: bool | None = None
    host_end: Literal["there", "gone", "another's", "none"] = "none"
    has_walked: bool = False
    held: tuple[Sign, str] | None = None
    address: str = ""
    similar: str = ""
    blind: str = ""
    outside: str = ""
    port: str = ""
    unread: str = ""
    is_old: bool = False
    is_nameless: bool = False


_HELD = {"thread": "a process lives in it", "descriptor": "a process has it open", "mount": "it is mounted"}


def conclude(facts: Facts) -> Answer | None:  # noqa: C901, PLR0911, PLR0912 - a table: one return for each row
    """Return the answer that the facts prove; None if the node's processes must be searched (a walk)."""
    if facts.has_rebooted:
        return Answer("dead", "reboot", "the attachment is from before the last reboot")
    if facts.path == "same":
        return Answer("alive", "path", "the path leads to the recorded namespace")
    if facts.is_inode_reused:
        return Answer("dead", "inode", "another namespace has the inode number of the recorded one now")
    if not facts.was_namespace:
        return Answer("dead", "path", "the file at the path, which was no network namespace, no longer exists")
    if facts.kernel is not None:
        if facts.kernel:
            return Answer("alive", "kernel", "the kernel finds the recorded namespace")
        return Answer("dead", "kernel", "the kernel has no namespace with the recorded number and cookie")
    if facts.held is not None:
        sign, path = facts.held
        return Answer("alive", sign, f"{_HELD[sign]} ({path})" if path else _HELD[sign], path)
    if facts.host_end == "there":
        return Answer("alive", "host end", "the host end of the veth exists, so its other end exists too")
    if facts.is_nameless:
        return Answer("unknown", "blind", "the record names neither a namespace nor an address")
    if not facts.has_walked:
        return None
    if facts.address:
        return Answer("alive", "address", f"the address is on {facts.address}")
    if facts.similar and facts.host_end != "gone":
        # Another container may have the address by now, or that of another node on this machine, such as one of kind.
        return Answer("unknown", "address", f"the address is on {facts.similar}, with another hardware address")
    if blind := facts.blind or (facts.outside if facts.host_end != "gone" else ""):
        return Answer("unknown", "blind", blind)
    if facts.unread:
        return Answer("unknown", "unread", f"a namespace could not be read: {facts.unread}")
    if facts.host_end != "gone":
        if facts.port:
            return Answer("unknown", "port", f"{facts.port} leads to a namespace that was not found")
        if not facts.is_old:
            reason = "no sign of the container was found, but it is new: the runtime may be working on it"
            return Answer("unknown", "young", reason)
    gone = "the host end of the veth has gone, and " if facts.host_end == "gone" else ""
    return Answer("dead", "walk", f"{gone}no process, mount or descriptor holds the namespace")


def _proves_an_end(facts: Facts, answer: Answer | None) -> bool:
    return facts.host_end == "gone" or (answer is not None and answer.is_dead)


class Life:
    """A view of the node that answers which containers live. Each answer examines path, kernel and host ends anew.

    Make a new one immediately before an act that depends on the answer: the walk is not repeated.

    Args:
        by_handle: whether to ask the kernel by a handle, if it knows such handles.
        old_after: the age in seconds from which all signs have appeared; None: ``OLD_AFTER``.
        only_threads: whether the walk looks only at processes, in a fifth of the time. Only for ``inhabitant``.
    """

    def __init__(self, *, by_handle: bool = True, old_after: float | None = None, only_threads: bool = False) -> None:
        self._by_handle = by_handle
        self._only_threads = only_threads
        self._old_after = OLD_AFTER if old_after is None else old_after

    # The questions.

    def of(self, subject: Subject, *, walk: bool = True) -> Answer:
        """Return whether a container lives. ``walk``: whether to walk over all processes if nothing else decides."""
        facts = self._quick_facts(subject)
        answer = conclude(facts)
        if walk and (answer is None or answer.sign == "host end"):
            facts = self._walked_facts(subject, facts)
            answer = conclude(facts)
        if answer is None:
            return Answer(
                "unknown", "blind", "the path does not lead to the recorded namespace, and no other sign was examined"
            )
        if not answer.is_alive:
            return answer
        if answer.sign == "path":
            return answer._replace(path=subject.path, netns=subject.netns or namespace_identity(subject.path))
        if answer.sign == "address":
            netns, _ = self._on_interfaces(subject)[0]
            return answer._replace(path=self.spaces[netns].path, netns=netns)
        return answer._replace(netns=subject.netns)

    def is_held(self, subject: Subject) -> bool:
        """Return whether a process, mount or descriptor holds a namespace to which the recorded path no longer leads.

        False if only a socket keeps the namespace, or if it is just ending: the kernel and the host end show these too.
        The walk is done only if neither the kernel nor the host end says that the interface has ended.
        """
        facts = self._quick_facts(subject)
        answer = conclude(facts)
        if _proves_an_end(facts, answer):
            return False
        if subject.netns is None:
            # Its addresses: to read all namespaces takes seconds on a large node, so another sign must come first.
            return facts.host_end == "there" and any(address in self.addresses for address in subject.addresses)
        if self._holder(subject) is not None:
            return not self._is_reused(subject)
        return answer is not None and bool(self.why_blind(subject.pid_namespace))

    def has_ended(self, subject: Subject) -> bool:
        """Return whether an attachment's namespace or interface has certainly ended. The processes are not searched."""
        facts = self._quick_facts(subject)
        return _proves_an_end(facts, conclude(facts))

    def has_lost_host_end(self, subject: Subject) -> bool:
        """Return whether a recorded host end no longer exists. Then the container's interface does not exist either."""
        return self._host_end(subject) == "gone"

    def by_path(self, path: str, netns: NamespaceId | None, cookie: int) -> bool:
        """Return whether a path leads to a recorded namespace.

        This is the cheapest sign, and most containers have it.
        """
        if netns is None or namespace_identity(path) != netns:
            return False
        return _lead(path, Subject(netns=netns, cookie=cookie)) in {"same", "same number"}

    def open(self, subject: Subject) -> int:
        """Return a descriptor of an attachment's namespace that still exists, for example to mount it at its path.

        Raises:
            OSError: nothing leads to the namespace.
        """
        if self._by_handle and subject.netns is not None and subject.cookie:
            with suppress(OSError):
                return system.open_namespace_by_handle(subject.netns[1], subject.cookie)
        held = self._holder(subject)
        for path in filter(None, [subject.path, *(held.all_paths if held is not None else ())]):
            with suppress(OSError, ValueError):
                descriptor = open_known(path, subject.netns or (0, 0))
                if _compare(descriptor, subject.cookie) in {"same", "same number"}:
                    return descriptor
                system.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "nothing leads to the namespace any longer", subject.path)

    def inhabitant(self, netns: NamespaceId, but: Collection[str] = ()) -> Answer:
        """Return whether anything holds a namespace that exists, except mounts whose paths end with a path in ``but``.

        A namespace that this library keeps with a mount of its own is dead if nothing else holds it: then its
        interfaces can be removed. The mount may be in every mount namespace, below another directory.
        """
        held = self.walk.held.get(netns[1], Held())
        for sign, path in signs_of(held):
            if sign != "mount" or not all(mount.endswith(tuple(but)) for mount in held.mounts):
                return Answer("alive", sign, f"{_HELD[sign]} ({path})" if path else _HELD[sign], path, netns)
        if blind := self.why_blind(None):
            return Answer("unknown", "blind", blind)
        return Answer("dead", "walk", "only the library's own mount holds the namespace")

    # What was seen.

    @cached_property
    def walk(self) -> Walk:
        """The walk over the node's processes, mounts and descriptors, done at the first use."""
        return Walk(only_threads=self._only_threads)

    @cached_property
    def spaces(self) -> dict[NamespaceId, Space]:
        """All network namespaces that the walk found, by (device, inode), read once.

        Any user can make thousands of namespaces that take seconds each. So untrusted namespaces without a connection
        to this program's namespace come last, and are left out when the time is over.
        """
        own = system.stat("/proc/self/ns/net")
        found = {(own.st_dev, inode): held for inode, held in self.walk.held.items()}
        others = {identity: held.path for identity, held in found.items() if identity[1] != own.st_ino}
        trust = {identity: _is_trusted_at(path, identity) for identity, path in others.items()}
        trusted = [(others[identity], identity) for identity, is_so in trust.items() if is_so]
        users = [identity for identity, is_so in trust.items() if is_so is False]
        connected = self._connected if users else frozenset()
        users.sort(key=lambda identity: identity[1] not in connected)
        spaces: dict[NamespaceId, Space | None] = {}
        until = math.inf
        for identity in [*(found.keys() - set(users)), *users]:
            if trust.get(identity) is False and identity[1] not in connected:
                until = min(until, system.monotonic() + _SECONDS_FOR_USERS)
            path, process = found[identity].path, found[identity].process
            if system.monotonic() > until:
                problem = f"users have so many namespaces that {len(found) - len(spaces)} of them were not read"
                spaces[identity] = Space(path, process, problem=problem, is_trusted=False)
                break
            spaces[identity] = self._read(identity, found[identity], trusted)
        return {identity: space for identity, space in spaces.items() if space is not None}

    def _read(self, identity: NamespaceId, held: Held, trusted: Collection[tuple[str, NamespaceId]]) -> Space | None:
        read = (read_space(identity, path, held.process, trusted) for path in held.all_paths)
        space = next((space for space in read if space is not None), None)
        if space is None and is_mounted_here(identity[1]):
            # No holder has ended: another mount covers it.
            return Space(held.path, held.process, problem="no path leads to it: another mount covers it")
        return space

    @property
    def _connected(self) -> set[int]:
        """The inodes of the namespaces that an interface of this program's namespace leads to."""
        peers = {link.peer_namespace for link in self._own_links if link.peer_namespace is not None}
        return {self._numbers[number] for number in peers if number in self._numbers}

    @cached_property
    def addresses(self) -> dict[str, list[tuple[NamespaceId, Link]]]:
        """The interfaces that only root can have created, by their IP addresses."""
        found: dict[str, list[tuple[NamespaceId, Link]]] = {}
        for identity, space in self.spaces.items():
            for link in space.evidence:
                for text in link.addresses:
                    found.setdefault(text.partition("/")[0], []).append((identity, link))
        return found

    # The facts.

    def _quick_facts(self, subject: Subject) -> Facts:
        if subject.has_rebooted:
            return Facts(has_rebooted=True)
        lead = _path_of(subject)
        if lead == "reused":
            return Facts(is_inode_reused=True)
        facts = Facts(
            path="same" if lead == "same number" else lead,
            is_old=subject.age is not None and subject.age > self._old_after,
            is_nameless=subject.netns is None and not subject.path.startswith("/") and not subject.addresses,
        )
        if facts.path == "same":
            return facts
        if subject.netns is not None:
            own = namespace_identity("/proc/self/ns/net")
            if own is not None and own[0] != subject.netns[0]:
                return replace(facts, was_namespace=False)
            facts = replace(facts, kernel=self._kernel_finds(subject.netns, subject.cookie))
        return facts if facts.kernel is not None else replace(facts, host_end=self._host_end(subject))

    def _walked_facts(self, subject: Subject, facts: Facts) -> Facts:
        held, blind = self._holder(subject), self._why_hidden(subject.pid_namespace)
        end, outside = self._host_end(subject), self.walk.outside
        facts = replace(facts, has_walked=True, blind=blind, outside=outside, host_end=end)
        if held is not None:
            is_reused = self._is_reused(subject)
            return replace(facts, is_inode_reused=True) if is_reused else replace(facts, held=next(signs_of(held)))
        if subject.netns is not None:
            return replace(facts, port=self._unseen_port(subject.bridges))
        where, is_own = "", False
        if found := self._on_interfaces(subject):
            (netns, link), *_ = found
            where, is_own = f"{link.name} in {self.spaces[netns].path}", _is_of(link, subject)
        # Who has an address of a bridge's network is behind a port of it, and a port that leads to a namespace which
        # could not be read counts as unseen. Other namespaces need not be read for that.
        unread = "" if subject.bridges else self._unread
        return replace(
            facts, address=where if is_own else "", similar="" if is_own else where,
            unread=unread, port=self._unseen_port(subject.bridges),
        )  # fmt: skip

    def _holder(self, subject: Subject) -> Held | None:
        """Return what the walk saw that holds the subject's namespace, or a later one with the same number."""
        held = self.walk.held.get(subject.netns[1]) if subject.netns is not None else None
        return held if held is not None and held.paths else None

    def _is_reused(self, subject: Subject) -> bool:
        # A holder may have ended, or be in another namespace by now: then its path tells nothing.
        held = self._holder(subject)
        return held is not None and any(_lead(path, subject) == "reused" for path in held.all_paths)

    def _on_interfaces(self, subject: Subject) -> list[tuple[NamespaceId, Link]]:
        """Return the interfaces that have an address of the subject: first those with its hardware address."""
        found = [one for address in subject.addresses for one in self.addresses.get(address, ())]
        return sorted(found, key=lambda one: not _is_of(one[1], subject))

    def _kernel_finds(self, netns: NamespaceId, cookie: int) -> bool | None:
        if not self._by_handle or not cookie:
            return None
        try:
            system.close(system.open_namespace_by_handle(netns[1], cookie))
        except OSError as error:
            return False if error.errno == errno.ESTALE and self._kernel_tells else None
        return True

    @cached_property
    def _kernel_tells(self) -> bool:
        """Whether the kernel's ESTALE means that there is no such namespace.

        The kernel says ESTALE, not EPERM, about a living namespace for which the caller lacks CAP_SYS_ADMIN.
        """
        try:
            is_first = system.stat("/proc/self/ns/user").st_ino == FIRST_USER_NAMESPACE
            return is_first and has_capability(CAP_SYS_ADMIN) and _finds_what_a_socket_keeps()
        except (OSError, ValueError):
            return False

    def _host_end(self, subject: Subject) -> Literal["there", "gone", "another's", "none"]:
        """Return whether a host end of the subject's veths exists in this program's namespace."""
        if not subject.host_ends:
            return "none"
        try:
            with open_netlink() as connection:
                kernel = Conversation(connection, is_own=True)
                named = [(kernel.link(name), mac) for name, mac in subject.host_ends]
        except OSError:
            return "none"
        veths = [link for link, mac in named if link is not None and link.kind == "veth" and mac in {"", link.mac}]
        if not veths:
            # By the hardware address: somebody may have renamed it.
            macs = {mac for _, mac in subject.host_ends if mac and subject.index}
            veths = [link for link in self._own_links if link.kind == "veth" and link.mac in macs]
        for link in veths:
            if subject.index in {0, link.peer}:
                return "another's" if self._leads_elsewhere(link, subject) else "there"
        # A bridge or a master is no end of a container's interface.
        return "gone" if any(link is None or link.kind == "veth" for link, _ in named) else "none"

    def _leads_elsewhere(self, link: Link, subject: Subject) -> bool:
        """Return whether a host end certainly leads to another namespace than the subject's.

        Some plugins give the interfaces of one pod the same name and hardware address again and again.
        """
        if subject.netns is None or link.peer_namespace is None or "walk" not in self.__dict__:
            return False  # without a walk nobody knows where it leads
        return self._numbers.get(link.peer_namespace, subject.netns[1]) != subject.netns[1]

    @cached_property
    def _numbers(self) -> dict[int, int]:
        """The numbers that this program's namespace has for the namespaces that the walk found, with their inodes."""
        numbers: dict[int, int] = {}
        device = system.stat("/proc/self/ns/net").st_dev
        with suppress(OSError), open_netlink() as connection:
            kernel = Conversation(connection, seconds=20.0, is_own=True)
            for inode, held in self.walk.held.items():
                with suppress(OSError, ValueError):
                    with system.Closing(open_known(held.path, (device, inode))) as descriptor:
                        number = kernel.number_of(descriptor)
                    if number is not None:
                        numbers[number] = inode
        return numbers

    @cached_property
    def _own_links(self) -> list[Link]:
        with suppress(OSError), open_netlink() as connection:
            return Conversation(connection, is_own=True).links()
        return []

    def _unseen_port(self, bridges: Collection[str]) -> str:
        """Return an interface of the host that leads to a namespace that the walk did not find, or "".

        ``bridges``: the only bridges whose ports count, if this program's namespace has one of them.
        """
        masters = {link.index for link in self._own_links if link.name in bridges}
        for link in self._own_links:
            is_unseen = link.peer_namespace is not None and link.peer_namespace not in self._numbers
            if link.kind in _CONTAINER_PORTS and is_unseen and (not masters or link.master in masters):
                return link.name
        return ""

    @cached_property
    def _unread(self) -> str:
        """A namespace that may be a container's and that could not be read, with the reason; or ""."""
        # A user can prevent the reading of his own namespace. It counts only if root connected it with this one.
        connected = self._connected
        for (_, inode), space in self.spaces.items():
            if space.network is None and (space.is_trusted or inode in connected):
                return f"{space.path}: {space.problem}"
        return ""

    def why_blind(self, pid_namespace: int | None) -> str:
        """Return why processes of containers may be hidden, or "". ``pid_namespace``: the PID namespace of the ADD."""
        return self._why_hidden(pid_namespace) or self.walk.outside

    def _why_hidden(self, pid_namespace: int | None) -> str:
        """Return the same without processes outside this program's user namespace."""
        if self.walk.blind:
            return self.walk.blind
        seen = self.walk.pid_namespace
        is_same = seen is not None and seen in {FIRST_PID_NAMESPACE, pid_namespace}
        if is_same or (pid_namespace is None and self.walk.sees_containers):
            return ""
        cure = "run this program in the runtime's PID namespace (hostPID: true)"
        return f"the processes of other PID namespaces are hidden; {cure}"


def _is_of(link: Link, subject: Subject) -> bool:
    """Return whether an interface with an address of the subject may be the subject's."""
    return not subject.macs or link.mac in subject.macs


def _path_of(subject: Subject) -> Lead | Literal["none"]:
    if not subject.path.startswith("/"):
        return "none"
    if subject.netns is not None:
        return _lead(subject.path, subject)
    # Go records the path alone: any network namespace that is not the node's may be the container's.
    identity = namespace_identity(subject.path)
    if identity is None:
        return "gone"
    own = [namespace_identity(f"/proc/{name}/ns/net") for name in ("self", "thread-self")]
    return "other" if identity in own or own[0] is None or identity[0] != own[0][0] else "same"


Lead = Literal["same", "same number", "reused", "other", "gone"]


def _lead(path: str, subject: Subject) -> Lead:
    """Return where a path leads.

    To the ``same`` namespace; to one with the ``same number``, whose cookie is unknown; to a later one whose number was
    ``reused``; to ``other`` things, or nowhere (``gone``).
    """
    if subject.netns is None:
        return "other"
    try:
        descriptor = open_known(path, subject.netns)
    except PermissionError:  # it may be a file that this program may not open
        return _lead_of_closed(path, subject.netns)
    except (OSError, ValueError) as error:
        return "other" if isinstance(error, OSError) and error.errno == errno.ESTALE else "gone"
    with system.Closing(descriptor):
        return _compare(descriptor, subject.cookie)


def _lead_of_closed(path: str, netns: NamespaceId) -> Lead:
    try:
        return "same number" if system.identify(path) == netns else "other"
    except OSError:
        return "gone"


def _compare(descriptor: int, cookie: int) -> Lead:
    """Compare an open namespace with a recorded one of the same number."""
    if not cookie:
        return "same number"
    with suppress(OSError):
        if struct.unpack("=Q", system.ioctl(descriptor, _NS_GET_ID, bytes(8)))[0] == cookie:
            return "same"
    return {None: "same number", True: "same", False: "reused"}[_cookie_by_socket(descriptor, cookie)]  # type: ignore[return-value]  # a dict of literals


def _cookie_by_socket(descriptor: int, cookie: int) -> bool | None:
    try:
        connection = _socket_in(descriptor)
    except OSError:
        return None
    try:
        seen = cookie_of(connection)
    finally:
        connection.close()
    return seen == cookie if seen else None


def _socket_in(descriptor: int) -> _socket.socket:
    """Return a netlink socket in an open namespace. Raises OSError."""
    number = netlink_socket(descriptor)
    if number < 0:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    connection: _socket.socket = system.socket(AF_NETLINK, _socket.SOCK_RAW, 0, number)
    return connection


def _is_trusted_at(path: str, identity: NamespaceId) -> bool | None:
    """Return whether a namespace is trusted; None if nobody knows."""
    try:
        descriptor = open_known(path, identity)
    except (OSError, ValueError):
        return None
    with system.Closing(descriptor):
        return is_trusted(descriptor)


@functools.cache
def _finds_what_a_socket_keeps() -> bool:
    """Return whether the kernel finds a namespace of which nothing but a socket is left."""
    try:
        with system.Closing(new_namespace(lo_up=False)) as namespace:
            inode = system.fstat(namespace).st_ino
            connection = _socket_in(namespace)
        try:
            system.close(system.open_namespace_by_handle(inode, cookie_of(connection)))
        finally:
            connection.close()
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOMEM}:  # perhaps the next time
            raise
        return False
    return True


os.register_at_fork(after_in_child=_finds_what_a_socket_keeps.cache_clear)
