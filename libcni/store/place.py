"""The interface of an attachment and its network namespace: recorded, and as they are now."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from libcni._dataclass import dataclass, replace


class NoInterface(Enum):
    """The reason why no interface is known."""

    ABSENT = "absent"
    """No interface has this name."""
    NOT_OURS = "not ours"
    """An interface has this name, but no plugin of this ADD created it."""
    UNKNOWN = "unknown"
    """The namespace was not examined, or this program may not examine it."""


ABSENT: Final = NoInterface.ABSENT
NOT_OURS: Final = NoInterface.NOT_OURS
UNKNOWN: Final = NoInterface.UNKNOWN


@dataclass(frozen=True, slots=True)
class Known:
    """An interface that an ADD created, or that exists now.

    Attributes:
        number: its index in the namespace; 0 if only the hardware address is known, as in records of Go libcni.
        mac: its hardware address, such as "0a:58:0a:00:00:02"; "" if it is not known.
    """

    number: int = 0
    mac: str = ""


Interface = Known | NoInterface

NOWHERE: Final = (0, 0)
"""The identity of a namespace that did not exist when the ADD began."""

ANY: Final = (-1, -1)
"""The identity of whatever namespace is at a path: Go libcni records the path alone."""


@dataclass(frozen=True, slots=True)
class Place:
    """A network namespace, and the interface of one name in it.

    Attributes:
        netns: (device, inode) of the namespace's file; NOWHERE if it did not exist; None if it is unknown. ANY: only a
            path is recorded.
        cookie: the kernel's cookie of the namespace; 0 if it is unknown (before Linux 5.14). The kernel reuses inode
            numbers, but not cookies.
        interface: the interface.
        found_as: the present place of the ADD's interface if its name or its namespace has changed; else "".
    """

    netns: tuple[int, int] | None = None
    cookie: int = 0
    interface: Interface = UNKNOWN
    found_as: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is a namespace."""
        return self.netns not in {None, NOWHERE}

    @property
    def is_identified(self) -> bool:
        """Whether a record says which namespace it is, or that there was none."""
        return self.netns not in {None, ANY}

    @property
    def number(self) -> int:
        """The index of the interface; 0 if it is unknown."""
        return self.interface.number if isinstance(self.interface, Known) else 0

    @property
    def mac(self) -> str:
        """The hardware address of the interface; "" if it is unknown."""
        return self.interface.mac if isinstance(self.interface, Known) else ""

    def with_interface(self, interface: Interface) -> Place:
        """Return the place with another interface."""
        return Place(self.netns, self.cookie, interface, self.found_as)


Comparison = Literal["same", "unknown", "no namespace", "other namespace", "no interface", "other interface", "renamed"]

NOT_THE_SAME: Final[frozenset[Comparison]] = frozenset({"no namespace", "other namespace", "other interface"})
"""The results of ``compare`` that say that an interface of the name is certainly not the recorded one."""


def same_namespace(recorded: Place, seen: Place) -> bool:
    """Return whether ``seen`` may be the recorded namespace: no value that is known for both differs."""
    if not seen.exists:
        return recorded.netns in {None, NOWHERE}
    if not recorded.is_identified:
        return True
    # The kernel gives the inode number of a removed namespace to a new one, but never reuses a cookie.
    return recorded.netns == seen.netns and not (recorded.cookie and seen.cookie and recorded.cookie != seen.cookie)


def compare(recorded: Place, seen: Place) -> Comparison:  # noqa: PLR0911 - a table: one return for each row
    """Compare the recorded place of an interface with the present one at the same path and name."""
    if not same_namespace(recorded, seen):
        return "other namespace" if seen.exists else "no namespace"
    if not seen.exists:
        return "unknown"
    if seen.found_as:
        return "renamed"
    if isinstance(recorded.interface, Known) and isinstance(seen.interface, Known):
        return _compare_interfaces(recorded, seen)
    if UNKNOWN in {seen.interface, recorded.interface}:  # this program may not enter the namespace
        return "unknown"
    if isinstance(seen.interface, Known):
        return "other interface"
    # The plugins of an ADD may have created no interface of this name.
    return "same" if recorded.interface is ABSENT else "no interface"


def _compare_interfaces(recorded: Place, seen: Place) -> Literal["same", "unknown", "other interface"]:
    # Without a cookie the kernel may have used the namespace's number again.
    if not is_same_index(recorded, seen) and is_other_mac(recorded.mac, seen.mac):
        return "other interface"
    if recorded.number:
        return "same" if recorded.number == seen.number else "other interface"
    if ":" in recorded.mac and not seen.mac:  # Go records the hardware address alone, and this interface has none
        return "other interface"
    return "same" if recorded.mac and recorded.mac == seen.mac else "unknown"


def is_same_index(recorded: Place, seen: Place) -> bool:
    """Return whether both places have the same interface index and the same namespace cookie.

    Its hardware address may have changed: plugins such as tuning do that, and users can.
    """
    return 0 not in {recorded.cookie, recorded.number} and (recorded.cookie, recorded.number) == (
        seen.cookie,
        seen.number,
    )


def is_other_mac(recorded: str, seen: str) -> bool:
    """Return whether two hardware addresses certainly differ. Plugins may print them in different notations."""
    return bool(recorded and seen) and recorded != seen and ":" in recorded and len(recorded) == len(seen)


def taken(recorded: Place, seen: Place, *, reported: list[str], only_addresses: bool, is_last: bool) -> Place:
    """Return the place to record for an ADD after one of its plugins has succeeded.

    An interface belongs to this ADD if it belonged to it after an earlier plugin, or if the plugin reports it with
    this hardware address. Simple plugins report addresses only, or nothing: after the last plugin an existing interface
    belongs to this ADD, unless the result has another hardware address for it.

    Args:
        recorded: the place so far.
        seen: the present place.
        reported: the hardware addresses that the plugin reported for an interface of this name; "" for one without.
        only_addresses: whether the plugin reported addresses and no interface.
        is_last: whether it was the last plugin.
    """
    if seen.interface is UNKNOWN or not same_namespace(recorded, seen):  # unknown, too, if there is no namespace
        return recorded
    if recorded.number:
        return seen if recorded.number == seen.number or seen.mac in {*reported} - {""} else recorded
    if not isinstance(seen.interface, Known):
        return seen if is_last else recorded
    is_made = only_addresses or (is_last and not reported) or any(not is_other_mac(mac, seen.mac) for mac in reported)
    return seen if is_made else replace(recorded, interface=NOT_OURS)
