"""The node agent on the real plugins, with another runtime's containers on the same networks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from real.namespaces import PLUGIN_PATH, PLUGINS, Namespace, inside

from libcni import AsyncCNIConfig, CNIConfig, PortMapping, RuntimeConf
from libcni.manager import AsyncNetworkManager

from .fleet import OWNER, files, module

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("host-links")]

THEIR_PORT, OUR_PORT, OTHER_PORT = 18181, 18182, 18183


@contextmanager
def namespace() -> Iterator[Namespace]:
    name = f"agent-{uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield Namespace(name)
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=False)


@pytest.fixture
def make_namespace() -> Iterator[Callable[[], Namespace]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(namespace())


def ports(host_port: int) -> dict[str, Any]:
    return {"portMappings": [PortMapping(host_port=host_port, container_port=80).to_json()]}


@dataclass
class Node:
    """A node of its own: a namespace that plays the host, networks, an agent, and another runtime's container."""

    root: Path
    host: Namespace
    inner: Namespace
    theirs: Namespace
    shared: bool
    conf: Path = field(init=False)
    cache: Path = field(init=False)
    neighbour: Path = field(init=False)
    agent: Any = field(init=False)

    def __post_init__(self) -> None:
        self.conf, self.cache = self.root / "net.d", self.root / "records"
        self.neighbour = self.cache if self.shared else self.root / "neighbour"
        self.conf.mkdir()
        self.network()
        cni = AsyncCNIConfig([PLUGINS], self.cache, conf_dir=self.conf, owner=OWNER, env={"PATH": PLUGIN_PATH})
        self.manager = AsyncNetworkManager(cni)
        agent = module("reconcile").NodeAgent
        self.agent = agent(
            self.manager, str(self.root / "desired.yaml"), neighbours=[str(self.neighbour)], retry=(0.0, 0.0)
        )
        runtime = CNIConfig([PLUGINS], self.neighbour, conf_dir=self.conf, env={"PATH": PLUGIN_PATH})
        mapped = RuntimeConf("theirs", self.theirs.path, "eth0", capability_args=ports(THEIR_PORT))
        runtime.add_network_list("front", mapped)

    def network(self, **more: Any) -> None:
        """Write the network that everybody uses."""
        ranges = [[{"subnet": "10.79.1.0/24"}]]
        ipam = {"type": "host-local", "dataDir": str(self.root / "leases"), "ranges": ranges}
        plugins = [
            {"type": "bridge", "bridge": "br-agent", "isGateway": True, "ipam": ipam, **more},
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ]
        document = {"cniVersion": "1.0.0", "name": "front", "plugins": plugins}
        (self.conf / "10-front.conflist").write_text(json.dumps(document))

    def want(self, **containers: int) -> None:
        """Write the desired state: container ID to a host port; all have the namespace ``inner``."""
        rows = [
            {"id": name, "netns": self.inner.path, "networks": ["front"], "capabilities": ports(port)}
            for name, port in containers.items()
        ]
        (self.root / "desired.yaml").write_text(yaml.safe_dump({"containers": rows}))

    def reconcile(self, **options: bool) -> Any:
        """Do one round."""
        return asyncio.run(self.agent.reconcile(**options))

    def rules(self, container_id: str) -> list[str]:
        """Return the iptables rules that name a container."""
        lines = self.host.run("iptables", "-t", "nat", "-S").splitlines()
        return sorted(line for line in lines if f'id: \\"{container_id}\\"' in line)

    def leases(self, container_id: str) -> list[str]:
        """Return the addresses that host-local holds for a container."""
        found = (self.root / "leases" / "front").glob("10.*")
        return sorted(one.name for one in found if one.read_text().split()[0] == container_id)

    def of_theirs(self) -> tuple[Any, ...]:
        """Return all that is the other runtime's: interface, records, addresses, rules."""
        records = {name: data for name, data in files(self.neighbour).items() if "theirs" in name}
        assert records
        links = [(one["ifname"], one["ifindex"], one["address"]) for one in self.theirs.ip("link")]
        return links, self.theirs.addresses("eth0"), records, self.leases("theirs"), self.rules("theirs")


