"""ADD: write a pending record, run the chain, then complete the record or undo everything."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList, check_plugins
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import AttachmentExistsError, CNIError, ConfigError, InterfaceExistsError, PluginError, RecordError
from libcni.options import DelPolicy, OnCancel, OnExisting
from libcni.protocol.answer import read_add_result
from libcni.protocol.result import Result
from libcni.store.attachments import pending_record
from libcni.store.place import NOT_OURS, Place, compare
from libcni.store.record import CORRUPT, PENDING, READY, Record, check_readable
from libcni.verbs.arguments import check_word
from libcni.verbs.chain import Chain
from libcni.verbs.claims import place_of
from libcni.verbs.delete import detach, detach_chain
from libcni.verbs.node import Node
from libcni.verbs.ownership import STATES, Ownership, by_number, checked_conf, state_of, taken

logger: logging.Logger = logging.getLogger("libcni")

_PLUGIN_END_SECONDS = 1.0
"""Seconds to wait, before a roll-back, for processes that the plugins left."""


async def add(  # noqa: PLR0913 - the verb from top to bottom, and its options
    node: Node,
    net: NetworkConfigList,
    rt: RuntimeConf,
    *,
    rollback: bool = True,
    on_existing: OnExisting = "refuse",
    strict: bool = False,
    negotiate_version: bool = False,
    allow_own_netns: bool = False,
    on_cancel: OnCancel = "keep",
) -> Result:
    """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

    ADD finds every executable and writes the record before it runs the first plugin. It completes the record after the
    last one, and rolls back a failure in between.
    """
    check_network_name(net.name)
    rt = checked_conf(rt)
    check_word("on_existing", on_existing, OnExisting)
    check_word("on_cancel", on_cancel, OnCancel)
    check_plugins(net)
    unused = _unused_capabilities(net, rt.capability_args, strict=strict) if rt.capability_args else ()
    # A roll-back would delete an interface of the host.
    if not allow_own_netns and rt.netns and node.is_own_namespace(rt.netns):
        raise ConfigError(
            f"{rt.netns} is the network namespace of this program itself",
            location="netns",
            hint="give the container's namespace; allow_own_netns=True if you mean it",
        )
    # Before the locks: VERSION changes nothing, and other verbs need not wait for it.
    if negotiate_version:
        from libcni.verbs.version import negotiate  # few callers negotiate

        net = await negotiate(node, net)
    chain = Chain(node, net, rt, node.find_all(net))
    draft = check_readable(pending_record(net, rt))
    earlier, is_first = await _make_room(node, net, rt, draft, on_existing)
    # The process of the first plugin starts while the record is written. It gets its configuration after that.
    if node.starts_ahead:
        node.start_ahead(chain.invocation("ADD", 0, ahead=True))
    netns = rt.netns or ""
    place = node.namespace(netns) if netns else Place()
    # Write-ahead: from here on a kill leaves a pending record, so a later DEL or GC can undo the plugins' work.
    draft = draft.with_fields(path=earlier.path if earlier is not None else "", **_fields(place))
    record = await node.begin(draft, earlier, take_back=rollback and on_cancel == "rollback")
    begun = _Begun(chain, record, place)
    # Not before the record is on the disk, which takes a millisecond or more: a neighbour may come meanwhile.
    before = node.look(netns, rt.ifname) if netns else place
    if on_existing != "allow":
        await _refuse_existing(node, record, place, before, is_first=is_first)
    elif before.ifindex and earlier is None:
        begun.leave_alone()
    try:
        await begun.run(strict=strict)
        result = begun.result
        if result is None:
            raise AssertionError("a list without plugins is refused above")
        await node.complete(record.with_fields(state=READY, result=result.text, **_fields(begun.place)))
    except BaseException as error:
        # The caller of a cancelled ADD does not want to wait. DEL or GC can use the pending record later.
        is_cancelled = node.is_interrupted or not isinstance(error, Exception)
        keep = is_cancelled and (on_cancel == "keep" or isinstance(error, GeneratorExit))
        if not is_cancelled:
            begun.take_after_failure()
        if rollback and not keep:
            await node.shielded(_roll_back(begun, earlier, error))
        raise
    return replace(result, unused_capabilities=unused)


@dataclass(slots=True)
class _Begun:
    """An ADD whose record is on the disk, and what its plugins have made so far.

    Attributes:
        chain: the plugins.
        record: the pending record.
        place: the namespace, and the interface as soon as a plugin has made it.
        result: the result of the last plugin that ended, or None.
    """

    chain: Chain
    record: Record
    place: Place
    result: Result | None = None

    def ownership(self) -> Ownership:
        """Return the question before each plugin of a roll-back."""
        return Ownership(self.chain.node, self.record, by_number(self.place), self.record.netns, self.record.ifname)

    async def run(self, *, strict: bool) -> None:
        """Run ADD of each plugin, with the result of the one before."""
        chain, version = self.chain, self.chain.net.cni_version
        printed: bytes | None = None
        for index in range(len(chain.net.plugins)):
            prev_result = self.result.text if self.result is not None else None
            invocation = chain.invocation("ADD", index, prev_result)
            then = index + 1 if index + 1 < len(chain.net.plugins) else None
            outcome = await chain.call(invocation, then=then)
            if outcome.stdout != printed:  # most plugins after the first print the result that they received
                self.result = read_add_result(invocation, outcome, version, strict=strict)
                printed = outcome.stdout
                self._take(self.result, is_last=then is None)
            elif then is None and self.result is not None:
                self._take(self.result, is_last=True)

    def _take(self, result: Result, *, is_last: bool) -> None:
        """Take the place after a plugin, and keep it with the result, for a DEL after a kill.

        Some plugins, such as firewall, find the address only in the result.
        """
        node, record = self.chain.node, self.record
        if record.netns:
            now = node.look(record.netns, record.ifname)
            self.place = taken(self.place, now, result, record.ifname, is_last=is_last)
        if not is_last:
            # Not keep: without the result a later DEL could not undo what this plugin did, so the ADD must fail.
            node.records.keep_partial(record.with_fields(result=result.text, **_fields(self.place)))

    def take_after_failure(self) -> None:
        """Take the interface that appeared while the failed plugin ran: many plugins leave what they have made.

        If there is none, note that, so that no DEL of this ADD removes an interface that comes later.
        """
        if self.place.ifindex is None:
            node = self.chain.node
            now = node.look(self.record.netns, self.record.ifname)
            is_known = bool(now.ifindex)
            if now.ifindex == 0:
                with suppress(RecordError):
                    is_known = not node.has_running_plugin()  # it may still make the interface
            if is_known and compare(self.place, replace(now, ifindex=None)) != "other":
                self.keep(now)

    def leave_alone(self) -> None:
        """Note that the interface existed before the first plugin, so that no DEL of this ADD removes it."""
        self.keep(replace(self.place, ifindex=NOT_OURS))

    def keep(self, place: Place) -> None:
        """Set the place, and keep it with the result for a DEL after a kill. A full disk only causes a warning."""
        self.place = place
        text = self.result.text if self.result is not None else None
        try:
            self.chain.node.records.keep_partial(self.record.with_fields(result=text, **_fields(place)))
        except RecordError as error:
            logger.warning("a DEL after this ADD may touch another program's %s: %s", self.record.ifname, error)


def _unused_capabilities(net: NetworkConfigList, given: Mapping[str, Any], *, strict: bool) -> tuple[str, ...]:
    unused = net.unused_capabilities(given)
    if unused:
        problem = f'network "{net.name}": no plugin declares the capability arguments {", ".join(unused)}'
        if strict:
            raise ConfigError(problem, file=net.file, hint="declare them in the plugin's capabilities")
        logger.warning("%s", problem)
    return unused


def _fields(place: Place) -> dict[str, Any]:
    """Return a record's fields for a place."""
    return {
        "netns_id": place.netns,
        "netns_cookie": place.cookie or None,
        "ifindex": place.ifindex,
        "mac": place.mac,
    }


