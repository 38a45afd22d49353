"""DEL: run the recorded chain in reverse order, and remove the record last."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from libcni.config import jsontext
from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import (
    CNIError,
    CNIErrorGroup,
    NetworkNotFoundError,
    PluginError,
    PluginNotFoundError,
    RecordError,
    VersionError,
    way_out,
)
from libcni.options import DelPolicy
from libcni.protocol.result import Result
from libcni.store.attachments import network_to_use, recorded_conf, recorded_result
from libcni.store.record import CORRUPT, DETACHING, LEGACY, PENDING, READY, STALE_BOOT, Identity, Record
from libcni.verbs.arguments import check_type
from libcni.verbs.chain import Chain
from libcni.verbs.node import Node
from libcni.verbs.ownership import (
    STATES,
    Ownership,
    check_no_interface,
    checked_conf,
    path_to_use,
    state_on_record,
)

__all__ = ["DelReport", "PluginReport"]

logger: logging.Logger = logging.getLogger("libcni")


RecordSeen = Literal["found", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The outcome of DEL for one plugin of a chain.

    Attributes:
        plugin: its type.
        state: ``done``, ``failed`` (see ``error``) or ``skipped`` (its executable is missing).
        error: why it failed, or None.
        seconds: how long it ran.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [one.plugin for one in report.plugins if one.state == "done"]
        ['bridge']
    """

    plugin: str
    state: Literal["done", "failed", "skipped"]
    error: CNIError | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DelReport:
    """The outcome of a DEL.

    Attributes:
        plugins: one report for each plugin, in the order of the calls.
        record: the state of the attachment's record: ``found``, ``missing`` or ``unreadable``.
        netns: the CNI_NETNS that the plugins received.
        left: what the plugins are known to leave behind, in words. The commands of ``libcni doctor`` remove it.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [(plugin.plugin, plugin.state) for plugin in report.plugins]
        [('bridge', 'done')]
    """

    plugins: tuple[PluginReport, ...]
    record: RecordSeen = "found"
    netns: str = ""
    left: tuple[str, ...] = ()

    @property
    def errors(self) -> list[CNIError]:
        """The errors of the plugins that failed, in the order of the calls."""
        return [plugin.error for plugin in self.plugins if plugin.error is not None]


async def delete(  # noqa: PLR0913 - the attachment, and the options of the verb
    node: Node,
    network: str,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    policy: DelPolicy | None = None,
    *,
    listed: Record | None = None,
) -> DelReport:
    """Detach a container from a network (spec 1.1.0, section 3, Deleting an attachment).

    Args:
        node: runs the plugins.
        network: the network's name.
        net: its configuration, or None if its file no longer exists: then there must be a record.
        rt: the attachment. Recorded values replace those that are None.
        policy: see DelPolicy.
        listed: the record that the caller has listed. DEL is refused if the file belongs to another ADD now.

    Raises:
        InterfaceExistsError: with ``policy.refuse_unrecorded``; nothing was run.
        RecordError: the record is, or may be, of another ADD than the one to undo; nothing was run.
    """
    check_network_name(network)
    rt = checked_conf(rt)
    policy = policy or DelPolicy()
    check_type("policy", policy, DelPolicy)
    await lock_if_possible(node, [network], rt.container_id)
    record, corrupt, seen = _find_record(node, (network, rt.container_id, rt.ifname))
    if record is not None and listed is not None:
        check_unchanged(record, listed)
    if record is None and net is None:
        raise NetworkNotFoundError(
            f'there is neither a configuration nor a record of network "{network}" for this attachment', network=network
        )
    if seen == "unreadable" and rt.netns is None:
        path = corrupt.path if corrupt is not None else node.records.results
        raise RecordError(
            f"{path}: the record cannot be read, so the namespace of the attachment is not known",
            path=path,
            missing="namespace",
            hint='give the namespace, or "" if it no longer exists',
        )
    if record is None and policy.refuse_unrecorded and not policy.use_given:
        check_no_interface(node, network, rt)
    report = await detach(node, record, net, rt, policy, is_unreadable=seen == "unreadable")
    if corrupt is not None:
        _remove_record(node, corrupt)
    return replace(report, record=seen)


async def lock_if_possible(node: Node, networks: Sequence[str], container_id: str) -> None:
    """Acquire locks. If the lock file cannot be used, log a warning and go on: that must never stop a DEL."""
    try:
        await node.lock(networks, container_id)
    except RecordError as error:
        logger.warning("container %s: going on without locks: %s", container_id, error)


def _find_record(node: Node, identity: Identity) -> tuple[Record | None, Record | None, RecordSeen]:
    """Return (the usable record, the corrupt record, the state of the record). No record may stop a DEL."""
    try:
        record = node.records.find(identity)
    except RecordError as error:
        logger.warning("DEL goes on without a record: %s", error)
        return None, None, "unreadable"
    if record is not None and record.state == CORRUPT:
        logger.warning("DEL goes on without a record: %s: %s", record.path, record.problem)
        return None, record, "unreadable"
    return record, None, "found" if record is not None else "missing"


