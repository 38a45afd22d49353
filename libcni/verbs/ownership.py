"""Is it mine, now? The states of an attachment, and the question before each plugin call that removes something."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import InterfaceExistsError, NamespaceMismatchError, NotAttachedError
from libcni.protocol.result import Result
from libcni.store.place import NOT_OURS, NOWHERE, Place, compare, is_other_mac, netns_for_del, path_for_plugins
from libcni.store.record import CORRUPT, DETACHING, LEGACY, PENDING, STALE_BOOT, Identity, Record
from libcni.verbs.chain import Chain
from libcni.verbs.claims import place_of, reported_macs
from libcni.verbs.node import Node

logger: logging.Logger = logging.getLogger("libcni")

State = Literal["pending", "ready", "gone", "renamed", "detaching", "stale-boot", "corrupt"]


class Row(NamedTuple):
    """What the verbs do with an attachment in one state.

    Attributes:
        add: ``refuse`` the ADD, or ``detach`` the earlier attachment and begin.
        check: "" to run the plugins, else why CHECK is refused.
        delete: ``ask`` before each plugin whether the interface is the recorded one, or use an ``empty`` CNI_NETNS.
    """

    add: Literal["refuse", "detach"]
    check: str
    delete: Literal["ask", "empty"]


STATES: Final[dict[State, Row]] = {
    "pending": Row("detach", "its ADD has not ended", "ask"),
    "ready": Row("refuse", "", "ask"),
    "gone": Row("detach", "its namespace or its interface no longer exists", "ask"),
    "renamed": Row("refuse", "its interface was renamed or moved", "ask"),
    "detaching": Row("detach", "its DEL has begun and did not end", "ask"),
    # After a reboot nothing of the ADD exists, and the kernel's numbers start again, so equal ones prove nothing.
    "stale-boot": Row("detach", "it was attached before the last reboot", "empty"),
    "corrupt": Row("detach", "its record cannot be read", "ask"),
}
"""One row for each state. ``gone``: the record says ready, and at its path and name is nothing, or another's.

GC detaches as DEL does. An attachment without a record is in no state: ADD begins, CHECK is refused, and DEL asks.
"""


def state_on_record(record: Record) -> State:
    """Return the state of an attachment without a look: one that is ready may be gone or renamed."""
    if record.state == CORRUPT:
        return "corrupt"
    if record.state == STALE_BOOT:
        return "stale-boot"
    if record.state == DETACHING:
        return "detaching"
    return "pending" if record.state == PENDING or record.result is None else "ready"


def state_of(node: Node, record: Record, path: str | None = None) -> State:
    """Return the state of an attachment; ``path``: its namespace's path, if it is not the recorded one."""
    state = state_on_record(record)
    if state != "ready":
        return state
    # Do not compare hardware addresses here: the plugins' CHECK reports a changed one, and ADD refuses it.
    made = place_of(record)
    path = record.netns if path is None else path
    now = look(node, record, made, path, record.ifname, everywhere=True)
    compared = compare(by_number(made), now)
    if compared == "renamed":
        return "renamed"
    is_ready = compared in {"same", "unknown"} and not _has_go_path_gone(record, path, now)
    return "ready" if is_ready else "gone"


def taken(made: Place, now: Place, result: Result, ifname: str, *, is_last: bool) -> Place:
    """Return the place of an ADD after a plugin has succeeded; ``made``: the place so far, ``now``: what is there.

    An interface is this ADD's if it is the one that was there after an earlier plugin, or if the plugin reports it with
    this hardware address. Simple plugins report addresses only, or nothing: after the last plugin, what exists is this
    ADD's, unless the result has another hardware address for it.
    """
    if now.netns is None or compare(made, replace(now, ifindex=None)) == "other":
        return made
    macs = reported_macs(result, ifname)
    if (made.ifindex or 0) > 0:
        return now if made.ifindex == now.ifindex or (now.mac and now.mac in macs) else made
    if not now.ifindex:
        return now if is_last else made
    is_reported = any(not is_other_mac(mac, now.mac) for mac in macs) or bool(result.ips and not result.interfaces)
    return now if is_reported or (is_last and not macs) else replace(made, ifindex=NOT_OURS)


