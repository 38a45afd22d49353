"""The pools of host-local: whose the addresses are, and their release. By hand, and with real plugins."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest.mock import patch

import processes
import pytest
import yaml
from forkserver import ForkServer
from nodes import PLUGINS, Namespace, NewNamespace

from diagnosis.conftest import OperatorNode
from diagnosis.made import BRIDGE, IPAM, MadeNode
from libcni import PluginError
from libcni._defaults import CACHE_DIR, CONF_DIR, PLUGIN_PATH
from libcni.diagnosis import DoctorReport, repair_node
from libcni.diagnosis.doctor import report_on
from libcni.kernel import life
from libcni.kernel.namespace import IP_NETNS_DIRECTORY as NAMED
from libcni.kernel.namespace_holders import Walk
from libcni.testing import wait_until

ROOT = str(Path(__file__).parents[2])
SMALL = {**BRIDGE, "ipam": {**IPAM, "subnet": "10.1.0.0/26"}}


@pytest.fixture
def made(made: MadeNode) -> MadeNode:
    """Return a node with a network of 61 addresses and three living containers."""
    made.host.links["br0"].addresses = ["10.1.0.1/26"]
    config = {"cniVersion": "1.0.0", "name": "net", "plugins": [SMALL]}
    Path(made.cni.conf_dir, "net.conflist").write_text(json.dumps(config), encoding="utf-8")
    for number in (2, 3, 4):
        made.attach(f"c{number}", SMALL, address=f"10.1.0.{number}")
    return made


def reserve_dead(made: MadeNode, first: int, last: int) -> None:
    for number in range(first, last + 1):
        made.reserve(f"10.1.0.{number}", f"dead{number}")


def report(made: MadeNode) -> DoctorReport:
    return report_on(made.reading(), skip={"configuration", "plugins", "disk", "interfaces", "rules", "drift"})


def test_a_full_pool_is_the_first_finding(made: MadeNode) -> None:
    reserve_dead(made, 5, 62)
    first = report(made).findings[0]
    assert (first.severity, first.name) == ("error", "pool-full")
    assert first.seen == (
        "network net has no free address: 61 of 61 are reserved, 58 for containers that no longer exist"
    )
    assert [mend.kind for mend in first.mends] == ["release"] * 58
    assert [one.name for one in report(made).findings] == ["pool-full"], "one cause, one finding"


def test_a_pool_with_fewer_than_one_free_address_in_ten_is_low(made: MadeNode) -> None:
    reserve_dead(made, 5, 55)
    assert report(made).findings[0].name == "leak", "7 of 61 are free"
    made.reserve("10.1.0.56", "dead56")
    first = report(made).findings[0]
    assert (first.severity, first.name) == ("warning", "pool-low")
    assert first.seen.startswith("network net has 6 free addresses: 55 of 61 are reserved, 52 for ")


def test_dead_containers_with_a_record_are_counted_and_detached(made: MadeNode) -> None:
    for number in range(5, 63):
        made.attach(f"dead{number}", SMALL, address=f"10.1.0.{number}", version="")
        made.spaces.popitem()
        os.unlink(made.root / "ns" / f"dead{number}")
    first = report(made).findings[0]
    assert "58 for containers that no longer exist" in first.seen
    assert [mend.kind for mend in first.mends] == ["detach"] * 58
    assert "dead" not in {one.name for one in report(made).findings}


def test_a_full_pool_of_living_containers_has_no_mend(made: MadeNode) -> None:
    for number in range(5, 63):
        made.attach(f"c{number}", SMALL, address=f"10.1.0.{number}")
    [first] = report(made).findings
    assert first.seen == "network net has no free address: 61 of 61 are reserved"
    assert (first.mends, first.remedy) == ((), "remove containers, or give the network more addresses")


def test_addresses_that_were_reserved_a_moment_ago_are_of_nobody_known(made: MadeNode) -> None:
    for number in range(5, 63):
        made.reserve(f"10.1.0.{number}", f"new{number}", changed=999.0)
    first = report(made).findings[0]
    assert first.seen.endswith("61 of 61 are reserved, 58 for containers of which nothing is known")
    assert first.mends == ()


def test_who_would_be_interrupted_is_not_dead(made: MadeNode) -> None:
    """Its record is of another boot, and its interface lives."""
    made.attach("c9", SMALL, address="10.1.0.9", boot="another", state="stale-boot")
    reserve_dead(made, 5, 8)
    reserve_dead(made, 10, 62)
    assert report(made).findings[0].seen.endswith("61 of 61 are reserved, 57 for containers that no longer exist")


def test_each_range_set_of_a_dual_stack_network_is_a_pool(made: MadeNode) -> None:
    ranges = [[{"subnet": "10.1.0.0/26"}], [{"subnet": "fd00::/64"}]]
    dual = {**BRIDGE, "ipam": {"type": "host-local", "ranges": ranges, "dataDir": "/leases"}}
    config = {"cniVersion": "1.0.0", "name": "net", "plugins": [dual]}
    Path(made.cni.conf_dir, "net.conflist").write_text(json.dumps(config), encoding="utf-8")
    reserve_dead(made, 5, 62)
    for number in range(5, 63):
        made.reserve(f"fd00::{number:x}", f"dead{number}")
    first, *others = report(made).findings
    assert "61 of 61" in first.seen
    assert "pool-full" not in {one.name for one in others}, "2^64 addresses are free"
    assert [len(mend.details) for mend in first.mends] == [2] * 58


# With real plugins.


FLANNEL = """#!/usr/bin/python3
# Delegates as flannel's plugin does: flannel_linux.go, cmdAdd and cmdDel.
import ipaddress, json, os, subprocess, sys
conf, verb = json.load(sys.stdin), os.environ["CNI_COMMAND"]
if verb == "VERSION":
    print(json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "1.0.0"]})); sys.exit()
