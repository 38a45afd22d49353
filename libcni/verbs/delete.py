"""DEL: from the record where there is one, in reverse order, and only then is the record forgotten."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList
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
)
from libcni.protocol.invocation import Outcome
from libcni.store.attachments import network_to_use, prev_result_for_del, recorded_conf
from libcni.store.locks import LockRequest
from libcni.store.record import CORRUPT, LEGACY, PENDING, STALE_BOOT, Record
from libcni.verbs.chain import Chain, RetryPolicy
from libcni.verbs.steps import AwaitOrphan, Find, Flow, Forget, Lock, Lookup, NamespaceOf, SetAside

__all__ = [
    "DelPolicy",
    "DelReport",
    "PluginReport",
    "del_flow",
    "detach_chain",
    "detach_record",
    "errors_in",
    "is_same_namespace",
    "lock_if_possible",
]

logger: logging.Logger = logging.getLogger("libcni")


RecordState = Literal["found", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class DelPolicy:
    """How far DEL departs from the specification's rule to stop at the first error. All are off by default.

    Attributes:
        use_given: use the caller's configuration, arguments and capabilities instead of the recorded ones.
        keep_going: go on after a plugin that failed. The record stays; the errors come as one CNIErrorGroup.
        skip_missing: pass over a plugin whose executable is missing.
        empty_gone_netns: send an empty CNI_NETNS where nothing is at the namespace's path any more.
        retry: how often to try a plugin again that answers "try again later"; None: not at all.
    """

    use_given: bool = False
    keep_going: bool = False
    skip_missing: bool = False
    empty_gone_netns: bool = False
    retry: RetryPolicy | None = None


@dataclass(frozen=True, slots=True)
class PluginReport:
    """What happened to one plugin of a chain.

    Attributes:
        plugin: its type.
        state: ``done``, ``failed`` (see ``error``) or ``skipped`` (its executable is missing).
        error: why it failed, or None.
        seconds: how long it ran.
    """

    plugin: str
    state: Literal["done", "failed", "skipped"]
    error: CNIError | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DelReport:
    """What a DEL did.

    Attributes:
        plugins: one report for each plugin, in the order of the calls.
        record: ``found``, ``missing`` or ``unreadable``: whether a record said what to detach.
        netns: the CNI_NETNS that was sent.
    """

    plugins: tuple[PluginReport, ...]
    record: RecordState = "found"
    netns: str = ""


def errors_in(reports: Sequence[PluginReport]) -> list[CNIError]:
    """Return the errors of the plugins that failed."""
    return [report.error for report in reports if report.error is not None]


def del_flow(
    network: str,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    path: Sequence[str],
    policy: DelPolicy | None = None,
) -> Flow[DelReport]:
    """Detach a container from a network (spec 1.1.0, section 3, Deleting an attachment).

    Args:
        network: the network's name.
        net: its configuration, or None where its file has gone: then there must be a record.
        rt: the attachment; what is None in it is taken as recorded.
        path: CNI_PATH.
        policy: see DelPolicy.
    """
    check_network_name(network)
    rt.check()
    yield from lock_if_possible(LockRequest((network,), rt.container_id))
    record, corrupt, seen = yield from _look_up((network, rt.container_id, rt.ifname))
    if record is None and net is None:
        raise NetworkNotFoundError(
            f'there is neither a configuration nor a record of network "{network}" for this attachment', network=network
        )
    report = yield from _detach(record, net, rt, path, policy or DelPolicy())
    if corrupt is not None:
        yield from _set_aside(corrupt)
    return replace(report, record=seen)


def lock_if_possible(request: LockRequest) -> Flow[None]:
    """Take locks, or say that it cannot be done and go on: a full or read-only disk stops ADD, and never a DEL."""
    try:
        yield Lock(request)
    except RecordError as error:
        logger.warning("%s: going on without locks: %s", request.what, error)


def detach_record(record: Record, path: Sequence[str], policy: DelPolicy | None = None) -> Flow[DelReport]:
    """Detach what a record says, with its own configuration. The locks are the caller's matter."""
    rt = RuntimeConf(record.container_id, None, record.ifname)
    return (yield from _detach(record, None, rt, path, policy or DelPolicy()))


