"""ADD: write a pending record, run the chain, then complete the record or undo everything."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList, check_plugins
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import AttachmentExistsError, CNIError, ConfigError, InterfaceExistsError, PluginError, RecordError
from libcni.protocol.answer import read_add_result
from libcni.protocol.result import Result
from libcni.store.attachments import pending_record
from libcni.store.namespace import InterfaceLookup
from libcni.store.record import READY, Record, check_readable
from libcni.verbs.chain import Chain
from libcni.verbs.delete import detach, detach_chain
from libcni.verbs.node import Node
from libcni.verbs.ownership import (
    checked_conf,
    is_same_interface,
    is_same_namespace,
    look_up_interface,
    made_no_interface,
    netns_of_own_interface,
)
from libcni.verbs.reports import DelPolicy, OnCancel, OnExisting, RetryPolicy, check_word
from libcni.verbs.version import negotiate

logger: logging.Logger = logging.getLogger("libcni")

_PLUGIN_END_SECONDS = 1.0
"""Seconds to wait, before a roll-back, for processes that the plugins left."""


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

    ADD finds every executable and writes the record before it runs the first plugin. It completes the record after the
    last one, and rolls back a failure in between.
    """
    check_network_name(net.name)
    rt = checked_conf(node, rt)
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
        net = await negotiate(node, net)
    chain = Chain(node, net, rt, node.find_all(net), retry)
    draft = check_readable(pending_record(net, rt))
    earlier = await _make_room(node, net, rt, draft, on_existing)
    before = look_up_interface(node, rt)
    is_there = before is not None and before.ifindex > 0
    if before is not None and is_there and on_existing != "allow":
        await _refuse(node, draft, before)
    # The process of the first plugin starts while the record is written. It gets its configuration after that.
    if node.starts_ahead:
        node.start_ahead(chain.invocation("ADD", 0, ahead=True))
    is_shared = is_there and (earlier is None or earlier.is_shared)
    path = earlier.path if earlier is not None else ""
    # Write-ahead: from here on a kill leaves a pending record, so a later DEL or GC can undo the plugins' work.
    draft = draft.with_fields(path=path, is_shared=is_shared, **_identity_fields(before))
    record = await node.begin(draft, earlier, take_back=rollback and on_cancel == "rollback")
    result: Result | None = None
    printed: bytes | None = None

    def undoing() -> Chain | None:
        # DEL would detach the earlier attachment, which is in use.
        return None if earlier is not None else _own_chain(chain, record, result)

    try:
        for index in range(len(net.plugins)):
            prev_result = result.text if result is not None else None
            invocation = chain.invocation("ADD", index, prev_result)
            then = index + 1 if index + 1 < len(net.plugins) else None
            outcome = await chain.call(invocation, prev_result, then=then, undo=undoing)
            if outcome.stdout != printed:  # most plugins after the first print the result that they received
                read = partial(read_add_result, invocation, outcome, net.cni_version, strict=strict)
                result = await node.decode(invocation, outcome.stdout, read)
                printed = outcome.stdout
                # If this process is killed later, DEL gives this result to the plugins: some plugins, such as firewall,
                # find the address only there.
                if then is not None:
                    node.records.keep_partial(record, result.text)
        if result is None:
            raise AssertionError("a list without plugins is refused above")
        seen = {} if is_shared else _identity_fields(look_up_interface(node, rt))
        await node.complete(record.with_fields(state=READY, result=result.text, **seen))
    except BaseException as error:
        # The caller of a cancelled ADD does not want to wait. DEL or GC can use the pending record later.
        is_cancelled = node.is_interrupted or not isinstance(error, Exception)
        keep = is_cancelled and (on_cancel == "keep" or isinstance(error, GeneratorExit))
        if rollback and not keep:
            await node.shielded(_roll_back(chain, record, earlier, result, error))
        raise
    return replace(result, unused_capabilities=unused)


def _unused_capabilities(net: NetworkConfigList, given: Mapping[str, Any], *, strict: bool) -> tuple[str, ...]:
    unused = net.unused_capabilities(given)
    if unused:
        problem = f'network "{net.name}": no plugin declares the capability arguments {", ".join(unused)}'
        if strict:
            raise ConfigError(problem, file=net.file, hint="declare them in the plugin's capabilities")
        logger.warning("%s", problem)
    return unused


def _identity_fields(found: InterfaceLookup | None) -> dict[str, Any]:
    """Return a record's fields that identify the interface and the namespace that were found."""
    return {} if found is None else {"ifindex": found.ifindex or None, "netns_cookie": found.cookie or None}


async def _refuse(node: Node, draft: Record, found: InterfaceLookup, *, is_recorded: bool = False) -> NoReturn:
    """Refuse an ADD whose interface exists and is another program's: a roll-back would delete it.

    Callers usually call DEL after an ADD that failed. The pending record that this leaves tells the DEL whose the
    interface is. ``is_recorded``: there is a record of this attachment already.
    """
    if not is_recorded:
        try:
            # A record that cannot be read may be of an attachment whose plugins have run.
            is_refused = node.records.find(draft.identity) is None
            draft = draft.with_fields(is_shared=True, is_refused=is_refused, **_identity_fields(found))
            await node.begin(draft, None, take_back=False)
        except RecordError as error:
            logger.warning("a DEL after this ADD would delete %s in %s: %s", draft.ifname, draft.netns, error)
    raise InterfaceExistsError(
        f"the namespace {draft.netns} has an interface {draft.ifname} already, and no record says that this library "
        "made it",
        container_id=draft.container_id,
        ifname=draft.ifname,
        network=draft.network,
        netns=draft.netns,
        hint='remove it or choose another name; on_existing="allow" if the plugins may change it',
    )