@pytest.fixture(params=["another directory", "one directory"])
def node(request: pytest.FixtureRequest, tmp_path: Path, make_namespace: Callable[[], Namespace]) -> Iterator[Node]:
    host, inner, theirs = make_namespace(), make_namespace(), make_namespace()
    with inside(host.path):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield Node(tmp_path, host, inner, theirs, shared=request.param == "one directory")


def test_it_converges_to_every_change_and_the_neighbour_notices_nothing(node: Node) -> None:
    before = node.of_theirs()
    assert before[3]
    assert before[4]
    node.want(web=OUR_PORT)
    assert node.reconcile(check=True).converged
    with node.inner.serving(80):
        assert node.host.greet("10.79.1.1", OUR_PORT, "you") == "hello you"

    node.want(web=OTHER_PORT)  # a port mapping has changed
    assert node.reconcile(check=True).converged
    assert f"--dport {OUR_PORT}" not in node.host.run("iptables", "-t", "nat", "-S")
    with node.inner.serving(80):
        assert node.host.greet("10.79.1.1", OTHER_PORT, "you") == "hello you"

    node.network(mtu=1400)  # the network's configuration has changed
    node.manager.reload()
    assert node.reconcile(check=True).converged
    assert node.inner.link("eth0")["mtu"] == 1400

    subprocess.run(["ip", "-n", node.inner.name, "link", "delete", "eth0"], check=True)  # somebody's hands
    state = node.reconcile(check=True)
    assert state.converged
    assert [change.kind for change in state.changes] == ["repair"]
    assert node.inner.addresses("eth0")
    with node.inner.serving(80):
        assert node.host.greet("10.79.1.1", OTHER_PORT, "you") == "hello you"

    node.host.run("iptables", "-t", "nat", "-F", next(one for one in node.rules("web")).split()[-1])
    assert node.reconcile(check=True).converged
    with node.inner.serving(80):
        assert node.host.greet("10.79.1.1", OTHER_PORT, "you") == "hello you"

    assert node.reconcile(check=True).changes == ()
    node.want()
    assert node.reconcile(check=True).converged
    assert (node.leases("web"), node.rules("web"), node.inner.links()) == ([], [], ["lo"])
    assert node.of_theirs() == before


def test_the_neighbours_container_named_in_the_file_is_not_touched(node: Node) -> None:
    before = node.of_theirs()
    node.want(theirs=OUR_PORT)
    assert list(node.reconcile(check=True).failing) == ["theirs"]
    node.want()
    assert node.reconcile(check=True).converged
    assert node.of_theirs() == before


def test_an_interface_that_nobody_recorded_is_reported_and_stays(node: Node) -> None:
    before = node.of_theirs()
    subprocess.run(["ip", "-n", node.inner.name, "link", "add", "eth0", "type", "veth"], check=True)
    address = node.inner.link("eth0")["address"]
    node.want(web=OUR_PORT)
    for _ in range(2):
        state = node.reconcile(check=True)
        assert list(state.failing) == ["web"]
        assert not state.converged
    assert node.inner.link("eth0")["address"] == address
    assert node.leases("web") == []
    assert node.of_theirs() == before


def test_a_namespace_that_has_gone_is_reported_until_it_is_there_again(node: Node) -> None:
    before = node.of_theirs()
    node.want(web=OUR_PORT)
    assert node.reconcile().converged
    subprocess.run(["ip", "netns", "delete", node.inner.name], check=True)
    for _ in range(2):
        assert list(node.reconcile(check=True).failing) == ["web"]
    assert (node.leases("web"), node.rules("web")) == ([], [])
    subprocess.run(["ip", "netns", "add", node.inner.name], check=True)
    assert node.reconcile(check=True).converged
    assert node.inner.addresses("eth0")
    assert node.of_theirs() == before
    assert os.path.exists(node.theirs.path)
