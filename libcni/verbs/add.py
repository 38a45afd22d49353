"""ADD: write a record, run the chain, then complete the record or undo everything."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import libcni.kernel.system as system
from libcni._dataclass import dataclass, field, replace
from libcni._known_faults import NOT_AVAILABLE, OUTSIDE, fault_of
from libcni.config.identifiers import check_loopback, validate_network_name
from libcni.config.network import NetworkConfigList, check_plugins
from libcni.config.port_mappings import HostPort
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    AttachmentExistsError,
    CNIError,
    ConfigError,
    Hint,
    InterfaceExistsError,
    InvalidOutputError,
    PluginError,
    PluginTimeoutError,
    RecordError,
)
from libcni.options import DelPolicy, OnCancel, OnExisting, check_word
from libcni.protocol.answer import read_add_result
from libcni.protocol.result import Result
from libcni.store.attachments import new_record
from libcni.store.boot import boot_id, pid_namespace
from libcni.store.journal import Journal
from libcni.store.model import (
    ABSENT,
    BEGUN,
    LIVING,
    NOT_OURS,
    PENDING,
    STATES,
    UNKNOWN,
    Identity,
    Known,
    Ours,
    Place,
    Record,
    State,
    Unreadable,
    compare,
    same_namespace,
    taken,
)
from libcni.store.present_interfaces import lasting_path
from libcni.store.recorded_place import place_of, reported_macs
from libcni.store.reservations import holders_of
from libcni.verbs.chain import Chain
from libcni.verbs.delete import DelReport, PrevResult, detach, detach_chain_twice, is_unchanged
from libcni.verbs.host_ports import PortOwner, host_ports, locked_host_ports
from libcni.verbs.node import Node
from libcni.verbs.ownership import Ownership, checked_conf, mismatch, replaced_interface, replaced_namespace

logger: logging.Logger = logging.getLogger("libcni")

_PLUGIN_END_SECONDS = 1.0
"""Seconds to wait before a roll-back for processes that the plugins started."""


async def add(  # noqa: PLR0913 - the options of the verb
    node: Node,
    net: NetworkConfigList,
    rt: RuntimeConf,
    *,
    rollback: bool = True,
    on_existing: OnExisting = "refuse",
    strict: bool = False,
    allow_own_netns: bool = False,
    on_cancel: OnCancel = "keep",
    namespace: Place | None = None,
) -> Result:
    """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

    ADD finds every executable and writes the record before it runs the first plugin. It completes the record after the
    last plugin, and rolls back after a failure. ``namespace``: the namespace of the container's other networks. ADD is
    refused if the path leads to another namespace, even if it was replaced while an earlier attachment was detached.
    """
    validate_network_name(net.name)
    rt = checked_conf(rt)
    check_word("on_existing", on_existing, OnExisting)
    check_word("on_cancel", on_cancel, OnCancel)
    check_plugins(net)
    check_loopback(rt.ifname, [plugin.type for plugin in net.plugins])
    unused = _unused_capabilities(net, rt.capability_args, strict=strict) if rt.capability_args else ()
    _refuse_no_namespace(node, rt.netns or "")
    is_own_netns = bool(rt.netns) and node.sight.is_own_namespace(rt.netns or "")
    if is_own_netns:
        rt = _in_own_namespace(rt, is_allowed=allow_own_netns)
    chain = Chain(node, net, rt, node.find_all(net), is_own_netns)
    request = _Request(
        chain,
        new_record(net, rt, is_own_netns=is_own_netns),
        # Examine the namespace before an earlier attachment is detached for this ADD.
        namespace or node.sight.namespace(rt.netns or ""),
        () if on_existing == "allow" else host_ports(net, rt.capability_args),
        on_existing=on_existing,
        on_cancel=on_cancel,
        rollback=rollback,
        strict=strict,
    )
    result = await request.attach()
    return replace(result, unused_capabilities=unused, notes=tuple(request.notes))


def _in_own_namespace(rt: RuntimeConf, *, is_allowed: bool) -> RuntimeConf:
    """Return the parameters of an ADD in this program's own namespace; raises ConfigError if it is not allowed."""
    if not is_allowed:
        # A roll-back would delete this program's own interface.
        text = "give the container's namespace, or {argument} to attach this program's own"
        problem = f"{rt.netns} is the network namespace of this program itself"
        raise ConfigError(problem, location="netns", hint=Hint(text, argument="allow_own_netns"))
    return rt.with_netns(lasting_path(rt.netns or ""))


