"""The node agent in examples/fleet on fake plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml
from forkserver import ForkServer
from manager.fakes import ManagerNode

from libcni import RuntimeConf
from libcni.manager import NetworkManager

FLEET = Path(__file__).parents[2] / "examples" / "fleet"
PROGRAM = str(FLEET / "agent.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(FLEET.parents[1])}


def load_agent() -> Any:
    """Return the example as a module."""
    spec = spec_from_file_location("fleet_agent", PROGRAM)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are resolved there
    spec.loader.exec_module(module)
    return module


agent = load_agent()


class Fleet:
    """An agent on fake plugins, its desired-state file, and another runtime's records."""

    def __init__(self, node: ManagerNode, server: ForkServer, **options: Any) -> None:
        self.node, self.server = node, server
        self.file = node.root / "desired.yaml"
        self.neighbour = node.root / "neighbour"
        self.manager = NetworkManager(node.client(owner=agent.OWNER))
        self.agent: Any = agent.NodeAgent(self.manager, str(self.file), [str(self.neighbour)], **options)

    def want(self, **containers: Any) -> None:
        """Write the desired state: container ID to networks, or to a whole row."""
        rows = [
            {"id": name, "netns": f"/ns/{name}", **(given if isinstance(given, dict) else {"networks": given})}
            for name, given in containers.items()
        ]
        self.file.write_text(yaml.safe_dump({"containers": rows}))

    def reconcile(self, *, check: bool = False) -> bool:
        """Do one round, and return whether all is as desired."""
        self.manager.reload()
        status = self.agent.reconcile(check=check)
        assert status["converged"] == self.agent.converged
        return bool(self.agent.converged)

    def attached(self) -> list[str]:
        """Return the complete attachments of the agent."""
        found = self.node.cni.get_cached_attachments()
        ready = [one for one in found if one.state == "ready" and one.owner == agent.OWNER]
        return sorted(f"{one.container_id}:{one.network}:{one.ifname}" for one in ready)

    def attach_for_others(self, container_id: str, network: str, directory: Path | None = None) -> None:
        """Attach a container for another runtime, with records in ``directory`` or in its own."""
        rt = RuntimeConf(container_id, f"/ns/{container_id}", "eth0")
        self.node.client(cache_dir=directory or self.neighbour).add_network_list(network, rt)

    def words(self, *more: str) -> list[str]:
        """Return the command's arguments."""
        options = {
            "--desired": self.file,
            "--conf-dir": self.node.conf_dir,
            "--plugin-dir": self.node.bin,
            "--cache-dir": self.node.cache,
            "--neighbour": self.neighbour,
            "--status": self.node.root / "status.json",
            "--interval": "0.05",
        }
        return [*(str(word) for pair in options.items() for word in pair), *more]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        ended = self.server.run(self.words(*more), ENVIRONMENT, self.node.root, program=PROGRAM)
        return subprocess.CompletedProcess(PROGRAM, *ended)

    def running(self, *more: str) -> subprocess.Popen[bytes]:
        """Return the running command."""
        return subprocess.Popen([sys.executable, PROGRAM, *self.words(*more)], env=ENVIRONMENT)


def files(directory: Path) -> dict[str, bytes]:
    """Return every file under a directory, except what locking leaves."""
    found = {str(one.relative_to(directory)): one.read_bytes() for one in directory.rglob("*") if one.is_file()}
    return {name: data for name, data in found.items() if name not in {"locks", "locks.plugins", "agent.lock"}}


@pytest.fixture
def node(tmp_path: Path) -> ManagerNode:
    node = ManagerNode(tmp_path)
    node.configure("a")
    node.configure("b", {"type": "b", "capabilities": {"portMappings": True}})
    return node


@pytest.fixture
def fleet(node: ManagerNode, fork_server: ForkServer) -> Fleet:
    return Fleet(node, fork_server)
