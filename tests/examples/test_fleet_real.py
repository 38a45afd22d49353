"""The node agent on the real plugins, with another runtime's containers on the same networks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from nodes import Namespace, RealNode

from libcni import PortMapping, RuntimeConf
from libcni.manager import NetworkManager

from .conftest import agent, files

pytestmark = pytest.mark.real

THEIR_PORT, OUR_PORT, OTHER_PORT = 18181, 18182, 18183


def ports(host_port: int) -> dict[str, Any]:
    return {"portMappings": [PortMapping(host_port=host_port, container_port=80).to_json()]}


class FleetNode(RealNode):
    """A node with an agent, and with another runtime's container in a namespace of its own."""

    def __init__(self, root: Path, host: Namespace, inner: Namespace, theirs: Namespace, *, shared: bool) -> None:
        super().__init__(root, host)
        self.inner, self.theirs = inner, theirs
        self.neighbour = self.cache if shared else root / "neighbour"
        self.write_front()
        self.manager = NetworkManager(self.client(owner=agent.OWNER))
        self.agent: Any = agent.NodeAgent(self.manager, str(root / "desired.yaml"), [str(self.neighbour)])
        mapped = RuntimeConf("theirs", theirs.path, "eth0", capability_args=ports(THEIR_PORT))
        self.client(cache_dir=self.neighbour).add_network_list("front", mapped)

    def write_front(self, **more: Any) -> None:
        """Write the network that everybody uses."""
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        self.configure("front", self.bridge("10.79.1.0/24", **more), portmap)

    def want(self, **containers: int) -> None:
        """Write the desired state: container ID to a host port; all have the namespace ``inner``."""
        rows = [
            {"id": name, "netns": self.inner.path, "networks": ["front"], "capabilities": ports(port)}
            for name, port in containers.items()
        ]
        (self.root / "desired.yaml").write_text(yaml.safe_dump({"containers": rows}))

    def reconcile(self, *, check: bool = False) -> bool:
        """Do one round, and return whether all is as desired."""
        self.manager.reload()
        self.agent.reconcile(check=check)
        return bool(self.agent.converged)

    def rules_of(self, container_id: str) -> list[str]:
        """Return the iptables rules that name a container."""
        return sorted(self.host.rules("nat", f'id: \\"{container_id}\\"'))

    def leased_by(self, container_id: str) -> list[str]:
        """Return the addresses that host-local holds for a container."""
        return [address for address, holder in self.leased().items() if holder.split()[0] == container_id]

    def of_theirs(self) -> tuple[Any, ...]:
        """Return all that is the other runtime's: interface, records, addresses, rules."""
        records = {name: data for name, data in files(self.neighbour).items() if "theirs" in name}
        assert records
        links = [(one["ifname"], one["ifindex"], one["address"]) for one in self.theirs.ip("link")]
        return links, self.theirs.addresses("eth0"), records, self.leased_by("theirs"), self.rules_of("theirs")


@pytest.fixture(params=["another directory", "one directory"])
def node(
    request: pytest.FixtureRequest, tmp_path: Path, host: Namespace, container: Namespace, other: Namespace
) -> FleetNode:
    return FleetNode(tmp_path, host, container, other, shared=request.param == "one directory")


def test_it_converges_to_every_change_and_the_neighbour_notices_nothing(node: FleetNode) -> None:
    before = node.of_theirs()
    assert before[3]
    assert before[4]
    node.want(web=OUR_PORT)
    assert node.reconcile(check=True)
    with node.inner.echo_server(80):
        assert node.host.echo("10.79.1.1", OUR_PORT, "you") == "you"

    node.want(web=OTHER_PORT)  # a port mapping has changed
    assert node.reconcile(check=True)
    assert not node.host.rules("nat", f"--dport {OUR_PORT}")
    with node.inner.echo_server(80):
        assert node.host.echo("10.79.1.1", OTHER_PORT, "you") == "you"

    node.write_front(mtu=1400)  # the network's configuration has changed
    assert node.reconcile(check=True)
    assert node.inner.link("eth0")["mtu"] == 1400

    subprocess.run(["ip", "-n", node.inner.name, "link", "delete", "eth0"], check=True)  # somebody's hands
    assert node.reconcile(check=True)
    assert node.inner.addresses("eth0")
    with node.inner.echo_server(80):
        assert node.host.echo("10.79.1.1", OTHER_PORT, "you") == "you"

    assert node.reconcile()  # CHECK succeeds after the repair
    node.host.run("iptables", "-t", "nat", "-F", next(one for one in node.rules_of("web")).split()[-1])
    assert node.reconcile(check=True)
    with node.inner.echo_server(80):
        assert node.host.echo("10.79.1.1", OTHER_PORT, "you") == "you"

    record = files(node.cache)
    assert node.reconcile(check=True)
    assert files(node.cache) == record  # nothing was attached again
    node.want()
    assert node.reconcile(check=True)
    assert (node.leased_by("web"), node.rules_of("web"), node.inner.links()) == ([], [], ["lo"])
    assert node.of_theirs() == before


def test_a_namespace_that_has_gone_is_reported_until_it_is_there_again(node: FleetNode) -> None:
    before = node.of_theirs()
    node.want(web=OUR_PORT)
    assert node.reconcile()
    subprocess.run(["ip", "netns", "delete", node.inner.name], check=True)
    for _ in range(2):
        assert not node.reconcile(check=True)
        assert list(node.agent.failing) == ["web"]
    assert (node.leased_by("web"), node.rules_of("web")) == ([], [])
    subprocess.run(["ip", "netns", "add", node.inner.name], check=True)
    assert node.reconcile(check=True)
    assert node.inner.addresses("eth0")
    assert node.of_theirs() == before
    assert os.path.exists(node.theirs.path)