def _refuse_no_namespace(node: Node, netns: str) -> None:
    """Raise ConfigError if there is a file at a path that is no network namespace: each plugin would fail, DEL too.

    A text that leads to no file may have a meaning for the plugins.
    """
    place = node.sight.namespace(netns) if netns else Place()
    if place.netns is not None and not place.cookie and node.sight.is_other_file(netns):
        hint = "give the path of a namespace, such as /run/netns/NAME or /proc/PID/ns/net"
        raise ConfigError(f"{netns} is no network namespace, but another file", location="netns", hint=hint)


def _note_missing(node: Node, netns: str, error: PluginError) -> None:
    """Note in an error that the namespace does not exist: each plugin reports this in other words."""
    if netns and node.sight.namespace(netns).netns is None:
        named_path = f"/run/netns/{netns.rpartition('/')[2]}"
        suggestion = f": did you mean {named_path}?" if node.sight.namespace(named_path).netns is not None else ""
        error.add_note(f"the namespace {netns} does not exist{suggestion}")


def _name_holder(chain: Chain, error: PluginError) -> None:
    """Name in the hint who has the address that the ADD asked for: host-local only says that it is not available."""
    plugins_text = f"{error.msg} {error.details}"
    if match := OUTSIDE.search(plugins_text):
        text = f"no range of the network contains {match[1]}: ask for another address, or extend the ranges"
        error.hint = Hint(f"{text} in {chain.net.file}" if chain.net.file else text)
    if not (match := NOT_AVAILABLE.search(plugins_text)):
        return
    for container, ifname in holders_of(chain.net, match[1]):
        node, identity = chain.node, (chain.net.name, container, ifname)
        record = node.records.find(identity) if ifname else None
        text = f"{match[1]} is reserved for container {container}" + (f", interface {ifname}" if ifname else "")
        if record is None or isinstance(record, Unreadable):
            error.hint = Hint(f"{text}, which has no record here; see whether it lives, and what to do", "doctor")
        else:
            state = node.sight.state_of(record)
            error.hint = Hint.about(
                record, f"{text} ({state}); choose another address, or detach that container", "del"
            )


def _unused_capabilities(
    net: NetworkConfigList, capability_args: Mapping[str, Any], *, strict: bool
) -> tuple[str, ...]:
    from libcni.config.conventions import check_capability_args  # few ADDs have capability arguments

    unused = net.unused_capabilities(capability_args)
    # Checked before anything runs: half of the chain would run, and a plugin's DEL may refuse the same value.
    check_capability_args(capability_args, unused)
    if unused:
        from difflib import get_close_matches  # few callers mistype

        declared = [name for plugin in net.plugins for name in plugin.capabilities]
        similar = [match for name in unused for match in get_close_matches(name, declared, 1)]
        names = ", ".join(unused)
        problem = f'network "{net.name}": no plugin declares the capability {names}, so no plugin receives it'
        problem += f"; did you mean {', '.join(similar)}?" if similar else ""
        if strict:
            hint = f'add "capabilities": {{"{unused[0]}": true}} to the plugin that supports it'
            raise ConfigError(problem, file=net.file, hint=hint)
        logger.warning("%s", problem)
    return unused


# The tries of one ADD.