path = os.path.join(conf["dataDir"], os.environ["CNI_CONTAINERID"])
if verb == "ADD":
    env = dict(line.strip().split("=") for line in open(conf["subnetFile"]))
    subnet = str(ipaddress.ip_network(env["FLANNEL_SUBNET"], strict=False))
    ipam = {"type": "host-local", **conf.get("ipam", {}), "ranges": [[{"subnet": subnet}]]}
    delegate = {"type": "bridge", "isGateway": True, **conf["delegate"], "name": conf["name"],
                "cniVersion": conf["cniVersion"], "ipam": ipam}
    os.makedirs(conf["dataDir"], exist_ok=True)
    open(path, "w").write(json.dumps(delegate))
elif not os.path.exists(path):
    sys.exit()
delegate = json.load(open(path))
candidates = [f"{directory}/{delegate['type']}" for directory in os.environ["CNI_PATH"].split(":")]
binary = next(filter(os.path.exists, candidates))
done = subprocess.run([binary], input=json.dumps(delegate).encode())
if verb == "DEL" and not done.returncode:
    os.unlink(path)
sys.exit(done.returncode)
"""


class PodNode(OperatorNode):
    """A node of Kubernetes: the network ``cbr0`` with 13 addresses, and pods with records of Go's."""

    def configure_pods(self, *, flannel: bool) -> None:
        (self.conf_dir / "net.conflist").unlink(missing_ok=True)
        subnet = f"{self.net}.0/28"
        ipam = {"type": "host-local", "dataDir": str(self.leases)}
        if not flannel:
            self.configure(
                "cbr0", self.bridge(subnet, ipMasq=True), {"type": "portmap", "capabilities": {"portMappings": True}}
            )
            return
        (self.bin / "flannel").write_text(FLANNEL, encoding="utf-8")
        (self.bin / "flannel").chmod(0o755)
        (self.root / "subnet.env").write_text(
            f"FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_SUBNET={self.net}.1/28\n", encoding="utf-8"
        )
        plugin = {
            "type": "flannel", "subnetFile": str(self.root / "subnet.env"), "dataDir": str(self.flannel),
            "delegate": {"bridge": "br-node"}, "ipam": ipam,
        }  # fmt: skip
        self.configure("cbr0", plugin)

    attached: dict[str, Namespace]

    @property
    def flannel(self) -> Path:
        return self.root / "flannel"

    def fill(self, living: int, *, dead: int, network: str = "cbr0") -> list[str]:
        """Attach pods until the pool is full, and end some of them without a DEL; return the living ones' IDs."""
        names = [f"pod{number}" for number in range(living + dead)]
        self.attached = {name: self.attach(name, network) for name in names}
        for name, namespace in self.attached.items():
            self.strip_record(name, network)
            if name not in names[:living]:
                subprocess.run(["ip", "netns", "del", namespace.name], check=True)
        self.age_leases()
        return names[:living]

    def lose_records(self, *, lost: Iterable[int], torn: Iterable[int], network: str = "cbr0") -> None:
        """Remove the records of some pods, and tear those of others."""
        for number in lost:
            self.record(f"pod{number}", network).unlink()
        for number in torn:
            self.record(f"pod{number}", network).write_bytes(b"")

    def reserved_for(self) -> set[str]:
        return {text.split()[0] for text in self.leased().values()}


