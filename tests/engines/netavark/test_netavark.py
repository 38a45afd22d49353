"""The real netavark of Debian sid, with the driver and real plugins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nodes import PLUGIN_PATH, PLUGINS, Namespace, RealNode
from peers import peer_files

from libcni.cli import main
from libcni.engines.netavark import OWNER

from .conftest import ID, network

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.may_skip]  # the package is downloaded

PORT = {"container_port": 80, "host_ip": "", "host_port": 8080, "protocol": "tcp,udp", "range": 3}


@pytest.fixture(scope="module")
def netavark() -> list[str]:
    """Return the command of netavark. It is downloaded here: in the namespace of a test there is no Internet."""
    return [str(peer_files("netavark") / "usr/lib/podman/netavark")]


class NetavarkNode(RealNode):
    """A RealNode with netavark and the installed driver."""

    def __init__(self, root: Path, host: Namespace, netavark: list[str]) -> None:
        super().__init__(root, host)
        self.settings |= {"owner": OWNER}
        self.program = [*netavark, "--config", str(root / "run"), "--plugin-directory", str(root / "drivers")]
        (root / "run").mkdir()
        options = [f"--conf-dir={self.conf_dir}", f"--path={PLUGINS}", f"--cache-dir={self.cache}"]
        assert main(["netavark-plugin", *options, f"--install={root / 'drivers'}"]) == 0
        ipam = {"type": "host-local", "dataDir": str(self.leases), "subnet": "10.88.7.0/24"}
        bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": True, "ipam": ipam}
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        self.write("front.conflist", {"cniVersion": "1.0.0", "name": "front", "plugins": [bridge, portmap]})

    def ask(self, verb: str, netns: str, opts: Any = None, **own: Any) -> tuple[int, Any]:
        """Run netavark as podman does; return its exit code and its answer."""
        document = {
            "container_id": ID,
            "container_name": "web",
            "networks": {"front": {"interface_name": "eth0", "aliases": ["web"], **own}},
            "network_info": {"front": network(options=opts, dns_enabled=False)},
            "port_mappings": [PORT],
        }
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{PLUGIN_PATH}"}
        words = [*self.program, verb, netns]
        done = subprocess.run(words, input=json.dumps(document), env=env, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout or "null")

    def left(self) -> tuple[Any, ...]:
        rules = [rule for rule in self.host.rules("nat") if "10.88.7." in rule]
        return self.states(), sorted(path.name for path in self.leases.glob("*/10.*")), rules


@pytest.fixture
def node(netavark: list[str], tmp_path: Path, host: Namespace) -> NetavarkNode:
    return NetavarkNode(tmp_path, host, netavark)


def test_netavark_sets_up_and_tears_down(node: NetavarkNode, container: Namespace) -> None:
    code, answer = node.ask("setup", container.path, static_ips=["10.88.7.9"])
    assert code == 0, answer
    [interface] = answer["front"]["interfaces"].values()
    assert interface["subnets"] == [{"gateway": "10.88.7.1", "ipnet": "10.88.7.9/24"}]
    assert interface["mac_address"] == container.link("eth0")["address"]
    assert container.addresses("eth0") == ["10.88.7.9/24"]
    assert len([rule for rule in node.host.rules("nat") if "--to-destination 10.88.7.9:" in rule]) == 6
    for _ in range(2):
        assert node.ask("teardown", container.path)[0] == 0
        assert (node.left(), container.links()) == (([], [], []), ["lo"])


@pytest.mark.parametrize(
    ("opts", "own", "said"),
    [
        ({"conf": "nowhere"}, {}, "no CNI network nowhere"),
        (None, {"static_ips": ["10.99.0.9"]}, "10.99.0.9"),
    ],
)
def test_a_refusal_reaches_podman_and_leaves_nothing(
    node: NetavarkNode, container: Namespace, opts: Any, own: dict[str, Any], said: str
) -> None:
    code, answer = node.ask("setup", container.path, opts, **own)
    assert code != 0
    assert said in answer["error"]
    assert (node.left(), container.links()) == (([], [], []), ["lo"])