@dataclass(frozen=True, slots=True)
class _Request:
    """An ADD after all checks that need no lock.

    Attributes:
        chain: the plugins.
        record: the record to write.
        namespace: the container's namespace before the ADD.
        ports: the ports of the host that it publishes, if they are to be checked.
        on_existing, on_cancel, rollback, strict: the options of the ADD.
        notes: what a person should know of the ADD.
    """

    chain: Chain
    record: Ours
    namespace: Place
    ports: tuple[HostPort, ...]
    on_existing: OnExisting
    on_cancel: OnCancel
    rollback: bool
    strict: bool
    notes: list[str] = field(default_factory=list)

    async def attach(self) -> Result:
        """Attach the container. Repeat that if a plugin fails by a known fault that does not happen twice."""
        node, retries, first = self.chain.node, self.chain.node.settings.retries, ""
        earlier, place, journal = await self._begin()
        while True:
            began = system.monotonic()
            try:
                with journal:
                    return await self._run(earlier, place, journal)
            except CNIError as error:
                if first:
                    error.add_note(f"before this try, {first}")
                if not retries or not self._may_repeat(error, began):
                    raise
                retries, first = retries - 1, error.text
            self.note(f"the ADD was rolled back, and is repeated, because the fault does not happen twice: {first}")
            # The locks are kept: a DEL that waits for the end of this ADD must not run before it.
            earlier = _Earlier(self.record.network, has_damaged=earlier.has_damaged)
            try:
                async with locked_host_ports(
                    node, self.record.container_id, self.ports, with_rules=self.strict
                ) as found:
                    found.check(self.note, strict=self.strict)
                    place, journal = await self._write(earlier)
            except CNIError as error:
                error.add_note(f"before that, {first}")
                raise

    def _may_repeat(self, error: CNIError, began: float) -> bool:
        """Return whether the ADD may be repeated: the error is of that kind, nothing is left, and there is time."""
        if not isinstance(error, PluginError) or isinstance(error, PluginTimeoutError | InvalidOutputError):
            return False
        fault, node = fault_of(error), self.chain.node
        if fault is None or fault.cure != "again" or not self.rollback or error.rollback_errors or node.is_interrupted:
            return False
        # A record is one that the roll-back left: the restored one of an attachment in use, or another program's.
        if node.records.find(self.record.identity) is not None:
            return False
        return node.end_cleanup() > system.monotonic() - began

    def note(self, text: str) -> None:
        """Log a warning that the result will have, too."""
        logger.warning("container %s, network %s: %s", self.record.container_id, self.record.network, text)
        self.notes.append(text)

    async def _run(self, earlier: _Earlier, place: Place, journal: Journal) -> Result:
        """Run the plugins; roll back if that fails."""
        attempt = Attempt(self.chain, journal, place.with_interface(journal.record.interface), earlier.changed)
        attempt.start(may_exist=self.on_existing == "allow", has_damaged=earlier.has_damaged)
        try:
            result = await attempt.run()
            journal.close()  # not only after the block: if that fails, the ADD must be rolled back
        except BaseException as error:
            await attempt.fail(error, rollback=self.rollback, on_cancel=self.on_cancel)
            raise
        return result

    async def _begin(self) -> tuple[_Earlier, Place, Journal]:
        """Acquire the locks, make room, and write the record.

        Raises:
            AttachmentExistsError: the container has the interface, and ``on_existing`` is "refuse"; or another
                container has one of the host ports, or with ``strict`` a program of the host or a rule.
            InterfaceExistsError: the interface exists, and belongs to no attachment that this ADD detaches.
            NamespaceMismatchError: the container is attached in another namespace.
        """
        node, record = self.chain.node, self.record
        detached: list[Identity] = []
        while True:
            earlier = await node.lock_all(
                record.network,
                record.container_id,
                lambda: _find_earlier(node, record, self.on_existing),
                lambda earlier: [other.network for other in earlier.to_detach],
            )
            # The ports stay locked until the record is written: two ADDs at the same time would not find each other's
            # record. They are compared before anything is detached, because this ADD may be refused.
            async with locked_host_ports(node, record.container_id, self.ports, with_rules=self.strict) as found:
                dead = [owner for owner in found.dead if owner.record.identity not in detached]
                if not dead:
                    found.check(self.note, strict=self.strict)
                    return earlier, *await self._write(earlier)
            for owner in dead:
                detached.append(owner.record.identity)
                await self._detach_dead(owner)

    async def _detach_dead(self, owner: PortOwner) -> None:
        """Detach the attachment of another container that publishes one of the ports and is dead with proof.

        Its rules come first: the new container would get no connection. This releases the locks of the ADD.

        Raises:
            CNIError: the DEL failed; nothing of this ADD was run.
        """
        from libcni.store.life import life_of  # few ADDs publish ports

        node, record = self.chain.node, owner.record
        await node.lock([record.network], record.container_id)
        current = node.records.find(record.identity)
        # Another verb may have detached it, or attached it again, before the lock.
        if current is None or not is_unchanged(current, record) or not life_of(current).is_dead:
            return
        text = "%s: detaching this attachment before the ADD: it publishes host port %s, and it is dead: %s"
        logger.warning(text, record.path, owner.port, owner.life.reason)
        conf = RuntimeConf(record.container_id, None, record.ifname)
        with _told(record, f"dead and publishes host port {owner.port}"):
            self._tell_left(await detach(node, current, None, conf, DelPolicy()))

    async def _write(self, earlier: _Earlier) -> tuple[Place, Journal]:
        """Detach the earlier attachments, and write the record."""
        node, record = self.chain.node, self.record
        if self.on_existing != "allow":
            _refuse_second_namespace(node, record, self.namespace, earlier.to_detach)
        await self._make_room(earlier)
        self._start_ahead()
        place = node.sight.namespace(record.netns)
        if not same_namespace(self.namespace, place):
            raise replaced_namespace(record, "ADD")
        take_back = self.rollback and self.on_cancel == "rollback"
        return place, await _begin(node, record, earlier, place, take_back=take_back)

    def _start_ahead(self) -> None:
        """Start the process of the first plugin while the record is written. It gets its configuration after that."""
        if self.chain.node.starts_ahead:
            self.chain.node.start_ahead(self.chain.invocation("ADD", 0, ahead=True))

    async def _make_room(self, earlier: _Earlier) -> None:
        """Detach earlier attachments of the same (container, interface) on any network."""
        node, record = self.chain.node, self.record
        # First check whether this ADD is refused: a refused ADD must not detach anything.
        for other in earlier.live:  # raise the error that names a renamed interface
            Ownership.of(node, other, other.netns, other.ifname).netns()
        if earlier.to_detach and self.on_existing != "allow":
            _refuse_anothers_interface(node, record, earlier.to_detach)
        if earlier.live and self.on_existing == "replace":
            # Detect a full disk before a running container is detached, not after.
            node.records.ensure_writable(record)
        for replaced in earlier.to_detach:
            # A caller that replaces a complete attachment expects this. Any other one was left by an interruption.
            level = logging.INFO if replaced in earlier.live else logging.WARNING
            state = node.sight.state_of(replaced)  # the record still says "ready" if its namespace is gone
            logger.log(level, "%s: detaching this attachment (%s) before the ADD", replaced.path, state)
            with _told(replaced, str(state)):
                self._tell_left(await _detach_earlier(self.chain, earlier, replaced))

    def _tell_left(self, report: DelReport) -> None:
        for what in report.left:
            self.note(f"{what}, after the earlier attachment {what.container_id}:{what.ifname} was detached")


