"""Whether the interface that now has an attachment's interface name is the one that its ADD made.

| verb         | when                      | question                                        | method              |
|--------------|---------------------------|-------------------------------------------------|---------------------|
| ADD, reload  | before the first plugin   | is the name free, in the same namespace?        | ``obstacle``        |
| ADD, reload  | after each plugin         | which interface did the plugins make?           | ``learn``           |
| ADD, reload  | before each other plugin  | are namespace and interface the same ones?      | ``verify``          |
| DEL, reload  | before the first plugin   | would DEL be refused? (changes nothing)         | ``may_remove``      |
| DEL, reload  | before each plugin        | may it remove the interface that it would find? | ``prepare_del``     |

The interface can still be replaced between an answer and the plugin's own system calls, some milliseconds later: no
kernel call deletes an interface on the condition that it has a certain index and address.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Literal

from libcni._dataclass import dataclass, replace
from libcni.errors import Hint, InterfaceExistsError, NamespaceMismatchError, RecordError
from libcni.protocol.result import Result
from libcni.store.kept_namespaces import is_abandoned
from libcni.store.model import Record, Unreadable, is_certain
from libcni.store.other_records import OtherRecord
from libcni.store.place import ABSENT, NOT_OURS, NOT_THE_SAME, UNKNOWN, Known, Place, compare, same_namespace, taken
from libcni.store.recorded_interface import own_addresses, place_of, reported_macs
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")


@dataclass(slots=True)
class Claim:
    """Compares an attachment's interface, as recorded or observed, with the one that has its name now.

    Attributes:
        run: examines the namespace.
        record: the attachment's record; None if there is none, or if it cannot be read.
        place: the place of the interface that the ADD made, as far as it is known.
        path: the path of the namespace; "" for none.
        ifname: the interface's name.
        is_any: whether the caller wants the plugins to remove any interface of this name.
        seen: the place at the last comparison before a plugin of DEL; None before the first one.
    """

    run: VerbRun
    record: Record | None
    place: Place
    path: str
    ifname: str
    is_any: bool = False
    seen: Place | None = None

    @classmethod
    def of_add(cls, run: VerbRun, record: Record, place: Place) -> Claim:
        """Return the Claim of an ADD whose plugins have created nothing yet."""
        return cls(run, record, place, record.netns, record.ifname)

    @classmethod
    def of(cls, run: VerbRun, record: Record, path: str) -> Claim:
        """Return the Claim of a recorded attachment in the namespace at a path."""
        place = place_of(record)
        path = path if place.is_identified else _other_than_own(run, path, record.ifname)
        return cls(run, record, place, path, record.ifname)

    @classmethod
    def unrecorded(cls, run: VerbRun, place: Place, path: str, ifname: str) -> Claim:
        """Return the Claim of an attachment without a usable record."""
        return cls(run, None, place, _other_than_own(run, path, ifname), ifname)

    @classmethod
    def to_any(cls, run: VerbRun, record: Record | None, path: str, ifname: str) -> Claim:
        """Return the Claim of a DEL whose caller wants the plugins to remove any interface of this name."""
        return cls(run, record, Place(), path, ifname, is_any=True)

    def look(self) -> Place:
        """Return the place of the interface that has the name now."""
        return self.run.sight.look(self.path, self.ifname)

    # ADD: learn the interface, and verify that it stays the same.

    def obstacle(self, seen: Place) -> Literal["", "namespace", "interface"]:
        """Return why an ADD must not begin: its path leads to another namespace, or an interface has its name."""
        if (self.place.netns, self.place.cookie) != (seen.netns, seen.cookie):
            return "namespace"
        return "interface" if isinstance(seen.interface, Known) else ""

    def learn_before(self, seen: Place) -> None:
        """Before the first plugin of an ADD, note that an interface that exists already does not belong to this ADD."""
        self.place = self.place.with_interface(NOT_OURS if isinstance(seen.interface, Known) else UNKNOWN)

    def learn(self, result: Result, *, is_last: bool) -> None:
        """Learn which interface the plugins of an ADD have made.

        ``result``: the result of the plugin that has ended.
        """
        self.place = self._taken(self.look(), result, is_last=is_last)

    def _taken(self, seen: Place, result: Result, *, is_last: bool) -> Place:
        reported = reported_macs(result, self.ifname)
        only_addresses = bool(result.ips and not result.interfaces)
        return taken(self.place, seen, reported=reported, only_addresses=only_addresses, is_last=is_last)

    def verify(self, result: Result) -> None:
        """Check that the next plugin of an ADD would change neither another namespace nor an interface of others.

        ``result``: the result of the plugin that has ended. It may have created the interface again, and report the new
        one.

        Raises:
            NamespaceMismatchError: the plugin would change another's.
        """
        seen = self.look()
        place = self._taken(seen, result, is_last=False)
        is_other = place.number and isinstance(seen.interface, Known) and place.number != seen.number
        # Look at the namespace last: a new namespace at the path may be another container's.
        assert self.record is not None
        if not same_namespace(self.place, self.run.sight.namespace(self.path)):
            raise replaced_namespace(self.record, "ADD")
        if is_other and same_namespace(self.place, seen):
            raise replaced_interface(self.record)

    def learn_after_failure(self) -> bool:
        """Learn which interface appeared while a plugin failed, or that none appeared; return whether this is certain.

        Many plugins do not remove their interface. If none appeared, no DEL of this ADD may remove an interface that is
        created later.
        """
        if self.place.interface is not UNKNOWN:
            return False
        seen = self.look()
        is_known = isinstance(seen.interface, Known)
        if seen.interface is ABSENT:
            with suppress(RecordError):
                is_known = not self.run.has_running_plugin()  # it may still make the interface
        if is_known and same_namespace(self.place, seen):
            self.place = seen
            return True
        return False

    # DEL: ask whether it may run, and verify before each plugin.

    def may_remove(self) -> bool:
        """Return whether the plugins of a DEL may remove the interface of this name. Changes nothing on the node.

        Raises:
            NamespaceMismatchError: DEL would be refused; see ``prepare_del``.
        """
        if not self.path or self.is_any:
            return bool(self.path)
        claim = replace(self, path=self._living_path())
        seen = claim._find(everywhere=True)  # noqa: SLF001 - this class's own
        if seen.found_as:
            return True  # DEL removes it by its index
        claim._refuse_address_in_use(seen)  # noqa: SLF001
        return not claim._is_others(seen)  # noqa: SLF001

    def prepare_del(self) -> str:
        """Return the CNI_NETNS for the next plugin of DEL: the path, or "" if the interface is not this attachment's.

        Before the first plugin, use another path to the namespace if its own path is lost, and remove the interface by
        its index if it was renamed in an abandoned namespace.

        Raises:
            NamespaceMismatchError: the interface was renamed or moved, so its address must not be freed while it
                exists; or another record names the same interface.
        """
        if not self.path or self.is_any:
            return self.path
        is_first = self.seen is None
        if is_first and (path := self._living_path()) != self.path:
            text = "%s no longer leads to the namespace, but the namespace exists: DEL uses the path %s"
            logger.warning(text, self.path, path)
            self.path = path
        seen = self._find(everywhere=is_first)
        if seen.found_as:
            self._remove_abandoned(seen.found_as)
            seen = self.look()
        if is_first:
            self._refuse_address_in_use(seen)
        is_others = self._is_others(seen)
        if is_first and not is_others and isinstance(seen.interface, Known):
            # The plugins of this DEL may change the hardware address: tuning restores the address from before the ADD.
            # No other namespace can get the same identity: the run's socket keeps this namespace alive.
            self.place = seen.with_interface(Known(seen.number))
        if is_others and seen.exists:
            logger.warning("%s in %s does not belong to this attachment: DEL leaves it alone", self.ifname, self.path)
        self.seen = seen
        return "" if is_others else self.path

    def is_missing(self) -> bool:
        """Return whether the next plugin of DEL will find no interface."""
        if self.is_any:
            return False
        return not self.path or self.seen is None or not self.seen.exists or self.seen.interface is ABSENT

    def asks_others(self) -> bool:
        """Return whether the next comparison reads the records of all attachments."""
        if not self.path or self.is_any or self.place.interface in {ABSENT, NOT_OURS}:
            return False
        seen = self.look()
        return isinstance(seen.interface, Known) and not is_certain(self.record, self.place, seen)

    def _living_path(self) -> str:
        """Return the path, or another path to the recorded namespace if it lives and the path does not lead to it.

        With an empty CNI_NETNS the plugins would free the address of an interface that still exists.
        """
        record, sight = self.record, self.run.sight
        if record is None or not self.place.cookie or same_namespace(self.place, sight.namespace(self.path)):
            return self.path
        return sight.reach(record) or self.path

    def _find(self, *, everywhere: bool) -> Place:
        """Return the present place. It has ``found_as`` if the interface was renamed in an abandoned namespace.

        Raises:
            NamespaceMismatchError: the interface was renamed or moved elsewhere.
        """
        seen = self.run.sight.find(self.record, self.place, self.path, self.ifname, everywhere=everywhere)
        if seen.found_as and not self._is_abandoned():
            raise self._renamed(seen.found_as)
        return seen

    def _is_abandoned(self) -> bool:
        """Return whether nothing lives in the namespace, which only this library keeps, and the index is certain.

        Then DEL removes a renamed interface: its container has ended, and nobody is left to rename it back.
        """
        return bool(self.place.number and self.place.cookie) and is_abandoned(self.run.settings.cache_dir, self.path)

    def _remove_abandoned(self, found_as: str) -> None:
        """Remove the renamed interface of an abandoned namespace; raises NamespaceMismatchError if that fails."""
        try:
            self.run.sight.remove(self.path, self.place)
        except OSError as error:
            text = "%s: the renamed interface, formerly %s, cannot be removed: %s"
            logger.warning(text, self.path, self.ifname, error)
            raise self._renamed(found_as) from error
        text = "%s: nothing uses this namespace, so the renamed interface, formerly %s, was removed"
        logger.warning(text, self.path, self.ifname)

    def _renamed(self, found_as: str) -> NamespaceMismatchError:
        text = "undo that change; or let DEL remove the interface that has the old name now, if any ({argument})"
        hint = Hint(text, argument="use_given")
        return mismatch(self.record, f"the interface {self.ifname} is now {found_as}", self.path, hint)

    def _refuse_address_in_use(self, seen: Place) -> None:
        """Raise NamespaceMismatchError if another interface in the recorded namespace has the attachment's address.

        The plugins would free the address, and the next container would get it too.
        """
        record = self.record
        if record is None or compare(self.place, seen) not in {"no interface", "other interface"}:
            return
        addresses = own_addresses(record)
        name = self.run.sight.carrier(self.path, addresses) if addresses else ""
        if name and not is_abandoned(self.run.settings.cache_dir, self.path):
            problem = f"the interface {self.ifname} is missing, but {name} has its address {', '.join(addresses)}"
            hint = Hint(
                "remove the address from that interface; or free the address although it is in use ({argument})",
                argument="use_given",
            )
            raise mismatch(record, problem, self.path, hint)

    def _is_others(self, seen: Place) -> bool:
        """Return whether the interface of this name is not the attachment's, or may be that of another record."""
        # If the namespace does not exist, another one may appear at the path at any time.
        if compare(self.place, seen) in NOT_THE_SAME:
            return True
        return isinstance(seen.interface, Known) and self._is_of_other_record(seen)

    def _is_of_other_record(self, seen: Place) -> bool:
        if is_certain(self.record, self.place, seen):
            return False
        other = next(self.run.others.with_interface(seen, self.record), None)
        if other is None:
            return False
        if self.record is None or not self.place.is_identified or compare(self.place, seen) != "same":
            return True
        if not other.is_same_interface(self.record):
            raise _two_records(self.record, other, self.path)
        return False


