"""Repair a node: diagnose, plan, mend, check that living containers lose nothing, and diagnose again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

from libcni.client import CNIConfig
from libcni.diagnosis.acts import ACTS, locked, locks_for
from libcni.diagnosis.doctor import report_on
from libcni.diagnosis.mends import FOR_THE_DEAD, GROUPED, ORDER, Mend, merged
from libcni.diagnosis.node_state import PENDING_AFTER, Identity, NodeState, addresses_in, grouped, id_of, read_node
from libcni.diagnosis.report import DoctorReport, NodeCheck, NodeFinding, some
from libcni.diagnosis.rules import facts_of
from libcni.errors import CNIError, CNIErrorGroup
from libcni.kernel.namespace import namespace_identity
from libcni.kernel.netlink import Network
from libcni.options import DelPolicy
from libcni.store.attachments import Attachment
from libcni.store.locks import LockRequest
from libcni.store.model import ENDED
from libcni.store.records import RecordStore

__all__ = ["MendOutcome", "NodeRepair", "repair_node"]

_LOOKS = 8
"""How often a repair of very many attachments examines the node while it carries out mends of one kind."""
_AT_ONCE, _AT_MOST = 25, 250
"""The usual and the largest number of mends for dead containers between two examinations: each holds a descriptor."""
_SECOND_LOOK = 1.0
"""Seconds after which a loss is examined again: the runtime may just be ending this container."""
_WITHOUT_MENDS: Collection[NodeCheck] = {"configuration", "plugins", "drift"}


@dataclass(frozen=True, slots=True)
class MendOutcome:
    """A mend and its outcome.

    Attributes:
        mend: the mend.
        finding: the name of the finding that it is for.
        state: ``planned``, ``mended``, ``failed``, ``not needed`` (its cause was gone when its turn came), or ``left``.
        needs: the options with which the repair would carry it out, as pairs: ``interrupt``, ``include_go`` or
            ``owner``, and the value.
        reason: why it failed, else "".

    Examples:
        >>> repair_node(cni, dry_run=True).outcomes
        ()
    """

    mend: Mend
    finding: str
    state: Literal["planned", "mended", "failed", "not needed", "left"]
    needs: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeRepair:
    """The outcome of a repair, or its plan.

    Attributes:
        outcomes: the mends in their order; the mends that are left come last.
        report: the diagnosis after the repair.
        stopped: what a living container lost during the repair, if that stopped the repair; else "".

    Examples:
        >>> repair_node(cni).stopped
        ''
    """

    outcomes: tuple[MendOutcome, ...]
    report: DoctorReport
    stopped: str = ""


def repair_node(  # noqa: PLR0913 - the options of a repair
    cni: CNIConfig,
    *,
    dry_run: bool = False,
    interrupt: Collection[str] = (),
    only: Collection[str] = (),
    include_go: bool = False,
    pending_after: float = PENDING_AFTER,
    run_check: bool = False,
    policy: DelPolicy | None = None,
) -> NodeRepair:
    """Diagnose a node, carry out the mends of the findings, and diagnose it again.

    Each mend is carried out only if a new diagnosis, immediately before it, still requires it. Before the first mend
    and after each mend, or each group of mends for dead containers, the repair examines all living containers: their
    interfaces, addresses, routes, reservations and published ports. If a container has lost one of these and the mends
    do not name the container, the repair stops.

    Attachments are detached and reloaded, and their rules removed, if they belong to the client's owner, or if ``only``
    or ``interrupt`` names them. Missing objects of the node, such as addresses of bridges, are restored for all owners.

    Args:
        cni: the client whose directories are repaired.
        dry_run: change nothing, only plan.
        interrupt: the containers, as ``ID`` or ``ID:IFNAME``, that may be interrupted; ``["all"]``: all.
        only: the names of findings and containers to which the repair is limited; (): all.
        include_go: for a client without an owner: also detach and reload attachments that Go libcni recorded.
        pending_after: seconds after which an unfinished ADD, and a reservation without a record, are treated as
            abandoned.
        run_check: whether to run CHECK of each ready attachment in the diagnosis.
        policy: exceptions to the rule that a DEL stops at the first error; None: no exceptions.

    Raises:
        TypeError: ``interrupt`` or ``only`` is a string or an iterator.
    """
    for names in (interrupt, only):
        # An iterator that was read before is empty, and an empty ``only`` means all findings.
        if isinstance(names, str) or not isinstance(names, Collection):
            raise TypeError("interrupt and only are collections of names, such as a list, not a string or an iterator")
    run = _Run(cni, frozenset(interrupt), frozenset(only), include_go, pending_after, run_check, policy)
    node = run.read()
    report = report_on(node, run_check=run_check)
    if not dry_run:
        run.belongings = _belongings(node)
        while not run.stopped and run.carry_out(run.plan(node, report)):
            node = run.read()
            # A mend can reveal the next one: a link that is up again lacks its routes.
            report = report_on(node, run_check=run_check)
        RecordStore(cni.cache_dir).remove_old_drafts()
    left = run.plan(node, report) if not run.stopped else []
    states = ({"planned"} if dry_run else set()) | {"left"}
    return NodeRepair(
        (*run.outcomes.values(), *(outcome for outcome in left if outcome.state in states)), report, run.stopped
    )


def _detached_by(node: NodeState, mend: Mend) -> list[Attachment]:
    """Return the attachments that a mend detaches, wholly or in part: only their owner may do that."""
    if mend.kind in {"reload", "detach"}:
        return [attachment for attachment in node.attachments if attachment.path == mend.target]
    if mend.kind == "remove-rules":
        return node.attached(mend.network, mend.target)
    return []


@dataclass
class _Run:
    """One repair.

    Attributes:
        belongings: the belongings at the last examination.
        outcomes: the last outcome of each mend.
        tried: the mends that are not planned again.
        since_look: the mends that were carried out since the last examination.
        stopped: the loss that stopped the repair, or "".
    """

    cni: CNIConfig
    interrupt: frozenset[str]
    only: frozenset[str]
    include_go: bool
    pending_after: float
    run_check: bool
    policy: DelPolicy | None
    belongings: _All = field(default_factory=dict)
    outcomes: dict[Mend, MendOutcome] = field(default_factory=dict)
    tried: set[Mend] = field(default_factory=set)
    since_look: list[Mend] = field(default_factory=list)
    stopped: str = ""

    def read(self) -> NodeState:
        """Return the present state of the node."""
        return read_node(self.cni, pending_after=self.pending_after)

    def plan(self, node: NodeState, report: DoctorReport) -> list[MendOutcome]:
        """Return the mends of a report that have not been tried, in their order, and then those that are left."""
        wanted = [
            (finding, mend) for finding in report.findings for mend in finding.mends if self._is_wanted(finding, mend)
        ]
        # Two pools of one network have the same mends: each is planned once, for the first finding.
        names = {mend.key: finding.name for finding, mend in reversed(wanted)}
        planned = [
            MendOutcome(mend, names[mend.key], "left" if needs else "planned", needs)
            for mend in merged(tuple(mend for _, mend in wanted))
            if mend not in self.tried
            for needs in [tuple(self._needs(node, mend))]
        ]
        return sorted(planned, key=lambda outcome: (outcome.state == "left", ORDER.index(outcome.mend.kind)))

    def _is_wanted(self, finding: NodeFinding, mend: Mend) -> bool:
        return not self.only or finding.name in self.only or bool(_names(mend.containers) & self.only)

    def _needs(self, node: NodeState, mend: Mend) -> Iterator[tuple[str, str]]:
        """Yield the options without which a mend is not carried out."""
        for name in mend.interrupts:
            if not self.interrupt & {"all", *_names([name])}:
                yield "interrupt", name
        if _names(mend.containers) & (self.only | self.interrupt):
            return
        for attachment in _detached_by(node, mend):
            if attachment.made_by_go:
                yield from () if self.include_go else (("include_go", ""),)
            elif attachment.owner != self.cni.owner:
                yield "owner", attachment.owner

    def carry_out(self, planned: Iterable[MendOutcome]) -> bool:
        """Carry out the planned mends; return whether there were any."""
        todo = [outcome for outcome in planned if outcome.state == "planned"]
        for chunk in _chunks(todo):
            with ExitStack() as locks:
                unlocked = self._lock(locks, chunk)
                # The condition of a mend is checked under its locks, so the answer stays true until its end.
                node = self.read()
                if self._has_lost(node):
                    return False
                self._mend(node, [outcome for outcome in chunk if outcome not in unlocked])
        return bool(todo) and not self._has_lost(self.read())

    def _lock(self, stack: ExitStack, chunk: list[MendOutcome]) -> list[MendOutcome]:
        """Acquire the locks of mends; return the mends that fail because another program holds their lock."""
        failures: dict[LockRequest | str, CNIError | None] = {}
        unlocked = []
        for outcome in chunk:
            for lock in locks_for(outcome.mend):
                if lock not in failures:
                    try:
                        stack.enter_context(locked(self.cni, lock))
                        failures[lock] = None
                    except CNIError as error:
                        failures[lock] = error
                if failures[lock] is not None:
                    self._note(replace(outcome, state="failed", reason=str(failures[lock])))
                    unlocked.append(outcome)
                    break
        return unlocked

    def _mend(self, node: NodeState, planned: list[MendOutcome]) -> None:
        """Carry out the mends that a new diagnosis still requires. Detach last, all attachments in parallel."""
        report = report_on(node, skip=_WITHOUT_MENDS)
        needed = {
            mend.key: mend for mend in merged(tuple(mend for finding in report.findings for mend in finding.mends))
        }
        attachments = {attachment.path: attachment for attachment in node.attachments}
        detached: list[tuple[MendOutcome, Attachment]] = []
        for outcome in planned:
            mend = self._current(node, outcome, needed)
            if mend is None:
                self._note(replace(outcome, state="not needed"))
                continue
            self.since_look.append(mend)
            if mend.kind == "detach":
                detached.append((outcome, attachments[mend.target]))
            else:
                self._note(_outcome(outcome, node, mend))
        if detached:
            self._detach([outcome for outcome, _ in detached], [attachment for _, attachment in detached])

    def _note(self, outcome: MendOutcome) -> None:
        """Store the outcome of a mend. A mend that was not needed is tried again if the next diagnosis requires it.

        A cause can be hidden for a moment, for example while a namespace begins or ends.
        """
        if outcome.state != "not needed" or outcome.mend in self.outcomes:
            self.tried.add(outcome.mend)
        self.outcomes[outcome.mend] = outcome

    def _current(self, node: NodeState, planned: MendOutcome, needed: dict[tuple[str, ...], Mend]) -> Mend | None:
        """Return the rest of a planned mend; None if its cause is gone, or if it would interrupt other containers."""
        mend, current = planned.mend, needed.get(planned.mend.key)
        if planned.finding == "check-failed":
            return mend if self._fails_check(node, mend) else None
        if current is None or not set(current.interrupts) <= set(mend.interrupts):
            return None
        if mend.kind not in GROUPED:
            return current
        wanted = set(current.details)
        details = tuple(detail for detail in mend.details if detail in wanted)
        return replace(current, details=details) if details else None

    def _fails_check(self, node: NodeState, mend: Mend) -> bool:
        try:
            for attachment in node.attachments:
                if attachment.path == mend.target:
                    self.cni.check_attachment(attachment)
        except CNIError:
            return True
        return False

    def _detach(self, planned: list[MendOutcome], attachments: list[Attachment]) -> None:
        outcomes: list[object]
        try:
            outcomes = [*self.cni.del_attachments(attachments, policy=self.policy)]
        except CNIErrorGroup as error:
            outcomes = list(error.report)
        for left, outcome in zip(planned, outcomes, strict=True):
            failed = isinstance(outcome, CNIError)
            self._note(replace(left, state="failed" if failed else "mended", reason=str(outcome) if failed else ""))

    def _has_lost(self, node: NodeState) -> bool:
        """Return whether a living container has lost something, but no mend since the last examination names it."""
        named = {name for mend in self.since_look for name in (*mend.containers, *mend.interrupts)}
        belongings = _belongings(node)
        if lost := _losses(self.belongings, belongings, named):
            time.sleep(_SECOND_LOOK)
            belongings = _belongings(self.read())
            lost = _losses(self.belongings, belongings, named)
        if lost:
            self.stopped = (
                f"{some(lost, '; ', 10)}, after: {some([f'{mend.kind} {mend.target}' for mend in self.since_look])}"
            )
        self.belongings, self.since_look = belongings, []
        return bool(lost)


def _outcome(planned: MendOutcome, node: NodeState, mend: Mend) -> MendOutcome:
    try:
        ACTS[mend.kind](node, mend)
    except (CNIError, OSError) as error:
        return replace(planned, state="failed", reason=str(error))
    return replace(planned, state="mended")


def _chunks(planned: list[MendOutcome]) -> Iterator[list[MendOutcome]]:
    """Yield the mends in groups, after each of which the node is examined.

    A group is one mend, or several mends for dead containers. Of very many mends it is an eighth, because an
    examination of 10,000 containers takes seconds.
    """
    for kind, group in groupby(planned, lambda outcome: outcome.mend.kind):
        alike = list(group)
        # An examination takes half a second. Mends for dead containers interrupt nobody, so several share it.
        at_once = _AT_ONCE if kind in FOR_THE_DEAD and not any(outcome.mend.interrupts for outcome in alike) else 1
        size = min(_AT_MOST, max(at_once, len(alike) // _LOOKS))
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def _names(containers: Iterable[str]) -> set[str]:
    """Return both names of each container: ``ID:IFNAME`` and ``ID``."""
    return {name for container in containers for name in (container, container.partition(":")[0])}


@dataclass(slots=True)
class _Belongings:
    """The interfaces, addresses, routes and ports of one network namespace.

    Attributes:
        things: these objects, as text.
        is_ours: whether it is the node's own namespace, or that of a container of the node. A machine can have others,
            which change by themselves.
        names: the containers whose record names the namespace.
        records: the records that name the namespace. If they change, the container's runtime is working on it.
    """

    things: set[str]
    is_ours: bool
    names: set[str] = field(default_factory=set)
    records: set[tuple[str, object, str]] = field(default_factory=set)


_All = dict[Identity | None, _Belongings]
"""The belongings in all namespaces; those of the node's own namespace under None."""