async def _refuse_existing(node: Node, record: Record, place: Place, before: Place, *, is_first: bool) -> None:
    """Refuse an ADD that has run nothing yet, if its interface exists or another namespace is at its path.

    Callers usually call DEL after an ADD that failed. The pending record tells that DEL that nothing was run; unless a
    corrupt record shows that an earlier ADD may have run something (not ``is_first``).

    Raises:
        InterfaceExistsError: the interface exists, or a namespace has appeared: a roll-back would delete what is there.
    """
    is_replaced = (place.netns, place.cookie) != (before.netns, before.cookie)
    if not before.ifindex and not is_replaced:
        return
    await node.discard_prepared()
    try:
        await node.complete(record.with_fields(is_refused=is_first))
    except RecordError as error:
        logger.warning("%s: it is not marked as refused: %s", record.path, error)
    raise _exists(record, f"the namespace at {record.netns} was replaced" if is_replaced else "")


def _exists(record: Record, problem: str = "") -> InterfaceExistsError:
    there = f"the namespace {record.netns} has an interface {record.ifname} already"
    return InterfaceExistsError(
        problem or f"{there}, and no record says that this library made it",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
        netns=record.netns,
        hint='remove it or choose another name; on_existing="allow" if the plugins may change it',
    )


async def _roll_back(begun: _Begun, earlier: Record | None, error: BaseException) -> None:
    """Run DEL through the whole chain in reverse order. Go on after errors, and add them to ``error``.

    Each plugin receives the last good result as ``prevResult``, because some find only there what to remove. If the
    record replaced an ``earlier`` one of the same attachment, nothing is run and the earlier record is restored: DEL
    would detach the earlier attachment, which is in use. A DEL of it undoes both ADDs.
    """
    node = begun.chain.node
    node.start_cleanup()
    problems: list[CNIError] = []
    try:
        # A plugin that waits for its configuration must not count as one that still runs.
        await node.discard_prepared()
        has_run = begun.result is not None or not isinstance(error, PluginError) or error.was_run
        if earlier is not None:
            node.records.complete(earlier)
        else:
            # A DEL without effect could fail for the same reason, such as a variable that is too long.
            problems = await _undo(begun) if has_run else []
            if not problems:
                node.records.forget(begun.record)
    except CNIError as undoing:
        problems = [undoing]
    if isinstance(error, CNIError):
        error.rollback_errors, error.record_state = tuple(problems), PENDING if problems else ""
        return
    for problem in problems:
        error.add_note(f"when it was rolled back: {problem}")


