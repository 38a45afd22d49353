"""DEL: run the recorded chain in reverse order, and remove the record last."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Literal

from libcni._dataclass import dataclass, replace
from libcni.config.identifiers import validate_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import (
    CNIError,
    CNIErrorGroup,
    Hint,
    InterfaceExistsError,
    NetworkNotFoundError,
    PluginError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
)
from libcni.options import DelPolicy, check_type
from libcni.protocol.invocation import Invocation
from libcni.store.model import (
    NOT_OURS,
    READY,
    STATES,
    Identity,
    Known,
    Place,
    Record,
    Unreadable,
    unreadable,
)
from libcni.store.other_records import Look
from libcni.verbs.chain import Chain
from libcni.verbs.claim import Claim
from libcni.verbs.configurations import configurations
from libcni.verbs.leftovers import Leftover, left_behind, still_there
from libcni.verbs.node import Node
from libcni.verbs.path_to_use import check_own_netns, checked_conf, path_to_use
from libcni.verbs.prev_result import PrevResult
from libcni.verbs.target import Damaged, Recorded, Target, Unrecorded, find_target

__all__ = ["DelReport", "PluginReport"]

logger: logging.Logger = logging.getLogger("libcni")

_NO_DEL = (
    "correct the cause and repeat the DEL (with {argument}: with the network's current configuration); if no DEL can "
    "succeed, drop the record"
)


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The outcome of DEL for one plugin of a chain.

    Attributes:
        plugin: its type.
        state: ``done``, ``failed`` (see ``error``) or ``skipped`` (its executable is missing).
        error: why it failed, or None.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [plugin.plugin for plugin in report.plugins if plugin.state == "done"]
        ['bridge']
    """

    plugin: str
    state: Literal["done", "failed", "skipped"]
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class DelReport:
    """The outcome of a DEL.

    Attributes:
        plugins: one report for each plugin, in the order of the calls.
        record: whether the attachment had a record: ``found``, ``missing`` or ``unreadable``.
        netns: the CNI_NETNS that the plugins received.
        left: rules and reservations that the plugins could not remove. ``libcni repair`` removes them.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [(plugin.plugin, plugin.state) for plugin in report.plugins]
        [('bridge', 'done')]
    """

    plugins: tuple[PluginReport, ...]
    record: Literal["found", "missing", "unreadable"] = "found"
    netns: str = ""
    left: tuple[Leftover, ...] = ()

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
        net: its configuration; None: load it from ``conf_dir`` if the record does not hold it.
        rt: the attachment. Recorded values replace those that are None.
        policy: see DelPolicy.
        listed: the record when the caller listed it. DEL is refused if the file belongs to another ADD now.

    Raises:
        InterfaceExistsError: with ``policy.refuse_unrecorded``; nothing was run.
        RecordError: the record may belong to another ADD than the one to undo; nothing was run.
    """
    validate_network_name(network)
    rt = checked_conf(rt)
    policy = policy or DelPolicy()
    check_type("policy", policy, DelPolicy)
    await lock_if_possible(node, [network], rt.container_id)
    target = _find_target(node, (network, rt.container_id, rt.ifname))
    if net is None and listed is not None and isinstance(target, Unrecorded):
        return DelReport((), record=target.found)  # another program has detached it since it was listed
    if net is None and (policy.use_given or (listed is None and not isinstance(target, Recorded))):
        net = node.configured(network)
    match target:
        case Recorded(record):
            if listed is not None:
                check_unchanged(record, listed)
            report = await detach(node, record, net, rt, policy)
        case Damaged(file):
            report = await _detach_damaged(node, file, network, net, rt, policy)
        case Unrecorded():
            report = await _detach_unrecorded(node, network, net, rt, policy, Place(interface=NOT_OURS))
    return replace(report, record=target.found)


def _find_target(node: Node, identity: Identity) -> Target:
    """Return what is recorded of an attachment. An error of the disk must not stop a DEL."""
    try:
        target = find_target(node, identity)
    except RecordError as error:
        target = Damaged(unreadable("", str(error)))
    if isinstance(target, Damaged):
        path = f"{target.file.path}: " if target.file.path else ""
        logger.warning("DEL goes on without a record: %s%s", path, target.file.problem)
    return target


async def _detach_damaged(  # noqa: PLR0913, PLR0917 - the attachment, and the options of DEL
    node: Node, file: Unreadable, network: str, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy
) -> DelReport:
    """Run DEL for an attachment whose record cannot be read, and move the file aside."""
    if rt.netns is None:
        raise RecordError(
            f"{file.path or file.problem}: the record cannot be read, so the namespace of the attachment is not known",
            path=file.path,
            missing="namespace",
            hint='give the namespace\'s path, or "" if the namespace no longer exists',
        )
    report = await _detach_unrecorded(node, network, net, rt, policy, Place())
    _remove_record(node, file)
    return report


async def _detach_unrecorded(  # noqa: PLR0913, PLR0917 - the attachment, and the options of DEL
    node: Node, network: str, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy, place: Place
) -> DelReport:
    """Run DEL for an attachment without a usable record, with the caller's configuration.

    ``place``: without a record no interface belongs to the attachment. With a damaged one any may.
    """
    if net is None:
        problem = f'network "{network}" has no configuration, and container {rt.container_id} no record of it'
        hint = Hint("see the configured networks", "networks")
        raise NetworkNotFoundError(f"{problem} for interface {rt.ifname}", network=network, hint=hint)
    if policy.refuse_unrecorded and not policy.use_given:
        _check_no_interface(node, network, rt)
    if policy.use_given and rt.netns:
        claim = Claim.to_any(node, None, rt.netns, rt.ifname)
    else:
        claim = Claim.unrecorded(node, place, rt.netns or "", rt.ifname)
    return await _try_configurations(claim, net, rt, policy)


def _check_no_interface(node: Node, network: str, rt: RuntimeConf) -> None:
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


async def lock_if_possible(node: Node, networks: Sequence[str], container_id: str) -> None:
    """Acquire locks. If the lock file cannot be used, log a warning and go on: that must never stop a DEL."""
    try:
        await node.lock(networks, container_id)
    except RecordError as error:
        logger.warning("container %s: going on without locks: %s", container_id, error)


def is_unchanged(record: Record, listed: Record) -> bool:
    """Return whether a record belongs to the same ADD as the listed one, and that ADD has not ended since."""
    # With the owner: a sweep must not detach an attachment that another program has taken over meanwhile.
    names = ("identity", "owner", "created", "netns", "netns_id", "has_ended")
    return type(record) is type(listed) and all(getattr(record, name) == getattr(listed, name) for name in names)


def check_unchanged(record: Record, listed: Record) -> None:
    """Raise RecordError if a record was rewritten after the listing; see ``is_unchanged``."""
    if not is_unchanged(record, listed):
        text = f"{record.path}: the record was rewritten after the attachment was listed"
        raise RecordError(text, path=record.path, hint="list the attachments again, and repeat the call")


async def detach(  # noqa: PLR0913 - the attachment, and the options of DEL
    node: Node,
    record: Record,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    policy: DelPolicy,
    *,
    keep_record: bool = False,
) -> DelReport:
    """Run DEL for a recorded attachment and remove its record. The caller holds the locks.

    The recorded configuration is used. If the ADD did not succeed and its plugins refuse DEL with that configuration,
    a second try uses the caller's configuration and arguments, with an empty CNI_NETNS if the path leads to no
    namespace. So an operator who corrects a mistake in a file or in an argument can detach and attach again.

    Args:
        node: runs the plugins.
        record: the attachment's record.
        net: the current configuration, or None; used if the record is incomplete.
        rt: the attachment. Recorded values replace those that are None.
        policy: see DelPolicy.
        keep_record: do not remove the record, because the caller replaces it.

    Raises:
        NamespaceMismatchError: ``rt`` names another namespace than the recorded one, and both exist; nothing was run.
        RecordError: there is no usable configuration.
        PluginError: a plugin failed.
        CNIErrorGroup: with ``policy.keep_going``: plugins failed.
    """
    if STATES[record.state].delete == "nothing" and not policy.use_given:
        # No plugin has run. A DEL would free the addresses that this container ID has by other records.
        report = DelReport(())
    else:
        report = await _try_configurations(_claim(node, record, rt, policy), net, rt, policy)
    if not keep_record:
        # The record goes last: after a kill in between, a further DEL finds it and repeats the calls, which is allowed.
        # A process of a killed ADD that outlived the wait may be a daemon, and would keep the record for ever.
        _remove_record(node, record)
    return report


def _claim(node: Node, record: Record, rt: RuntimeConf, policy: DelPolicy) -> Claim:
    """Return the namespace of a DEL, with the check of it before each plugin."""
    if STATES[record.state].delete == "empty" and not policy.use_given:
        # A namespace at the path was created after the reboot.
        return Claim.of(node, record, "")
    path = path_to_use(node, record, rt.netns, use_given=policy.use_given)
    if policy.use_given and rt.netns:
        return Claim.to_any(node, record, path, rt.ifname)
    if record.is_own_netns:
        check_own_netns(node, record, path)
    return Claim.of(node, record, path)


async def _try_configurations(
    claim: Claim, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy
) -> DelReport:
    """Run DEL with each configuration in order, until one succeeds; raise the error of the first."""
    if claim.asks_others():
        await claim.node.on_disk(claim.node.others.read)
    return await _try_chains(_chains(claim, net, rt.with_netns(claim.prepare_del()), policy), claim, policy)


def _chains(claim: Claim, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy) -> list[Chain]:
    """Return the chains that DEL tries, one for each configuration, in order."""
    node, record = claim.node, claim.record
    chains: list[Chain] = []
    for tried in configurations(record, net, rt, node.configured, use_given=policy.use_given):
        conf = tried.rt
        # The mistake may be the path itself: plugins refuse a file that is not a namespace. It has no interface.
        if tried.is_correction and conf.netns and node.sight.is_no_namespace(conf.netns):
            conf = conf.with_netns("")
        try:
            executables = node.find_all(tried.net, skip_missing=policy.skip_missing)
        except PluginNotFoundError as error:
            if tried.is_correction:
                continue
            text = "install the plugin, or skip it ({argument}): then the resources that it created remain"
            error.suggest(Hint(text, argument="skip_missing"))
            raise
        chain = Chain(node, tried.net, conf, executables, record is not None and record.is_own_netns)
        if all(_calls(chain) != _calls(earlier) for earlier in chains):
            chains.append(chain)
    return chains


def _calls(chain: Chain) -> list[Invocation]:
    return [chain.invocation("DEL", index) for index in range(len(chain.executables))]


async def _try_chains(chains: list[Chain], claim: Claim, policy: DelPolicy) -> DelReport:
    """Run DEL of each chain in order, until one succeeds; raise the error of the first."""
    is_repeated = claim.record is not None and not claim.record.changes_state("detach")
    _begin_del(chains[0], claim)
    record = claim.record
    errors: list[CNIError] = []
    # After a reboot a plugin may fail at each DEL: its resources are gone. It must not stop the others.
    policy = replace(policy, keep_going=policy.keep_going or (record is not None and record.is_of_earlier_boot))
    for index, tried in enumerate(chains):
        try:
            report = await _run_chain(tried, claim, policy, sharers=len(chains) - index)
            return await _asked_report(claim, report) if is_repeated or errors else report
        except (PluginError, CNIErrorGroup) as error:
            errors.append(error)
    first, *others = errors
    for other in others:
        if str(other) != str(first):
            first.add_note(f"with the current configuration or arguments: {other}")
    if record is not None:
        first.suggest(Hint.about(record, _NO_DEL, "forget", argument="use_given"))
    raise first


def _begin_del(chain: Chain, claim: Claim) -> None:
    """Record that a DEL begins. Its first plugin starts meanwhile."""
    node, record, last = chain.node, claim.record, len(chain.executables) - 1
    if record is None or not record.changes_state("detach"):
        return
    if record.state == READY and node.starts_ahead and chain.executables[last]:
        node.start_ahead(chain.invocation("DEL", last, ahead=True))
    # After one plugin's DEL the attachment is incomplete, even if it was ready.
    claim.record = node.records.mark_detaching(record)


async def _asked_report(claim: Claim, report: DelReport) -> DelReport:
    """Return the report of a repeated DEL without leftovers that the DEL before has removed with the interface."""
    if claim.record is None or not report.left:
        return report
    return replace(report, left=await claim.node.on_disk(partial(still_there, claim.node, claim.record, report.left)))


async def _run_chain(chain: Chain, claim: Claim, policy: DelPolicy, *, sharers: int) -> DelReport:
    """Run DEL through the chain; raise the errors of its plugins, but not those that a reboot explains."""
    report, record = await _detach_chain(chain, claim, policy, sharers=sharers), claim.record
    errors = report.errors
    if record is not None and record.is_of_earlier_boot:
        for error in errors:
            logger.warning("%s: DEL goes on, because the attachment is of an earlier boot: %s", record.path, error)
        # Of all resources only the reservations of IPAM plugins survive a reboot: they are on disk.
        keeping = {plugin.type for plugin in chain.net.plugins if plugin.ipam_type}
        errors = [plugin.error for plugin in report.plugins if plugin.error and plugin.plugin in keeping]
    problem = f"DEL of network {chain.net.name}: {{}} of {len(report.plugins)} plugins failed"
    CNIErrorGroup.raise_any(problem, errors, report)
    return report


async def _detach_chain(chain: Chain, claim: Claim, policy: DelPolicy, *, sharers: int = 1) -> DelReport:
    """Run DEL through the chain in reverse order; raises at the first error unless ``policy.keep_going``.

    Args:
        chain: the plugins.
        claim: verified before each plugin, because the namespace or the interface can be replaced while a plugin runs.
        policy: see DelPolicy.
        sharers: how many tries share the remaining time, this try included.
    """
    results = PrevResult.of(claim, chain.net)
    reports: list[PluginReport] = []
    left: list[Leftover] = []
    look: Look | None = None
    if results.asks_others():
        look = await chain.node.on_disk(chain.node.others.read)  # in a thread of an asyncio client
    for index in reversed(range(len(chain.net.plugins))):
        plugin = chain.net.plugins[index].type
        if not chain.executables[index]:
            logger.warning('DEL of network %s: plugin "%s" is missing and was skipped', chain.net.name, plugin)
            reports.append(PluginReport(plugin, "skipped"))
            continue
        try:
            # Another attachment can get an address while a plugin runs, so a look is good for one plugin.
            text, look = results.text(look), None
            if chain.rt is not None and chain.rt.netns:  # once it was empty, it stays empty
                chain = chain.with_netns(claim.prepare_del())
            left += left_behind(chain, index, claim)
            invocation = chain.invocation("DEL", index, text)
            then = index - 1 if index and chain.executables[index - 1] else None
            # With keep_going a plugin that hangs must not use up the time of those after it.
            parts = sharers * (index + 1 if policy.keep_going else 1)
            await chain.call(invocation, sharers=parts, then=then)
            reports.append(PluginReport(plugin, "done"))
        except (PluginError, PluginNotFoundError) as error:
            if not policy.keep_going:
                raise
            reports.append(PluginReport(plugin, "failed", error))
    return DelReport(tuple(reports), netns=(chain.rt.netns or "") if chain.rt else "", left=tuple(left))


def is_repeatable(error: CNIError) -> bool:
    """Return whether a second DEL may succeed: a plugin has answered. A plugin that hung would probably hang again."""
    if isinstance(error, CNIErrorGroup):  # with DelPolicy(keep_going=True)
        return all(isinstance(member, CNIError) and is_repeatable(member) for member in error.exceptions)
    return isinstance(error, PluginError) and not isinstance(error, PluginTimeoutError)


async def detach_chain_twice(chain: Chain, claim: Claim) -> DelReport:
    """Run DEL through the whole chain, and a second time if plugins fail, as ``detach_each`` does.

    For a DEL that nobody repeats later: in a roll-back, and in a reload. If its masquerade chain was flushed, bridge
    removes everything and then fails.
    """
    policy = DelPolicy(keep_going=True)
    report = await _detach_chain(chain, claim, policy)
    if report.errors and all(map(is_repeatable, report.errors)) and not chain.node.is_interrupted:
        if claim.path and chain.node.sight.is_no_namespace(claim.path):
            # Plugins refuse a file that is no namespace. A later DEL gives them none either.
            claim = replace(claim, path="")
        report = await _detach_chain(chain, claim, policy)
    return report


def _remove_record(node: Node, record: Record) -> None:
    """Remove the record of a detached attachment, or move an unreadable record to the directory ``corrupt``.

    If that fails, only log a warning: the DEL has succeeded.
    """
    try:
        if not isinstance(record, Unreadable):
            node.records.forget(record)
        elif record.path:
            logger.warning("%s: the record was moved to %s", record.path, node.records.set_aside(record))
    except RecordError as error:
        logger.warning("the container is detached, but its record cannot be removed: %s", error)
