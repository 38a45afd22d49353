"""GC of all networks: detach dead attachments, send the live ones to the plugins, remove unused namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from libcni.config.identifiers import check_container_id
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, CNIErrorGroup
from libcni.manager.container import Container
from libcni.manager.context import OperationContext
from libcni.manager.events import Event, problem_event
from libcni.manager.namespace_records import ContainerNamespaces
from libcni.manager.networks import NetworkSet, missing_plugin
from libcni.manager.recorded import in_order
from libcni.manager.reports import Item, Outcome, Report
from libcni.store.attachments import Attachment, recorded_network
from libcni.verbs.gc import valid_pairs
from libcni.verbs.reports import DelPolicy, DelReport, GCReport, ValidAttachment

_AT_ONCE = 64
"""How many containers GC holds locked at once. Each takes a descriptor."""

LiveItem = Container | str | ValidAttachment
"""A container, its ID, an attachment, or a (container ID, interface name) pair."""
Live = Iterable[LiveItem] | Callable[[], Any]
"""The live containers and attachments, or a function that returns them."""


class LiveSet:
    """The live containers and the single live attachments."""

    def __init__(self, containers: Iterable[str], pairs: Iterable[tuple[str, str]]) -> None:
        self.containers: frozenset[str] = frozenset(containers)
        self.pairs: tuple[tuple[str, str], ...] = tuple(pairs)
        self._pairs = frozenset(self.pairs)
        self._owners = self.containers | {container_id for container_id, _ in self.pairs}

    def is_live(self, container_id: str) -> bool:
        """Return whether a container or any attachment of it is live."""
        return container_id in self._owners

    def keeps(self, attachment: Attachment) -> bool:
        """Return whether an attachment is live, or one of a live container."""
        pair = (attachment.container_id, attachment.ifname)
        return attachment.container_id in self.containers or pair in self._pairs

    def possible_pairs(self, attachments: Sequence[Attachment]) -> list[tuple[str, str]]:
        """Return every pair that a live attachment may have.

        An extra pair does no harm. A missing pair lets a plugin free the address of a live container. So the pairs of a
        live container on any network are valid on every network. The client adds the pairs that the file names of torn
        records may mean.
        """
        recorded = [(one.container_id, one.ifname) for one in attachments if one.container_id in self.containers]
        return list(dict.fromkeys([*self.pairs, *recorded]))


Plan = Callable[[Container], Iterable[tuple[str, str]]]
"""Returns the (container ID, interface name) pairs that a set-up of a container would make."""


def read_live_once(live: Any) -> tuple[Any, ...]:
    """Return the elements of ``live``.

    Raises TypeError if ``live`` is None or a string, or an iterator without elements.
    """
    # A mistake here detaches every container. None may come from a failed query, a string is iterable, and an iterator
    # that was read before is empty.
    if live is None or isinstance(live, str | bytes) or not isinstance(live, Iterable):
        raise TypeError(
            "live must be containers, container IDs, attachments or (container ID, interface name) pairs; [] for none"
        )
    given = tuple(live)
    if not given and isinstance(live, Iterator):
        raise TypeError("live is an iterator without elements, which may have been read before; give [] for none")
    return given


def read_live(given: Sequence[Any], plan: Plan) -> LiveSet:
    """Sort live containers and attachments.

    Raises TypeError for an object of another type, and InvalidIdentifierError if a name breaks the specification's
    rules.
    """
    pairs = valid_pairs([one for one in given if not isinstance(one, str | Container)])
    ids = [check_container_id(one) for one in given if isinstance(one, str)]
    if ids:
        # An ID does not name the networks. If it has no record yet, it may get the default ones.
        # One plan serves all IDs, because the default networks are the same: a node may have thousands.
        ifnames = [ifname for _, ifname in plan(Container(ids[0]))]
        pairs += [(one, ifname) for one in ids for ifname in ifnames]
    for one in given:
        if isinstance(one, Container):
            ids.append(check_container_id(one.id))
            pairs += plan(one)
    return LiveSet(ids, dict.fromkeys(pairs))


@dataclass(frozen=True, slots=True)
class GC:
    """One GC of all networks.

    Attributes:
        live: the live containers and attachments, read once, or a function that returns them.
        plan: returns the pairs that a set-up of a container makes.
        policy: the policy for DEL.
        namespaces: removes the namespaces that set-ups made, or None.
        dry_run: run nothing, only report.
        failed: the pairs of the attachments that could not be detached so far.
    """

    context: OperationContext
    networks: NetworkSet
    live: Live
    plan: Plan
    policy: DelPolicy
    namespaces: ContainerNamespaces | None
    dry_run: bool
    failed: list[tuple[str, str]] = field(default_factory=list)

    async def run(self) -> Report:
        """Run GC of every network; raise all errors as one CNIErrorGroup that holds the summary."""
        if not callable(self.live):
            await self._live()  # raises TypeError before anything runs
        attachments = await self.context.attachments()
        networks = _every_network(self.networks, attachments, self.context.cni.find_plugin)
        items, errors = ([], []) if self.dry_run else await self._detach_stale(attachments, networks)
        for name, net in networks.items():
            cleaned, failed = await self._network(name, net)
            items += self._items(cleaned)
            errors += failed
        removed, failed = await self._namespaces()
        # Every network lists the unreadable records of all of them.
        report = Report(tuple(dict.fromkeys([*items, *removed])), (*errors, *failed))
        CNIErrorGroup.raise_any("GC: {} failed", report.errors, report)
        return report

    async def _detach_stale(
        self, attachments: Sequence[Attachment], networks: dict[str, NetworkConfigList | str]
    ) -> tuple[list[Item], list[CNIError]]:
        """Detach stale attachments side by side, while set-ups of other containers on their networks go on.

        The GC of each network detaches the rest: attachments of containers that another operation works on, and those
        of Go's records, which need the configuration in force.
        """
        live = await self._live()
        stale: dict[str, list[Attachment]] = {}
        for one in reversed(in_order(attachments)):
            net = networks.get(one.network)
            is_swept = isinstance(net, NetworkConfigList) and not net.disable_gc and one.owner == self.context.cni.owner
            if is_swept and one.record.version and not live.keeps(one):
                stale.setdefault(one.container_id, []).append(one)
        items: list[Item] = []
        errors: list[CNIError] = []
        container_ids = list(stale)
        for start in range(0, len(container_ids), _AT_ONCE):
            try:
                # A set-up holds its container. Ask under the locks: one may have ended since the records were read.
                held = [one for one in container_ids[start : start + _AT_ONCE] if self.context.try_lock_container(one)]
                live = await self._live()
                chosen = [one for container_id in held for one in stale[container_id] if not live.keeps(one)]
                for one, outcome in zip(chosen, await self._delete(chosen), strict=True):
                    identity = (one.network, one.container_id, one.ifname)
                    if isinstance(outcome, CNIError):
                        outcome.add_note(f"when the stale attachment {one.container_id} {one.ifname} was detached")
                        self.context.emit(problem_event(outcome, *identity))
                        errors.append(outcome)
                        items.append(Item("failed", *identity, error=outcome))
                        self.failed.append((one.container_id, one.ifname))
                    else:
                        self.context.emit(Event("attachment-removed", *identity, "garbage"))
                        items.append(Item("detached", *identity))
            except CNIError as error:  # the locks cannot be used, for example on a read-only disk
                return items, [*errors, error]
            finally:
                self.context.release_locks()
        return items, errors

    async def _delete(self, attachments: Sequence[Attachment]) -> Sequence[DelReport | CNIError]:
        context = self.context
        delete = partial(context.cni.del_attachments, policy=self.policy, timeout=context.timeout)
        try:
            reports: Sequence[DelReport | CNIError] = await context.call(lambda: delete(attachments))
        except CNIErrorGroup as group:
            return cast("Sequence[DelReport | CNIError]", group.report)
        return reports

    def _items(self, report: GCReport) -> list[Item]:
        detached = {one.path for one in report.detached}
        missed: Outcome = "stale" if self.dry_run else "failed"
        return [
            *(Item("unreadable", path=one.path) for one in report.corrupt),
            *(
                Item("detached" if one.path in detached else missed, one.network, one.container_id, one.ifname)
                for one in report.stale
            ),
        ]

    async def _live(self) -> LiveSet:
        live = await self.context.call(self.live) if callable(self.live) else self.live
        # With thousands of containers this takes long enough to block an event loop.
        return await self.context.node.on_disk(lambda: read_live(read_live_once(live), self.plan))

    async def _network(self, name: str, net: NetworkConfigList | str) -> tuple[GCReport, list[CNIError]]:
        """Run GC of one network while no set-up uses it. Set-ups on other networks go on."""
        context = self.context
        report = GCReport()
        errors: list[CNIError] = []
        try:
            await context.lock_network_for_gc(name)
            # Ask only now, under the lock: before, the caller might not have known a container that was being set up.
            live = await self._live()
            attachments = await context.attachments()
            # What could not be detached still exists, so the plugins must not free its address.
            valid = [*await context.node.on_disk(lambda: live.possible_pairs(attachments)), *self.failed]
            report = await context.call(
                lambda: context.cni.gc_network_list(
                    net, valid, dry_run=self.dry_run, policy=self.policy, timeout=context.timeout
                )
            )
        except CNIErrorGroup as group:
            report = group.report if isinstance(group.report, GCReport) else report
            errors = [one for one in group.exceptions if isinstance(one, CNIError)]
        except CNIError as error:
            errors = [error]
        finally:
            # Set-ups on this network go on while GC of the next network runs or hangs.
            context.release_locks()
        for one in report.detached:
            context.emit(Event("attachment-removed", name, one.container_id, one.ifname, "garbage"))
        for problem in errors:
            context.emit(problem_event(problem, name))
        return report, errors

    async def _namespaces(self) -> tuple[list[Item], list[CNIError]]:
        """Remove the namespaces of containers that are not live."""
        namespaces = self.namespaces
        if namespaces is None:
            return [], []
        removed: list[Item] = []
        outcome: Outcome = "namespace-stale" if self.dry_run else "namespace-removed"
        errors: list[CNIError] = []
        try:
            recorded = await self.context.node.on_disk(namespaces.recorded)
        except CNIError as error:
            return [], [error]
        if not recorded:
            return [], []
        live = await self._live()
        for container_id in [one for one in recorded if not live.is_live(one)]:
            try:
                await self.context.lock_container(container_id)
                # Ask again under the lock: a set-up of this container may have ended meanwhile.
                live = await self._live()
                if live.is_live(container_id):
                    continue
                remove = namespaces.path if self.dry_run else namespaces.remove_if_unused
                if path := await self.context.node.on_disk(partial(remove, container_id)):
                    removed.append(Item(outcome, container_id=container_id, path=path))
            except CNIError as error:
                self.context.emit(problem_event(error, container_id=container_id))
                errors.append(error)
            finally:
                self.context.release_locks()
        return removed, errors


def _every_network(
    networks: NetworkSet, attachments: Sequence[Attachment], find: Callable[[str], str]
) -> dict[str, NetworkConfigList | str]:
    """Return the networks in force and the networks that only records name, by name.

    Leave out networks that no record names and whose plugins are missing: GC would fail for them in each round.
    """
    used = {one.network for one in attachments}
    found: dict[str, NetworkConfigList | str] = {
        net.name: net for net in networks.all if net.name in used or missing_plugin(net, find) is None
    }
    for one in attachments:
        if one.network and one.network not in found:
            found[one.network] = recorded_network(one.record) or one.network
    return found
