"""Mends: the changes with which ``libcni repair`` can solve a finding, as data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from libcni._dataclass import dataclass, replace
from libcni.kernel.netlink import Link
from libcni.store.attachments import Attachment

__all__ = ["Mend"]

MendKind = Literal[
    "set-aside", "mount", "reserve", "forward", "set-up", "join", "remove-address", "add-address", "add-route",
    "add-rules",
    "remove-rules", "reload", "release", "detach",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mend:
    """A change that would solve a finding.

    Attributes:
        kind: ``set-aside`` a record; ``mount`` a living namespace at its path again; ``reserve`` an address for the
            container that has it; ``forward`` packets; ``set-up`` a link; ``join`` a link to a bridge;
            ``remove-address``, ``add-address`` and ``add-route``; ``add-rules`` of an attachment in place;
            ``remove-rules`` for addresses of a dead container; ``reload`` an attachment; ``release`` the reservations
            of an attachment; ``detach`` an attachment.
        target: the changed object: a file, a directory, a link, or for rules a container's ID.
        details: the addresses, routes or the bridge, and for ``add-rules`` the missing rules.
        containers: the attachments that it is for, as ``ID:IFNAME``.
        interrupts: the attachments that lose a working interface, address, route or rule, at least for a moment.
        network: the network of reservations and rules.
        netns: the path of the namespace of a link; "" for the node's own. For ``mount`` the record's path.

    Examples:
        >>> Mend("set-up", "cni0").interrupts
        ()
    """

    kind: MendKind
    target: str
    details: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    interrupts: tuple[str, ...] = ()
    network: str = ""
    netns: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """The mend's kind and the objects that it changes; equal for the same change in two diagnoses."""
        # All interfaces of a container on a network share a chain of rules, which goes with the last address.
        details = () if self.kind == "remove-rules" else self.details
        return self.kind, self.target, self.network, self.netns, *details

    def undoes(self, other: Mend) -> bool:
        """Return whether the mend undoes another one."""
        places = [(one.target, one.netns, one.details) for one in (self, other)]
        return _OPPOSITES.get(self.kind) == other.kind and places[0] == places[1]


_OPPOSITES: dict[MendKind, MendKind] = {
    "add-address": "remove-address", "remove-address": "add-address", "reserve": "release", "release": "reserve",
}  # fmt: skip


def merged(mends: Iterable[Mend]) -> tuple[Mend, ...]:
    """Return mends without repetitions. A mend of two findings interrupts the attachments of both."""
    groups: dict[tuple[str, ...], list[Mend]] = {}
    for mend in mends:
        groups.setdefault(mend.key, []).append(mend)
    return tuple(
        replace(
            alike[0],
            details=tuple(dict.fromkeys(detail for mend in alike for detail in mend.details)),
            containers=tuple(dict.fromkeys(name for mend in alike for name in mend.containers)),
            interrupts=tuple(dict.fromkeys(name for mend in alike for name in mend.interrupts)),
        )
        for alike in groups.values()
    )


def id_of(attachment: Attachment) -> str:
    """Return an attachment as ``ID:IFNAME``."""
    return f"{attachment.container_id}:{attachment.ifname}"


def mend_of(kind: MendKind, attachment: Attachment, *details: str, interrupts: bool = False) -> Mend:
    """Return a mend for an attachment; ``interrupts``: whether the attachment loses something that works."""
    about = (id_of(attachment),)
    return Mend(kind, attachment.path, details, about, about if interrupts else (), attachment.network)


def link_mend(kind: MendKind, attachment: Attachment, link: Link, *details: str, netns: str = "") -> Mend:
    """Return the mend of an interface of an attachment; ``netns``: the path of its namespace, "" for the node's own."""
    return Mend(kind, link.name, details, (id_of(attachment),), netns=netns)
