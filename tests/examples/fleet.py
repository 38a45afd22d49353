"""What the tests of examples/fleet share: an agent in directories of its own, and its command line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from forkserver import ForkServer
from manager.fakes import ManagerNode

from libcni import CNIConfig, RuntimeConf
from libcni.testing import wait_until

FLEET = Path(__file__).parents[2] / "examples" / "fleet"
MODULES = ("agent", "changes", "desired", "endpoints", "neighbours", "reconcile", "simulate")
OWNER = "agent-test"


def module(name: str) -> Any:
    """Return a module of the example."""
    assert name in MODULES
    return import_module(name)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Agent:
    """An agent on fake plugins, its desired-state file, and another runtime's records."""

    server: ForkServer  # set by a fixture

    def __init__(self, node: ManagerNode, **options: Any) -> None:
        self.node = node
        self.file = node.root / "desired.yaml"
        self.neighbour = node.root / "neighbour"
        self.clock = Clock()
        self.manager = node.async_manager(client={"owner": OWNER})
        options = {"retry": (1.0, 60.0), "clock": self.clock, "neighbours": [str(self.neighbour)], **options}
        self.agent: Any = module("reconcile").NodeAgent(self.manager, str(self.file), **options)

    def want(self, **containers: Any) -> None:
        """Write the desired state: container ID to networks, or to a whole row."""
        rows = [
            {"id": name, "netns": f"/ns/{name}", **(given if isinstance(given, dict) else {"networks": given})}
            for name, given in containers.items()
        ]
        self.file.write_text(yaml.safe_dump({"containers": rows}))

    def reconcile(self, **options: bool) -> Any:
        """Do one round."""
        return asyncio.run(self.agent.reconcile(**options))

    def attached(self) -> list[str]:
        """Return the complete attachments of the agent's owner."""
        found = self.node.cni.get_cached_attachments()
        ready = [one for one in found if one.state == "ready" and one.owner == OWNER]
        return sorted(f"{one.container_id}:{one.network}:{one.ifname}" for one in ready)

    def neighbours(self, directory: Path | None = None) -> CNIConfig:
        """Return the client of another runtime, with records of its own or in a directory that it shares."""
        return self.node.client(cache_dir=directory or self.neighbour)

    def command(self, *more: str, cache: Path | None = None) -> list[str]:
        """Return the command that runs the agent."""
        options = {
            "--desired": self.file,
            "--conf-dir": self.node.conf_dir,
            "--plugin-dir": self.node.bin,
            "--cache-dir": cache or self.node.cache,
            "--neighbour": self.neighbour,
            "--owner": OWNER,
            "--status": self.node.root / "status.json",
            "--interval": "0.05",
        }
        words = [str(word) for pair in options.items() for word in pair]
        return [sys.executable, str(FLEET / "agent.py"), *words, *more]

    def run(self, *more: str, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the agent to its end."""
        _, program, *words = self.command(*more, cache=cache)
        ended = self.server.run(words, environment(), self.node.root, program=program)
        return subprocess.CompletedProcess(program, *ended)

    @contextlib.contextmanager
    def running(self, *more: str) -> Iterator[subprocess.Popen[str]]:
        """Run the agent until the block ends; its log goes to ``log``."""
        with (
            (self.node.root / "log").open("w") as log,
            subprocess.Popen(self.command(*more), env=environment(), stderr=log, text=True) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def until_attached(self, *expected: str) -> None:
        """Wait until these attachments are complete, and no others."""
        wait_until(lambda: self.attached() == list(expected), 60)


def attach(cni: CNIConfig, container_id: str, network: str, ifname: str = "eth0") -> None:
    """Attach a container for another runtime."""
    cni.add_network_list(network, RuntimeConf(container_id, f"/ns/{container_id}", ifname))


def files(directory: Path) -> dict[str, bytes]:
    """Return every file under a directory, except what locking leaves."""
    found = {str(one.relative_to(directory)): one.read_bytes() for one in directory.rglob("*") if one.is_file()}
    return {name: data for name, data in found.items() if name != "locks"}


def environment() -> dict[str, str]:
    """Return the environment of the example's programs."""
    return {**os.environ, "PYTHONPATH": str(FLEET.parents[1])}
