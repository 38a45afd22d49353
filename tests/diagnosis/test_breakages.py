"""Break a node, type what the doctor prints up to three times, and compare every container with the time before.

No command may change the address, interface, reservation or rules of a container that lives for the worse. Where the
commands can mend the node, it is afterwards as it was before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from forkserver import ForkServer
from nodes import Namespace, NewNamespace

from diagnosis.conftest import OperatorNode
from libcni import RuntimeConf
from libcni._namespace import call_in_thread, enter_namespace
from libcni.diagnosis import DoctorReport
from libcni.testing import wait_until

pytestmark = pytest.mark.real

T = TypeVar("T")

CONTAINERS = ("c1", "c2", "c3")
OUTSIDE, UPLINK = "192.0.2.2", "192.0.2.1"
SECONDS = 0.6


@dataclass(frozen=True)
class Seen:
    """What somebody can see of a container: its network, whether its port answers, whether it reaches the outside."""

    mac: str
    addresses: tuple[str, ...]
    routes: tuple[tuple[str, str | None], ...]
    is_published: bool
    reaches_outside: bool
    reaches_neighbour: bool


class BreakableNode(OperatorNode):
    """Three containers with published ports on a host that has one neighbour outside."""

    def __init__(self, root: Path, host: Namespace, new_namespace: NewNamespace, server: ForkServer) -> None:
        super().__init__(root, host, new_namespace, server)
        self.outside = new_namespace()
        for command in (
            "ip link add uplink type veth peer name outside",
            f"ip link set outside netns {self.outside.name}",
            f"ip address add {UPLINK}/24 dev uplink",
            "ip link set uplink up",
        ):
            subprocess.run(command.split(), check=True)
        self.outside.run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "outside")
        self.outside.run("ip", "link", "set", "outside", "up")
        self.listeners = [listen(self.outside.path, 9000)]
        self.write_network()
        self.containers: dict[str, Namespace] = {}
        self.removed: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        for name in CONTAINERS:
            self.start(name)

    def write_network(self, name: str = "net", net: str = "") -> None:
        self.configure(
            name,
            self.bridge(f"{net or self.net}.0/24", ipMasq=True, isDefaultGateway=True),
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "firewall"},
        )

    def start(self, name: str) -> Namespace:
        """Attach a container that listens on port 80."""
        namespace = self.new_namespace()
        self.listeners.append(listen(namespace.path, 80))
        ports = {"portMappings": [{"hostPort": self.port(name), "containerPort": 80, "protocol": "tcp"}]}
        rt = RuntimeConf(name, namespace.path, "eth0", capability_args=ports)
        self.client(owner="runtime").add_network_list("net", rt)
        self.containers[name] = namespace
        return namespace

    def port(self, name: str) -> int:
        return 8080 + int(name.removeprefix("c"))

    def address(self, name: str) -> str:
        return f"{self.net}.{int(name[1:]) + 1}"

    def look(self) -> dict[str, Seen]:
        """Return what can be seen of each container that lives."""
        return {name: self._see(name, one) for name, one in self.containers.items()}

    def _see(self, name: str, namespace: Namespace) -> Seen:
        links = [link for link in namespace.ip("address") if link["ifname"] != "lo"]
        neighbour = next(other for other in self.containers if other != name)
        addresses = [
            f"{one['local']}/{one['prefixlen']}"
            for link in links
            for one in link["addr_info"]
            if one["scope"] == "global"
        ]
        return Seen(
            links[0]["address"] if links else "",
            tuple(addresses),
            tuple(sorted(namespace.routes().items())),
            can_connect(self.outside.path, UPLINK, self.port(name)),
            can_connect(namespace.path, OUTSIDE, 9000),
            can_connect(namespace.path, self.address(neighbour), 80),
        )

    def rules(self, *without: str) -> set[str]:
        """Return the rules; ``without``: not those of these containers."""
        hashes = [hashlib.sha512(f"net{name}".encode()).hexdigest()[:20] for name in without]
        marks = [*hashes, *map(self.address, without)]
        found = {rule for table in ("nat", "filter") for rule in self.host.rules(table, "-A")}
        return {rule for rule in found if not any(mark in rule for mark in marks)}

    def type_all(self, report: DoctorReport) -> bool:
        """Type all commands of a report as an operator would; return whether there were any."""
        commands = [command for one in report.findings for command in one.commands]
        for command in commands:
            subprocess.run(["bash", "-c", command], env=self.env, capture_output=True, check=False, cwd=self.root)
        return bool(commands)

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        for process in self.processes:
            process.kill()
            process.wait()
        for name in self.removed:  # the fixture removes them
            subprocess.run(["ip", "netns", "add", name], check=True)


def in_namespace(netns: str, function: Callable[[], T]) -> T:
    """Call a function in a thread that is in a namespace."""

    def enter_and_call() -> T:
        with open(netns, "rb") as file:
            enter_namespace(file.fileno())
        return function()

    return call_in_thread(enter_and_call)


def listen(netns: str, port: int) -> socket.socket:
    """Listen in a namespace. The kernel takes connections without an accept()."""

    def make() -> socket.socket:
        listener = socket.socket()
        listener.bind(("0.0.0.0", port))
        listener.listen(100)
        return listener

    return in_namespace(netns, make)


def can_connect(netns: str, address: str, port: int) -> bool:
    with in_namespace(netns, socket.socket) as connection:
        connection.settimeout(SECONDS)
        return connection.connect_ex((address, port)) == 0


@pytest.fixture
def broken(
    tmp_path: Path, host: Namespace, new_namespace: NewNamespace, fork_server: ForkServer
) -> Iterator[BreakableNode]:
    node = BreakableNode(tmp_path, host, new_namespace, fork_server)
    yield node
    node.close()


def run(*command: str) -> Callable[[BreakableNode], None]:
    def type_it(_: BreakableNode) -> None:
        for one in command:
            subprocess.run(["bash", "-c", one], check=True, capture_output=True)

    return type_it


def inside(command: str) -> Callable[[BreakableNode], None]:
    def type_it(node: BreakableNode) -> None:
        node.containers["c1"].run(*command.split())

    return type_it


def all_records_lost(node: BreakableNode) -> None:
    shutil.rmtree(node.results)
    node.age_leases()


def records_lost_and_flushed(node: BreakableNode) -> None:
    all_records_lost(node)
    run(FLUSH_NAT)(node)


def another_runtime(node: BreakableNode) -> None:
    """It has a record directory of its own, and the same pool of addresses."""
    ours, node.cache = node.settings.get("cache_dir", node.cache), node.root / "other-cache"
    node.start("c4")
    node.cache = ours
    node.age_leases()


def truncate(node: BreakableNode) -> None:
    node.record("c1").write_bytes(node.record("c1").read_bytes()[:100])


def truncate_and_set_aside(node: BreakableNode) -> None:
    truncate(node)
    node.type("libcni repair --yes")


def break_configuration(node: BreakableNode) -> None:
    node.write("net.conflist", "{")


def rename_network(node: BreakableNode) -> None:
    (node.conf_dir / "net.conflist").unlink()
    node.write_network("renamed")


def kill_container(node: BreakableNode, name: str = "c1") -> None:
    """Remove the namespace and all that keeps it."""
    container = node.containers.pop(name)
    node.listeners.pop(1 + CONTAINERS.index(name)).close()
    subprocess.run(["ip", "netns", "del", container.name], check=True)
    node.removed.append(container.name)


def truncate_and_kill(node: BreakableNode) -> None:
    truncate(node)
    kill_container(node)
    node.age_leases()


def reboot(node: BreakableNode) -> None:
    node.change_record("c1", bootId="another")
    kill_container(node)


def killed_add(node: BreakableNode) -> None:
    """Kill a runtime within its ADD, while the last plugin works."""
    netns = node.new_namespace().path
    node.plugin("slow", 'case $CNI_COMMAND in ADD) touch "${0%/*}/began"; sleep 60;; esac')
    document = json.loads((node.conf_dir / "net.conflist").read_text(encoding="utf-8"))
    document["plugins"].append({"type": "slow"})
    file = node.root / "slow.conflist"
    file.write_text(json.dumps(document), encoding="utf-8")
    ports = json.dumps({"portMappings": [{"hostPort": 8084, "containerPort": 80, "protocol": "tcp"}]})
    command = ["libcni", "add", str(file), netns, "-c", "c4", "--capabilities", ports]
    runtime = subprocess.Popen(command, env=node.env, cwd=node.root, stderr=subprocess.DEVNULL)
    node.processes.append(runtime)
    wait_until((node.bin / "began").exists)
    runtime.kill()
    runtime.wait()


def leak(node: BreakableNode) -> None:
    node.lease(77, "lost\r\neth0")


def forget_dead(node: BreakableNode) -> None:
    kill_container(node)
    node.type("libcni forget c1")
    node.age_leases()


def rules_left(node: BreakableNode) -> None:
    kill_container(node)
    node.type("libcni del -c c1 -i eth0")


def steal_lease(node: BreakableNode) -> None:
    (node.leases / "net" / node.address("c1")).write_text("c7\r\neth0", encoding="utf-8")
    node.age_leases()


def locks_is_a_directory(node: BreakableNode) -> None:
    (node.cache / "locks").unlink()
    (node.cache / "locks").mkdir()


def lose_path(node: BreakableNode) -> None:
    """Unmount the name of a namespace in which a process lives."""
    container = node.containers["c1"]
    sleeper = subprocess.Popen(["ip", "netns", "exec", container.name, "sleep", "60"])
    node.processes.append(sleeper)
    wait_until(lambda: os.readlink(f"/proc/{sleeper.pid}/exe").endswith("sleep"))
    subprocess.run(["umount", container.path], check=True)


def half_done(state: str) -> Callable[[BreakableNode], None]:
    """Let a verb have been killed at its very beginning or end, of a container that works."""

    def change(node: BreakableNode) -> None:
        node.processes.append(subprocess.Popen(["ip", "netns", "exec", node.containers["c1"].name, "sleep", "60"]))
        wait_until(lambda: os.readlink(f"/proc/{node.processes[-1].pid}/exe").endswith("sleep"))
        node.change_record("c1", state=state)

    return change


def move_interface(node: BreakableNode) -> None:
    command = ["ip", "-n", node.containers["c1"].name, "link", "set", "eth0"]
    subprocess.run([*command, "netns", node.containers["c2"].name, "name", "eth7"], check=True)


def veth_of(node: BreakableNode) -> str:
    interfaces: list[dict[str, Any]] = json.loads(node.record("c1").read_bytes())["result"]["interfaces"]
    return next(str(one["name"]) for one in interfaces if one["name"].startswith("veth"))


def host_end(command: str) -> Callable[[BreakableNode], None]:
    return lambda node: run(command.replace("VETH", veth_of(node)))(node)


FLUSH_NAT = "iptables -t nat -F && iptables -t nat -X"
FLUSH_FILTER = "iptables -F && iptables -X"

MENDED: dict[str, Callable[[BreakableNode], None]] = {
    "nat flushed": run(FLUSH_NAT),
    "nat and filter flushed": run(FLUSH_NAT, FLUSH_FILTER),
    "filter flushed": run(FLUSH_FILTER),
    "ports flushed": run("iptables -t nat -F CNI-HOSTPORT-DNAT"),
    "rules of one container": lambda node: run(
        f"iptables -t nat -S POSTROUTING | grep {node.address('c1')}/32 | sed 's/^-A/iptables -t nat -D/' | sh"
    )(node),
    "bridge down": run("ip link set br-node down"),
    "bridge without address": run("ip address flush dev br-node scope global"),
    "bridge deleted": run("ip link del br-node"),
    "forwarding off": run("echo 0 > /proc/sys/net/ipv4/ip_forward"),
    "eth0 down": inside("ip link set eth0 down"),
    "eth0 deleted": inside("ip link del eth0"),
    "address flushed": inside("ip address flush dev eth0"),
    "default route gone": inside("ip route del default"),
    "host end off the bridge": host_end("ip link set VETH nomaster"),
    "host end down": host_end("ip link set VETH down"),
    "lease removed": lambda node: (node.leases / "net" / node.address("c1")).unlink(),
    "lease directory removed": lambda node: shutil.rmtree(node.leases / "net"),
    "configuration removed": lambda node: (node.conf_dir / "net.conflist").unlink(),
    "configuration directory removed": lambda node: shutil.rmtree(node.conf_dir),
    "leaked lease": leak,
    "locks is a directory": locks_is_a_directory,
    "namespace gone": kill_container,
    "corrupt record of a dead container": truncate_and_kill,
    "forgotten dead container": forget_dead,
    "rules of a dead container": rules_left,
    "reboot": reboot,
    "killed within ADD": killed_add,
    "lost path": lose_path,
}
HARMLESS: dict[str, Callable[[BreakableNode], None]] = {
    "all records lost": all_records_lost,
    "another runtime": another_runtime,
    "truncated record": truncate,
    "truncated record that was set aside": truncate_and_set_aside,
    "configuration broken": break_configuration,
    "configuration renamed": rename_network,
    "subnet edited": lambda node: node.write_network(net="10.225.0"),
    "lease of another": steal_lease,
    "killed at the end of ADD": half_done("pending"),
    "killed at the beginning of DEL": half_done("detaching"),
    "eth0 moved": move_interface,
    "eth0 renamed": inside("ip link set eth0 down name net7 up"),
    "bridge renamed": run("ip link set br-node down && ip link set br-node name br-old && ip link set br-old up"),
    "all records lost and nat flushed": records_lost_and_flushed,
    "record of another boot": lambda node: node.change_record("c1", bootId="another"),
}
FAST = {
    "nat and filter flushed",
    "eth0 deleted",
    "forgotten dead container",
    "all records lost",
    "truncated record",
    "killed at the end of ADD",
    "eth0 moved",
}


def cases(names: dict[str, Callable[[BreakableNode], None]]) -> list[Any]:
    return [
        pytest.param(
            breaking,
            run_check,
            marks=() if name in FAST and run_check else pytest.mark.slow,
            id=f"{name}{'-check' * run_check}",
        )
        for name, breaking in names.items()
        for run_check in (False, True)
    ]


def operate(node: BreakableNode, *, run_check: bool) -> None:
    for _ in range(3):
        if not node.type_all(node.diagnose(run_check=run_check)):
            break


def assert_no_duplicates(node: BreakableNode) -> None:
    """The next container must not get the address of one that lives."""
    before = {address for one in node.look().values() for address in one.addresses}
    try:
        started = node.start("c9")
    except Exception:  # noqa: BLE001 - a network without a usable configuration
        return
    assert not before & set(started.addresses("eth0"))


@pytest.mark.parametrize(("breaking", "run_check"), cases(MENDED))
def test_it_is_as_before(broken: BreakableNode, breaking: Callable[[BreakableNode], None], run_check: bool) -> None:
    before, leases, rules, others = broken.look(), broken.leased(), broken.rules(), broken.rules("c1")
    breaking(broken)
    alive = broken.containers
    dead = {broken.address(name) for name in CONTAINERS if name not in alive}
    assert broken.diagnose().status != "ok", "found without --check, too"
    operate(broken, run_check=run_check)
    assert broken.look() == {name: before[name] for name in alive}
    assert broken.rules() == (others if dead else rules), "nothing is missing, doubled or left over"
    assert broken.leased() == {address: text for address, text in leases.items() if address not in dead}
    assert [one for one in broken.diagnose(run_check=run_check).findings if one.severity != "note"] == []
    assert_no_duplicates(broken)


@pytest.mark.parametrize(("breaking", "run_check"), cases(HARMLESS))
def test_nothing_becomes_worse(
    broken: BreakableNode, breaking: Callable[[BreakableNode], None], run_check: bool
) -> None:
    breaking(broken)
    before, rules, leases = broken.look(), broken.rules(), broken.leased()
    assert broken.diagnose().status != "ok"
    operate(broken, run_check=run_check)
    assert broken.look() == before
    assert broken.rules() == rules
    assert broken.leased() == leases
    assert_no_duplicates(broken)


@pytest.mark.slow
def test_ten_containers_after_a_firewalls_reload(broken: BreakableNode) -> None:
    for number in range(4, 11):
        broken.start(f"c{number}")
    before, rules, leases = broken.look(), broken.host.rules("nat", "-A"), broken.leased()
    run(FLUSH_NAT, FLUSH_FILTER)(broken)
    assert not any(one.is_published or one.reaches_outside for one in broken.look().values())
    [found] = broken.diagnose().findings
    assert len(found.containers) == 10
    assert broken.type("libcni reload --all").count("reloaded") == 10
    assert broken.look() == before
    assert sorted(broken.host.rules("nat", "-A")) == sorted(rules), "nothing is doubled"
    assert broken.leased() == leases