def is_unchanged(record: Record, listed: Record) -> bool:
    """Return whether a record belongs to the same ADD as the listed one, and that ADD has not ended since."""

    def of_add(one: Record) -> tuple[object, ...]:
        # The owner, too: a sweep must not detach an attachment that another program has taken over meanwhile.
        return one.identity, one.owner, one.created, one.netns, one.netns_id, one.result is None, one.state == CORRUPT

    return of_add(record) == of_add(listed)


def check_unchanged(record: Record, listed: Record) -> None:
    """Raise RecordError if a record was rewritten after the listing; see ``is_unchanged``."""
    if not is_unchanged(record, listed):
        text = f"{record.path}: it was rewritten after the attachment was listed"
        raise RecordError(text, path=record.path, hint="list the attachments again")


async def detach(  # noqa: C901, PLR0913 - the steps of DEL from top to bottom
    node: Node,
    record: Record | None,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    policy: DelPolicy,
    *,
    is_unreadable: bool = False,
) -> DelReport:
    """Run DEL for an attachment and remove its record. The caller holds the locks.

    The recorded configuration is used. If the ADD did not succeed and its plugins refuse DEL with that configuration,
    a second try uses the caller's configuration and arguments, with an empty CNI_NETNS if the path leads to no
    namespace. So an operator who corrects a mistake in a file or in an argument can detach and attach again.

    Args:
        node: runs the plugins.
        record: the attachment's record, or None.
        net: the current configuration, or None; used if there is no record or the record is incomplete.
        rt: the attachment. Recorded values replace those that are None.
        policy: see DelPolicy.
        is_unreadable: whether ``record`` is None because it cannot be read.

    Raises:
        NamespaceMismatchError: ``rt`` names another namespace than the recorded one, and both exist; nothing was run.
        RecordError: there is no usable configuration.
        PluginError: a plugin failed.
        CNIErrorGroup: with ``policy.keep_going``: plugins failed.
    """
    if record is not None and record.is_refused and not policy.use_given:
        # No plugin has run. A DEL would free the addresses that this container ID has by other records.
        _remove_record(node, record)
        return DelReport(())
    path = path_to_use(node, record, rt.netns, use_given=policy.use_given)
    if record is not None and STATES[state_on_record(record)].delete == "empty":
        path = ""
    is_given = policy.use_given and bool(rt.netns)
    rt = rt.with_netns(path)
    known = node.records.with_partial(record) if record is not None else None
    ownership = None if is_given else Ownership.of(node, known, rt, is_unreadable=is_unreadable)
    rt = rt.with_netns(path if ownership is None else ownership.netns())
    if net is None and record is not None and (not record.version or record.result is None):
        # Go records no drop-in plugins, and an operator may have corrected a configuration that plugins refused.
        net = node.configured(record.network)
    chain = _recorded_chain(node, record, net, rt, policy)
    if record is not None and record.state == READY:
        # After one plugin's DEL the attachment is incomplete. A kill must not leave a record that says "ready".
        if node.starts_ahead and chain.executables[-1]:
            node.start_ahead(chain.invocation("DEL", len(chain.executables) - 1, ahead=True))
        record = node.records.mark_detaching(record)
    try:
        return await _run(chain, record, known, policy, ownership)
    except (PluginError, CNIErrorGroup) as error:
        corrected = _corrected_chain(chain, record, net, rt, policy)
        if corrected is not None:
            try:
                return await _run(corrected, record, known, policy, ownership)
            except (PluginError, CNIErrorGroup) as second:
                if str(second) != str(error):
                    error.add_note(f"with the current configuration or arguments: {second}")
        if record is not None:
            error.suggest(way_out(chain.net.name, rt.container_id, rt.ifname))
        raise


async def _run(
    chain: Chain, record: Record | None, known: Record | None, policy: DelPolicy, ownership: Ownership | None
) -> DelReport:
    """Run DEL through a chain, then remove the record; ``known``: the record with the result of an unfinished ADD."""
    netns = chain.rt.netns or "" if chain.rt is not None else ""
    prev_result = _prev_result(chain.node, known, chain.net.cni_version)
    # Without a namespace there is nothing to ask: a second try leaves out a path that plugins refuse.
    reports = await detach_chain(chain, prev_result, policy, ownership if netns else None)
    report = DelReport(tuple(reports), netns=netns, left=_left_behind(chain, record))
    problem = f"DEL of network {chain.net.name}: {{}} of {len(reports)} plugins failed"
    CNIErrorGroup.raise_any(problem, report.errors, report)
    if record is not None:
        # The record goes last: after a kill in between, a further DEL finds it and repeats the calls, which is allowed.
        _remove_record(chain.node, record)
    return report


def _left_behind(chain: Chain, record: Record | None) -> tuple[str, ...]:
    """Describe the rules that a DEL without a namespace leaves behind.

    Go's bridge and ptp read the addresses of these rules from the interface.
    """
    if record is None or record.result is None or record.state == STALE_BOOT:
        return ()  # nothing is known, or no rule has survived the reboot
    if chain.rt is not None and chain.rt.netns and chain.node.namespace(chain.rt.netns).netns is not None:
        return ()
    types = {str(document.get("type")) for document in plugin_documents(chain.net) if document.get("ipMasq") is True}
    return ("the masquerade rules of its addresses",) if types & {"bridge", "ptp"} else ()


