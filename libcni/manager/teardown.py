"""Tear-down of a container from the records: the last attached first, on over errors."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libcni.config.identifiers import check_container_id
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError
from libcni.manager.container import Attach
from libcni.manager.events import Event
from libcni.manager.namespaces import Namespaces
from libcni.manager.networks import NetworkSet
from libcni.manager.reports import Detached, TearDown, raise_errors
from libcni.manager.steps import Call, Plan, Turn, Work
from libcni.store.attachments import Attachment
from libcni.verbs.reports import DelPolicy

__all__ = ["TearDownOf", "by_age", "in_order"]


@dataclass(frozen=True, slots=True)
class TearDownOf:
    """The tear-down of one container, ready to run.

    Attributes:
        container_id: the container.
        networks: the set in force, for records that lack what a DEL needs.
        policy: how DEL is done.
        namespaces: removes the namespace that a set-up made, or None.
        unrecorded: attachments that are detached although there is no record of them.
        ifnames: the interfaces to detach; None: all, and the namespace with them.
        timeout: seconds to wait for the container's turn, and for each DEL; None: the client's.
    """

    container_id: str
    networks: NetworkSet
    policy: DelPolicy
    namespaces: Namespaces | None = None
    unrecorded: Sequence[Attach] = ()
    ifnames: Collection[str] | None = None
    timeout: float | None = None

    def plan(self) -> Plan[TearDown]:
        """Detach all; raise what went wrong as one CNIErrorGroup at the end, with the report in it."""
        yield Turn(check_container_id(self.container_id), self.timeout)
        attachments: list[Attachment] = yield Call("get_cached_attachments", (self.container_id,))
        targets, unreadable = self._targets(attachments)
        report = TearDown(self.container_id, unreadable=tuple(unreadable))
        for call in targets:
            report = yield from self._detach(report, call)
        if self.namespaces is not None and self.ifnames is None:
            report = yield from self._remove_namespace(report)
        raise_errors(f"tear-down of container {self.container_id}", report, report.errors)
        return report

    def _targets(self, attachments: list[Attachment]) -> tuple[list[Call], list[Attachment]]:
        """Return the calls that detach, in order, and the records that do not say enough for one."""
        calls: list[Call] = []
        unreadable: list[Attachment] = []
        seen: set[tuple[str, str]] = set()
        for attachment in reversed(in_order(attachments)):
            identity = (attachment.network, attachment.ifname) if attachment.network else self._guess(attachment)
            if identity is None:
                unreadable.append(attachment)
            elif identity not in seen and self._is_wanted(identity[1]):
                seen.add(identity)
                calls.append(self._call(attachment, *identity))
        missing = [one for one in self.unrecorded if (one.net.name, one.rt.ifname) not in seen]
        extra = [self._del(one.net, one.rt) for one in reversed(missing) if self._is_wanted(one.rt.ifname)]
        return [*extra, *calls], unreadable

    def _is_wanted(self, ifname: str) -> bool:
        return self.ifnames is None or ifname in self.ifnames

    def _call(self, attachment: Attachment, network: str, ifname: str) -> Call:
        """Return the DEL of a record. What the record has is used; the set in force helps where that is not enough."""
        rt = RuntimeConf(self.container_id, None, ifname)
        net = self.networks.find(network)
        if net is None:
            return Call("del_attachment", (attachment,), self._options())
        return self._del(net, rt)

    def _del(self, net: Any, rt: RuntimeConf) -> Call:
        return Call("del_network_list", (net, rt), self._options())

    def _options(self) -> dict[str, Any]:
        return {"policy": self.policy} if self.timeout is None else {"policy": self.policy, "timeout": self.timeout}

    def _guess(self, attachment: Attachment) -> tuple[str, str] | None:
        """Return (network, interface name) from the name of a file that does not say; None if that is not certain.

        The network has to be in force: without a configuration there is nothing to detach with.
        """
        network, found, ifname = os.path.basename(attachment.path).partition(f"-{self.container_id}-")
        certain = found and ifname and not {"-", "~"} & set(ifname)
        return (network, ifname) if certain and self.networks.find(network) is not None else None

    def _detach(self, report: TearDown, call: Call) -> Plan[TearDown]:
        network, ifname = _named(call)
        try:
            done = yield call
        except CNIError as error:
            error.add_note(f"when {ifname} was detached from network {network}")
            yield Event("problem", network, self.container_id, ifname, str(error), error)
            return replace(report, errors=(*report.errors, error))
        yield Event("attachment-removed", network, self.container_id, ifname)
        return replace(report, detached=(*report.detached, Detached(network, ifname, done)))

    def _remove_namespace(self, report: TearDown) -> Plan[TearDown]:
        """Remove the namespace; where something is still attached it stays, for the next try."""
        namespaces = self.namespaces
        if namespaces is None or report.errors:
            return report
        try:
            removed = yield Work(lambda: namespaces.remove(self.container_id))
        except CNIError as error:
            return replace(report, errors=(*report.errors, error))
        return replace(report, netns_removed=namespaces.path(self.container_id) if removed else "")


def _named(call: Call) -> tuple[str, str]:
    first = call.args[0]
    if isinstance(first, Attachment):
        return first.network, first.ifname
    return (first if isinstance(first, str) else first.name), call.args[1].ifname


def in_order(attachments: list[Attachment]) -> list[Attachment]:
    """Return attachments in the order in which they were made."""
    return sorted(attachments, key=by_age)


def by_age(attachment: Attachment) -> float:
    """Return when an attachment was made: as recorded, or the time of its file (records of Go), or 0."""
    created = attachment.record.created
    if created is not None:
        return created
    try:
        return os.stat(attachment.path).st_mtime
    except OSError:
        return 0.0
