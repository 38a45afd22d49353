"""NodeAgent: make what is attached on a node what a desired-state file says, round after round."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from changes import Change, ChangeLimit, compare, removal, repair
from desired import read_desired
from neighbours import View, look

from libcni import CNIError, CNIErrorGroup, ErrorCode, PluginError
from libcni.manager import AsyncNetworkManager, AttachmentCheck, Container, Event, PlannedAttachment

logger = logging.getLogger("fleet")


class FleetError(CNIError):
    """What the agent reports of a container besides the library's errors."""


_OF_THE_ATTACHMENT = {None, ErrorCode.UNKNOWN, ErrorCode.UNKNOWN_CONTAINER, ErrorCode.INVALID_NETNS, ErrorCode.INTERNAL}
"""The codes of CHECK that speak of the attachment. Others speak of the plugin's input, or of the node."""


@dataclass(frozen=True)
class State:
    """What one round found and left.

    Attributes:
        desired: the containers of the desired state in force.
        attached: the IDs of the agent's containers that have records.
        failing: container ID to what is wrong with it.
        waiting: container ID to the change that the limit holds back.
        problems: what is wrong with no container in particular, such as a desired-state file that cannot be read.
        warnings: what is wrong with other programs' records; it does not keep the agent from converging.
        changes: the changes of this round; on a dry run those that are to do.
    """

    desired: tuple[Container, ...] = ()
    attached: tuple[str, ...] = ()
    failing: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    @property
    def converged(self) -> bool:
        """Whether all is as desired: as far as the records say, and the last CHECK of each container."""
        return not self.failing and not self.problems and not self.waiting

    def to_dict(self) -> dict[str, Any]:
        """Return it for the status file and /readyz."""
        return {
            "converged": self.converged,
            "attached": list(self.attached),
            "failing": dict(self.failing),
            "waiting": dict(self.waiting),
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "time": time.time(),
        }


@dataclass
class _Backoff:
    """When a container is tried again: after ``first`` seconds, twice as long each time, at most ``last``."""

    first: float
    last: float
    tries: int = 0
    not_before: float = 0.0

    def failed(self, now: float) -> None:
        self.not_before = now + min(self.last, self.first * 2 ** min(self.tries, 30))
        self.tries += 1


