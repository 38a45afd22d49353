"""GC of all networks: detach dead attachments, send the live ones to the plugins, remove unused namespaces."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import libcni.kernel.system as system
from libcni._dataclass import dataclass, field
from libcni.config.identifiers import validate_container_id
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, CNIErrorGroup
from libcni.manager.container import Container
from libcni.manager.namespaces import ContainerNamespaces
from libcni.manager.networks import NetworkSet
from libcni.manager.operation import ManagerOperation
from libcni.manager.report import Item, ItemOutcome, Report
from libcni.observe.observer import Operation
from libcni.options import DelPolicy, ValidAttachment
from libcni.store.attachments import Attachment
from libcni.verbs.client_base import run_of
from libcni.verbs.gc import GCReport, gc, valid_pairs
from libcni.verbs.verb_run import VerbRun

Live = Iterable["str | Container | ValidAttachment"] | Callable[[], Any]
"""The live containers, or their IDs, and live attachments or their pairs (container ID, interface name); or a function
that returns them."""


class LiveSet:
    """The live containers and attachments.

    ``possible_names`` returns the interface names that a live container or ID may have if no record names them.

    Raises TypeError for an object of another type, and InvalidIdentifierError if a name breaks the specification's
    rules.
    """

    def __init__(self, entries: Sequence[Any], possible_names: Callable[[str | Container], list[str]]) -> None:
        containers = [entry for entry in entries if isinstance(entry, str | Container)]
        ids = [validate_container_id(live if isinstance(live, str) else live.id) for live in containers]
        self._ids = frozenset(ids)
        self._assumed = [
            (id_, name) for id_, live in zip(ids, containers, strict=True) for name in possible_names(live)
        ]
        self._pairs = valid_pairs([entry for entry in entries if not isinstance(entry, str | Container)])
        self._owners = self._ids | {container_id for container_id, _ in self._pairs}

    def is_live(self, container_id: str) -> bool:
        """Return whether a container or any attachment of it is live."""
        return container_id in self._owners

    def possible_pairs(self, attachments: Sequence[Attachment]) -> list[tuple[str, str]]:
        """Return every (container ID, interface name) pair that may belong to a live attachment.

        An extra pair does no harm. A missing pair lets a plugin free the address of a live container. So the pairs of a
        live container on any network are valid on every network. The client adds the pairs that the file names of
        unreadable records may mean.
        """
        recorded = [
            (attachment.container_id, attachment.ifname)
            for attachment in attachments
            if attachment.container_id in self._ids
        ]
        return list(dict.fromkeys([*self._pairs, *recorded, *self._assumed]))


def read_live_once(live: Any) -> tuple[Any, ...]:
    """Return the elements of ``live``, which may be an iterator, as a tuple.

    Raises TypeError if ``live`` is None or a string, or an iterator without elements.
    """
    # A mistake here detaches every container. None may come from a failed query, a string is iterable, and an iterator
    # that was read before is empty.
    if live is None or isinstance(live, str | bytes) or not isinstance(live, Iterable):
        raise TypeError("live must be container IDs, attachments or (container ID, interface name) pairs; [] for none")
    entries = tuple(live)
    if not entries and isinstance(live, Iterator):
        raise TypeError("live is an iterator without elements, which may have been read before; give [] for none")
    return entries


@dataclass(slots=True)
class GC:
    """One GC of all networks.

    Attributes:
        live: the live containers and attachments, read once, or a function that returns them.
        possible_names: see LiveSet.
        policy: the policy for DEL.
        namespaces: removes the namespaces that set-ups made, or None.
        dry_run: run nothing, only report.
        include_go: also detach records of Go libcni.
        items, errors: the outcomes so far.
    """

    operation: ManagerOperation
    networks: NetworkSet
    live: Live | LiveSet
    possible_names: Callable[[str | Container], list[str]]
    policy: DelPolicy
    namespaces: ContainerNamespaces | None
    dry_run: bool
    include_go: bool
    items: list[Item] = field(default_factory=list)
    errors: list[CNIError] = field(default_factory=list)

    async def run(self) -> Report:
        """Run GC of every network; raise all errors as one CNIErrorGroup that holds the report."""
        if not callable(self.live):
            self.live = await self._live()  # raises TypeError before anything runs
        attachments = await self.operation.attachments()
        networks = _every_network(self.networks, attachments, self.operation.run)
        for name, net in reversed(networks.items()):  # a container's later networks first, as in a tear-down
            await self._network(name, net)
        await self._namespaces()
        # The GC of each network reports all unreadable records, so remove the repetitions.
        report = Report(tuple(dict.fromkeys(self.items)))
        CNIErrorGroup.raise_any("GC: {} failed", self.errors, report)
        return report

    def _add_items(self, report: GCReport) -> None:
        items = self.items
        items += [Item("unreadable", path=item.path) for item in report.corrupt]
        items += [Item("made-by-go", *_identity(item)) for item in report.made_by_go]
        items += [Item("stale", *_identity(item)) for item in report.stale if self.dry_run]
        items += [Item("detached", *_identity(item)) for item in report.detached]
        items += [Item("failed", *_identity(item), error=error) for item, error in report.failed]

    async def _live(self) -> LiveSet:
        if isinstance(self.live, LiveSet):
            return self.live
        live: Any = self.live() if callable(self.live) else self.live
        if inspect.isawaitable(live):  # AsyncNetworkManager also takes a coroutine function
            live = await live
        entries = read_live_once(live)
        # With thousands of containers this would block an event loop.
        return await self.operation.run.on_disk(lambda: LiveSet(entries, self.possible_names))

    async def _network(self, name: str, net: NetworkConfigList | None) -> None:
        """Run GC of one network."""
        operation = self.operation
        try:
            # Call ``live`` while no set-up uses the network: the caller may not know a container that is being set up.
            await operation.lock_network_for_gc(name)
            live = await self._live()
            attachments = await operation.attachments()
            valid = await operation.run.on_disk(lambda: live.possible_pairs(attachments))
            # Set-ups go on while GC runs. GC leaves alone all attachments that begin from here on.
            before = system.uptime()
            operation.release_locks()
            options: dict[str, Any] = {"dry_run": self.dry_run, "include_go": self.include_go, "before": before}
            run = run_of(operation.cni, Operation("GC", name), operation.timeout)
            self._add_items(await run.complete(gc, name, net, valid, self.policy, **options))
        except CNIErrorGroup as group:
            if isinstance(group.report, GCReport):
                self._add_items(group.report)
            self.errors += [error for error in group.exceptions if isinstance(error, CNIError)]
        except CNIError as error:
            self.errors.append(error)
        finally:
            operation.release_locks()

    async def _namespaces(self) -> None:
        """Remove the namespaces of containers that are not live."""
        namespaces = self.namespaces
        if namespaces is None:
            return
        outcome: ItemOutcome = "namespace-stale" if self.dry_run else "namespace-removed"
        try:
            recorded = await self.operation.run.on_disk(namespaces.recorded)
            live = await self._live() if recorded else LiveSet([], self.possible_names)
        except CNIError as error:
            self.errors.append(error)
            return
        for container_id in [container_id for container_id in recorded if not live.is_live(container_id)]:
            try:
                await self.operation.lock_container(container_id)
                # Call ``live`` again under the lock: a set-up of this container may have ended meanwhile.
                live = await self._live()
                if live.is_live(container_id):
                    continue
                remove = namespaces.path if self.dry_run else namespaces.remove_if_unused
                if path := await self.operation.run.on_disk(partial(remove, container_id)):
                    self.items.append(Item(outcome, container_id=container_id, path=path))
            except CNIError as error:
                self.errors.append(error)
            finally:
                self.operation.release_locks()


def _identity(attachment: Attachment) -> tuple[str, str, str]:
    return attachment.network, attachment.container_id, attachment.ifname


def _every_network(
    networks: NetworkSet, attachments: Sequence[Attachment], run: VerbRun
) -> dict[str, NetworkConfigList | None]:
    """Return the networks in force, and None for each network that is only in records.

    Leave out networks that no record names and whose plugins are missing: GC would fail for them in each round.
    """
    used = {attachment.network for attachment in attachments}
    known: dict[str, NetworkConfigList | None] = {
        net.name: net for net in networks.all if net.name in used or all(run.find_all(net, skip_missing=True))
    }
    return known | dict.fromkeys(sorted(name for name in used if name and name not in known))