@contextmanager
def _told(record: Record, state: str) -> Iterator[None]:
    """Note in the error of a DEL that an ADD called it."""
    try:
        yield
    except CNIError as error:
        error.add_note(f"ADD was detaching {record.path}, which is {state}, first")
        raise


_USUAL_IFNAMES = ("eth0", "eth1", "net1")
"""Those of runtimes: of the first network, of the second, and of Multus' first."""


def _refuse_second_namespace(node: Node, record: Ours, place: Place, to_detach: Collection[Record]) -> None:
    """Raise NamespaceMismatchError if the container has an attachment in another namespace that lives.

    Plugins know a container on a network by its ID alone: two of one ID would share chains and reservations. Only the
    usual interface names on this network are looked up: to find all records of a container, the names of all records
    must be listed, which takes 5 ms with 10,000.
    """
    if place.netns is None:
        return
    usual = (name for name in _USUAL_IFNAMES if name != record.ifname)  # those of its own name are looked at by then
    for other in (one for name in usual for one in node.records.candidates((*record.identity[:2], name))):
        made = place_of(other)
        if other in to_detach or other.state not in LIVING or made.netns is None or same_namespace(made, place):
            continue
        if same_namespace(made, node.sight.namespace(other.netns)):
            problem = f"it is attached in the namespace {other.netns}, and {record.netns} is another namespace"
            text = "use another container ID, or detach the container first; {argument} attaches it in both"
            raise mismatch(
                other, problem, record.netns, Hint.about(other, text, "del", argument="on_existing", value="allow")
            )