async def _undo(begun: _Begun) -> list[CNIError]:
    """Run DEL through the chain of an ADD. Go on after errors, and return them."""
    chain, result = begun.chain, begun.result
    prev_result = result.text if result is not None and supports(chain.net.cni_version, "prevResult on DEL") else None
    # Processes that were killed with the plugin take a moment to end, on a busy machine longer than a DEL.
    await chain.node.wait_for_plugins(_PLUGIN_END_SECONDS)
    reports = await detach_chain(chain, lambda: prev_result, DelPolicy(keep_going=True), begun.ownership())
    problems = [report.error for report in reports if report.error is not None]
    if not problems and chain.node.has_running_plugin():
        # It may still act, and nothing would undo that. The next verb of the container waits for its end.
        text = f"{begun.record.path}: a process of a plugin is still running, so the record stays pending"
        problems.append(RecordError(text, path=begun.record.path))
    return problems


async def _make_room(
    node: Node, net: NetworkConfigList, rt: RuntimeConf, draft: Record, on_existing: OnExisting
) -> tuple[Record | None, bool]:
    """Acquire the locks, and detach earlier attachments of the same (container, interface) on any network.

    The attachments to detach may belong to other networks. Network locks come before the container's lock, so this
    releases all locks, adds the other networks and starts again, until it finds no further network.

    Returns:
        The record of the same attachment, which the new record replaces, or None; and whether there is no corrupt
        record that may be of the same attachment.

    Raises:
        AttachmentExistsError: the container has the interface, and ``on_existing`` is "refuse".
    """
    networks = {net.name}
    while True:
        await node.lock(sorted(networks), rt.container_id)
        found = node.records.of_interface(rt.container_id, rt.ifname)
        if not found:
            return None, True
        readable = [record for record in found if record.state != CORRUPT]
        # A meta-plugin may attach to other networks under the interface's own name. Its caller's ADD is at work.
        earlier = [record for record in readable if record.network == net.name or not node.is_of_caller(record)]
        states = {record.path: state_of(node, record) for record in earlier}
        live = [record for record in earlier if STATES[states[record.path]].add == "refuse"]
        if live and on_existing == "refuse":
            raise _attached(live[0])
        kept = live if on_existing == "allow" else []
        to_detach = [record for record in earlier if record not in kept]
        needed = networks | {record.network for record in to_detach}
        if needed == networks:
            break
        networks = needed
    # First test whether this ADD will be refused: then nothing may be detached for it.
    if to_detach and on_existing != "allow":
        _refuse_anothers_interface(node, draft, to_detach)
    for record in live:
        if states[record.path] == "renamed":
            Ownership.of(node, record, rt.with_netns(record.netns)).netns()  # raises the error that names it
    if live and on_existing == "replace":
        # A full disk must be found before a running container is detached, not after.
        node.records.ensure_writable(draft)
    for record in to_detach:
        # A caller that replaces a complete attachment expects this. Any other is the remains of an interruption.
        level = logging.INFO if record in live else logging.WARNING
        logger.log(level, "%s: detaching it before ADD: it is %s", record.path, record.state)
        await _detach_earlier(node, record, net, rt)
    return next((record for record in kept if record.network == net.name), None), readable == found


def _refuse_anothers_interface(node: Node, draft: Record, to_detach: list[Record]) -> None:
    """Raise InterfaceExistsError if the interface exists, and none of the attachments to detach has made it."""
    now = node.look(draft.netns, draft.ifname)
    if now.ifindex:
        made = [place_of(node.records.with_partial(record)) for record in to_detach if not record.is_refused]
        if all(compare(place, now) == "other" for place in made):
            raise _exists(draft)


def _attached(other: Record) -> AttachmentExistsError:
    container_id, network, ifname = other.container_id, other.network, other.ifname
    return AttachmentExistsError(
        f"container {container_id} is already attached to network {network} with interface {ifname} ({other.path})",
        container_id=container_id,
        ifname=ifname,
        network=network,
    )


async def _detach_earlier(node: Node, record: Record, net: NetworkConfigList, rt: RuntimeConf) -> None:
    """Detach an earlier attachment. If it is of the same network, the caller's configuration and arguments can help."""
    is_same = record.network == net.name
    conf = replace(rt, netns=None) if is_same else RuntimeConf(record.container_id, None, record.ifname)
    try:
        await detach(node, record, net if is_same else None, conf, DelPolicy())
    except CNIError as error:
        error.add_note(f"ADD was detaching {record.path}, which is {record.state}, first")
        raise
