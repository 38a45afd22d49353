"""The namespace of a DEL or CHECK, and the check before each plugin that it still belongs to the attachment."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from libcni._dataclass import dataclass
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import Hint, InterfaceExistsError, NamespaceMismatchError, NotAttachedError, RecordError
from libcni.store.kept_namespaces import is_abandoned
from libcni.store.model import (
    ABSENT,
    NOT_OURS,
    Identity,
    Known,
    Place,
    Record,
    Unreadable,
    compare,
    is_certain,
    is_namespace_unknown,
    same_namespace,
)
from libcni.store.other_records import OtherRecord
from libcni.store.present_interfaces import path_for_plugins
from libcni.store.recorded_place import own_addresses, place_of
from libcni.verbs.chain import Chain
from libcni.verbs.node import Node

logger: logging.Logger = logging.getLogger("libcni")


def checked_conf(rt: RuntimeConf) -> RuntimeConf:
    """Check an attachment's parameters, and return them with a path of the namespace that plugins can resolve.

    Raises:
        InvalidIdentifierError: a name breaks its rule.
    """
    rt.check()
    return rt.with_netns(path_for_plugins(rt.netns)) if rt.netns else rt


def path_to_use(node: Node, record: Record, netns: str | None, *, use_given: bool = False) -> str:
    """Return the path of the namespace for DEL and CHECK, or "" for no namespace.

    The recorded path is used if it leads to the recorded namespace, even if the caller gives another path to it.

    Args:
        node: examines the namespaces.
        record: the attachment's record.
        netns: the path that the caller gives; None: the recorded path.
        use_given: whether the caller's path, if any, replaces the recorded one.

    Raises:
        NamespaceMismatchError: the caller's namespace is not the recorded namespace, and both exist.
        RecordError: the record names no namespace, and neither does the caller.
    """
    if netns is not None and (use_given or is_namespace_unknown(record)):
        return netns
    if is_namespace_unknown(record):
        raise RecordError(
            f"{record.path}: Go libcni recorded no namespace, so it is unknown whether the container still exists",
            path=record.path,
            missing="namespace",
            hint='give the namespace\'s path, or "" if the namespace no longer exists',
        )
    if netns is None or netns == record.netns:
        return record.netns
    at_recorded = node.sight.namespace(record.netns)
    recorded_path, given_path = _recorded_path(node, record, at_recorded), _given_path(node, record, at_recorded, netns)
    if recorded_path == "gone" and given_path != "the same" and node.sight.reach(record):
        recorded_path = "its own"
    path = _PATHS[recorded_path, given_path]
    if path == "refuse":
        problem = f"it was attached in the namespace {record.netns}, and {netns} is another namespace"
        raise mismatch(record, problem, netns)
    return {"recorded": record.netns, "given": netns, "none": ""}[path]


_RecordedPath = Literal["its own", "any", "a mistake", "gone"]
_GivenPath = Literal["nothing", "the same", "another"]

_PATHS: Mapping[tuple[_RecordedPath, _GivenPath], Literal["recorded", "given", "none", "refuse"]] = {
    # "" as well is nothing: with it the plugins would free the address of an interface that still exists.
    ("its own", "nothing"): "recorded",
    ("its own", "the same"): "recorded",
    ("its own", "another"): "refuse",
    ("any", "nothing"): "given",
    ("any", "the same"): "recorded",
    ("any", "another"): "refuse",
    # An ADD with a wrong path created nothing there, and must not prevent the ADD with the right path.
    ("a mistake", "nothing"): "recorded",
    ("a mistake", "the same"): "recorded",
    ("a mistake", "another"): "none",
    ("gone", "nothing"): "given",
    ("gone", "the same"): "given",
    ("gone", "another"): "none",
}
"""Which path DEL and CHECK use if the caller gives another than the recorded one."""


def _recorded_path(node: Node, record: Record, seen: Place) -> _RecordedPath:
    """Return whether the recorded path leads to the recorded namespace; ``any``: the record does not identify it."""
    recorded = place_of(record)
    if not seen.exists or not same_namespace(recorded, seen):
        return "gone"
    if not record.is_complete and node.sight.is_no_namespace(record.netns):
        return "a mistake"
    return "its own" if recorded.is_identified or recorded.mac else "any"


def _given_path(node: Node, record: Record, at_recorded: Place, netns: str) -> _GivenPath:
    """Return whether the caller's path leads to the recorded namespace."""
    recorded, given = place_of(record), node.sight.namespace(netns)
    if not given.exists:
        return "nothing"
    return "the same" if same_namespace(recorded if recorded.is_identified else at_recorded, given) else "another"


def check_own_netns(node: Node, record: Record, path: str) -> None:
    """Raise NamespaceMismatchError if this program is not in the living namespace of an ADD with ``allow_own_netns``.

    Its plugins would free the address of an interface that they cannot reach.
    """
    if same_namespace(place_of(record), node.sight.namespace(path)):
        return
    from libcni.store.life import life_of  # few attachments need it

    if not life_of(record).is_dead:
        problem = "it was attached in the network namespace of its program, and this program is in another one"
        raise mismatch(record, problem, path, "repeat it in that namespace, for example with nsenter")


