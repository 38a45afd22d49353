"""GC: detach the recorded attachments that are not valid, then send the plugins the list of the valid attachments."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from libcni._dataclass import dataclass, field, replace
from libcni.config.identifiers import validate_container_id, validate_interface_name, validate_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import (
    CNIError,
    CNIErrorGroup,
    Hint,
    LockTimeoutError,
    PluginNotFoundError,
    RecordError,
)
from libcni.observe.observer import Operation
from libcni.options import DelPolicy, ValidAttachment, check_type
from libcni.protocol.request import valid_attachments
from libcni.store.attachments import Attachment, attachments_of, recorded_network
from libcni.store.model import UNFINISHED, Record, Unreadable
from libcni.store.other_records import OtherRecords
from libcni.verbs.chain import Chain
from libcni.verbs.configurations import network_for_gc
from libcni.verbs.delete import detach, is_unchanged
from libcni.verbs.each_container import detach_each, each_container
from libcni.verbs.verb_run import VerbRun

__all__ = ["GCReport"]

logger: logging.Logger = logging.getLogger("libcni")

_LOCK_SECONDS = 10.0
"""Seconds to wait for the lock of one container before GC goes on with the other containers."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class GCReport:
    """The outcome of a GC, or of a dry run.

    Attributes:
        stale: the attachments that were not valid.
        detached: the stale attachments that were detached; () on a dry run.
        failed: the stale attachments that could not be detached, each with its error, which is also in ``errors``.
        corrupt: records that cannot be read; each is an error. GC leaves them alone, and does not call the plugins.
        made_by_go: records of Go libcni that are not valid; GC leaves them alone without ``include_go``.
        plugins: the types of the plugins that ran GC.
        disabled: whether the configuration sets ``disableGC``; then GC did nothing.
        errors: the errors, in the order in which they happened.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.gc_network_list(net, valid=[])
        >>> [attachment.container_id for attachment in report.detached], report.errors
        (['c1'], ())
    """

    stale: tuple[Attachment, ...] = ()
    detached: tuple[Attachment, ...] = ()
    corrupt: tuple[Attachment, ...] = ()
    made_by_go: tuple[Attachment, ...] = ()
    plugins: tuple[str, ...] = ()
    disabled: bool = False
    errors: tuple[CNIError, ...] = ()
    failed: tuple[tuple[Attachment, CNIError], ...] = ()


async def gc(  # noqa: PLR0913 - the options of the verb
    run: VerbRun,
    network: str,
    net: NetworkConfigList | None,
    valid: Iterable[ValidAttachment],
    policy: DelPolicy | None = None,
    *,
    dry_run: bool = False,
    include_go: bool = False,
    before: float = math.inf,
) -> GCReport:
    """Detach a network's stale attachments, and run its plugins' GC (spec 1.1.0, section 2). Go on after errors.

    GC detaches only attachments of this client's owner, with the configuration of their ADD, at any spec version. It
    calls the plugins only if the network's version is 1.1.0 or later and each of the network's records can be read.

    Args:
        run: runs the plugins.
        network: the network's name.
        net: its configuration, or None if its file no longer exists: then a recorded configuration is used.
        valid: the attachments to keep.
        policy: the policy of the DELs; see ``libcni.options.GCOptions``.
        dry_run: run nothing, only report.
        include_go: also detach attachments that Go libcni recorded. They have no owner, and may belong to running
            containers of podman or containerd. Only for a client without an owner.
        before: keep attachments whose ADD began later; in seconds since the boot, like Record.uptime.

    Raises:
        CNIErrorGroup: the errors; its ``report`` is the GCReport.
    """
    validate_network_name(network)
    policy = policy or DelPolicy()
    check_type("policy", policy, DelPolicy)
    policy = replace(policy, use_given=False)
    pairs = valid_pairs(valid)
    net = run.configured(network) if net is None else net
    if net is not None and net.disable_gc:
        return GCReport(disabled=True)
    # A shared lock: ADDs may run while stale attachments are detached. Only the plugins' own GC needs it exclusively.
    await run.lock([network])
    listing = await run.on_disk(lambda: _sort(run, network, set(pairs), include_go=include_go, before=before))
    used = network_for_gc(network, net, listing.network)
    # The listing examines the interfaces of many attachments, and must not block an event loop.
    report = await run.on_disk(partial(_report, run, listing))
    if dry_run:
        return report
    # Hold neither a lock nor a turn while the DELs run, which acquire their own.
    run.release()
    report = _with_outcomes(report, await _detach_all(run, network, listing, net, policy))
    if not (report.errors and run.seconds_left() == 0):
        if supports(used.cni_version, "GC"):
            called, errors = await _call_plugins(run, used, pairs, policy)
            report = replace(report, plugins=called, errors=(*report.errors, *errors))
        else:
            report = replace(report, errors=(*report.errors, *_unreadable_errors(listing.corrupt)))
    CNIErrorGroup.raise_any(f"GC of network {network}: {{}} failed", report.errors, report)
    return report


