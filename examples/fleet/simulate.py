"""Two hundred nodes on one machine: how long until all is as desired, and what happens when plugins fail.

    python simulate.py [--nodes 200] [--containers 3]

Each node is an agent with directories of its own: configurations, plugins, records, a desired-state file. Its plugins
are a few lines of shell that keep a lease per interface, so that what leaks can be counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from reconcile import NodeAgent

from libcni import AsyncCNIConfig
from libcni.manager import AsyncNetworkManager

NETWORKS = ("front", "back")
PARALLEL = 12

# "broken": no ADD succeeds. "flaky": about every tenth call of any verb fails.
PLUGIN = """#!/bin/sh
home=${0%/*}
lease=$home/leases/$CNI_CONTAINERID-$CNI_IFNAME
fail() { echo "$CNI_COMMAND" >> "$home/failed"; echo '{"cniVersion":"1.0.0","code":100,"msg":"out of order"}'; exit 1; }
[ -e "$home/flaky" ] && [ $(($$ % 10)) = 0 ] && fail
case $CNI_COMMAND in
ADD)
    : > "$lease"
    [ -e "$home/broken" ] && fail
    echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.0.5/16"}]}' ;;
DEL) rm -f "$lease" ;;
esac
exit 0
"""


class Node:
    """One simulated node."""

    def __init__(self, root: Path, name: str, limit: asyncio.Semaphore) -> None:
        self.name = name
        self.root = root / name
        self.bin = self.root / "bin"
        (self.bin / "leases").mkdir(parents=True)
        (self.root / "net.d").mkdir()
        (self.bin / "sim").write_text(PLUGIN, encoding="utf-8")
        (self.bin / "sim").chmod(0o755)
        for network in NETWORKS:
            document = {"cniVersion": "1.0.0", "name": network, "plugins": [{"type": "sim"}]}
            (self.root / "net.d" / f"{network}.conflist").write_text(json.dumps(document), encoding="utf-8")
        self.want(())
        cni = AsyncCNIConfig([str(self.bin)], self.root / "cache", conf_dir=self.root / "net.d", durable=False)
        manager = AsyncNetworkManager(cni)
        self.agent = NodeAgent(manager, str(self.root / "desired.json"), limit=limit, retry=(0.2, 2.0))

    def want(self, containers: Iterable[str]) -> None:
        """Write the desired state and rename it into place; JSON is YAML too."""
        self.wanted = tuple(containers)
        rows = [{"id": one, "netns": f"/run/netns/{one}", "networks": list(NETWORKS)} for one in self.wanted]
        new = self.root / "desired.new"
        new.write_text(json.dumps({"containers": rows}), encoding="utf-8")
        new.rename(self.root / "desired.json")

    def mark(self, how: str, *, on: bool) -> None:
        """Make the plugin ``broken`` or ``flaky``, or no longer so."""
        if on:
            (self.bin / how).touch()
        else:
            (self.bin / how).unlink(missing_ok=True)

    @property
    def converged(self) -> bool:
        """Whether the agent has done what is wanted by now."""
        state = self.agent.state
        return state.converged and {one.id for one in state.desired} == set(self.wanted) == set(state.attached)

    @property
    def leases(self) -> set[str]:
        """What the plugin holds."""
        return set(os.listdir(self.bin / "leases"))

    @property
    def records(self) -> set[str]:
        """What is recorded, as the plugin would name it."""
        found = self.agent.manager.cni.get_cached_attachments()
        return {f"{one.container_id}-{one.ifname}" for one in found}

    @property
    def failed_calls(self) -> int:
        """How many calls the plugin has failed."""
        path = self.bin / "failed"
        return len(path.read_text(encoding="utf-8").splitlines()) if path.exists() else 0


async def _until_converged(nodes: Sequence[Node], seconds: float = 100.0) -> float:
    """Return the seconds until all nodes have converged; raises TimeoutError."""
    started = time.monotonic()
    async with asyncio.timeout(seconds):
        while not all(node.converged for node in nodes):  # noqa: ASYNC110 - it is what is measured
            await asyncio.sleep(0.02)
    return round(time.monotonic() - started, 2)


class Simulation:
    """A fleet, its story, and what was measured."""

    def __init__(self, root: Path, nodes: int, containers: int) -> None:
        limit = asyncio.Semaphore(PARALLEL)
        self.nodes = [Node(root, f"node-{number:03}", limit) for number in range(nodes)]
        self.containers = containers
        self.broken = self.nodes[::10]
        self.sound = [node for node in self.nodes if node not in self.broken]
        self.report: dict[str, Any] = {"nodes": nodes, "containers per node": containers, "networks each": 2}

    async def run(self) -> dict[str, Any]:
        """Let all agents run through the story, and return the report."""
        stop = asyncio.Event()
        tasks = [asyncio.create_task(node.agent.run(stop, interval=0.1, check_interval=300.0)) for node in self.nodes]
        try:
            await self._cold_start()
            await self._a_tenth_broken()
            await self._healed()
            await self._every_tenth_call_fails()
            await self._emptied()
        finally:
            stop.set()
            await asyncio.gather(*tasks)
        return self.report

    def _want(self, generation: int) -> None:
        """Let one container of each node go and another come, from one generation to the next."""
        for node in self.nodes:
            node.want(f"{node.name}-c{number}" for number in range(generation, generation + self.containers))

    async def _cold_start(self) -> None:
        self._want(0)
        self.report["cold start, s"] = await _until_converged(self.nodes)
        self.report["attachments"] = sum(len(node.leases) for node in self.nodes)

    async def _a_tenth_broken(self) -> None:
        """Break a tenth of the nodes' plugins; the others must not notice, and nothing may be half attached."""
        for node in self.broken:
            node.mark("broken", on=True)
        self._want(1)
        self.report["a tenth broken: the others, s"] = await _until_converged(self.sound)
        await asyncio.sleep(1.0)
        self.report["a tenth broken: converged nodes"] = sum(node.converged for node in self.nodes)
        self.report["a tenth broken: failed calls"] = sum(node.failed_calls for node in self.broken)

    async def _healed(self) -> None:
        for node in self.broken:
            node.mark("broken", on=False)
        self.report["healed, s"] = await _until_converged(self.nodes)
        self.report["healed: leaked leases"] = self._leaks()

    async def _every_tenth_call_fails(self) -> None:
        before = sum(node.failed_calls for node in self.nodes)
        for node in self.nodes:
            node.mark("flaky", on=True)
        self._want(2)
        self.report["every tenth call fails, s"] = await _until_converged(self.nodes)
        self.report["every tenth call fails: failed calls"] = sum(node.failed_calls for node in self.nodes) - before
        for node in self.nodes:
            node.mark("flaky", on=False)
        self.report["every tenth call fails: leaked leases"] = self._leaks()

    async def _emptied(self) -> None:
        for node in self.nodes:
            node.want(())
        self.report["emptied, s"] = await _until_converged(self.nodes)
        self.report["left in the end"] = sum(len(node.leases) + len(node.records) for node in self.nodes)

    def _leaks(self) -> int:
        """Return how many leases have no record, or records no lease, or either no container."""
        wrong = 0
        for node in self.nodes:
            expected = {f"{one}-{ifname}" for one in node.wanted for ifname in ("eth0", "eth1")}
            wrong += len(node.leases ^ expected) + len(node.records ^ expected)
        return wrong


async def simulate(root: Path, nodes: int = 200, containers: int = 3) -> dict[str, Any]:
    """Run the simulation in an empty directory and return what was measured."""
    return await Simulation(root, nodes, containers).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Simulate a fleet of nodes on fake plugins.")
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--containers", type=int, default=3, help="per node")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)  # failing plugins are the point here
    with tempfile.TemporaryDirectory() as root:
        report = asyncio.run(simulate(Path(root), options.nodes, options.containers))
    for name, value in report.items():
        print(f"{name:40} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