def check_no_interface(node: Node, network: str, rt: RuntimeConf) -> None:
    """Raise InterfaceExistsError if the namespace has the interface of an attachment without a usable record."""
    if rt.netns and isinstance(node.sight.look(rt.netns, rt.ifname).interface, Known):
        raise InterfaceExistsError(
            f"container {rt.container_id}: {rt.netns} has an interface {rt.ifname}, and no usable record names its "
            "owner; a DEL would free its address while it may be in use",
            container_id=rt.container_id,
            ifname=rt.ifname,
            network=network,
            netns=rt.netns,
            hint=Hint("{argument} removes the interface, whoever created it", argument="use_given"),
        )


@dataclass(slots=True)
class Ownership:
    """The recorded place of an interface, compared with the present one before each plugin that may remove it.

    The interface can still be replaced between this comparison and the plugin's own system calls, some milliseconds
    later: no kernel call deletes an interface on the condition that it has a certain index and address.

    Attributes:
        node: examines the namespace.
        record: the attachment's record; None if there is none, or if it cannot be read.
        recorded: the place that the ADD recorded.
        path: the path of the namespace; "" for none.
        ifname: the interface's name.
        seen: the place at the last comparison.
        has_warned: whether the warning was logged.
        is_first: whether the next comparison is the first.
        is_callers: whether the caller wants the plugins to remove any interface of this name.
    """

    node: Node
    record: Record | None
    recorded: Place
    path: str
    ifname: str
    seen: Place = Place()
    has_warned: bool = False
    is_first: bool = True
    is_callers: bool = False

    @classmethod
    def of(cls, node: Node, record: Record, path: str, ifname: str) -> Ownership:
        """Return the Ownership for a DEL of a recorded attachment in the namespace at a path."""
        place = place_of(record)
        return cls(node, record, place, path if place.is_identified else _other_than_own(node, path, ifname), ifname)

    @classmethod
    def unrecorded(cls, node: Node, place: Place, path: str, ifname: str) -> Ownership:
        """Return the Ownership for a DEL without a usable record."""
        return cls(node, None, place, _other_than_own(node, path, ifname), ifname)

    @classmethod
    def of_caller(cls, node: Node, record: Record | None, path: str, ifname: str) -> Ownership:
        """Return the Ownership for a DEL that removes any interface of the name."""
        return cls(node, record, Place(), path, ifname, is_callers=True)

    def netns(self) -> str:
        """Return the CNI_NETNS for the next plugin: the path, or "" if the interface does not belong to this ADD.

        Raises:
            NamespaceMismatchError: the interface was renamed or moved, so its address must not be freed while it
                exists; or another record names the same interface.
        """
        if not self.path or self.is_callers:
            return self.path
        if self.is_first:
            self._take_other_path()
        self.seen = seen = self._look()
        if self.is_first:
            self._refuse_address_in_use(seen)
        # If the namespace does not exist, another one may appear at the path at any time.
        is_others = compare(self.recorded, seen) in {"no namespace", "other namespace", "other interface"}
        if not is_others and isinstance(seen.interface, Known):
            is_others = self._is_anothers(seen)
            if self.is_first:
                # The plugins of this DEL may change the hardware address: tuning restores the address from before
                # the ADD. No other namespace can get the same identity: the node's socket keeps this namespace alive.
                self.recorded = self.recorded if is_others else seen.with_interface(Known(seen.number))
        self.is_first = False
        if is_others and seen.exists and not self.has_warned:
            self.has_warned = True
            logger.warning("%s in %s does not belong to this attachment: DEL leaves it alone", self.ifname, self.path)
        return "" if is_others else self.path

    def _take_other_path(self) -> None:
        """Use another path to the recorded namespace if it lives, although its own path does not lead to it any more.

        With an empty CNI_NETNS the plugins would free the address of an interface that still exists.
        """
        record, sight = self.record, self.node.sight
        if record is None or not self.recorded.cookie or same_namespace(self.recorded, sight.namespace(self.path)):
            return
        if path := sight.reach(record):
            logger.warning("%s does not lead to the namespace any more, but it exists: DEL uses %s", self.path, path)
            self.path = path

    def _look(self) -> Place:
        """Return the present place; raises NamespaceMismatchError if the interface was renamed or moved."""
        sight = self.node.sight
        seen = sight.find(self.record, self.recorded, self.path, self.ifname, everywhere=self.is_first)
        if not seen.found_as:
            return seen
        if self._removes_abandoned():
            return sight.look(self.path, self.ifname)
        hint = Hint("move it back; {argument} removes the interface that has its name now", argument="use_given")
        raise mismatch(self.record, f"its interface {self.ifname} is now {seen.found_as}", self.path, hint)

    def _removes_abandoned(self) -> bool:
        """Remove the renamed interface by its index if nothing lives in a namespace that only this library keeps.

        Otherwise nobody could free its address: its container has ended, and nobody is left to rename it back.
        """
        number, cookie = self.recorded.number, self.recorded.cookie
        if not number or not cookie or not is_abandoned(self.node.settings.cache_dir, self.path):
            return False
        try:
            self.node.sight.remove(self.path, number)
        except OSError as error:
            logger.warning("%s: the renamed interface of %s cannot be removed: %s", self.path, self.ifname, error)
            return False
        logger.warning("%s: nothing lives there, so the interface that was %s was removed", self.path, self.ifname)
        return True

    def _refuse_address_in_use(self, seen: Place) -> None:
        """Raise NamespaceMismatchError if another interface in the recorded namespace has the attachment's address.

        The plugins would free the address, and the next container would get it too.
        """
        is_there = self.record is not None and seen.exists and same_namespace(self.recorded, seen)
        if not is_there or compare(self.recorded, seen) not in {"no interface", "other interface"}:
            return
        addresses = own_addresses(self.record) if self.record is not None else ()
        name = self.node.sight.carrier(self.path, addresses) if addresses else ""
        if name and not is_abandoned(self.node.settings.cache_dir, self.path):
            problem = f"its interface {self.ifname} is not there, but {name} has its address {', '.join(addresses)}"
            hint = Hint(
                "remove the address from that interface; {argument} frees it all the same", argument="use_given"
            )
            raise mismatch(self.record, problem, self.path, hint)

    def asks_others(self) -> bool:
        """Return whether the next comparison reads the records of all attachments."""
        if not self.path or self.is_callers or self.recorded.interface in {ABSENT, NOT_OURS}:
            return False
        seen = self.node.sight.look(self.path, self.ifname)
        is_proved = self.record is not None and is_certain(self.record, self.recorded, seen)
        return isinstance(seen.interface, Known) and not is_proved

    def _is_anothers(self, seen: Place) -> bool:
        """Return whether the interface that was seen may belong to the attachment of another record."""
        if self.record is not None and is_certain(self.record, self.recorded, seen):
            return False
        other = next(self.node.others.with_interface(seen, self.record), None)
        if other is None:
            return False
        if self.record is None or not self.recorded.is_identified or compare(self.recorded, seen) != "same":
            return True
        if not other.is_same_interface(self.record):
            raise _two_records(self.record, other, self.path)
        return False

    def is_missing(self) -> bool:
        """Return whether the next plugin will find no interface."""
        if self.is_callers:
            return False
        return not self.path or self.seen.interface is ABSENT or not self.seen.exists

    def chain(self, chain: Chain) -> Chain:
        """Return the chain for the next plugin. Once CNI_NETNS was empty, it stays empty."""
        return chain.with_netns(self.netns()) if chain.rt is not None and chain.rt.netns else chain