@pytest.fixture
def pods(tmp_path: Path, host: Namespace, new_namespace: NewNamespace, fork_server: ForkServer) -> PodNode:
    return PodNode(tmp_path, host, new_namespace, fork_server)


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("plugin", ["bridge", "flannel"])
def test_a_full_pool_is_freed_and_the_living_keep_theirs(pods: PodNode, plugin: str) -> None:
    """Of some of the dead there are records, of some torn ones, and of some reservations alone."""
    pods.configure_pods(flannel=plugin == "flannel")
    living = pods.fill(3, dead=10)
    pods.lose_records(lost=range(6, 10), torn=range(10, 13))
    with pytest.raises(PluginError, match="find out the cause"):
        pods.attach("one-more", "cbr0")
    first = pods.diagnose().findings[0]
    assert first.seen == (
        "network cbr0 has no free address: 13 of 13 are reserved, 10 for containers that no longer exist"
    )
    pods.repair(include_go=True)
    assert pods.reserved_for() == set(living)
    assert sorted(os.listdir(pods.results)) == [f"cbr0-{name}-eth0" for name in sorted(living)]
    assert not [one for one in pods.diagnose().findings if one.name in {"pool-full", "leak", "dead", "corrupt-record"}]
    assert not pods.host.rules("nat", "pod5")
    pods.attach("next", "cbr0")


@pytest.mark.real
def test_records_that_are_lost_free_no_address_of_living_pods(pods: PodNode) -> None:
    pods.configure_pods(flannel=True)
    living = pods.fill(13, dead=0)
    for name in living:
        pods.record(name, "cbr0").unlink()
    done = repair_node(pods.cni, include_go=True)
    assert done.outcomes == ()
    assert pods.reserved_for() == set(living)
    assert done.report.findings[0].seen == "network cbr0 has no free address: 13 of 13 are reserved"


@pytest.mark.real
def test_a_directory_whose_network_nobody_configures_is_looked_at(pods: PodNode) -> None:
    pods.configure_pods(flannel=True)
    pods.fill(1, dead=3)
    for path in (*pods.results.iterdir(), *pods.conf_dir.iterdir()):
        path.unlink()
    pods.write_bridge(ipam={"dataDir": str(pods.leases)})
    pods.repair()
    assert pods.reserved_for() == {"pod0"}


@pytest.mark.real
@pytest.mark.parametrize("ending", [0, 1])
def test_a_pod_whose_namespace_only_processes_have_keeps_its_address(
    pods: PodNode, monkeypatch: pytest.MonkeyPatch, ending: int
) -> None:
    """One of them ends between the list of the processes and the look at its namespace, like a health check."""
    pods.configure_pods(flannel=False)
    pods.fill(0, dead=2)
    namespace = pods.attach("alive", "cbr0")
    processes = [subprocess.Popen(["ip", "netns", "exec", namespace.name, "sleep", "60"]) for _ in range(2)]

    def walk_then_end(**options: bool) -> Walk:
        walk = Walk(**options)
        processes[ending].kill()
        processes[ending].wait()
        return walk

    try:
        pods.record("alive", "cbr0").unlink()
        for process in processes:
            wait_until(lambda: os.readlink(f"/proc/{process.pid}/exe").endswith("sleep"))  # noqa: B023
        subprocess.run(["ip", "netns", "del", namespace.name], check=True)
        pods.age_leases()
        monkeypatch.setattr(life, "Walk", walk_then_end)
        assert "alive" not in str([finding.mends for finding in pods.diagnose().findings])
        monkeypatch.undo()
        pods.repair(include_go=True)
        assert pods.reserved_for() == {"alive"}
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.real
def test_two_networks_with_one_pool(pods: PodNode) -> None:
    """Each has reservations of its own for the addresses of one bridge. What one has released stays the other's."""
    pods.configure_pods(flannel=False)
    pods.configure("second", pods.bridge(f"{pods.net}.0/28"))
    pods.fill(2, dead=3)
    pods.lease(2, "ended\r\neth0", "second")
    pods.lease(9, "ended\r\neth1", "second")
    pods.repair(include_go=True)
    assert {path.name for path in (pods.leases / "cbr0").glob("10.*")} == {f"{pods.net}.2", f"{pods.net}.3"}
    assert {path.name for path in (pods.leases / "second").glob("10.*")} == {f"{pods.net}.2"}, "it is in use"