# Before the record is written: find the earlier attachments of the same interface.


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The records of the same (container, interface) on any network.

    Attributes:
        network: the network of the ADD.
        live: the attachments whose records are complete and whose interfaces exist.
        kept: those of ``live`` that the ADD leaves, with ``on_existing="allow"``.
        to_detach: the attachments that are detached first.
        has_damaged: whether an unreadable record may be of the same attachment.
    """

    network: str
    live: tuple[Record, ...] = ()
    kept: tuple[Record, ...] = ()
    to_detach: tuple[Record, ...] = ()
    has_damaged: bool = False

    @property
    def changed(self) -> Record | None:
        """The attachment in use that this ADD changes, or None."""
        return next((one for one in self.kept if one.network == self.network), None)

    def keeps_record(self, other: Record) -> bool:
        """Return whether the record of a detached attachment stays until the ADD's own record replaces it.

        After a kill in between, a reload can restore a complete attachment.
        """
        return other.network == self.network and other in self.live

    @property
    def replaced_path(self) -> str:
        """The record that the ADD's record replaces, or ""."""
        return next((one.path for one in self.to_detach if self.keeps_record(one)), "")


def _find_earlier(node: Node, record: Ours, on_existing: OnExisting) -> _Earlier:
    found = _records_of_interface(node, record, on_existing)
    # A meta-plugin may attach to other networks under the same interface name, while its caller's ADD still runs.
    others = [other for other in found if other.network == record.network or not node.is_of_caller(other)]
    states = [(other, node.sight.state_of(other)) for other in others if not isinstance(other, Unreadable)]
    has_damaged = any(isinstance(other, Unreadable) for other in found)
    return _earlier(record.network, states, on_existing, has_damaged=has_damaged)


def _earlier(
    network: str, others: Iterable[tuple[Record, State]], on_existing: OnExisting, *, has_damaged: bool
) -> _Earlier:
    """Return what an ADD does with the records of its interface; raises AttachmentExistsError if it is refused."""
    others = tuple(others)
    live = tuple(other for other, state in others if STATES[state].add == "refuse")
    if live and on_existing == "refuse":
        raise _attached(live[0])
    kept = live if on_existing == "allow" else ()
    to_detach = tuple(other for other, _ in others if other not in kept)
    return _Earlier(network, live, kept, to_detach, has_damaged)


def _records_of_interface(node: Node, record: Ours, on_existing: OnExisting) -> list[Record]:
    """Return the records that may name the interface of an ADD.

    If the kernel says that no interface has the name, an ADD that only refuses need not find the records of other
    networks: their interface has ended or has another name, and a later DEL or GC detaches them. It would have to list
    the names of all records.
    """
    if on_existing == "refuse" and record.netns and node.sight.look(record.netns, record.ifname).interface is ABSENT:
        return node.records.candidates(record.identity)
    return node.records.of_interface(record.container_id, record.ifname)