async def _roll_back(
    chain: Chain, record: Record, earlier: Record | None, result: Result | None, error: BaseException
) -> None:
    """Run DEL through the whole chain in reverse order. Go on after errors, and add them to ``error``.

    Each plugin receives the last good result as ``prevResult``, because some find only there what to remove. If the
    record replaced an ``earlier`` one of the same attachment, nothing is run and the earlier record is restored: DEL
    would detach the earlier attachment, which is in use. A DEL of it undoes both ADDs.
    """
    node = chain.node
    node.start_cleanup()
    try:
        # A plugin that waits for its configuration must not count as one that still runs.
        await node.discard_prepared()
        has_run = result is not None or not isinstance(error, PluginError) or error.was_run
        # A DEL without effect could fail for the same reason, such as a variable that is too long.
        problems = await _undo(node, chain, record, result) if earlier is None and has_run else []
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
    """Run DEL through the chain of an ADD. Go on after errors, and return them."""
    chain = _own_chain(chain, record, result)
    prev_result = result.text if result is not None and supports(chain.net.cni_version, "prevResult on DEL") else None
    # Processes that were killed with the plugin take a moment to end, on a busy machine longer than a DEL.
    await node.wait_for_plugins(_PLUGIN_END_SECONDS)
    reports = await detach_chain(chain, prev_result, DelPolicy(keep_going=True))
    problems = [report.error for report in reports if report.error is not None]
    if not problems and node.has_running_plugin():
        # It may still act, and nothing would undo that. The next verb of the container waits for its end.
        text = f"{record.path}: a process of a plugin is still running, so the record stays pending"
        problems.append(RecordError(text, path=record.path))
    return problems


def _own_chain(chain: Chain, record: Record, result: Result | None) -> Chain:
    """Return the chain for DEL of an ADD that did not end: without namespace if the interface is not of this ADD."""
    known = record.with_fields(result=result.text if result is not None else None)
    rt = RuntimeConf(record.container_id, record.netns, record.ifname)
    return chain.with_netns(netns_of_own_interface(chain.node, known, rt, record.network))


async def _make_room(
    node: Node, net: NetworkConfigList, rt: RuntimeConf, draft: Record, on_existing: OnExisting
) -> Record | None:
    """Acquire the locks, and detach earlier attachments of the same (container, interface) on any network.

    The attachments to detach may belong to other networks. Network locks come before the container's lock, so this
    releases all locks, adds the other networks and starts again, until it finds no further network.

    Returns:
        The record of the same attachment, which the new record replaces, or None.

    Raises:
        AttachmentExistsError: the container has the interface, and ``on_existing`` is "refuse".
    """
    networks = {net.name}
    while True:
        await node.lock(sorted(networks), rt.container_id)
        found = node.records.of_interface(rt.container_id, rt.ifname)
        if not found:
            return None
        # A meta-plugin may attach to other networks under the interface's own name. Its caller's ADD is at work.
        found = [record for record in found if record.network == net.name or not node.is_of_caller(record)]
        live = [record for record in found if record.state == READY and is_same_namespace(node, record)]
        if live and on_existing == "refuse":
            other = live[0]
            raise AttachmentExistsError(
                f"container {other.container_id} is already attached to network {other.network} with interface "
                f"{other.ifname} ({other.path})",
                container_id=other.container_id,
                ifname=other.ifname,
                network=other.network,
            )
        kept = live if on_existing == "allow" else []
        stale = [record for record in found if record not in kept]
        needed = networks | {record.network for record in stale}
        if needed == networks:
            break
        networks = needed
    if stale and on_existing != "allow" and (seen := look_up_interface(node, rt)) and seen.ifindex:
        # First test whether this ADD will be refused: then nothing may be detached for it.
        here = node.namespace_identity(rt.netns or "")
        may_be_in = [one for one in stale if one.netns_id in {None, here} and not made_no_interface(one)]
        if all(is_same_interface(one, seen) is False for one in may_be_in):
            await _refuse(node, draft, seen, is_recorded=any(one.network == net.name for one in stale))
    if any(record in live for record in stale):
        # A full disk must be found before a running container is detached, not after.
        node.records.ensure_writable(draft)
    for record in stale:
        await _detach_stale(node, record, net, rt)
    return next((record for record in kept if record.network == net.name), None)


async def _detach_stale(node: Node, record: Record, net: NetworkConfigList, rt: RuntimeConf) -> None:
    """Detach an earlier attachment. If it is of the same network, the caller's configuration and arguments can help."""
    logger.warning("%s: detaching it before ADD: it is %s", record.path, record.state)
    is_same = record.network == net.name
    conf = replace(rt, netns=None) if is_same else RuntimeConf(record.container_id, None, record.ifname)
    try:
        await detach(node, record, net if is_same else None, conf, DelPolicy())
    except CNIError as error:
        error.add_note(f"ADD was detaching {record.path}, which is {record.state}, first")
        raise