@pytest.mark.real
@pytest.mark.slow
def test_5000_dead_reservations_are_released_in_seconds(pods: PodNode) -> None:
    pods.configure("net", pods.bridge(f"{pods.net.rpartition('.')[0]}.0.0/16"))
    directory = pods.leases / "net"
    pods.attach("living")
    for number in range(5000):
        path = directory / f"{pods.net.rpartition('.')[0]}.{number // 250}.{number % 250 + 2}"
        if not path.exists():
            path.write_text(f"dead{number}\r\neth0", encoding="utf-8")
            os.utime(path, (1, 1))
    started = time.process_time()  # not the clock on the wall: other tests run beside this one
    assert len(pods.repair().outcomes) >= 4999
    assert time.process_time() - started < 20
    assert pods.reserved_for() == {"living"}


@pytest.mark.real
@pytest.mark.parametrize("after", [0, 4])
@pytest.mark.slow
def test_a_repair_that_is_killed_is_repeated(pods: PodNode, after: int) -> None:
    pods.configure_pods(flannel=True)
    living = pods.fill(2, dead=8)
    for number in range(4, 10):
        pods.record(f"pod{number}", "cbr0").unlink()
    pods.record("pod2", "cbr0").write_bytes(b"")
    left = after

    def counting(real: Callable[..., None]) -> Callable[..., None]:
        def call(*args: object, **options: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            real(*args, **options)

        return call

    def repair() -> None:
        with patch.object(os, "unlink", counting(os.unlink)), patch.object(os, "rename", counting(os.rename)):
            repair_node(pods.cni, include_go=True)

    status = processes.wait(processes.fork(repair))
    assert status == -signal.SIGKILL
    assert set(living) <= pods.reserved_for()
    pods.repair(include_go=True)
    assert pods.reserved_for() == set(living)


POD = """
import sys
from libcni import CNIConfig
from libcni.diagnosis import repair_node
done = repair_node(CNIConfig(sys.argv[1], sys.argv[2], conf_dir=sys.argv[3]), include_go=True)
print(len(done.outcomes), *sorted({one.reason for one in done.report.not_checked}), sep="\\n")
"""


def repair_in_a_pod(pods: PodNode, *options: str, hidden: str, container: str = "") -> str:
    """Repair the node as in a privileged pod, with a mount namespace of its own, and return what is said.

    ``container``: the network namespace of a container whose process the pod sees, in a PID namespace of its own.
    """
    words = [sys.executable, "-c", POD, f"{pods.bin}:{PLUGINS}", str(pods.cache), str(pods.conf_dir)]
    shell = f"{hidden} && exec {shlex.join(words)}"
    if container:
        there = f"unshare --pid --fork nsenter --net={container} sleep 60"
        shell = f"{there} & sleep 1; unshare --mount sh -c {shlex.quote(shell)}; exit $?"
    inside = ["nsenter", f"--net={pods.host.path}", "unshare", "--mount", *options, "sh", "-c", shell]
    return subprocess.run(
        inside, check=True, capture_output=True, text=True, env={**pods.env, "PYTHONPATH": ROOT}
    ).stdout


HIDE = "mount -t tmpfs none /run/netns"


@pytest.mark.real
def test_in_a_pod_that_sees_no_containers_nothing_is_freed(pods: PodNode) -> None:
    """A pod without hostPID and without the host's /run/netns: all pods look dead there."""
    pods.configure_pods(flannel=False)
    pods.fill(2, dead=2)
    pods.lose_records(lost=[1, 3], torn=[])
    said = repair_in_a_pod(pods, "--pid", "--fork", "--mount-proc", hidden=HIDE)
    assert said.startswith("0\n")
    assert "hostPID" in said
    assert pods.reserved_for() == {"pod0", "pod1", "pod2", "pod3"}
    pods.repair(include_go=True)
    assert pods.reserved_for() == {"pod0", "pod1"}


@pytest.mark.real
def test_in_a_pod_with_the_processes_of_the_node_only_the_dead_are_freed(pods: PodNode) -> None:
    """The living ones have no process: a container that starts again and again has none at some moments."""
    pods.configure_pods(flannel=False)
    living = pods.fill(2, dead=2)
    for path in pods.results.iterdir():
        os.utime(path, (1, 1))
    pods.lose_records(lost=[1, 3], torn=[])
    alone = ("--pid", "--fork", "--mount-proc")
    said = repair_in_a_pod(pods, *alone, hidden="true", container=pods.new_namespace().path)
    assert pods.reserved_for() == set(living), said
    pods.lease(9, "dead\r\neth0", "cbr0")
    # The names of the namespaces alone prove nothing: a service may keep one in a mount namespace of its own.
    said = repair_in_a_pod(pods, *alone, hidden="true")
    assert "hostPID" in said
    assert pods.reserved_for() == {*living, "dead"}, said


@pytest.mark.real
@pytest.mark.slow
def test_a_full_pool_with_ipv6_is_freed(pods: PodNode) -> None:
    ranges = [[{"subnet": f"{pods.net6}::/124"}], [{"subnet": f"{pods.net}.0/28"}]]
    ipam = {"type": "host-local", "dataDir": str(pods.leases), "ranges": ranges}
    pods.configure("cbr0", {"type": "bridge", "bridge": "br-node", "isGateway": True, "ipMasq": True, "ipam": ipam})
    living = pods.fill(2, dead=11)
    pods.lose_records(lost=range(2, 13), torn=[])
    for path in (pods.leases / "cbr0").iterdir():
        os.utime(path, (1, 1))
    seen = "network cbr0 has no free address: 13 of 13 are reserved, 11 for containers that no longer"
    assert pods.diagnose().findings[0].seen.startswith(seen)
    pods.repair(include_go=True)
    reserved = [
        path.read_text().split()[0] for path in (pods.leases / "cbr0").iterdir() if path.name[:2] in {"10", "fd"}
    ]
    assert sorted(reserved) == sorted(living * len(ranges))
    pods.attach("next", "cbr0")


MULTUS = """#!/usr/bin/python3
# Delegates as Multus does: each delegate by its own name, with Multus's own parameters.
import json, os, subprocess, sys
conf = json.load(sys.stdin)
if os.environ["CNI_COMMAND"] == "VERSION":
    print(json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["0.3.1", "1.0.0"]})); sys.exit()
[delegate] = conf["delegates"]
candidates = [f"{directory}/{delegate['type']}" for directory in os.environ["CNI_PATH"].split(":")]
binary = next(filter(os.path.exists, candidates))
sys.exit(subprocess.run([binary], input=json.dumps({"cniVersion": conf["cniVersion"], **delegate}).encode()).returncode)
"""


@pytest.mark.real
@pytest.mark.slow
def test_a_full_pool_of_a_delegate_of_multus_is_freed(pods: PodNode) -> None:
    """The pods' records name Multus's network, and host-local's directory the delegate's."""
    (pods.bin / "multus").write_text(MULTUS, encoding="utf-8")
    (pods.bin / "multus").chmod(0o755)
    delegate = {"name": "cbr0", **pods.bridge(f"{pods.net}.0/28", ipMasq=True)}
    (pods.conf_dir / "net.conflist").unlink()
    pods.configure("multus-cni-network", {"type": "multus", "delegates": [delegate]})
    living = pods.fill(3, dead=10, network="multus-cni-network")
    pods.lose_records(lost=range(6, 10), torn=range(10, 13), network="multus-cni-network")
    with pytest.raises(PluginError, match="find out the cause"):
        pods.attach("one-more", "multus-cni-network")
    assert pods.diagnose().findings[0].seen == (
        "network cbr0 has no free address: 13 of 13 are reserved, 10 for containers that no longer exist"
    )
    pods.repair(include_go=True)
    assert pods.reserved_for() == set(living)
    assert pods.diagnose().status == "ok"
    pods.attach("next", "multus-cni-network")


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("file", ["systemd/libcni-repair.service", "fleet/repair.yaml"])
def test_what_prevents_a_full_pool_frees_a_low_one_and_lets_others_be(pods: PodNode, file: str) -> None:
    text = Path(ROOT, "examples", file).read_text(encoding="utf-8")
    [command] = re.findall(r"libcni repair -[^;\n]*", text)
    pods.configure_pods(flannel=False)
    living = pods.fill(1, dead=10)
    pods.type(command)
    assert len(pods.reserved_for()) == 11, "2 of 13 are free"
    pods.lease(13, "dead\r\neth0", "cbr0")
    pods.lease(14, "dead\r\neth0", "cbr0")
    said = pods.type(command)
    assert pods.reserved_for() == set(living), said


def test_the_pod_that_frees_addresses_sees_the_node() -> None:
    document = yaml.safe_load(Path(ROOT, "examples/fleet/repair.yaml").read_text(encoding="utf-8"))
    assert document["spec"]["selector"]["matchLabels"] == document["spec"]["template"]["metadata"]["labels"]
    spec = document["spec"]["template"]["spec"]
    assert (spec["hostPID"], spec["hostNetwork"]) == (True, True)
    [container] = spec["containers"]
    mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
    assert {one["name"]: one["hostPath"]["path"] for one in spec["volumes"]} == {
        mount["name"]: path for path, mount in mounts.items()
    }
    assert mounts.keys() > {CONF_DIR, PLUGIN_PATH.split(":")[0], CACHE_DIR, NAMED}
    assert mounts[NAMED]["mountPropagation"] == "HostToContainer"
