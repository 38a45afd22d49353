"""Repair a node: diagnose, plan, mend, check that living containers lose nothing, and diagnose again."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from itertools import groupby
from typing import Literal

from libcni._dataclass import dataclass, field, replace
from libcni.client import CNIConfig
from libcni.diagnosis.acts import ACTS, carry_out, held
from libcni.diagnosis.doctor import report_on
from libcni.diagnosis.mends import Mend, merged
from libcni.diagnosis.node_state import NodeState, read_node
from libcni.diagnosis.reading import PENDING_AFTER
from libcni.diagnosis.repair_guard import AllBelongings, belongings_of, losses
from libcni.diagnosis.report import DoctorReport, NodeCheck
from libcni.errors import CNIError, some
from libcni.options import DelPolicy
from libcni.store.attachments import Attachment
from libcni.store.locks import LockRequest, LockSet
from libcni.store.records import RecordStore

__all__ = ["MendOutcome", "NodeRepair", "repair_node"]

_LOOKS = 8
"""How many times a repair of very many attachments examines the node during the mends of one kind."""
_AT_MOST = 250
"""The largest number of mends between two of these examinations, because each mend holds a descriptor of its lock."""
_SECOND_LOOK = 1.0
"""Seconds after which a loss is examined again: the runtime may just be ending this container."""
_PATIENCE = 60.0
"""How long, in seconds, a loss is examined again and again while verbs of the containers concerned run."""
MendState = Literal["planned", "mended", "failed", "not needed", "left"]
_WITHOUT_MENDS: Collection[NodeCheck] = {"configuration", "plugins", "disk", "drift"}


@dataclass(frozen=True, slots=True)
class MendOutcome:
    """A mend and its outcome.

    Attributes:
        mend: the mend.
        finding: the name of the finding that it is for.
        state: ``planned``, ``mended``, ``failed``, ``not needed`` (its cause was gone when its turn came), or ``left``
            (not carried out without the options in ``needs``).
        needs: the options with which the repair would carry it out, as pairs: ``interrupt``, ``include_go`` or
            ``owner``, and the value.
        reason: why it failed, else "".

    Examples:
        >>> repair_node(cni, dry_run=True).outcomes
        ()
    """

    mend: Mend
    finding: str
    state: MendState
    needs: tuple[tuple[str, str], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeRepair:
    """The outcome of a repair, or its plan.

    Attributes:
        outcomes: each mend with its outcome, in the order of the work; those that are ``left`` come last.
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
    send_packets: bool = False,
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
        send_packets: whether to send echo requests in the diagnosis: see ``diagnose``.
        policy: how a DEL may differ from the specification; None: not at all.

    Raises:
        TypeError: ``interrupt`` or ``only`` is a string or an iterator.
    """
    for names in (interrupt, only):
        # An iterator that was read before is empty, and an empty ``only`` means all findings.
        if isinstance(names, str) or not isinstance(names, Collection):
            raise TypeError(
                "interrupt and only must be collections of names, such as lists, not a string or an iterator"
            )
    repair = _Repair(cni, frozenset(interrupt), frozenset(only), include_go, pending_after, policy)
    node = repair.read()
    report = report_on(node, checked=None if run_check else (), send_packets=send_packets, only=only)
    plan = repair.plan(node, report)
    if not dry_run:
        repair.belongings = belongings_of(node)
        while (planned := [outcome for outcome in plan if outcome.state == "planned"]) and not repair.stopped:
            for group in _groups(planned):
                if not repair.stopped:
                    repair.mend(group)
            node = repair.read()
            repair.look_at_the_living(node)
            # A mend can reveal the next one: a link that is up again lacks its routes.
            report = report_on(node, checked=None if run_check else (), send_packets=send_packets, only=only)
            plan = repair.plan(node, report)
        plan = [outcome for outcome in plan if outcome.state == "left"]
        repair.compare_with(report)
        RecordStore(cni.cache_dir).remove_old_drafts()
    return NodeRepair((*repair.outcomes.values(), *plan), report, repair.stopped)


@dataclass
class _Repair:
    """A repair of a node.

    Attributes:
        belongings: the belongings of the living containers when they were last examined.
        done: the mends that were carried out since then.
        stopped: the loss that stopped the repair, or "".
        outcomes: the last outcome of each mend.
        tried: the mends that are not planned again.
    """

    cni: CNIConfig
    interrupt: frozenset[str]
    only: frozenset[str]
    include_go: bool
    pending_after: float
    policy: DelPolicy | None
    belongings: AllBelongings = field(default_factory=dict)
    done: list[Mend] = field(default_factory=list)
    stopped: str = ""
    outcomes: dict[Mend, MendOutcome] = field(default_factory=dict)
    tried: set[Mend] = field(default_factory=set)

    def read(self) -> NodeState:
        """Return the present state of the node."""
        return read_node(self.cni, pending_after=self.pending_after)

    def plan(self, node: NodeState, report: DoctorReport) -> list[MendOutcome]:
        """Return the mends to carry out, in their order, and then the mends for which an option is missing."""
        wanted = [
            (finding.name, mend)
            for finding in report.findings
            for mend in finding.mends
            if not self.only or finding.name in self.only or _names(mend.containers) & self.only
        ]
        # Two pools of one network have the same mends: each is planned once, for the first finding.
        names = {mend.key: name for name, mend in reversed(wanted)}
        planned = []
        for mend in merged(mend for _, mend in wanted):
            if mend not in self.tried:
                if undone := self._undone_by(mend):
                    self._note(MendOutcome(mend, names[mend.key], "failed"), "failed", undone)
                    continue
                needs = tuple(self._needs(node, mend))
                planned.append(MendOutcome(mend, names[mend.key], "left" if needs else "planned", needs))
        order = list(ACTS)
        return sorted(planned, key=lambda outcome: (bool(outcome.needs), order.index(outcome.mend.kind)))

    def _undone_by(self, mend: Mend) -> str:
        """Return that a mend would undo an earlier one, or "". Both would be repeated for ever."""
        for other, outcome in self.outcomes.items():
            if outcome.state == "mended" and mend.undoes(other):
                return (
                    f"it would undo {other.kind} {some(other.details)}, which this repair did for the finding "
                    f"{outcome.finding}: the two findings contradict each other, so decide which one is right"
                )
        return ""

    def _needs(self, node: NodeState, mend: Mend) -> Iterator[tuple[str, str]]:
        """Yield the options without which a mend is not carried out."""
        for name in mend.interrupts:
            if not self.interrupt & {"all", *_names([name])}:
                yield "interrupt", name
        if _names(mend.containers) & (self.only | self.interrupt):
            return
        for attachment in _detached_by(node, mend):
            if attachment.made_by_go:
                if not self.include_go:
                    yield "include_go", ""
            elif attachment.owner != self.cni.owner:
                yield "owner", attachment.owner

    def mend(self, planned: list[MendOutcome]) -> None:
        """Carry out planned mends of one kind: those that the node still requires."""
        with ExitStack() as stack:
            locked = self._lock(stack, planned)
            # Under the locks this reading stays true until the end of the mends. It shows whether the earlier mends
            # have harmed a living container, and which of the planned mends the node still requires.
            node = self.read()
            self.look_at_the_living(node)
            if self.stopped:
                return
            failed_checks = [outcome.mend.target for outcome in locked if outcome.finding == "check-failed"]
            report = report_on(node, checked=failed_checks, skip=_WITHOUT_MENDS)
            found = merged(mend for finding in report.findings for mend in finding.mends)
            required = {mend.key: mend for mend in found}
            mends = [(outcome, _rest(outcome.mend, required.get(outcome.mend.key))) for outcome in locked]
            self.done = [mend for _, mend in mends if mend is not None]
            errors = carry_out(node, self.done, self.policy)
            for outcome, mend in mends:
                if mend is None:
                    self._note(outcome, "not needed")
                else:
                    error = next(errors)
                    self._note(outcome, "failed" if error else "mended", error)

    def _lock(self, stack: ExitStack, planned: list[MendOutcome]) -> list[MendOutcome]:
        """Acquire the locks of mends; return the mends whose locks are held. The others fail."""
        locks = {lock for outcome in planned for lock in ACTS[outcome.mend.kind].locks(outcome.mend)}
        failures: dict[LockRequest | str, str] = {}
        # The locks of containers first: an ADD holds its container's while its plugin waits for host-local's. Then by
        # name: with different orders two repairs would wait for each other.
        for lock in sorted(locks, key=lambda lock: (isinstance(lock, str), str(lock))):
            try:
                stack.enter_context(held(self.cni, lock))
            except CNIError as error:
                failures[lock] = str(error)
        locked = []
        for outcome in planned:
            errors = [failures[lock] for lock in ACTS[outcome.mend.kind].locks(outcome.mend) if lock in failures]
            if errors:
                self._note(outcome, "failed", errors[0])
            else:
                locked.append(outcome)
        return locked

    def look_at_the_living(self, node: NodeState) -> None:
        """Stop the repair if a living container has lost something, and no mend since the last check names it."""
        named = {name for mend in self.done for name in (*mend.containers, *mend.interrupts)}
        # An address of the node that a mend has removed: nobody lived on the bridge.
        earlier = self.belongings.get(None)
        if earlier is not None:
            earlier.things -= {
                f"{mend.target} with {address}"
                for mend in self.done if mend.kind == "remove-address" and not mend.netns for address in mend.details
            }  # fmt: skip
        belongings = belongings_of(node)
        lost = losses(self.belongings, belongings, named) if self.done else []
        deadline = time.monotonic() + _PATIENCE
        while lost and time.monotonic() < deadline:
            time.sleep(_SECOND_LOOK)
            # A container whose lock is held is at work: a reload takes its interface for a moment.
            names = {name for _, those in lost for name in those}
            is_at_work = any(map(self._is_at_work, names))
            belongings = belongings_of(self.read())
            lost = losses(self.belongings, belongings, named)
            # After the look, too: a verb may have begun during it.
            if not is_at_work and not any(map(self._is_at_work, names)):
                break
        if lost:
            after = some([f"{mend.kind} {mend.target}" for mend in self.done])
            self.stopped = f"{some([text for text, _ in lost], '; ', 10)}, after: {after}"
        self.belongings, self.done = belongings, []

    def _is_at_work(self, name: str) -> bool:
        locks = LockSet(self.cni.cache_dir, LockRequest((), name.partition(":")[0]))
        try:
            return not locks.try_acquire()
        finally:
            locks.close()

    def compare_with(self, report: DoctorReport) -> None:
        """Correct the outcomes by the last report: a mend failed if, and only if, the report still requires it.

        A failed mend is not needed any more if its container has ended meanwhile. A DEL succeeds on a read-only disk,
        although the record and the reservations remain.
        """
        required = {mend.key: mend for mend in merged(mend for finding in report.findings for mend in finding.mends)}
        for mend, outcome in self.outcomes.items():
            again = required.get(mend.key)
            if outcome.state == "failed" and again is None:
                self.outcomes[mend] = replace(outcome, state="not needed", reason="")
            elif outcome.state == "mended" and again is not None and _rest(mend, again) is not None:
                self.outcomes[mend] = replace(outcome, state="failed", reason="the doctor still reports the finding")

    def _note(self, outcome: MendOutcome, state: MendState, reason: str = "") -> None:
        """Store the outcome of a mend. A mend that was not needed is tried again if the next diagnosis requires it.

        A cause can be hidden for a moment, for example while a namespace begins or ends.
        """
        if state != "not needed" or outcome.mend in self.outcomes:
            self.tried.add(outcome.mend)
        self.outcomes[outcome.mend] = replace(outcome, state=state, reason=reason)


def _rest(planned: Mend, required: Mend | None) -> Mend | None:
    """Return the rest of a planned mend that is still required; None if it would interrupt other containers."""
    if required is None or not set(required.interrupts) <= set(planned.interrupts):
        return None
    details = set(required.details)
    rest = tuple(detail for detail in planned.details if detail in details)
    return replace(required, details=rest) if rest or not planned.details else None


def _detached_by(node: NodeState, mend: Mend) -> list[Attachment]:
    """Return the attachments that a mend detaches, wholly or in part: only their owner may do that."""
    if mend.kind in {"reload", "detach"}:
        return [node.by_path[mend.target]] if mend.target in node.by_path else []
    return node.attached(mend.network, mend.target) if mend.kind == "remove-rules" else []


def _groups(planned: list[MendOutcome]) -> Iterator[list[MendOutcome]]:
    """Yield the mends in groups of one kind, before each of which the node is examined.

    A group is one mend, or several mends for dead containers, which interrupt nobody. Of very many mends it is an
    eighth, because an examination of 10,000 containers takes seconds.
    """
    for kind, group in groupby(planned, lambda outcome: outcome.mend.kind):
        alike = list(group)
        at_once = 1 if any(outcome.mend.interrupts for outcome in alike) else ACTS[kind].at_once
        eighth = len(alike) // _LOOKS
        has_locks = any(ACTS[kind].locks(outcome.mend) for outcome in alike[:1])
        size = max(at_once, min(_AT_MOST, eighth) if has_locks else eighth)
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


def _names(containers: Iterable[str]) -> set[str]:
    """Return both names of each container: ``ID:IFNAME`` and ``ID``."""
    return {name for container in containers for name in (container, container.partition(":")[0])}