class NodeAgent:
    """Keep one node as desired. It detaches, repairs and replaces only attachments of its client's owner.

    Args:
        manager: attaches and detaches.
        desired: the path of the desired-state file.
        neighbours: the record directories of other programs; they are only read.
        limit: how many containers are worked on at once; may be shared between agents.
        retry: seconds to the first retry, and to the last ones at most.
        changes_per_minute: how many changes may detach a complete attachment in a minute; None: no limit.
        gc: whether full rounds call the plugins with GC.
        clock: returns seconds that only grow.
        on_state: called with the state after each round.
    """

    def __init__(  # noqa: PLR0913 - the settings of an agent
        self,
        manager: AsyncNetworkManager,
        desired: str,
        *,
        neighbours: Sequence[str] = (),
        limit: asyncio.Semaphore | None = None,
        retry: tuple[float, float] = (1.0, 60.0),
        changes_per_minute: int | None = None,
        gc: bool = False,
        clock: Callable[[], float] = time.monotonic,
        on_state: Callable[[State], object] | None = None,
    ) -> None:
        self.manager = manager
        self.state = State(problems=("no round has ended yet",))
        self.counts: Counter[tuple[str, str]] = Counter()
        self._desired_file = desired
        self._desired: tuple[Container, ...] | None = None
        self._neighbours = tuple(neighbours)
        self._limit = limit or asyncio.Semaphore(16)
        self._retry = retry
        self._change_limit = ChangeLimit(changes_per_minute, clock)
        self._gc = gc
        self._clock = clock
        self._on_state = on_state
        self._backoffs: dict[str, _Backoff] = {}
        self._errors: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._suspect: set[str] = set()  # CHECK has failed, and not succeeded since
        self._unrepaired: set[str] = set()  # a repair did not help
        self._changes: list[Change] = []
        self._stop: asyncio.Event | None = None
        self._networks_changed = False
        manager.observe(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.kind in {"network-ready", "network-gone"}:
            self._networks_changed = True  # from any thread; ``run`` looks at it

    async def run(self, stop: asyncio.Event, *, interval: float = 1.0, check_interval: float = 60.0) -> None:
        """Do a round when the file or a network has changed or a retry is due; a full one every ``check_interval``.

        ``interval``: seconds between two looks. When ``stop`` is set, running changes end, and no other begins.
        """
        self._stop = stop
        seen: object = None
        next_check = self._clock()
        while not stop.is_set():
            now = self._file_identity()
            if now != seen or self._networks_changed:
                self._networks_changed = False
                self._backoffs.clear()  # the change may be the remedy
                seen, due = now, True
            else:
                due = self._clock() >= min([next_check, *self._due()])
            if due:
                check = self._clock() >= next_check
                if check:
                    next_check = self._clock() + check_interval
                await self.reconcile(check=check)
            try:
                await asyncio.wait_for(stop.wait(), interval)
            except TimeoutError:
                continue

    def _due(self) -> Iterable[float]:
        yield from (backoff.not_before for backoff in self._backoffs.values())
        if self._waiting:
            yield self._change_limit.next()

    def _file_identity(self) -> tuple[int, ...]:
        try:
            # follows symbolic links: Kubernetes replaces a ConfigMap by pointing one to another directory
            status = os.stat(self._desired_file)
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    async def reconcile(self, *, check: bool = False, dry_run: bool = False) -> State:
        """Do one round, and return what it found and left.

        Args:
            check: do a full round: CHECK every attachment, repair what fails, and run GC if the agent does that.
            dry_run: change nothing. CHECK, which changes nothing, is run if ``check`` says so.
        """
        self._changes, self._waiting = [], {}
        wanted, problems = self._read_desired()
        view = View()
        try:
            view = await self._look()
            if wanted is not None:
                await self._round(wanted, view, check=check, dry_run=dry_run)
                view = await self._look()
                if check and self._gc and not dry_run:
                    problems += await self._collect_garbage(wanted, view)
        except CNIError as error:  # the agent's own records cannot be listed
            problems.append(str(error))
        problems += [f"{one.path}: {one.problem or 'the record names no container'}" for one in view.torn]
        problems += [f"network {name}: its file cannot be used; its last good configuration stays in force"
                     for name in self.manager.configuration.kept]  # fmt: skip
        self.counts["rounds", "done"] += 1
        self.state = State(
            wanted or (),
            tuple(sorted(view.own)),
            dict(self._errors),
            dict(self._waiting),
            tuple(problems),
            tuple(view.problems),
            tuple(self._changes),
        )
        if self._on_state is not None:
            self._on_state(self.state)
        return self.state

    async def _round(self, wanted: Sequence[Container], view: View, *, check: bool, dry_run: bool) -> None:
        ids = {one.id for one in wanted}
        known = ids | set(view.own)
        for name in [name for name in (*self._errors, *self._backoffs) if name not in known]:
            self._errors.pop(name, None)
            self._backoffs.pop(name, None)
        self._suspect &= known
        self._unrepaired &= known
        work = [self._try(one, self._remove(one, view, dry_run=dry_run)) for one in view.own if one not in ids]
        work += [self._try(one.id, self._keep(one, view, check=check, dry_run=dry_run)) for one in wanted]
        await asyncio.gather(*work)

    async def _look(self) -> View:
        cni = self.manager.cni
        # thousands of records would hold up the event loop
        return await asyncio.to_thread(look, cni.cache_dir, cni.owner, self._neighbours)

    def _read_desired(self) -> tuple[tuple[Container, ...] | None, list[str]]:
        """Return the desired state in force, and what is wrong with the file.

        If the file is missing, empty or wrong, the last good one stays in force; before the first good one nothing is
        done. It never means that no container is desired: that would detach everything.
        """
        try:
            self._desired = read_desired(self._desired_file)
        except CNIError as error:
            logger.warning("%s", error)
            return self._desired, [str(error)]
        return self._desired, []

    async def _try(self, container_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Work on one container. An error is kept for the state, and stops no other container."""
        backoff = self._backoffs.get(container_id)
        if backoff is not None and self._clock() < backoff.not_before:
            work.close()
            return
        try:
            async with self._limit:
                await work
        except (CNIError, OSError, TypeError, ValueError) as error:
            logger.warning("%s: %s", container_id, error, extra={"fleet_container_id": container_id})
            self._errors[container_id] = str(error)
            self._backoffs.setdefault(container_id, _Backoff(*self._retry)).failed(self._clock())
        else:
            self._backoffs.pop(container_id, None)
            self._errors.pop(container_id, None)

    async def _remove(self, container_id: str, view: View, *, dry_run: bool) -> None:
        _refuse_others(container_id, view)
        await self._apply(removal(container_id, view.own[container_id]), dry_run=dry_run)

    async def _keep(self, container: Container, view: View, *, check: bool, dry_run: bool) -> None:
        """Attach what is missing of a container, replace what differs, and repair what CHECK finds."""
        _refuse_others(container.id, view)
        # networks are read from the disk for a name that is not known
        planned = await asyncio.to_thread(self.manager.plan, container)
        change = compare(container.id, planned, view.own.get(container.id, []))
        if change is not None:
            if await self._apply(change, dry_run=dry_run):
                self._is_sound(container.id)
        elif planned and (check or container.id in self._suspect):
            await self._check_and_repair(container.id, planned, dry_run=dry_run)

    async def _check_and_repair(
        self, container_id: str, planned: Sequence[PlannedAttachment], *, dry_run: bool
    ) -> None:
        self._suspect.add(container_id)  # until CHECK has succeeded, every round asks it
        failed = await self._check(container_id)
        if not failed:
            self._is_sound(container_id)
            return
        texts = {one.ifname: str(one.error) for one in failed}
        if container_id in self._unrepaired:
            # a CHECK that fails on a sound attachment must not cut the container off again and again
            raise FleetError(f"CHECK still fails after a repair, so there is no other: {'; '.join(texts.values())}")
        if await self._apply(repair(container_id, planned, texts), dry_run=dry_run):
            self._unrepaired.add(container_id)
            if failed := await self._check(container_id):
                raise FleetError(f"CHECK fails after a repair: {'; '.join(str(one.error) for one in failed)}")
            self._is_sound(container_id)

    def _is_sound(self, container_id: str) -> None:
        self._suspect.discard(container_id)
        self._unrepaired.discard(container_id)

    async def _check(self, container_id: str) -> list[AttachmentCheck]:
        """Run CHECK, and return the attachments that are damaged.

        Raises:
            CNIErrorGroup: CHECK could not say: a timeout, a missing plugin, no valid output. That is no reason to
                detach anything.
        """
        try:
            await self.manager.check(container_id)
        except CNIErrorGroup as group:
            self.counts["checks", "failed"] += 1
            failed = [one for one in group.report.checks if one.error is not None]
            damaged = [one for one in failed if _is_damage(one.error)]
            if len(damaged) < len(failed):
                raise
            return damaged
        self.counts["checks", "ok"] += 1
        return []

    async def _apply(self, change: Change, *, dry_run: bool) -> bool:
        """Do one change, unless it has to wait; return whether it was done."""
        if dry_run:
            self._changes.append(change)
            self._waiting[change.container_id] = str(change)
            return False
        if self._stop is not None and self._stop.is_set():
            self._waiting[change.container_id] = str(change)
            return False
        if change.disruptive and not self._change_limit.take():
            self._waiting[change.container_id] = str(change)
            return False
        fields = {"fleet_container_id": change.container_id, "fleet_change": change.kind}
        logger.info("%s", change, extra=fields)
        try:
            if change.detach:
                await self.manager.tear_down(change.container_id, ifnames=change.detach)
            if change.attach is not None:
                await self.manager.set_up(change.attach)
        except BaseException:
            self.counts[change.kind, "failed"] += 1
            raise
        self.counts[change.kind, "done"] += 1
        self._changes.append(change)
        return True

    async def _collect_garbage(self, wanted: Sequence[Container], view: View) -> list[str]:
        """Let the plugins free what belongs to no attachment, on networks that nobody else uses; return the errors.

        Nothing recorded is detached here: that is for a round, with its limit. A plugin frees everything that is not in
        the list that it gets, also what another program has just attached. So a network that others use is left out,
        and all are if somebody's records cannot be read.
        """
        if view.problems or view.torn:
            return ["no GC: records that cannot be read may name attachments that live"]
        valid = {(one.container_id, one.ifname) for found in view.own.values() for one in found}
        valid |= {(one.id, ifname) for one in wanted for _, ifname in self._preview(one)}
        errors = []
        for net in self.manager.networks:
            if net.name in view.networks:
                logger.info("no GC on network %s: others use it", net.name)
                continue
            try:
                await self.manager.cni.gc_network_list(net, sorted(valid))
            except CNIError as error:
                errors.append(f"GC of network {net.name}: {error}")
        return errors

    def _preview(self, container: Container) -> Iterable[tuple[str, str]]:
        try:
            return self.manager.preview(container)
        except CNIError:
            return ()  # it cannot be attached either


def _refuse_others(container_id: str, view: View) -> None:
    """Refuse a container that another program has attached: IPAM plugins know it by its ID alone."""
    if container_id in view.others:
        raise FleetError(
            f"container {container_id} belongs to another program: {view.others[container_id]}",
            hint="take it out of the desired state, or give it another ID",
        )


def _is_damage(error: CNIError | None) -> bool:
    """Return whether a plugin said that the attachment is wrong, rather than that it could not look."""
    if not isinstance(error, PluginError) or error.code is None:  # a timeout, a crash, a missing plugin
        return False
    return error.well_known in _OF_THE_ATTACHMENT
