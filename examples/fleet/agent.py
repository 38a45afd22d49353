"""A node agent: keep what is attached on this node as a desired-state file says. Run it under any orchestrator.

    python agent.py --desired /etc/libcni-fleet/desired.yaml
    python agent.py --healthy /run/libcni-fleet/status.json    # exit status 0: it runs, and all is as desired

It attaches what is missing, detaches what has gone, and lets GC clean the rest. What fails is tried again, later each
time, and stops nothing else. One agent per record directory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from desired import read_desired
from filelock import FileLock, Timeout

from libcni import AsyncCNIConfig, Attachment, CNIError
from libcni.manager import AsyncNetworkManager, Container

logger = logging.getLogger("fleet")


@dataclass(frozen=True)
class State:
    """How the node stands: of which desired state, what is attached, and what fails with which error."""

    desired: tuple[Container, ...] = ()
    attached: tuple[str, ...] = ()
    failing: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0

    @property
    def converged(self) -> bool:
        """Whether all is as desired."""
        return not self.failing and not self.problem

    def to_json(self) -> dict[str, Any]:
        """Return it for the status file."""
        return {
            "converged": self.converged,
            "attached": list(self.attached),
            "failing": dict(self.failing),
            "problem": self.problem,
            "time": time.time(),
        }


@dataclass
class _Backoff:
    """When a container is tried again: after ``first`` seconds, twice as long each time, at most ``last``."""

    first: float
    last: float
    tries: int = 0
    not_before: float = 0.0

    def failed(self) -> None:
        self.not_before = time.monotonic() + min(self.last, self.first * 2**self.tries)
        self.tries += 1


class NodeAgent:
    """Keep one node as desired.

    Args:
        manager: attaches and detaches.
        desired: the desired-state file.
        limit: how many containers are worked on at once; may be shared between agents.
        retry: seconds to the first retry, and to the last ones at most.
        on_state: is told of the state after each round.
    """

    def __init__(
        self,
        manager: AsyncNetworkManager,
        desired: str,
        *,
        limit: asyncio.Semaphore | None = None,
        retry: tuple[float, float] = (1.0, 60.0),
        on_state: Callable[[State], object] | None = None,
    ) -> None:
        self.manager = manager
        self.state = State(problem="not looked yet")
        self._desired_file = desired
        self._desired: tuple[Container, ...] | None = None
        self._limit = limit or asyncio.Semaphore(16)
        self._retry = retry
        self._backoffs: dict[str, _Backoff] = {}
        self._errors: dict[str, str] = {}
        self._on_state = on_state
        self._problem = ""

    async def run(self, stop: asyncio.Event, *, interval: float = 1.0, resync: float = 60.0) -> None:
        """Look every ``interval`` seconds for a new file or a retry that is due; do a full round every ``resync``."""
        seen: object = None
        next_round = 0.0
        while not stop.is_set():
            now = self._file_identity()
            if now != seen or time.monotonic() >= min([next_round, *self._due()]):
                if now != seen:
                    self._backoffs.clear()
                seen = now
                if time.monotonic() >= next_round:
                    next_round = time.monotonic() + resync
                    await self.collect_garbage()
                await self.reconcile()
            try:
                await asyncio.wait_for(stop.wait(), interval)
            except TimeoutError:
                continue

    def _due(self) -> Iterable[float]:
        return (backoff.not_before for backoff in self._backoffs.values())

    def _file_identity(self) -> tuple[int, ...]:
        try:
            status = os.stat(self._desired_file)
        except OSError:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns

    async def reconcile(self) -> State:
        """Do what there is to do once, and return how the node then stands."""
        started = time.monotonic()
        wanted = self._read_desired()
        if wanted is not None:
            recorded = self._recorded()
            work = [self._try(one, self._remove(one)) for one in recorded if one not in {c.id for c in wanted}]
            work += [self._try(one.id, self._ensure(one, recorded.get(one.id, []))) for one in wanted]
            await asyncio.gather(*work)
            self._forget_errors({*recorded, *(one.id for one in wanted)})
        attached = tuple(sorted(self._recorded()))
        seconds = time.monotonic() - started
        self.state = State(wanted or (), attached, dict(self._errors), self._problem, seconds)
        if self._on_state is not None:
            self._on_state(self.state)
        return self.state

    async def collect_garbage(self) -> None:
        """Let GC clean what belongs to no desired container; only with a desired state that could be read."""
        wanted = self._read_desired()
        if wanted is None:
            return
        try:
            await self.manager.gc([one.id for one in wanted])
        except CNIError as error:
            logger.warning("%s", error)

    def _read_desired(self) -> tuple[Container, ...] | None:
        """Return the desired state; the last good one where the file cannot be used: never take that for "nothing"."""
        try:
            self._desired = read_desired(self._desired_file)
            self._problem = ""
        except CNIError as error:
            self._problem = str(error)
            logger.warning("%s", error)
        return self._desired

    def _recorded(self) -> dict[str, list[Attachment]]:
        found: dict[str, list[Attachment]] = {}
        for one in self.manager.cni.get_cached_attachments():
            if one.container_id:
                found.setdefault(one.container_id, []).append(one)
        return found

    async def _try(self, container_id: str, work: Coroutine[Any, Any, None]) -> None:
        backoff = self._backoffs.get(container_id)
        if backoff is not None and time.monotonic() < backoff.not_before:
            work.close()
            return
        try:
            async with self._limit:
                await work
        except CNIError as error:
            logger.warning("%s: %s", container_id, error)
            self._errors[container_id] = str(error)
            self._backoffs.setdefault(container_id, _Backoff(*self._retry)).failed()
        else:
            self._backoffs.pop(container_id, None)
            self._errors.pop(container_id, None)

    async def _ensure(self, container: Container, recorded: Sequence[Attachment]) -> None:
        wanted = set(self.manager.preview(container))
        if {(one.network, one.ifname) for one in recorded if _is_current(one, container)} == wanted:
            return
        if recorded:
            await self.manager.tear_down(container.id)
        await self.manager.set_up(container)

    async def _remove(self, container_id: str) -> None:
        await self.manager.tear_down(container_id)

    def _forget_errors(self, known: set[str]) -> None:
        for name in [name for name in (*self._errors, *self._backoffs) if name not in known]:
            self._errors.pop(name, None)
            self._backoffs.pop(name, None)


def _is_current(attachment: Attachment, container: Container) -> bool:
    """Return whether an attachment is complete, and in the namespace that the container has now."""
    if attachment.state != "ready" or (container.netns is not None and attachment.netns != container.netns):
        return False
    identity = attachment.record.netns_id
    return identity is None or _identity(attachment.netns) == identity


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def write_status(path: str, state: State) -> None:
    """Write the status file, so that a reader sees the old one or the new one."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(state.to_json(), file)
    os.replace(f"{path}.new", path)


