"""ADD: write a pending record, run the chain, complete the record, or undo everything."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import AttachmentExistsError, CNIError, ConfigError, InterfaceExistsError, RecordError
from libcni.protocol.answer import read_add_result
from libcni.protocol.result import Result
from libcni.store.attachments import pending_record
from libcni.store.namespace import Look
from libcni.store.record import READY, Record
from libcni.verbs.chain import Chain
from libcni.verbs.delete import (
    LOOPBACK,
    detach,
    detach_chain,
    is_same_interface,
    is_same_namespace,
    netns_of_own_interface,
)
from libcni.verbs.node import Node
from libcni.verbs.reports import DelPolicy, OnCancel, OnExisting, RetryPolicy
from libcni.verbs.version import negotiate

__all__ = ["add"]

logger: logging.Logger = logging.getLogger("libcni")

_PLUGIN_END_SECONDS = 3.0
"""Seconds to wait, after a roll-back, for processes that the plugins left."""


async def add(  # noqa: C901, PLR0913 - the verb from top to bottom, and its options
    node: Node,
    net: NetworkConfigList,
    rt: RuntimeConf,
    *,
    rollback: bool = True,
    on_existing: OnExisting = "refuse",
    strict: bool = False,
    negotiate_version: bool = False,
    retry: RetryPolicy | None = None,
    allow_own_netns: bool = False,
    on_cancel: OnCancel = "keep",
) -> Result:
    """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

    Every executable is found and the record is written before the first plugin runs. The record is completed after
    the last one; a failure in between is rolled back.
    """
    check_network_name(net.name)
    rt.check()
    for name, word, words in (("on_existing", on_existing, OnExisting), ("on_cancel", on_cancel, OnCancel)):
        if word not in get_args(words):
            raise ValueError(f"{name} must be one of {', '.join(get_args(words))}, not {word!r}")
    if not net.plugins:
        raise ConfigError(f'network "{net.name}" has no plugins', file=net.file, location="plugins")
    unused = _unused_capabilities(net, rt, strict=strict)
    if not allow_own_netns and rt.netns and node.is_own_namespace(rt.netns):
        raise ConfigError(
            f"{rt.netns} is the network namespace of this program itself",
            hint="give the container's namespace; allow_own_netns=True if you mean it",
        )
    if negotiate_version:
        net = await negotiate(node, net)
    chain = Chain(node, net, rt, node.find_all([plugin.type for plugin in net.plugins]), retry)
    node.check_environment(chain.without_stdin("ADD", 0))
    draft = pending_record(net, rt)
    earlier = await _make_room(node, net, rt, draft, on_existing)
    before = _look(node, rt)
    is_there = before is not None and before.ifindex > 0
    if is_there and on_existing != "allow":
        raise _foreign_interface(net, rt)
    # The process of the first plugin starts while the record is written. It gets its configuration after that.
    if node.starts_ahead:
        node.start_ahead(chain.without_stdin("ADD", 0))
    is_shared = is_there and (earlier is None or earlier.is_shared)
    path = earlier.path if earlier is not None else ""
    record = await node.begin(replace(draft, path=path, is_shared=is_shared, **_seen(before)))
    result: Result | None = None
    printed: bytes | None = None
    try:
        for index in range(len(net.plugins)):
            prev_result = result.text if result is not None else None
            invocation = chain.invocation("ADD", index, prev_result)
            then = index + 1 if index + 1 < len(net.plugins) else None
            outcome = await chain.call(invocation, prev_result, then=then)
            if outcome.stdout != printed:  # most plugins after the first print the result that they received
                read = partial(read_add_result, invocation, outcome, net.cni_version, strict=strict)
                result = await node.decode(invocation, outcome.stdout, read)
                printed = outcome.stdout
        if result is None:
            raise AssertionError("a list without plugins is refused above")
        seen = {} if is_shared else _seen(_look(node, rt))
        await node.complete(replace(record, state=READY, result=result.text, **seen))
    except BaseException as error:
        # The caller of a cancelled or interrupted ADD wants an end now, and the pending record is for DEL and GC.
        is_cancelled = node.is_interrupted or not isinstance(error, Exception)
        keep = is_cancelled and (on_cancel == "keep" or isinstance(error, GeneratorExit))
        await node.discard_prepared()
        if rollback and not keep:
            await node.shielded(_roll_back(chain, record, earlier, result, error))
        raise
    return replace(result, unused_capabilities=unused)


def _unused_capabilities(net: NetworkConfigList, rt: RuntimeConf, *, strict: bool) -> tuple[str, ...]:
    unused = net.unused_capabilities(rt.capability_args or {})
    if unused:
        problem = f'network "{net.name}": no plugin takes the capability arguments {", ".join(unused)}'
        if strict:
            raise ConfigError(problem, file=net.file, hint="declare them in the plugin's capabilities")
        logger.warning("%s", problem)
    return unused


def _look(node: Node, rt: RuntimeConf) -> Look | None:
    """Look for the container's interface; None if that cannot be seen."""
    return node.look(rt.netns, rt.ifname) if rt.netns and rt.ifname != LOOPBACK else None


def _seen(look: Look | None) -> dict[str, Any]:
    """Return the fields of a record that say which interface, of which namespace, was seen."""
    return {} if look is None else {"ifindex": look.ifindex or None, "netns_cookie": look.cookie or None}