def _recorded_chain(
    node: Node, record: Record | None, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy
) -> Chain:
    """Return the chain of the ADD; without a record, that of the caller."""
    used = network_to_use(record, net, use_given=policy.use_given)
    if record is not None and record.state != LEGACY:
        rt = recorded_conf(record, rt, use_given=policy.use_given)
    try:
        return Chain(node, used, rt, node.find_all(used, skip_missing=policy.skip_missing))
    except PluginNotFoundError as error:
        error.suggest("skip_missing=True detaches without it, and leaves what it made")
        raise


def _corrected_chain(
    chain: Chain, record: Record | None, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy
) -> Chain | None:
    """Return the chain for a second try, with the caller's configuration and arguments; None if the ADD succeeded."""
    if record is None or record.result is not None or record.state == LEGACY or policy.use_given:
        return None
    given = net if net is not None and net.plugins else chain.net
    executables = chain.node.find_all(given, skip_missing=True)
    if not policy.skip_missing and not all(executables):
        return None
    # The mistake may be the path itself: plugins refuse a file that is no namespace. No interface is in it.
    is_mistake = rt.netns and chain.node.is_no_namespace(rt.netns)
    return Chain(chain.node, given, rt.with_netns("") if is_mistake else rt, executables)


def _prev_result(node: Node, record: Record | None, version: str) -> Callable[[], str | None]:
    """Return a function for ``prevResult``, which is None if there is none; DEL calls it before each plugin.

    After an ADD that did not end it is the result of its last plugin.
    """
    if record is None or record.result is None:
        return lambda: None
    try:
        if not supports(version, "prevResult on DEL"):
            return lambda: None
        result = recorded_result(record, version)
    # Go records versions that this library does not know, and any program may have written the file.
    except (RecordError, VersionError) as error:
        logger.warning("DEL goes on without prevResult: %s", error)
        return lambda: None
    if record.state in {PENDING, DETACHING}:
        # Asked again before each plugin: another container may get an address while one runs.
        return partial(_without_given_away, node, record, result)
    # No rule has survived a reboot, and another container may have the addresses by now.
    text = jsontext.merge(result.text, {"ips": []}) if record.state == STALE_BOOT else result.text
    return lambda: text


def _without_given_away(node: Node, record: Record, result: Result) -> str:
    """Return the result of a half-done attachment without the addresses that another attachment has on record by now.

    An earlier DEL may have freed them. The plugin firewall deletes rules by address alone, whoever has it.
    """
    if not result.ips:
        return result.text
    in_use = {address for claim in node.claims.of_others(record) for address in claim.addresses}
    kept = [ip for ip in result.ips if ip.address.partition("/")[0] not in in_use]
    if len(kept) == len(result.ips):
        return result.text
    logger.warning("%s: DEL leaves out addresses that another attachment has by now", record.path)
    return jsontext.merge(result.text, {"ips": [ip.to_json() for ip in kept]})


async def detach_chain(
    chain: Chain, prev_result: Callable[[], str | None], policy: DelPolicy, ownership: Ownership | None
) -> list[PluginReport]:
    """Run DEL through the chain in reverse order; raises at the first error unless ``policy.keep_going``.

    ``prev_result`` and ``ownership`` are asked before each plugin, because an address, the namespace or the interface
    can become another's while one runs; no ``ownership``: the plugins remove whatever is there.
    """
    reports = []
    for index in reversed(range(len(chain.net.plugins))):
        plugin = chain.net.plugins[index].type
        if not chain.executables[index]:
            logger.warning('DEL of network %s: plugin "%s" is missing and was skipped', chain.net.name, plugin)
            reports.append(PluginReport(plugin, "skipped"))
            continue
        try:
            # With keep_going a plugin that hangs must not use up the time of those after it.
            if ownership is not None:
                chain = ownership.chain(chain)
            invocation = chain.invocation("DEL", index, prev_result())
            then = index - 1 if index and chain.executables[index - 1] else None
            sharers = index + 1 if policy.keep_going else 1
            outcome = await chain.call(invocation, sharers=sharers, then=then)
            reports.append(PluginReport(plugin, "done", seconds=outcome.seconds))
        except (PluginError, PluginNotFoundError) as error:
            if not policy.keep_going:
                raise
            seconds = error.seconds if isinstance(error, PluginError) else 0.0
            reports.append(PluginReport(plugin, "failed", error, seconds))
    return reports


def _remove_record(node: Node, record: Record) -> None:
    """Remove the record of a detached attachment, or set a corrupt one aside.

    If the disk refuses, only log a warning: the DEL has succeeded.
    """
    try:
        if record.state == CORRUPT:
            logger.warning("%s: it was moved to %s", record.path, node.records.set_aside(record))
        else:
            node.records.forget(record)
    except RecordError as error:
        logger.warning("the attachment is detached, and its record stays: %s", error)