def _attached(other: Record) -> AttachmentExistsError:
    container_id, network, ifname = other.container_id, other.network, other.ifname
    return AttachmentExistsError(
        f"container {container_id} is already attached to network {network} with interface {ifname} ({other.path})",
        container_id=container_id,
        ifname=ifname,
        network=network,
    )


def _refuse_anothers_interface(node: Node, record: Ours, to_detach: Iterable[Record]) -> None:
    """Raise InterfaceExistsError if the interface exists, but belongs to none of the attachments to detach."""
    seen = node.sight.look(record.netns, record.ifname)
    has_run = [other for other in to_detach if STATES[other.state].delete != "nothing"]
    others = {"other namespace", "other interface"}
    if isinstance(seen.interface, Known) and all(compare(place_of(other), seen) in others for other in has_run):
        raise _exists(record)


async def _detach_earlier(chain: Chain, earlier: _Earlier, other: Record) -> DelReport:
    """Detach an earlier attachment. On the same network, DEL may also use the caller's configuration and arguments."""
    assert chain.rt is not None
    is_same = other.network == chain.net.name
    conf = chain.rt if is_same else RuntimeConf(other.container_id, None, other.ifname)
    # Only a record without a namespace needs the caller's, which may differ from a recorded namespace.
    conf = conf if not other.netns and is_same else replace(conf, netns=None)
    net = chain.net if is_same else None
    return await detach(chain.node, other, net, conf, DelPolicy(), keep_record=earlier.keeps_record(other))


# The steps that write the record and run the plugins.


async def _begin(node: Node, record: Ours, earlier: _Earlier, place: Place, *, take_back: bool) -> Journal:
    """Write the record. It survives a kill, so that a later DEL or GC can undo the plugins' work."""
    kept = earlier.changed
    record = record.with_fields(
        path=earlier.replaced_path,
        netns_id=place.netns,
        netns_cookie=place.cookie or None,
        owner=node.settings.owner,
        created=system.time(),
        uptime=system.uptime(),
        boot=boot_id(),
        pid_namespace=pid_namespace(),
    )
    if kept is not None:
        # This ADD changes a living attachment. A DEL after a kill needs the earlier ADD's result and interface.
        interface = place_of(kept).interface
        record = record.with_fields(state=PENDING, path=kept.path, partial=kept.last_result, interface=interface)
    return await node.begin(record, kept, "" if kept is None else "again", take_back=take_back)


