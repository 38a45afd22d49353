"""Tear down a container from its records, the latest attachment first. Go on after errors."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, RecordError
from libcni.manager.container import PlannedAttachment
from libcni.manager.context import OperationContext
from libcni.manager.events import Event
from libcni.manager.namespace_records import ContainerNamespaces
from libcni.manager.networks import NetworkSet
from libcni.manager.recorded import in_order, may_belong_to, unreadable_error
from libcni.manager.reports import DetachedAttachment, TearDownReport
from libcni.store.attachments import Attachment
from libcni.verbs.reports import DelPolicy, DelReport

__all__ = ["TearDown"]

logger: logging.Logger = logging.getLogger("libcni")


@dataclass(frozen=True, slots=True)
class _Target:
    """One attachment to detach: by its network's configuration, or by its record alone."""

    network: str
    ifname: str
    net: NetworkConfigList | None = None
    rt: RuntimeConf | None = None
    attachment: Attachment | None = None


@dataclass(frozen=True, slots=True)
class TearDown:
    """The tear-down of one container.

    Attributes:
        context: runs the verbs.
        container_id: the container.
        networks: the networks in force, for incomplete records.
        policy: the policy for DEL.
        namespaces: removes the namespace that a set-up made, or None.
        unrecorded: attachments to detach even without a record.
        unknown: (network name, error) of requested networks that have no configuration.
        ifnames: the interfaces to detach; None: all, and the namespace with them.
    """

    context: OperationContext[Any]
    container_id: str
    networks: NetworkSet
    policy: DelPolicy
    namespaces: ContainerNamespaces | None = None
    unrecorded: Sequence[PlannedAttachment] = ()
    unknown: Sequence[tuple[str, CNIError]] = ()
    ifnames: Collection[str] | None = None

    async def run(self) -> TearDownReport:
        """Detach everything; raise all errors as one CNIErrorGroup that holds the report."""
        try:
            await self.context.lock_container(self.container_id)
        except RecordError as error:
            # A full or read-only disk must not stop a tear-down.
            logger.warning("container %s: the tear-down goes on without its lock: %s", self.container_id, error)
        attachments = await self.context.attachments(self.container_id)
        targets, unreadable = self._targets(attachments)
        report = TearDownReport(self.container_id, unreadable=tuple(unreadable))
        errors: list[CNIError] = [
            unreadable_error(one) for one in unreadable if may_belong_to(one.path, self.container_id)
        ]
        recorded = {one.network for one in attachments}
        errors += [error for network, error in self.unknown if network not in recorded]
        report = replace(report, errors=tuple(errors))
        for target in targets:
            report = await self._detach(report, target)
        # The namespace goes last: plugins need it for their DEL, also when a failed DEL is repeated.
        if self.namespaces is not None and self.ifnames is None and not report.errors:
            report = await self._remove_namespace(report, self.namespaces)
        CNIErrorGroup.raise_any(f"tear-down of container {self.container_id}: {{}} failed", report.errors, report)
        return report

    def _targets(self, attachments: list[Attachment]) -> tuple[list[_Target], list[Attachment]]:
        """Return the attachments to detach in order, and the records that do not name their attachment."""
        targets: list[_Target] = []
        unreadable: list[Attachment] = []
        seen: set[tuple[str, str]] = set()
        for attachment in reversed(in_order(attachments)):
            key = (attachment.network, attachment.ifname) if attachment.network else self._guess(attachment)
            if key is None:
                unreadable.append(attachment)
            elif key not in seen and self._is_wanted(key[1]):
                seen.add(key)
                targets.append(self._recorded(attachment, *key))
        # Go through them as well: an ADD of another program, or one whose record was lost, may have left resources.
        missing = [one for one in self.unrecorded if (one.net.name, one.rt.ifname) not in seen]
        extra = [
            _Target(one.net.name, one.rt.ifname, one.net, one.rt)
            for one in reversed(missing)
            if self._is_wanted(one.rt.ifname)
        ]
        return [*extra, *targets], unreadable

    def _is_wanted(self, ifname: str) -> bool:
        return self.ifnames is None or ifname in self.ifnames

    def _recorded(self, attachment: Attachment, network: str, ifname: str) -> _Target:
        """Return the target of a record. The network in force is used if the record is incomplete."""
        net = self.networks.find(network)
        rt = RuntimeConf(self.container_id, None, ifname)
        return _Target(network, ifname, net, rt, attachment)

    def _guess(self, attachment: Attachment) -> tuple[str, str] | None:
        """Return (network, interface name) from the file name of a torn record; None if that is ambiguous.

        The network must be in force: DEL needs a configuration.
        """
        network, found, ifname = os.path.basename(attachment.path).partition(f"-{self.container_id}-")
        # A "-" in the rest makes other splits possible, and a "~" begins a hash. A wrong guess would detach a live
        # interface.
        certain = found and ifname and not {"-", "~"} & set(ifname)
        return (network, ifname) if certain and self.networks.find(network) is not None else None

    async def _detach(self, report: TearDownReport, target: _Target) -> TearDownReport:
        network, ifname = target.network, target.ifname
        try:
            done = await self._delete(target)
        except CNIError as error:
            error.add_note(f"when {ifname} was detached from network {network}")
            self.context.emit(Event("problem", network, self.container_id, ifname, str(error), error))
            return replace(report, errors=(*report.errors, error))
        self.context.emit(Event("attachment-removed", network, self.container_id, ifname))
        return replace(report, detached=(*report.detached, DetachedAttachment(network, ifname, done)))

    async def _delete(self, target: _Target) -> DelReport:
        if target.net is not None and target.rt is not None:
            return await self.context.delete(target.net, target.rt, self.policy, self.context.timeout)
        if target.attachment is None:
            raise AssertionError("a target has a configuration or a record")
        return await self.context.delete_recorded(target.attachment, self.policy)

    async def _remove_namespace(self, report: TearDownReport, namespaces: ContainerNamespaces) -> TearDownReport:
        """Remove the namespace that a set-up made. It stays if anything is attached."""
        try:
            removed = await self.context.in_thread(lambda: namespaces.remove_if_unused(self.container_id))
        except CNIError as error:
            return replace(report, errors=(*report.errors, error))
        return replace(report, netns_removed=removed)