def _report(run: VerbRun, listing: _Listing) -> GCReport:
    return GCReport(
        stale=tuple(attachments_of(listing.stale, run.records)),
        corrupt=tuple(attachments_of(listing.corrupt, run.records)),
        made_by_go=tuple(attachments_of(listing.made_by_go, run.records)),
    )


def _with_outcomes(report: GCReport, outcomes: Sequence[bool | CNIError]) -> GCReport:
    """Return the report with the outcome of each stale attachment."""
    ended = list(zip(report.stale, outcomes, strict=True))
    failed = tuple((attachment, outcome) for attachment, outcome in ended if isinstance(outcome, CNIError))
    detached = tuple(attachment for attachment, outcome in ended if outcome is True)
    errors = tuple(dict.fromkeys(error for _, error in failed))
    return replace(report, detached=detached, failed=failed, errors=errors)


@dataclass(slots=True)
class _Listing:
    """The records of a network, sorted.

    Attributes:
        stale: the records to detach.
        corrupt: the unreadable records that may belong to the network.
        made_by_go: the records of Go libcni that are not valid, and are kept.
        recorded: the recorded pairs that the caller did not give as valid.
        unfinished: the containers with an ADD or DEL that has not completed.
        network: a recorded configuration, or None.
    """

    stale: list[Record] = field(default_factory=list)
    corrupt: list[Record] = field(default_factory=list)
    made_by_go: list[Record] = field(default_factory=list)
    recorded: list[Pair] = field(default_factory=list)
    unfinished: set[str] = field(default_factory=set)
    network: NetworkConfigList | None = None

    def add(self, record: Record, valid: set[Pair]) -> None:
        """Add the facts of one record of the network. ``valid``: the pairs that the caller calls valid."""
        pair = (record.container_id, record.ifname)
        if pair not in valid:
            self.recorded.append(pair)
        if record.state in UNFINISHED:
            self.unfinished.add(record.container_id)
        self.network = self.network or recorded_network(record)


def _sort(run: VerbRun, network: str, valid: set[Pair], *, include_go: bool, before: float = math.inf) -> _Listing:
    listing = _Listing()
    for record in run.records.iter_records():
        if run.seconds_left() == 0:
            path = run.records.results
            raise RecordError(f"{path}: the deadline passed while its records were read", path=path)
        if isinstance(record, Unreadable):
            if _may_be_of(record, network):
                listing.corrupt.append(record)
        elif record.network == network:
            listing.add(record, valid)
            if _is_swept(run, record, valid, before):
                is_kept = record.lacks_drop_ins and not include_go
                (listing.made_by_go if is_kept else listing.stale).append(record)
    # A file system lists its files in any order. Sort, so that DELs and reports have the same order on every node.
    for records in (listing.stale, listing.corrupt, listing.made_by_go):
        records.sort(key=lambda record: record.path)
    return listing


def _is_swept(run: VerbRun, record: Record, valid: set[Pair], before: float) -> bool:
    """Return whether a record is not valid, of the client's owner, and its ADD began early enough."""
    if (record.container_id, record.ifname) in valid or record.owner != run.settings.owner:
        return False
    return record.is_of_earlier_boot or record.uptime is None or record.uptime < before


def _may_be_of(record: Record, network: str) -> bool:
    """Return whether an unreadable record may belong to a network. A file name that is only a hash fits any network."""
    name = record.path.rpartition("/")[2]
    return name.startswith((f"{network}-", "~"))


def _unreadable_errors(corrupt: Iterable[Record]) -> tuple[CNIError, ...]:
    """Return an error for each unreadable record: its container may run, and plugins would free its address."""
    text = "if its container has ended, move the record aside, to the folder corrupt"
    return tuple(
        RecordError(
            f"{record.path}: {record.problem or 'it names no attachment'}; the plugins' own GC was not called",
            path=record.path,
            hint=Hint(text, "repair", options=("--yes",)),
        )
        for record in corrupt
    )


def valid_pairs(valid: Any) -> list[Pair]:
    """Return the (container ID, interface name) of each element of ``valid``.

    Raises:
        TypeError: ``valid`` is None, a string, or an iterator without elements, or has an element that is neither an
            attachment nor a pair.
        InvalidIdentifierError: a name breaks the specification's rules.
    """
    # A mistake here deletes live attachments. None may come from a failed look-up, a string can be unpacked into pairs
    # of characters, and an iterator that was read before is empty.
    pairs = None if valid is None or isinstance(valid, str | bytes) else [_pair(item) for item in valid]
    if pairs is None or None in pairs:
        raise TypeError("valid must be attachments or (container ID, interface name) pairs; [] if none is valid")
    if not pairs and isinstance(valid, Iterator):
        raise TypeError("valid is an iterator without elements, which may have been read before; [] if none is valid")
    return [(validate_container_id(pair[0]), validate_interface_name(pair[1])) for pair in pairs if pair]