def by_number(made: Place) -> Place:
    """Return the place for a comparison while plugins of this attachment run, or after some of them have run.

    Plugins such as tuning change the hardware address and put the earlier one back. The number in a namespace that has
    a cookie is enough then.
    """
    return replace(made, mac="") if made.cookie and (made.ifindex or 0) > 0 else made


def look(  # noqa: PLR0913 - what is looked for, and where
    node: Node, record: Record | None, made: Place, path: str, ifname: str, *, everywhere: bool = False
) -> Place:
    """Return what is at an attachment's path and name now. If its interface is not there, search for it.

    ``everywhere``: search in all namespaces of the node if no interface in its own namespace has its name.
    """
    now = node.look(path, ifname)
    is_known = bool(made.mac) or (made.ifindex or 0) > 0
    if now.netns is None or now.ifindex is None or not is_known or compare(made, now) == "same":
        return now
    if compare(made, replace(now, ifindex=None)) != "unknown":
        return now  # the namespace is another one
    # A path that Go recorded may lead to another container while this one lives.
    everywhere = everywhere and (not now.ifindex or made.netns is None)
    found = node.find_interface(path, made, everywhere=everywhere)
    # Hardware addresses are not unique: a person can choose them.
    return replace(now, found_as=next((one.found_as for one in found if not _is_recorded(node, one, record)), ""))


def checked_conf(rt: RuntimeConf) -> RuntimeConf:
    """Check an attachment's parameters, and return them with a path of the namespace that plugins can resolve.

    Raises:
        InvalidIdentifierError: a name breaks its rule.
    """
    rt.check()
    return rt.with_netns(path_for_plugins(rt.netns)) if rt.netns else rt


def path_to_use(node: Node, record: Record | None, given: str | None, *, use_given: bool = False) -> str:
    """Return the path of the namespace for DEL and CHECK, or "" for none.

    The recorded path is used if it leads to the recorded namespace, even if the caller gives another path to it.

    Raises:
        NamespaceMismatchError: the caller's namespace is not the recorded one, and both exist.
    """
    if record is None or record.state in {LEGACY, CORRUPT} or (use_given and given is not None):
        return given or ""
    if given in {None, record.netns}:
        return record.netns
    made, there, here = place_of(record), node.namespace(record.netns), node.namespace(given)
    if made.netns == NOWHERE:
        return given if here.netns is None else ""  # a namespace that exists now was made after the ADD
    is_there = compare(made, there) == "unknown"  # compares only the namespaces
    if here.netns is None:
        # Even if the caller gives "": with it, the plugins would free the address of an interface that still exists.
        is_known = bool(made.netns or (there.netns and made.mac))
        return record.netns if is_there and is_known else given
    if compare(made if made.netns else there, here) == "unknown":
        return record.netns if is_there and there.netns else given
    # An ADD with a wrong path made nothing there, and must not stop the ADD with the right one.
    if not is_there or (record.result is None and node.is_no_namespace(record.netns)):
        return ""
    raise _mismatch(record, f"it was attached in the namespace {record.netns}, and {given} is another one", given)


def check_no_interface(node: Node, network: str, rt: RuntimeConf) -> None:
    """Raise InterfaceExistsError if the namespace has the interface of an attachment without a usable record."""
    if rt.netns and node.look(rt.netns, rt.ifname).ifindex:
        raise InterfaceExistsError(
            f"container {rt.container_id}: {rt.netns} has an interface {rt.ifname}, and no usable record says whose it "
            "is. DEL would free its address",
            container_id=rt.container_id,
            ifname=rt.ifname,
            network=network,
            netns=rt.netns,
            hint="use_given=True removes it, whoever made it",
        )


