"""Pods with a user namespace of their own (``hostUsers: false``), and a rootless node: the living lose nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf
from libcni.testing import wait_until

pytestmark = pytest.mark.real

_POD = (
    *("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "--user", "--map-root-user", "--net"),
    *("sh", "-c", "echo ready; exec sleep 1000"),
)


@pytest.fixture
def pod() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a network namespace that belongs to a user namespace of its own."""
    with subprocess.Popen(_POD, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["record", "path"])
def test_a_pod_with_a_user_namespace_of_its_own_lives(
    node: OperatorNode, pod: subprocess.Popen[bytes], tmp_path: Path, lost: str
) -> None:
    """Without its record it lives by the veth that root connected to the node; without its path by its process."""
    path = tmp_path / "pod"
    path.touch()
    subprocess.run(["mount", "--bind", f"/proc/{pod.pid}/ns/net", path], check=True)
    try:
        node.cni.add_network_list("net", RuntimeConf("c1", str(path), "eth0"))
        node.assert_healthy()
        if lost == "record":
            node.record("c1").unlink()
            node.age_leases()
            found = node.finding("reserved for a container without a record")
            assert (f"process {pod.pid}" in found.meaning, found.mends) == (True, ())
    finally:
        subprocess.run(["umount", path], check=True)
    if lost == "path":
        assert [one.state for one in node.cni.get_cached_attachments()] == ["lost-path"]
        assert node.finding("but the namespace lives").name == "lost-path"
    node.repair("all")
    assert node.leased() == {f"{node.net}.2": "c1\neth0"}
    if lost == "path":
        node.assert_healthy()
        subprocess.run(["umount", path], check=True)
    pod.kill()
    pod.wait()

    def is_free() -> bool:
        node.repair()
        return not node.leased()

    wait_until(is_free, 60)


_ROOTLESS = """
import os, subprocess, sys, time
from pathlib import Path
from libcni import CNIConfig, RuntimeConf
from libcni.diagnosis import diagnose, repair_node
root, plugins = sys.argv[1:]
def run(*words): subprocess.run(words, check=True)
run("mount", "-t", "tmpfs", "none", "/run")
os.mkdir("/run/netns")
run("ip", "link", "set", "lo", "up")
ipam = '{"type":"host-local","dataDir":"%s/leases","subnet":"10.77.0.0/24"}' % root
Path(root, "net.conflist").write_text(
    '{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge","isGateway":true,"ipam":%s}]}' % ipam)
cni = CNIConfig([plugins], f"{root}/cache", conf_dir=root)
for name in ("living", "lost", "dead"):
    run("ip", "netns", "add", name)
    cni.add_network_list("net", RuntimeConf(name, f"/run/netns/{name}", "eth0"))
Path(root, "cache/results/net-lost-eth0").unlink()
run("ip", "netns", "delete", "dead")
leases = Path(root, "leases/net")
for lease in leases.glob("10.*"):
    os.utime(lease, (1, 1))
end = time.monotonic() + 60
while len(left := sorted(lease.read_text().split()[0] for lease in leases.glob("10.*"))) > 2 and time.monotonic() < end:
    repaired = repair_node(cni)
    assert not repaired.stopped, repaired.stopped
repaired = repair_node(cni, interrupt=["all"])
print(left, sorted(lease.read_text().split()[0] for lease in leases.glob("10.*")), repaired.stopped)
"""


@pytest.mark.slow
def test_the_containers_of_a_rootless_node_live_and_the_dead_are_freed(tmp_path: Path) -> None:
    """Its user sees the processes of the whole machine, and may look into his own ones alone."""
    unshare = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    command = [*unshare, sys.executable, "-c", _ROOTLESS, str(tmp_path), "/usr/lib/cni"]
    env = {**os.environ, "PATH": f"/usr/sbin:/sbin:{os.environ['PATH']}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (0, "['living', 'lost'] ['living', 'lost'] \n"), done.stderr
