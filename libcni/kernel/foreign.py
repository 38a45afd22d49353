"""Read network namespaces of others with a deadline and a size limit, and find out who can have made their contents.

Any user can make a network namespace in a user namespace of his own, with any addresses, names and hardware addresses
in it. Such a namespace proves nothing, except for an interface whose other end is in a trusted namespace: only root can
connect the two.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from contextlib import suppress

import libcni.kernel.system as system
from libcni._dataclass import dataclass
from libcni.kernel.namespace import NamespaceId, open_known
from libcni.kernel.netlink import Conversation, Link, Network, RouteAnswer, RouteQuestion, network_of, open_netlink

_NS_GET_USERNS = 0xB701
_WITH_ANOTHER_END = frozenset({"veth", "macvlan", "macvtap", "ipvlan", "ipvtap"})
"""The kinds of interfaces whose creator needs rights in the namespace of the interface's peer or parent."""


@dataclass(frozen=True, slots=True)
class Space:
    """A network namespace.

    Attributes:
        path: a path that leads to it now.
        process: the PID of a process in it, or "".
        network: its interfaces, addresses, routes and cookie; None if they cannot be read.
        problem: why they cannot be read, or "".
        is_trusted: whether its user namespace is this program's, or an ancestor of it.
        tied: the indexes of its interfaces whose other end or parent is in a trusted namespace.
    """

    path: str
    process: str = ""
    network: Network | None = None
    problem: str = ""
    is_trusted: bool = True
    tied: frozenset[int] = frozenset()

    def is_evidence(self, link: Link) -> bool:
        """Return whether only root can have created an interface, so that it proves something; False for lo."""
        return link.name != "lo" and (self.is_trusted or link.index in self.tied)

    @property
    def evidence(self) -> list[Link]:
        """The interfaces that only root can have created; [] if the interfaces cannot be read."""
        return list(filter(self.is_evidence, self.network.links.values())) if self.network is not None else []


def is_trusted(descriptor: int) -> bool:
    """Return whether this program's user namespace, or an ancestor of it, owns an open namespace."""
    try:
        owner = system.ioctl(descriptor, _NS_GET_USERNS)
    except OSError:
        # EPERM: it is no descendant of ours. ENOTTY: a kernel before 4.9. To trust a namespace keeps its addresses.
        return True
    with system.Closing(owner):
        return bool(system.fstat(owner).st_ino == system.stat("/proc/self/ns/user").st_ino)


def read_space(
    identity: NamespaceId, path: str, process: str = "", trusted: Collection[tuple[str, NamespaceId]] = ()
) -> Space | None:
    """Read the namespace at a path; return None if another namespace, or no namespace, is at the path.

    ``trusted``: (path, identity) of the trusted namespaces, except this program's own.
    """
    try:
        # By descriptor: the process at the path may end, or leave a namespace that it only visited.
        descriptor = open_known(path, identity)
    except (OSError, ValueError) as error:
        is_there = isinstance(error, PermissionError) or getattr(error, "errno", 0) in {errno.EMFILE, errno.ENFILE}
        return Space(path, process, problem=_reason(error)) if is_there else None
    with system.Closing(descriptor):
        trust = is_trusted(descriptor)
        try:
            with open_netlink(f"/proc/self/fd/{descriptor}") as connection:
                kernel = Conversation(connection)
                network = network_of(kernel)
                tied = frozenset() if trust else _tied(kernel, network, trusted)
        except OSError as error:
            return Space(path, process, problem=_reason(error), is_trusted=trust)
        return Space(path, process, network, "", trust, tied)


def ways_in(place: tuple[str, NamespaceId] | None, questions: Sequence[RouteQuestion]) -> list[RouteAnswer]:
    """Return the kernel's routes for packets in a namespace (path, identity), or in this thread's. Raises OSError."""
    if not questions:
        return []
    if place is None:
        with open_netlink() as connection:
            return Conversation(connection, is_own=True).ways(questions)
    with (
        system.Closing(open_known(*place)) as namespace,
        open_netlink(f"/proc/self/fd/{namespace}") as connection,
    ):
        return Conversation(connection).ways(questions)


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _tied(kernel: Conversation, network: Network, trusted: Collection[tuple[str, NamespaceId]]) -> frozenset[int]:
    """Return the numbers of the interfaces whose peer or parent is in this program's namespace, or a trusted one."""
    wanted: dict[int, list[int]] = {}
    for link in network.links.values():
        if link.peer_namespace is not None and link.kind in _WITH_ANOTHER_END:
            wanted.setdefault(link.peer_namespace, []).append(link.index)
    tied: list[int] = list(wanted.pop(network.reader, ())) if network.reader is not None else []
    for path, identity in trusted:
        if not wanted:
            break
        with suppress(OSError, ValueError):
            with system.Closing(open_known(path, identity)) as other:
                number = kernel.number_of(other)
            tied += wanted.pop(number, ()) if number is not None else ()
    return frozenset(tied)