def is_healthy(path: str, age: float) -> bool:
    """Return whether a status file is at most ``age`` seconds old, and says that all is as desired."""
    try:
        with open(path, encoding="utf-8") as file:
            status = json.load(file)
    except (OSError, ValueError):
        return False
    return bool(status["converged"]) and time.time() - os.stat(path).st_mtime <= age


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(description="Keep what is attached on this node as a file says.")
    parser.add_argument("--desired", default="/etc/libcni-fleet/desired.yaml", help="the desired-state file")
    parser.add_argument("--conf-dir", default="/etc/cni/net.d")
    parser.add_argument("--plugin-dir", action="append", help="may be given several times; by default /opt/cni/bin")
    parser.add_argument("--cache-dir", default="/var/lib/cni")
    parser.add_argument("--status", default="/run/libcni-fleet/status.json", help="the status file")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two looks")
    parser.add_argument("--resync", type=float, default=60.0, help="seconds between two full rounds with GC")
    parser.add_argument("--once", action="store_true", help="one round; exit status 1 unless all is then as desired")
    parser.add_argument("--healthy", metavar="STATUS", help="only tell whether an agent's status file is good")
    return parser


async def serve(options: argparse.Namespace) -> int:
    """Run the agent until TERM or INT."""
    os.makedirs(os.path.dirname(options.status) or ".", exist_ok=True)
    cni = AsyncCNIConfig(options.plugin_dir or ["/opt/cni/bin"], options.cache_dir, conf_dir=options.conf_dir)
    manager = AsyncNetworkManager(cni)
    agent = NodeAgent(manager, options.desired, on_state=lambda state: write_status(options.status, state))
    if options.once:
        await agent.collect_garbage()
        return 0 if (await agent.reconcile()).converged else 1
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with manager.watch():
        await agent.run(stop, interval=options.interval, resync=options.resync)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if options.healthy:
        return 0 if is_healthy(options.healthy, 3 * options.resync) else 1
    os.makedirs(options.cache_dir, mode=0o700, exist_ok=True)
    try:
        with FileLock(os.path.join(options.cache_dir, "agent.lock"), timeout=0):
            return asyncio.run(serve(options))
    except Timeout:
        print(f"another agent works on {options.cache_dir}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