@dataclass(slots=True)
class Attempt:
    """An ADD whose record is on the disk.

    Attributes:
        chain: the plugins.
        journal: the record.
        place: the namespace, and the interface as soon as a plugin has created it.
        earlier: the replaced record of an attachment that is in use, or None.
        result: the result of the last plugin that ended, or None.
    """

    chain: Chain
    journal: Journal
    place: Place
    earlier: Record | None = None
    result: Result | None = None

    def start(self, *, may_exist: bool, has_damaged: bool) -> None:
        """Check the namespace and the interface, and write that the first plugin begins.

        Args:
            may_exist: go on if the interface exists. Then it does not belong to this ADD.
            has_damaged: whether an unreadable record may name this attachment. Then a DEL has to run the plugins.

        Raises:
            InterfaceExistsError: the interface exists: a roll-back would delete it.
            NamespaceMismatchError: another namespace is at the path.
            RecordError: the record cannot be written; nothing was run.
        """
        # Look after the record is written: that takes a millisecond or more, and another program may act meanwhile.
        seen = self._look()
        if not may_exist:
            self._refuse_existing(seen, has_damaged=has_damaged)
        if self.journal.record.state != BEGUN:
            return
        self.place = self.place.with_interface(NOT_OURS if isinstance(seen.interface, Known) else UNKNOWN)
        try:
            self.journal.write("started", interface=self.place.interface)
        except RecordError:
            with suppress(RecordError):
                self.chain.node.records.forget(self.journal.record)
            raise
        if not may_exist:  # once more: little time should pass between this check and the plugin's start
            self._refuse_existing(self._look(), has_damaged=has_damaged)

    def _look(self) -> Place:
        record = self.journal.record
        return self.chain.node.sight.look(record.netns, record.ifname)

    def _refuse_existing(self, seen: Place, *, has_damaged: bool) -> None:
        """Refuse an ADD that has run nothing yet if its interface exists, or the path leads to another namespace.

        Callers usually call DEL after a failed ADD. The record says that this DEL must run nothing.
        """
        is_replaced = (self.place.netns, self.place.cookie) != (seen.netns, seen.cookie)
        if not is_replaced and not isinstance(seen.interface, Known):
            return
        record = self.journal.record
        try:
            if not has_damaged:
                self.journal.write("refused")
            elif record.state == BEGUN:
                self.journal.write("started", interface=UNKNOWN)
        except RecordError as error:
            logger.warning("%s: cannot mark the record as refused: %s", record.path, error)
        raise replaced_namespace(record, "ADD") if is_replaced else _exists(record)

    async def run(self) -> Result:
        """Run ADD of each plugin with the result of the previous one, complete the record, and return the last result.

        Raises:
            NamespaceMismatchError: the path leads to another namespace now, or another interface has the name. The
                remaining plugins are not run.
        """
        chain, record = self.chain, self.journal.record
        last = len(chain.net.plugins) - 1
        result: Result | None = None
        printed: bytes | None = None
        for index in range(last + 1):
            if result is not None and record.netns:
                self._check_place(result)
            invocation = chain.invocation("ADD", index, None if result is None else result.text)
            outcome = await chain.call(invocation, then=index + 1 if index < last else None)
            # Most plugins after the first print the result that they received.
            is_new = outcome.stdout != printed
            if result is None or is_new:
                result = self.result = read_add_result(invocation, outcome, chain.net.cni_version)
                printed = outcome.stdout
            if record.netns and (is_new or index == last):
                self.place = self._taken(self._look(), result, is_last=index == last)
            if index < last:
                # Without this event a later DEL could not undo the plugin's work, so a failed write must fail the ADD.
                self.journal.write("step", plugin=index, interface=self.place.interface, partial=result.text)
        assert result is not None  # check_plugins refuses a list without plugins
        self.journal.write("complete", interface=self.place.interface, result=result.text)
        if not self.journal.has_name():
            self.chain.node.records.rewrite(self.journal.record, "again")
        return result

    def _check_place(self, result: Result) -> None:
        """Raise NamespaceMismatchError if the next plugin would change another namespace, or another's interface."""
        node, record = self.chain.node, self.journal.record
        seen = self._look()
        # A plugin may create the interface again, and report the new interface.
        place = self._taken(seen, result, is_last=False)
        is_other = place.number and isinstance(seen.interface, Known) and place.number != seen.number
        # Look at the namespace last: a new namespace at the path may be another container's.
        if not same_namespace(self.place, node.sight.namespace(record.netns)):
            raise replaced_namespace(record, "ADD")
        if is_other and same_namespace(self.place, seen):
            raise replaced_interface(record)

    def _taken(self, seen: Place, result: Result, *, is_last: bool) -> Place:
        reported = reported_macs(result, self.journal.record.ifname)
        only_addresses = bool(result.ips and not result.interfaces)
        return taken(self.place, seen, reported=reported, only_addresses=only_addresses, is_last=is_last)

    def take_after_failure(self) -> None:
        """Record the interface that appeared while the failed plugin ran: many plugins do not remove it.

        If no interface appeared, record that, so that no DEL of this ADD removes an interface that is created later.
        """
        if self.place.interface is not UNKNOWN:
            return
        node, seen = self.chain.node, self._look()
        is_known = isinstance(seen.interface, Known)
        if seen.interface is ABSENT:
            with suppress(RecordError):
                is_known = not node.has_running_plugin()  # it may still make the interface
        if is_known and same_namespace(self.place, seen):
            self.place = seen
            text = self.result.text if self.result is not None else self.journal.record.partial
            try:
                self.journal.write("step", interface=seen.interface, partial=text)
            except RecordError as error:
                ifname = self.journal.record.ifname
                logger.warning(
                    "%s: a later DEL may remove an interface of another program with this name: %s", ifname, error
                )

    async def fail(self, error: BaseException, *, rollback: bool, on_cancel: OnCancel) -> None:
        """Roll a failed ADD back; note in its error if the namespace does not exist.

        By default a cancelled ADD is not rolled back, because its caller must not wait: DEL or GC can do it later, with
        the pending record.
        """
        node, netns = self.chain.node, self.journal.record.netns
        is_cancelled = node.is_interrupted or not isinstance(error, Exception)
        if not is_cancelled:
            self.take_after_failure()
        if isinstance(error, PluginError):
            _note_missing(node, netns, error)
            _name_holder(self.chain, error)
        keeps = is_cancelled and (on_cancel == "keep" or isinstance(error, GeneratorExit))
        if rollback and not keeps:
            await node.shielded(self.roll_back(error))

    async def roll_back(self, error: BaseException) -> None:
        """Run DEL through the whole chain in reverse order. Go on after errors, and add them to ``error``.

        Each plugin receives the last good result as ``prevResult``: some plugins read there which resources to remove.
        If this ADD changed an ``earlier`` attachment that is in use, restore its record and run nothing: DEL would
        detach it. A later DEL of it undoes both ADDs if they ran the same chain.
        """
        node = self.chain.node
        node.start_cleanup()
        problems: list[CNIError] = []
        try:
            # A plugin that waits for its configuration must not count as a running plugin.
            await node.discard_prepared()
            has_run = self.result is not None or not isinstance(error, PluginError) or error.was_run
            if self.earlier is not None:
                node.records.rewrite(self.earlier, "restored")
            else:
                # If no plugin has run, skip the DEL: it could fail for the ADD's reason, such as a too long variable.
                problems = await self.undo() if has_run else []
                if not problems and not self.journal.is_anothers:
                    node.records.forget(self.journal.record)
        except CNIError as undoing:
            problems = [undoing]
        if isinstance(error, CNIError):
            error.rollback_errors, error.record_state = tuple(problems), PENDING if problems else ""
            return
        for problem in problems:
            error.add_note(f"the roll-back failed: {problem}")

    async def undo(self) -> list[CNIError]:
        """Run DEL through the chain of an ADD. Go on after errors, and return them."""
        chain, record = self.chain, self.journal.record
        if self.result is not None:
            record = record.with_fields(partial=self.result.text)
        # Processes that were killed with the plugin take a moment to end, on a busy machine longer than a DEL.
        have_ended = await chain.node.plugins_have_ended(_PLUGIN_END_SECONDS)
        ownership = Ownership(chain.node, record, self.place, record.netns, record.ifname)
        results = PrevResult.of(chain.node, record, chain.net)
        problems = (await detach_chain_twice(chain, results, ownership)).errors
        # A process that ran during the DEL may have changed the network after it, even if it ends in a moment. If none
        # ran, what is seen now is a plugin of DEL, or another verb's process that is being started.
        seconds = _PLUGIN_END_SECONDS if have_ended else 0.0
        if not problems and not await chain.node.plugins_have_ended(seconds):
            # The process may still change the network, and nothing would undo that. The next verb of the container
            # waits for its end.
            text = f"{record.path}: a process of a plugin is still running, so the record stays pending"
            problems.append(RecordError(text, path=record.path))
        return problems


def _exists(record: Record) -> InterfaceExistsError:
    return InterfaceExistsError(
        f"the namespace {record.netns} already has an interface {record.ifname}, and no record names it",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
        netns=record.netns,
        hint=Hint(
            "remove the interface, or choose another name; {argument} lets the plugins change the interface",
            argument="on_existing",
            value="allow",
        ),
    )