def _other_than_own(run: VerbRun, path: str, ifname: str) -> str:
    """Return a namespace's path; "" for this program's own namespace, if a record does not identify it.

    ADD refuses it. Go records only a path: /proc/PID may be a host process now.
    """
    if not path or not run.sight.is_own_namespace(path):
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


def _two_records(record: Record, other: OtherRecord, netns: str) -> NamespaceMismatchError:
    hint = "one of the two records is a copy: find out which, and remove that record (libcni forget)"
    return mismatch(record, f"two records name the interface: {record.path} and {other.path}", netns, hint)


def replaced_namespace(record: Record, verb: str) -> NamespaceMismatchError:
    """Return the error for an ADD or reload whose path leads to another namespace now, which stays unchanged."""
    problem = f"the namespace at {record.netns} was replaced during the {verb}; the container is not attached"
    return mismatch(
        record, problem, record.netns, "if the new namespace is the container's, attach the container again"
    )


def replaced_interface(record: Record) -> NamespaceMismatchError:
    """Return the error for an ADD whose interface another program has replaced. The new interface stays unchanged."""
    problem = (
        f"the interface {record.ifname} in {record.netns} was replaced during the ADD; the container is not attached"
    )
    return mismatch(
        record, problem, record.netns, "find out which program created the interface, then attach the container again"
    )


def interface_exists(record: Record) -> InterfaceExistsError:
    """Return the error for an ADD whose interface exists already, and belongs to no attachment that is known."""
    return InterfaceExistsError(
        f"the namespace {record.netns} already has an interface {record.ifname}, of which the container has no record",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
        netns=record.netns,
        hint=Hint(
            "remove the interface, or choose another name, or let the plugins change the interface ({argument})",
            argument="on_existing",
            value="allow",
        ),
    )
