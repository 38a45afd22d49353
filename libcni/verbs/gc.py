"""GC: detach what is recorded and no longer valid, then tell the plugins what still is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libcni.config.identifiers import check_container_id, check_ifname, check_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.versions import supports
from libcni.errors import CNIError, CNIErrorGroup
from libcni.protocol.request import valid_attachments
from libcni.store.attachments import Attachment, attachment_of
from libcni.store.locks import LockRequest
from libcni.store.record import CORRUPT, Record
from libcni.verbs.chain import Chain, run
from libcni.verbs.delete import detach_record
from libcni.verbs.steps import AllRecords, Find, Flow, Lock, Sweep

__all__ = ["GCReport", "ValidAttachment", "gc_flow"]

ValidAttachment = Attachment | tuple[str, str]
"""An attachment, or its (container ID, interface name)."""

_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class GCReport:
    """What a GC did, or would do.

    Attributes:
        stale: the attachments that were not valid.
        detached: those of them that were detached; () on a dry run.
        corrupt: records that cannot be read; GC leaves them alone.
        plugins: the types of the plugins that were told.
        disabled: whether the configuration says ``disableGC``: then nothing was done.
        errors: what went wrong.
    """

    stale: tuple[Attachment, ...] = ()
    detached: tuple[Attachment, ...] = ()
    corrupt: tuple[Attachment, ...] = ()
    plugins: tuple[str, ...] = ()
    disabled: bool = False
    errors: tuple[CNIError, ...] = ()


def gc_flow(
    net: NetworkConfigList, valid: Iterable[ValidAttachment], path: Sequence[str], *, dry_run: bool = False
) -> Flow[GCReport]:
    """Clean up a network (spec 1.1.0, section 2, GC). Goes on over errors; they are in the report.

    Attachments that are not in ``valid`` are detached with the configuration that their ADD used, at any spec
    version; the plugins are told from 1.1.0 on.
    """
    check_network_name(net.name)
    pairs = valid_pairs(valid)
    if net.disable_gc:
        return GCReport(disabled=True)
    yield Lock(LockRequest((net.name,), exclusive=True))
    records: list[Record] = yield AllRecords()
    kept = set(pairs)
    stale = [record for record in records if _is_stale(record, net.name, kept)]
    report = GCReport(
        stale=tuple(attachment_of(record) for record in stale),
        corrupt=tuple(attachment_of(record) for record in records if record.state == CORRUPT),
    )
    if dry_run:
        return report
    report = yield from _detach_all(report, stale, path)
    yield Sweep()
    return (yield from _tell_plugins(report, net, pairs, path)) if supports(net.cni_version, "GC") else report


def valid_pairs(valid: Any) -> list[tuple[str, str]]:
    """Return (container ID, interface name) of each; raises TypeError for None, InvalidIdentifierError for a bad one.

    None is refused because it could only mean that everything is to be deleted, and so are container IDs alone: the
    first two characters of each are a pair, too, of a container that does not exist.
    """
    pairs = None if valid is None or isinstance(valid, str | bytes) else [_pair(one) for one in valid]
    if pairs is None or None in pairs:
        raise TypeError("valid must be attachments or (container ID, interface name) pairs; [] if none is valid")
    return [(check_container_id(pair[0]), check_ifname(pair[1])) for pair in pairs if pair]


def _pair(one: Any) -> tuple[str, str] | None:
    if isinstance(one, Attachment):
        return one.container_id, one.ifname
    return (one[0], one[1]) if isinstance(one, tuple | list) and len(one) == 2 else None  # noqa: PLR2004 - a pair


def _is_stale(record: Record, network: str, valid: set[tuple[str, str]]) -> bool:
    return record.network == network and (record.container_id, record.ifname) not in valid


def _detach_all(report: GCReport, stale: list[Record], path: Sequence[str]) -> Flow[GCReport]:
    detached: list[Attachment] = []
    errors: list[CNIError] = []
    for record in stale:
        try:
            yield Lock(LockRequest((), record.container_id), beside=True, patience=_PATIENCE)
            yield from detach_record(record, path)
            detached.append(attachment_of(record))
        except CNIError as error:
            error.add_note(f"when the stale attachment {record.container_id} {record.ifname} was detached")
            errors.append(error)
    return replace(report, detached=tuple(detached), errors=tuple(errors))


def _tell_plugins(
    report: GCReport, net: NetworkConfigList, valid: list[tuple[str, str]], path: Sequence[str]
) -> Flow[GCReport]:
    told: list[str] = []
    errors = list(report.errors)
    text = valid_attachments(valid)
    for index, plugin in enumerate(net.plugins):
        try:
            (executable,) = yield Find((plugin.type,))
            chain = Chain(net, None, ("",) * index + (executable,), path)
            yield from run(chain.invocation("GC", index, valid=text))
            told.append(plugin.type)
        except CNIError as error:
            errors.append(error)
    return replace(report, plugins=tuple(told), errors=tuple(errors))


def raise_errors(report: GCReport) -> None:
    """Raise the errors of a report as one group, if there are any; the group has the report."""
    if report.errors:
        group = CNIErrorGroup(f"GC: {len(report.errors)} errors", report.errors)
        group.report = report
        raise group