def _two_records(record: Record, other: OtherRecord, netns: str) -> NamespaceMismatchError:
    hint = "one of the two records is a copy: find out which, and drop it (forget)"
    return mismatch(record, f"two records name its interface: {record.path} and {other.path}", netns, hint)


def _other_than_own(node: Node, path: str, ifname: str) -> str:
    """Return a namespace's path; "" for this program's own namespace, if a record does not identify it.

    ADD refuses it. Go records only a path: /proc/PID may be a host process now.
    """
    if not path or not node.sight.is_own_namespace(path):
        return path
    logger.warning("DEL leaves the interface %s alone: %s is this program's own namespace", ifname, path)
    return ""


def mismatch(record: Record | None, problem: str, netns: str, hint: Hint | str | None = None) -> NamespaceMismatchError:
    """Return the error for a namespace or an interface that is not the recorded namespace or interface."""
    record = record if record is not None else Unreadable()
    return NamespaceMismatchError(
        f"container {record.container_id}, interface {record.ifname}, network {record.network}: {problem}",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
        netns=netns,
        recorded_netns=record.netns,
        hint=hint,
    )


def replaced_namespace(record: Record, verb: str) -> NamespaceMismatchError:
    """Return the error for an ADD or reload whose path leads to another namespace now, which stays unchanged."""
    problem = f"the namespace at {record.netns} was replaced during the {verb}; the container is not attached"
    return mismatch(record, problem, record.netns, "attach the container again if the new namespace is its own")


def replaced_interface(record: Record) -> NamespaceMismatchError:
    """Return the error for an ADD whose interface another program has replaced. The new interface stays unchanged."""
    problem = (
        f"its interface {record.ifname} in {record.netns} was replaced during the ADD; the container is not attached"
    )
    return mismatch(
        record, problem, record.netns, "find out which program created the interface, then attach the container again"
    )


def not_attached(identity: Identity, problem: str, state: str = "") -> NotAttachedError:
    """Return the error for a verb that needs a completed ADD."""
    network, container_id, ifname = identity
    return NotAttachedError(
        f"container {container_id}, interface {ifname}, network {network}: {problem}",
        container_id=container_id,
        ifname=ifname,
        network=network,
        state=state,
    )