def _pair(value: Any) -> Pair | None:
    if isinstance(value, Attachment):
        return value.container_id, value.ifname
    return (value[0], value[1]) if isinstance(value, tuple | list) and len(value) == 2 else None  # noqa: PLR2004 - a pair


class _NotReachedError(CNIError):
    """The deadline passed before GC reached this attachment."""


async def _detach_all(
    run: VerbRun, network: str, listing: _Listing, net: NetworkConfigList | None, policy: DelPolicy
) -> list[bool | CNIError]:
    """Detach the stale attachments side by side, and go on after errors.

    Return for each whether it was detached, or its error. False: an ADD has ended since, so its container is in use.
    """

    async def detach_one(record: Record) -> bool:
        # With no time left a DEL would only mark the record as detaching.
        if run.seconds_left() == 0:
            raise _NotReachedError("no time was left")
        operation = Operation("DEL", record.network, record.container_id, record.ifname)
        with run.part(operation) as part:
            try:
                await part.take_turn()
                await part.lock([record.network], record.container_id, seconds=_LOCK_SECONDS)
                current = part.records.find(record.identity)
                if current is not None and not is_unchanged(current, record):
                    return False  # an ADD has ended since the listing, so its container is in use
                if current is not None:
                    await detach(part, current, net, RuntimeConf(record.container_id, None, record.ifname), policy)
                return True
            finally:
                await part.discard_prepared()

    if listing.stale:
        # Each DEL compares its interface and addresses with those of all records. Read the records once, here. Not for
        # this run: its own next question comes after the DELs.
        await run.on_disk(OtherRecords(run.records).read)

    async def detach_container(records: Sequence[Record]) -> list[bool | CNIError]:
        return await detach_each(records, detach_one)

    outcomes = await each_container(listing.stale, detach_container, run.side_by_side)
    missed = sum(isinstance(outcome, _NotReachedError) for outcome in outcomes)
    problem = f"GC of network {network}: the timeout passed before {missed} stale attachments were detached"
    late = LockTimeoutError(f"{problem}; repeat the GC, or give it more time")
    for record, outcome in zip(listing.stale, outcomes, strict=True):
        if isinstance(outcome, CNIError):
            container = f"container {record.container_id}, interface {record.ifname}"
            outcome.add_note(f"while detaching the stale attachment of {container}")
    return [late if isinstance(outcome, _NotReachedError) else outcome for outcome in outcomes]


async def _call_plugins(
    run: VerbRun, net: NetworkConfigList, pairs: list[Pair], policy: DelPolicy
) -> tuple[tuple[str, ...], tuple[CNIError, ...]]:
    """Run GC of each plugin and go on after its error; return the types of those that succeeded, and the errors."""
    called, errors = [], []
    try:
        await run.take_turn()
        for index, plugin in enumerate(net.plugins):
            error = await _call_plugin(run, net, index, pairs)
            if error is None:
                called.append(plugin.type)
            elif policy.skip_missing and isinstance(error, PluginNotFoundError):
                logger.warning('GC of network %s: plugin "%s" is missing and was skipped', net.name, plugin.type)
            else:
                errors.append(error)
    except CNIError as error:  # without the lock, or with an unreadable record, no further plugin may be called
        errors.append(error)
    return tuple(called), tuple(errors)


async def _call_plugin(run: VerbRun, net: NetworkConfigList, index: int, pairs: list[Pair]) -> CNIError | None:
    """Run GC of one plugin and return its error; raises CNIError if the list of the valid attachments is incomplete."""
    # An exclusive lock: no ADD that is missing in the list may run while a plugin uses the list. Acquire it anew
    # for each plugin, so that an ADD waits for one plugin at most, and is in the list of the next plugin.
    await run.lock([net.name], exclusive=True)
    listing = await run.on_disk(lambda: _sort(run, net.name, set(pairs), include_go=False))
    for error in _unreadable_errors(listing.corrupt):
        raise error
    for container_id in sorted(listing.unfinished):
        # A plugin of a killed runtime may still run. Its ADD must not allocate while the plugins' GC runs.
        await run.lock_container(container_id, _LOCK_SECONDS)
    # Include stale attachments that are still on record: they could not be detached, so their addresses are in use.
    text = valid_attachments(list(dict.fromkeys([*pairs, *listing.recorded])))
    try:
        chain = Chain(run, net, None, ("",) * index + (run.find(net.plugins[index].type),))
        await run.execute(chain.invocation("GC", index, valid=text))
    except CNIError as error:
        return error
    return None
