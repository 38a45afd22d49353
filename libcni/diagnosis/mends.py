"""Mends: the changes with which ``libcni repair`` can solve a finding, as data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

__all__ = ["Mend"]

MendKind = Literal[
    "set-aside", "reserve", "forward", "set-up", "join", "add-address", "add-route", "add-rules",
    "remove-rules", "reload", "release", "detach",
]  # fmt: skip
"""The kinds in the order in which a repair carries them out: others depend on the first, the last remove data."""

ORDER: Final[tuple[MendKind, ...]] = get_args(MendKind)
FOR_THE_DEAD: Final = {"remove-rules", "set-aside", "detach"}
"""The kinds that are carried out in groups, between two examinations of the node, if they interrupt nobody."""
GROUPED: Final = {"release", "remove-rules"}
"""The kinds of which one mend serves several containers: each of its ``details`` is independent."""


@dataclass(frozen=True, slots=True)
class Mend:
    """A change that would solve a finding.

    Attributes:
        kind: ``set-aside`` a record; ``reserve`` an address for the container that has it; ``forward`` packets;
            ``set-up`` a link; ``join`` a link to a bridge; ``add-address`` and ``add-route``; ``add-rules`` of an
            attachment in place; ``remove-rules`` for addresses of a dead container; ``reload`` an attachment;
            ``release`` reservations; ``detach`` an attachment.
        target: the changed object: a file, a directory, a link, or for rules a container's ID.
        details: the addresses, routes or the bridge, and for ``add-rules`` the missing rules.
        containers: the attachments that it is for, as ``ID:IFNAME``.
        interrupts: the attachments that lose a working interface, address, route or rule, at least for a moment.
        network: the network of reservations and rules.
        netns: the path of the namespace of a link; "" for the node's own.

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
        """Its kind and the objects that it changes: equal for the same change in two diagnoses."""
        return self.kind, self.target, self.network, self.netns, *(() if self.kind in GROUPED else self.details)


def merged(mends: tuple[Mend, ...]) -> tuple[Mend, ...]:
    """Return mends without repetitions. Reservations in one directory are released by one mend, so by one lock."""
    alike_by_key: dict[tuple[str, ...], list[Mend]] = {}
    for mend in mends:
        alike_by_key.setdefault((*mend.key, *mend.interrupts), []).append(mend)
    return tuple(_joined(alike) for alike in alike_by_key.values())


def _joined(alike: list[Mend]) -> Mend:
    if len(alike) == 1:
        return alike[0]
    details = dict.fromkeys(detail for mend in alike for detail in mend.details)
    containers = dict.fromkeys(name for mend in alike for name in mend.containers)
    return replace(alike[0], details=tuple(details), containers=tuple(containers))