def _belongings(node: NodeState) -> _All:
    """Return the belongings of the node and of its containers."""
    by_address: dict[str, list[str]] = grouped(
        (fact.address, f"the {fact.kind} of {fact.address}") for facts in facts_of(node).values() for fact in facts
    )
    for address, reservations in node.reservations_of.items():
        reserved = [
            f"the reservation {reservation.path} for {reservation.container_id}" for reservation in reservations
        ]
        by_address.setdefault(address, []).extend(reserved)
    own = namespace_identity("/proc/thread-self/ns/net")
    everything: _All = {None: _Belongings(_of_node(node), is_ours=True)}
    for identity, space in node.spaces.items():
        if identity != own and space.network is not None:
            is_ours = any(address in node.reservations_of for address in addresses_in(space))
            everything[identity] = _Belongings(set(_of_network(space.network, by_address)), is_ours)
    masters = {link.index: link.name for link in (node.host.links if node.host else {}).values()}
    for attachment in node.attachments:
        place = namespace_identity(attachment.netns) if attachment.netns else None
        # After a reboot or a replacement, the recorded path leads to the namespace of another container.
        has_ended = attachment.state in ENDED or attachment.record.netns_id not in {None, place}
        if place is not None and not has_ended and (belongings := everything.get(place)) is not None:
            belongings.is_ours = True
            belongings.names.add(id_of(attachment))
            belongings.records.add((attachment.path, attachment.created, attachment.record.state))
            ends = [end for end in node.host_ends(attachment) if end.is_up]
            belongings.things.update(f"{end.name} on {masters.get(end.master, 'no bridge')}" for end in ends)
    return everything


