"""A node of an operator: real plugins in network namespaces, and a shell to type commands in."""

from __future__ import annotations

import fcntl
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4
from weakref import finalize

import pytest
from forkserver import ForkServer
from nodes import PLUGINS, FakeNode, Namespace, NewNamespace, RealNode

import libcni
import libcni.diagnosis
from diagnosis.made import MadeNode
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import DoctorReport, NodeFinding, NodeRepair, diagnose, lock_users
from libcni.store.locks import PLUGIN, offset_of
from libcni.testing import wait_until


def unused_number() -> tuple[int, int]:
    """Return a number that no other test uses, as long as the descriptor is open; fixed addresses have lower ones."""
    for number in random.sample(range(100, 224), 124):
        descriptor = os.open(f"/tmp/libcni-test-10.{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor, number
        os.close(descriptor)
    raise AssertionError("124 tests run at once")


class OperatorNode(RealNode):
    """A node with the network ``net``, made by bridge and host-local, and with a shell to type commands in."""

    def __init__(self, root: Path, host: Namespace, new_namespace: NewNamespace, server: ForkServer) -> None:
        super().__init__(root, host)
        self.settings |= {"env": None, "timeout": 20}
        self.server = server
        # The doctor looks for addresses in all namespaces of the machine. A dead pod seems to live if a container of
        # another test has its address.
        descriptor, number = unused_number()
        finalize(self, os.close, descriptor)
        self.net = f"10.{number}.{random.randrange(256)}"
        self.second = f"172.{random.randrange(20, 32)}.{random.randrange(256)}"
        self.net6 = f"fd{random.randrange(256):02x}:{random.randrange(1, 65536):x}"
        self.new_namespace = new_namespace
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "NETCONFPATH": str(self.conf_dir),
            "CNI_PATH": f"{self.bin}:{PLUGINS}",
            "LIBCNI_CACHE_DIR": str(self.cache),
        }
        self.write_bridge()

    def write_bridge(self, name: str = "net", **more: Any) -> None:
        """Write a network of one bridge plugin; ``more``: its further keys."""
        self.configure(name, self.bridge(f"{self.net}.0/24", **more))

    def attach(self, container: str, network: str = "net") -> Namespace:
        """Make a namespace and attach it."""
        namespace = self.new_namespace()
        self.cni.add_network_list(network, libcni.RuntimeConf(container, namespace.path, "eth0"))
        return namespace

    def lease(self, last: int, text: str, network: str = "net") -> Path:
        """Write the reservation of an address, as a runtime that has ended left it."""
        path = self.leases / network / f"{self.net}.{last}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        self.age_leases()
        return path

    def age_leases(self) -> None:
        """An address that was reserved a moment ago may be of an ADD that runs."""
        for path in self.leases.rglob("10.*"):
            os.utime(path, (1, 1))

    def diagnose(self, **options: bool) -> DoctorReport:
        return libcni.diagnosis.diagnose(self.cni, **options)

    def finding(self, seen: str, *, run_check: bool = False) -> NodeFinding:
        """Return the finding that says ``seen``."""
        findings = self.diagnose(run_check=run_check).findings
        matching = [one for one in findings if seen in one.seen]
        assert matching, f"no finding says {seen!r}: {[one.seen for one in findings]}; {self.diagnose().not_checked}"
        return matching[0]

    def type(self, command: str, *, code: int = 0) -> str:
        """Type a command into a shell on the node; a plain command of libcni needs no shell."""
        words = shlex.split(command)
        if words[0] == "libcni" and not set(command) & set("|&;<>$"):
            status, out, err = self.libcni(*words[1:])
        else:
            ran = subprocess.run(["bash", "-c", command], env=self.env, capture_output=True, text=True, check=False)
            status, out, err = ran.returncode, ran.stdout, ran.stderr
        assert status == code, f"{command}: {out}{err}"
        return out

    def libcni(self, *words: str) -> tuple[int, str, str]:
        """Run a command; return its exit code, stdout and stderr."""
        return self.server.run(words, self.env, self.root)

    def repair(self, *interrupt: str, **options: Any) -> NodeRepair:
        """Repair the node; each mend must succeed, and nobody lose anything."""
        done = libcni.diagnosis.repair_node(self.cni, interrupt=interrupt, **options)
        assert done.stopped == ""
        assert [one for one in done.outcomes if one.state == "failed"] == []
        return done

    def mend(self, seen: str, *, run_check: bool = False, interrupt: str = "") -> NodeFinding:
        """Find a problem, and repair the node."""

        # While another test hides a namespace, or a doctor of another test reads this one, nothing is known to be dead.
        def look() -> list[NodeFinding]:
            return [one for one in self.diagnose(run_check=run_check).findings if seen in one.seen]

        found = wait_until(look, 60, f"no finding says {seen!r}")[0]
        assert found.mends

        def mended() -> bool:
            done = self.repair(*filter(None, [interrupt]), run_check=run_check)
            return any(one.state == "mended" and one.mend in found.mends for one in done.outcomes)

        wait_until(mended, 60)
        return found

    def assert_healthy(self, *, run_check: bool = False) -> None:
        report = self.diagnose(run_check=run_check)
        assert report.findings == ()
        assert report.checked


@pytest.fixture
def node(tmp_path: Path, host: Namespace, new_namespace: NewNamespace, fork_server: ForkServer) -> OperatorNode:
    return OperatorNode(tmp_path, host, new_namespace, fork_server)


@pytest.fixture
def named_namespace() -> Iterator[str]:
    """Return the name of a namespace that the test may remove and make again."""
    name = f"oper-{uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    yield name
    if Path("/run/netns", name).exists():
        subprocess.run(["ip", "netns", "del", name], check=True)


def install(node: OperatorNode, content: bytes, mode: int = 0o755) -> Path:
    """Install a plugin in the place of bridge, found before it."""
    path = node.bin / "bridge"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def plugins_of(node: FakeNode, container: str, name: str = "") -> list[int]:
    """Return the processes of the plugins that run for a container, and that have a name."""
    found = lock_users(f"{node.cache}/locks", {PLUGIN + offset_of(container)})
    return [int(text.rpartition("(")[2].rstrip(")")) for text in found if text.startswith(name)]


GOOD = b"""#!/bin/sh
echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
"""


@pytest.fixture
def healthy(tmp_path: Path) -> FakeNode:
    """Return a healthy node with the network net and the attachment c1."""
    node = FakeNode(tmp_path)
    node.plugin("a", result={"cniVersion": "1.0.0"})
    node.configure("net", "a")
    node.cni.add_network_list("net", RuntimeConf("c1", node.netns("c1"), "eth0"))
    return node


@pytest.fixture
def made(tmp_path: Path) -> MadeNode:
    return MadeNode(tmp_path)


@pytest.fixture
def cni(healthy: FakeNode) -> CNIConfig:
    return healthy.cni


def only(cni: CNIConfig) -> NodeFinding:
    (finding,) = diagnose(cni).findings
    assert finding.remedy or finding.mends
    return finding