def is_same_namespace(record: Record) -> Flow[bool]:
    """Return whether the recorded path still leads to the namespace that ADD was given, as far as can be known."""
    if record.state == STALE_BOOT:
        return False
    if record.netns_id is None:
        return True
    now: tuple[int, int] | None = yield NamespaceOf(record.netns)
    return now == record.netns_id


def _recorded_netns(record: Record) -> Flow[str]:
    """Return the recorded path, or "" where it leads nowhere or, worse, into another container by now."""
    return record.netns if (yield from is_same_namespace(record)) else ""


def _look_up(identity: tuple[str, str, str]) -> Flow[tuple[Record | None, Record | None, RecordState]]:
    """Return the usable record, the corrupt one in its place, and what was seen. Neither ever stops a DEL."""
    try:
        record: Record | None = yield Lookup(identity)
    except RecordError as error:
        logger.warning("DEL goes on without a record: %s", error)
        return None, None, "unreadable"
    if record is not None and record.state == CORRUPT:
        logger.warning("DEL goes on without a record: %s: %s", record.path, record.problem)
        return None, record, "unreadable"
    return record, None, "found" if record is not None else "missing"


def _set_aside(record: Record) -> Flow[None]:
    """Move a corrupt record out of the way, now that what it stood for is detached."""
    try:
        aside = yield SetAside(record)
        logger.warning("%s: it was moved to %s", record.path, aside)
    except RecordError as error:
        logger.warning("the attachment is detached, and its record stays: %s", error)


def _detach(
    record: Record | None, net: NetworkConfigList | None, rt: RuntimeConf, path: Sequence[str], policy: DelPolicy
) -> Flow[DelReport]:
    used = network_to_use(record, net, use_given=policy.use_given)
    if record is not None and record.state == PENDING:
        yield AwaitOrphan()
    if record is not None and rt.netns is None:
        rt = rt.with_netns((yield from _recorded_netns(record)))
    if record is not None and record.state != LEGACY:
        rt = recorded_conf(record, rt, use_given=policy.use_given)
    if policy.empty_gone_netns and rt.netns and (yield NamespaceOf(rt.netns)) is None:
        rt = rt.with_netns("")
    prev_result = None
    if record is not None and _takes_result(used.cni_version):
        prev_result = prev_result_for_del(record, used.cni_version)
    executables = yield Find(tuple(plugin.type for plugin in used.plugins), missing_allowed=policy.skip_missing)
    reports = yield from detach_chain(Chain(used, rt, executables, path, policy.retry), prev_result, policy)
    _raise_errors(used.name, errors_in(reports))
    if record is not None:
        yield from _forget(record)
    return DelReport(tuple(reports), netns=rt.netns or "")


def _takes_result(version: str) -> bool:
    """Return whether DEL has prevResult in a version, also in one that nobody knows, which Go may have recorded."""
    try:
        return supports(version, "prevResult on DEL")
    except VersionError:
        return False


def detach_chain(chain: Chain, prev_result: str | None, policy: DelPolicy) -> Flow[list[PluginReport]]:
    """Run DEL through the chain in reverse order; raises at the first error unless ``policy.keep_going``."""
    reports = []
    for index in reversed(range(len(chain.net.plugins))):
        plugin = chain.net.plugins[index].type
        if not chain.executables[index]:
            logger.warning('DEL of network %s: plugin "%s" is missing and was passed over', chain.net.name, plugin)
            reports.append(PluginReport(plugin, "skipped"))
            continue
        try:
            outcome: Outcome = yield from chain.call(chain.invocation("DEL", index, prev_result))
            reports.append(PluginReport(plugin, "done", seconds=outcome.seconds))
        except (PluginError, PluginNotFoundError) as error:
            if not policy.keep_going:
                raise
            seconds = error.seconds if isinstance(error, PluginError) else 0.0
            reports.append(PluginReport(plugin, "failed", error, seconds))
    return reports


def _raise_errors(network: str, errors: list[CNIError]) -> None:
    if errors:
        raise CNIErrorGroup(f"DEL of network {network}: {len(errors)} plugins failed", errors)


def _forget(record: Record) -> Flow[None]:
    """Remove the record of what is detached. Where the disk refuses that, it is only said: the DEL itself is done."""
    try:
        yield Forget(record)
    except RecordError as error:
        logger.warning("the attachment is detached, and its record stays: %s", error)
