"""Tear down a container from its records, the latest attachment first. Go on after errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from libcni._dataclass import dataclass
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup
from libcni.manager.report import Item, Report
from libcni.options import DelPolicy
from libcni.store.attachments import Attachment, in_order, may_belong_to, unnamed_error
from libcni.store.model import Record
from libcni.verbs.client_base import operation as operation_of
from libcni.verbs.del_report import DelReport
from libcni.verbs.delete import delete
from libcni.verbs.each_container import detach_each

if TYPE_CHECKING:
    from libcni.manager.container import Container, PlannedAttachment
    from libcni.manager.namespaces import ContainerNamespaces
    from libcni.manager.networks import NetworkSet
    from libcni.manager.operation import ManagerOperation


class _Target(NamedTuple):
    """One attachment to detach, and its configuration or its record."""

    rt: RuntimeConf
    network: str
    net: NetworkConfigList | None
    listed: Record | None


@dataclass(frozen=True, slots=True)
class TearDown:
    """The tear-down of one container.

    Attributes:
        networks: the networks in force, for incomplete records.
        namespaces: removes the namespace that a set-up made, or None.
        container: the container, or None if only its ID is known.
        plan: returns a container's attachments by the present configuration, and the errors of networks that are
            neither configured nor recorded.
    """

    operation: ManagerOperation
    container_id: str
    networks: NetworkSet
    policy: DelPolicy
    namespaces: ContainerNamespaces | None
    container: Container | None
    plan: Callable[[Container, Collection[tuple[str, str]]], tuple[Sequence[PlannedAttachment], list[CNIError]]]

    async def run(self) -> Report:
        """Detach everything; raise all errors as one CNIErrorGroup that holds the report."""
        operation = self.operation
        await operation.lock_if_possible(self.container_id)
        await operation.run.take_turn()
        attachments = await operation.attachments(self.container_id)
        planned, errors = await operation.run.on_disk(lambda: self._planned(attachments))
        targets, unreadable = self._targets(attachments, planned)
        errors += [
            unnamed_error(attachment) for attachment in unreadable if may_belong_to(attachment.path, self.container_id)
        ]
        items = [Item("unreadable", path=attachment.path) for attachment in unreadable]
        if not attachments and not planned:
            items.append(Item("not-recorded", container_id=self.container_id))
        outcomes = await detach_each(targets, self._detach)
        for target, outcome in zip(targets, outcomes, strict=True):
            identity = (target.network, self.container_id, target.rt.ifname)
            if isinstance(outcome, CNIError):
                outcome.add_note(f"when {target.rt.ifname} was detached from network {target.network}")
                errors.append(outcome)
                items.append(Item("failed", *identity, error=outcome))
            else:
                items.append(Item("detached", *identity))
        namespaces = self.namespaces
        # Remove the namespace last: DEL needs it, and so does the repetition of a failed DEL.
        if namespaces is not None:
            try:
                if path := await operation.run.on_disk(lambda: namespaces.remove_if_unused(self.container_id)):
                    items.append(Item("namespace-removed", container_id=self.container_id, path=path))
            except CNIError as error:
                errors.append(error)
        report = Report(tuple(items))
        CNIErrorGroup.raise_any(f"tear-down of container {self.container_id}: {{}} failed", errors, report)
        return report

    def _given_netns(self) -> str | None:
        return os.fspath(self.container.netns) if self.container and self.container.netns is not None else None

    def _planned(self, attachments: list[Attachment]) -> tuple[Sequence[PlannedAttachment], list[CNIError]]:
        recorded = {(attachment.network, attachment.ifname) for attachment in attachments if attachment.network}
        return ((), []) if self.container is None else self.plan(self.container, recorded)

    def _targets(
        self, attachments: list[Attachment], planned: Sequence[PlannedAttachment]
    ) -> tuple[list[_Target], list[Attachment]]:
        """Return the attachments to detach, in order, and the records whose attachment is unknown."""
        targets: dict[tuple[str, str], _Target] = {}
        unreadable: list[Attachment] = []
        for attachment in reversed(in_order(attachments)):
            key = (attachment.network, attachment.ifname) if attachment.network else self._guess(attachment)
            if key is None:
                unreadable.append(attachment)
                continue
            netns = None if attachment.network else _netns(attachments)
            if attachment.network and not attachment.netns and attachment.made_by_go:
                netns = self._given_netns()  # Go libcni 1.1 records no namespace
            rt = RuntimeConf(self.container_id, netns, key[1])
            # The network in force completes records of Go, which lack the drop-in plugins.
            net = self.networks.find(key[0])
            targets.setdefault(key, _Target(rt, key[0], net, attachment.record if net is None else None))
        # What is not recorded: the record is lost, or another library attached it. The latest network first.
        for attachment_to_be in reversed(planned):
            net, rt = attachment_to_be.net, attachment_to_be.rt
            targets.setdefault((net.name, rt.ifname), _Target(rt, net.name, net, None))
        return list(targets.values()), unreadable

    async def _detach(self, target: _Target) -> DelReport:
        run = self.operation.part(operation_of("DEL", target.network, target.rt), self.operation.timeout)
        return await run.complete(delete, target.network, target.net, target.rt, self.policy, listed=target.listed)

    def _guess(self, attachment: Attachment) -> tuple[str, str] | None:
        """Return (network, interface name) from the file name of a torn record; None if that is ambiguous.

        The network must be in force: DEL needs a configuration.
        """
        network, separator, ifname = os.path.basename(attachment.path).partition(f"-{self.container_id}-")
        # A "-" in the interface name makes other splits possible, and "~" begins a hash. A wrong guess would detach a
        # live interface.
        certain = separator and ifname and not {"-", "~"} & set(ifname)
        return (network, ifname) if certain and self.networks.find(network) is not None else None


def _netns(attachments: list[Attachment]) -> str | None:
    """Return the namespace for a torn record: the only namespace of the container's other records, else None."""
    from libcni.kernel.life import Life  # few tear-downs meet a torn record
    from libcni.store.life_of_record import life_of

    life = Life()
    answers = [
        (attachment.record, life_of(attachment.record, life)) for attachment in attachments if attachment.network
    ]
    paths = {"" if answer.is_dead else answer.path or record.netns for record, answer in answers}
    return paths.pop() if len(paths) == 1 else None
