"""A real node: real plugins, a machine and containers in network namespaces, and a shell to type commands in."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from forkserver import ForkServer
from real.namespaces import Namespace, inside

import libcni
from libcni import DoctorReport, NodeFinding
from libcni.testing import NetworkNamespace


class RealNode:
    """A node with the network ``net``, made by bridge and host-local."""

    bridge = "oper0"

    def __init__(self, root: Path, new_namespace: Callable[[], Namespace], server: ForkServer) -> None:
        self.root = root
        self.server = server
        self.new_namespace = new_namespace
        self.net_d, self.bin, self.cache, self.leases = (root / name for name in ("net.d", "bin", "cache", "leases"))
        self.net_d.mkdir()
        self.bin.mkdir()
        self.cni = libcni.CNIConfig([self.bin, "/usr/lib/cni"], self.cache, conf_dir=self.net_d, timeout=20)
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "NETCONFPATH": str(self.net_d),
            "CNI_PATH": f"{self.bin}:/usr/lib/cni",
            "LIBCNI_CACHE_DIR": str(self.cache),
        }
        self.write()

    def write(self, name: str = "net", **more: Any) -> None:
        """Write a network of one bridge plugin; ``more`` changes its keys."""
        plugin = {"type": "bridge", "bridge": self.bridge, "isGateway": True, **self.ipam("10.231.0.0/24"), **more}
        self.write_list(name, plugin)

    def write_list(self, name: str, *plugins: dict[str, Any], version: str = "1.0.0") -> None:
        document = {"cniVersion": version, "name": name, "plugins": plugins}
        (self.net_d / f"{name}.conflist").write_text(json.dumps(document), encoding="utf-8")

    def ipam(self, subnet: str) -> dict[str, Any]:
        return {"ipam": {"type": "host-local", "dataDir": str(self.leases), "subnet": subnet}}

    def attach(self, container: str, network: str = "net") -> Namespace:
        """Make a namespace and attach it."""
        namespace = self.new_namespace()
        self.cni.add_network_list(network, libcni.RuntimeConf(container, namespace.path, "eth0"))
        return namespace

    def record(self, container: str, network: str = "net") -> Path:
        return self.cache / "results" / f"{network}-{container}-eth0"

    def change_record(self, container: str, **own: Any) -> None:
        path = self.record(container)
        record = json.loads(path.read_text(encoding="utf-8"))
        record["libcni"] |= own
        path.write_text(json.dumps(record), encoding="utf-8")

    def diagnose(self, *, run_check: bool = False) -> DoctorReport:
        return libcni.diagnose(self.cni, run_check=run_check)

    def finding(self, seen: str, *, run_check: bool = False) -> NodeFinding:
        """Return the finding that says ``seen``."""
        findings = self.diagnose(run_check=run_check).findings
        matching = [one for one in findings if seen in one.seen]
        assert matching, f"no finding says {seen!r}: {[one.seen for one in findings]}"
        return matching[0]

    def type(self, command: str, *, code: int = 0) -> str:
        """Type a command into a shell on the node; a plain command of libcni needs no shell."""
        words = shlex.split(command)
        if words[0] == "libcni" and not set(command) & set("|&;<>$"):
            status, out, err = self.server.run(words[1:], self.env, self.root)
        else:
            ran = subprocess.run(["bash", "-c", command], env=self.env, capture_output=True, text=True, check=False)
            status, out, err = ran.returncode, ran.stdout, ran.stderr
        assert status == code, f"{command}: {out}{err}"
        return out

    def mend(self, seen: str, *, run_check: bool = False) -> NodeFinding:
        """Find a problem, and type what the doctor says about it."""
        found = self.finding(seen, run_check=run_check)
        assert found.commands
        for command in found.commands:
            self.type(command)
        return found

    def assert_healthy(self, *, run_check: bool = False) -> None:
        report = self.diagnose(run_check=run_check)
        assert report.findings == ()
        assert report.checked


@pytest.fixture
def real_node(
    tmp_path: Path, cni_namespaces: Callable[[], AbstractContextManager[NetworkNamespace]], fork_server: ForkServer
) -> Iterator[RealNode]:
    """Return a node whose machine is a namespace of its own, so that none of this machine is touched."""
    with ExitStack() as stack:

        def new_namespace() -> Namespace:
            return Namespace(stack.enter_context(cni_namespaces()).name)

        machine = new_namespace()
        stack.enter_context(inside(machine.path))
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield RealNode(tmp_path, new_namespace, fork_server)


@pytest.fixture
def named_namespace() -> Iterator[str]:
    """Return the name of a namespace that the test may remove and make again."""
    name = f"oper-{uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield name
    if Path("/run/netns", name).exists():
        subprocess.run(["ip", "netns", "del", name], check=True)