@dataclass(slots=True)
class Ownership:
    """The place that an ADD made, to be compared with what is there before each plugin that removes it.

    Between the look and the plugin's own system calls something else can come: no kernel call deletes an interface
    only if it is a certain one. The plugin's start takes a millisecond or a few.

    Attributes:
        node: looks at the namespace.
        record: the attachment's record; None if there is none, or if it cannot be read.
        made: what the ADD made.
        path: the path of the namespace; "" for none.
        ifname: the interface's name.
        has_warned: whether the log has the warning already.
        is_first: whether nothing has been asked yet.
    """

    node: Node
    record: Record | None
    made: Place
    path: str
    ifname: str
    has_warned: bool = False
    is_first: bool = True

    @classmethod
    def of(cls, node: Node, record: Record | None, rt: RuntimeConf, *, is_unreadable: bool = False) -> Ownership:
        """Return it for a DEL in the namespace ``rt.netns``; ``is_unreadable``: an ADD was made, and nothing is known.

        Without a record, nothing in the namespace is this attachment's.
        """
        nothing = Place() if is_unreadable else Place(ifindex=NOT_OURS)
        made = place_of(record) if record is not None else nothing
        if record is not None and record.state in {PENDING, DETACHING}:
            made = by_number(made)
        path = rt.netns or ""
        # ADD refuses this namespace. Go records only a path: /proc/PID may be a process of the host by now.
        if path and not made.netns and node.is_own_namespace(path):
            logger.warning("container %s: %s is this program's own namespace", rt.container_id, path)
            path = ""
        # Another namespace may appear at the path. A text that is no path may mean something to the plugins.
        if record is not None and _has_go_path_gone(record, path, node.namespace(path)):
            path = ""
        return cls(node, record, made, path, rt.ifname)

    def netns(self) -> str:
        """Return the CNI_NETNS for a plugin that is called now: the path, or "" if the interface is not this ADD's.

        Raises:
            NamespaceMismatchError: the interface was renamed or moved. Its address must not be freed while it lives.
        """
        if not self.path:
            return ""
        now = look(self.node, self.record, self.made, self.path, self.ifname, everywhere=self.is_first)
        if now.found_as:
            hint = "put it back; use_given=True removes what is there"
            raise _mismatch(self.record, f"its interface {self.ifname} is now {now.found_as}", self.path, hint)
        netns = netns_for_del(self.made, now, self.path)
        is_certain = self.made.netns is not None and compare(self.made, now) == "same"
        if netns and now.ifindex and not is_certain and _is_recorded(self.node, now, self.record):
            netns = ""
        if netns and self.is_first and now.ifindex:
            # The plugins of this DEL may change the hardware address: tuning puts back the one before the ADD. The
            # namespace cannot be another one with the same identity, because the node's socket keeps it alive.
            self.made = replace(now, mac="")
        self.is_first = False
        if not netns and now.netns and not self.has_warned:
            self.has_warned = True
            logger.warning("%s in %s is not of this attachment: DEL leaves it alone", self.ifname, self.path)
        return netns

    def chain(self, chain: Chain) -> Chain:
        """Return the chain for a plugin that is called now."""
        return chain.with_netns(self.netns())


def _has_go_path_gone(record: Record, path: str, now: Place) -> bool:
    """Return whether nothing is at the path that Go recorded. A text that is no path may mean something to plugins."""
    return not record.version and path == record.netns and path.startswith("/") and now.netns is None


def _is_recorded(node: Node, now: Place, but: Record | None) -> bool:
    """Return whether another record than ``but`` has an interface."""
    now = replace(now, found_as="")
    places = (claim.place for claim in node.claims.of_others(but))
    return any(place is not None and compare(place, now) == "same" for place in places)


def _mismatch(record: Record | None, problem: str, given: str, hint: str = "") -> NamespaceMismatchError:
    container_id, ifname, network, netns = "", "", "", ""
    if record is not None:
        container_id, ifname, network, netns = record.container_id, record.ifname, record.network, record.netns
    return NamespaceMismatchError(
        f"container {container_id}, interface {ifname}, network {network}: {problem}",
        container_id=container_id,
        ifname=ifname,
        network=network,
        netns=given,
        recorded_netns=netns,
        hint=hint,
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