def _losses(before: _All, after: _All, named: set[str]) -> list[str]:
    """Return the losses, except of the named containers and of those whose runtime is working."""
    # A container that has ended, or whose record is new or was removed, has lost nothing by the repair.
    return [
        f"{some(sorted(earlier.names or {'a container without a record'}))} has lost {thing}"
        for identity, earlier in before.items()
        if earlier.is_ours
        and (current := after.get(identity)) is not None
        and not earlier.names & named
        and earlier.records == current.records
        for thing in sorted(earlier.things - current.things)
    ]


def _of_node(node: NodeState) -> set[str]:
    links = [link for link in (node.host.links.values() if node.host else ()) if link.kind != "veth" and link.is_up]
    forwarding = {path for path, is_on in node.forwards.items() if is_on}
    return {
        *forwarding,
        *(f"{link.name} with {text}" for link in links for text in link.addresses if not _is_link_local(text)),
    }


def _of_network(network: Network, by_address: Mapping[str, list[str]]) -> Iterator[str]:
    names = {link.index: link.name for link in network.links.values()}
    for link in network.links.values():
        if link.name != "lo" and link.is_up:
            yield f"the interface {link.name} with {link.mac}"
            for text in link.addresses:
                if not _is_link_local(text):
                    yield f"the address {text} of {link.name}"
                    yield from by_address.get(text.partition("/")[0], ())
    for route in network.routes:
        if not _is_link_local(route.destination):
            yield f"the route to {route.destination} via {route.gateway or names.get(route.ifindex, '?')}"


def _is_link_local(text: str) -> bool:
    return text.startswith(("fe80:", "ff00:"))