def _foreign_interface(net: NetworkConfigList, rt: RuntimeConf) -> InterfaceExistsError:
    """Return the error for somebody else's interface of that name: a roll-back would delete it."""
    return InterfaceExistsError(
        f"the namespace {rt.netns} has an interface {rt.ifname} already, and no record says that this library made it",
        container_id=rt.container_id,
        ifname=rt.ifname,
        network=net.name,
        netns=rt.netns or "",
        hint='remove it or choose another name; on_existing="allow" if the plugins are to work on it',
    )


async def _roll_back(
    chain: Chain, record: Record, earlier: Record | None, result: Result | None, error: BaseException
) -> None:
    """Run DEL through the whole chain, in reverse order and past errors; add these to ``error``.

    Each plugin receives the last good result as ``prevResult``: some find what to remove only there. If the record
    took the place of an ``earlier`` one of the same attachment, that one is put back and nothing is run: DEL would
    detach the earlier one, which lives, and its own DEL undoes both.
    """
    node = chain.node
    node.start_cleanup()
    try:
        problems = [] if earlier is not None else await _undo(node, chain, record, result)
        if earlier is not None:
            node.records.complete(earlier)
        elif not problems:
            node.records.forget(record)
    except CNIError as undoing:
        problems = [undoing]
    if isinstance(error, CNIError):
        error.rollback_errors = tuple(problems)
    for problem in problems:
        error.add_note(f"when it was rolled back: {problem}")


async def _undo(node: Node, chain: Chain, record: Record, result: Result | None) -> list[CNIError]:
    """Run DEL through the chain of an ADD, past errors; return these."""
    # A process that a plugin left may still act, and what it does after DEL nobody would undo.
    have_ended = await node.plugins_have_ended(_PLUGIN_END_SECONDS)
    known = replace(record, result=result.text if result is not None else None)
    rt = RuntimeConf(record.container_id, record.netns, record.ifname)
    chain = chain.with_netns(netns_of_own_interface(node, known, rt, record.network))
    prev_result = result.text if result is not None and supports(chain.net.cni_version, "prevResult on DEL") else None
    while True:
        reports = await detach_chain(chain, prev_result, DelPolicy(keep_going=True))
        problems = [report.error for report in reports if report.error is not None]
        if problems or have_ended:
            return problems
        # It may be a daemon, which DEL stops. Whatever it was: once it has ended, DEL undoes the last of what it did.
        have_ended = await node.plugins_have_ended(_PLUGIN_END_SECONDS)
        if not have_ended:
            text = f"{record.path}: a process of a plugin is still running, so the record stays pending"
            return [RecordError(text, path=record.path)]


async def _make_room(
    node: Node, net: NetworkConfigList, rt: RuntimeConf, draft: Record, on_existing: OnExisting
) -> Record | None:
    """Acquire the locks, and detach what is left of earlier ADDs of the same (container, interface), on any network.

    Attachments to detach may belong to other networks. Locks are acquired network first, so the other networks are
    added and all locks are acquired again, until nothing unexpected is found.

    Returns:
        The record of the same attachment that is to be replaced, or None.

    Raises:
        AttachmentExistsError: the container has the interface, and ``on_existing`` is "refuse".
    """
    networks = {net.name}
    while True:
        await node.lock(sorted(networks), rt.container_id)
        found = node.records.of_interface(rt.container_id, rt.ifname)
        # A meta-plugin may attach to other networks under the interface's own name. Its caller's ADD is at work.
        found = [record for record in found if record.network == net.name or not node.is_of_caller(record)]
        live = [record for record in found if record.state == READY and is_same_namespace(node, record)]
        if live and on_existing == "refuse":
            raise _exists(live[0])
        kept = live if on_existing == "allow" else []
        stale = [record for record in found if record not in kept]
        needed = networks | {record.network for record in stale}
        if needed == networks:
            break
        networks = needed
    if stale and on_existing != "allow" and (seen := _look(node, rt)) and seen.ifindex:
        # Nothing is detached for an ADD that is refused all the same.
        here = node.namespace_identity(rt.netns or "")
        if not any(one.netns_id in {None, here} and is_same_interface(one, seen) is not False for one in stale):
            raise _foreign_interface(net, rt)
    if any(record in live for record in stale):
        # Before a running container is detached: can its new record be written at all?
        node.records.ensure_writable(draft)
    for record in stale:
        await _detach_stale(node, record, net, rt)
    return next((record for record in kept if record.network == net.name), None)


async def _detach_stale(node: Node, record: Record, net: NetworkConfigList, rt: RuntimeConf) -> None:
    """Detach an earlier attachment. The configuration and arguments of today help if they are of the same network."""
    logger.warning("%s: detached before ADD: it is %s", record.path, record.state)
    is_same = record.network == net.name
    conf = replace(rt, netns=None) if is_same else RuntimeConf(record.container_id, None, record.ifname)
    try:
        await detach(node, record, net if is_same else None, conf, DelPolicy())
    except CNIError as error:
        error.add_note(f"ADD was detaching {record.path}, which is {record.state}, first")
        raise


def _exists(record: Record) -> AttachmentExistsError:
    return AttachmentExistsError(
        f"container {record.container_id} is already attached to network {record.network} with interface "
        f"{record.ifname} ({record.path})",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
    )
