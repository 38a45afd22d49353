"""GC: detach the recorded attachments that are not valid, then give the plugins the list of those that are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from libcni.config.identifiers import check_container_id, check_ifname, check_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import CNIError, CNIErrorGroup, NetworkNotFoundError
from libcni.protocol.request import valid_attachments
from libcni.store.attachments import Attachment, attachment_of, recorded_network
from libcni.store.record import CORRUPT, DETACHING, PENDING, Record
from libcni.verbs.chain import Chain, run
from libcni.verbs.delete import detach
from libcni.verbs.node import Node
from libcni.verbs.reports import DelPolicy, GCReport, ValidAttachment
from libcni.verbs.version import negotiate

__all__ = ["gc", "valid_pairs"]

_LOCK_SECONDS = 10.0
"""Seconds to wait for the lock of one container: GC goes on with the others."""

Pair = tuple[str, str]


async def gc(  # noqa: PLR0913 - the options of the verb
    node: Node,
    network: str,
    net: NetworkConfigList | None,
    valid: Iterable[ValidAttachment],
    *,
    dry_run: bool = False,
    negotiate_version: bool = False,
) -> GCReport:
    """Clean up a network (spec 1.1.0, section 2, GC). Goes on past errors.

    Only attachments of this client's owner are detached, with the configuration that their ADD used, at any spec
    version. The plugins are called from 1.1.0 on.

    Args:
        node: runs the plugins.
        network: the network's name.
        net: its configuration, or None if its file has gone: then the records say which plugins there are.
        valid: the attachments that stay.
        dry_run: run nothing, only report.
        negotiate_version: use the highest version that all plugins support.

    Raises:
        CNIErrorGroup: the errors; its ``report`` is the GCReport.
    """
    check_network_name(network)
    pairs = valid_pairs(valid)
    if net is not None and net.disable_gc:
        return GCReport(disabled=True)
    await node.lock([network], exclusive=True)
    every = node.records.records()
    records = [record for record in every if record.network == network and record.state != CORRUPT]
    corrupt = [record for record in every if record.state == CORRUPT]
    used = net or next(filter(None, map(recorded_network, reversed(records))), None)
    if used is None:
        raise NetworkNotFoundError(
            f'there is neither a configuration nor a record of network "{network}"', network=network
        )
    stale = [
        record
        for record in records
        if record.owner == node.settings.owner and (record.container_id, record.ifname) not in set(pairs)
    ]
    report = GCReport(stale=_attachments(stale), corrupt=_attachments(corrupt))
    if dry_run:
        return report
    errors: list[CNIError] = []
    detached = await _detach_all(node, stale, net, errors)
    node.sweep_drafts()
    told: list[str] = []
    try:
        if negotiate_version:
            used = await negotiate(node, used)
        if supports(used.cni_version, "GC"):
            living = [record for record in records if record not in detached]
            await _wait_for_adds(node, living)
            told = await _call_plugins(node, used, _valid_list(pairs, living, corrupt, network), errors)
    except CNIError as error:
        errors.append(error)
    report = replace(report, detached=_attachments(detached), plugins=tuple(told), errors=tuple(errors))
    if errors:
        group = CNIErrorGroup(f"GC: {len(errors)} errors", errors)
        group.report = report
        raise group
    return report


def valid_pairs(valid: Any) -> list[Pair]:
    """Return (container ID, interface name) of each; raises TypeError for None, InvalidIdentifierError for a bad one.

    None could only mean that everything is to be deleted. The first two characters of a container ID are a pair, too:
    of a container that does not exist. So neither is accepted.
    """
    pairs = None if valid is None or isinstance(valid, str | bytes) else [_pair(one) for one in valid]
    if pairs is None or None in pairs:
        raise TypeError("valid must be attachments or (container ID, interface name) pairs; [] if none is valid")
    return [(check_container_id(pair[0]), check_ifname(pair[1])) for pair in pairs if pair]


def _pair(one: Any) -> Pair | None:
    if isinstance(one, Attachment):
        return one.container_id, one.ifname
    return (one[0], one[1]) if isinstance(one, tuple | list) and len(one) == 2 else None  # noqa: PLR2004 - a pair


def _attachments(records: Iterable[Record]) -> tuple[Attachment, ...]:
    return tuple(attachment_of(record) for record in records)


async def _detach_all(
    node: Node, stale: list[Record], net: NetworkConfigList | None, errors: list[CNIError]
) -> list[Record]:
    """Detach attachments past errors; return those that are detached."""
    detached = []
    for record in stale:
        try:
            await node.lock_container(record.container_id, _LOCK_SECONDS)
            await detach(node, record, net, RuntimeConf(record.container_id, None, record.ifname), DelPolicy())
            detached.append(record)
        except CNIError as error:
            error.add_note(f"when the stale attachment {record.container_id} {record.ifname} was detached")
            errors.append(error)
    return detached


async def _wait_for_adds(node: Node, living: list[Record]) -> None:
    """Wait for plugins of killed runtimes: an ADD that still runs must not allocate beside the plugins' GC."""
    for container_id in sorted({one.container_id for one in living if one.state in {PENDING, DETACHING}}):
        await node.lock_container(container_id, _LOCK_SECONDS)


def _valid_list(pairs: list[Pair], living: list[Record], corrupt: list[Record], network: str) -> list[Pair]:
    """Return the pairs for the plugins. A plugin frees everything of a pair that is missing here.

    So the list never omits a living attachment: it has the caller's pairs, those of all records of the network,
    whoever owns them, and every pair that the file name of an unreadable record may stand for.
    """

    def all_pairs() -> Iterator[Pair]:
        yield from pairs
        yield from ((record.container_id, record.ifname) for record in living)
        for record in corrupt:
            yield from ()  # TODO

    return list(dict.fromkeys(all_pairs()))


async def _call_plugins(node: Node, net: NetworkConfigList, valid: list[Pair], errors: list[CNIError]) -> list[str]:
    """Run GC of each plugin past errors; return the types of those that succeeded."""
    text = valid_attachments(valid)
    told = []
    for index, plugin in enumerate(net.plugins):
        try:
            chain = Chain(node, net, None, ("",) * index + (node.find(plugin.type),))
            await run(node, chain.invocation("GC", index, valid=text))
            told.append(plugin.type)
        except CNIError as error:
            errors.append(error)
    return told
