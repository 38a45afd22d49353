"""Break a node, alone and in pairs, repair it, and compare every container with the time before.

No repair may take from a living container what it has: its address, interface, routes, reservation, or a port that
answers. Where ``--yes`` can mend the node, it is afterwards as it was before. What it leaves has a name, and a second
repair has nothing to do.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from forkserver import ForkServer
from nodes import Namespace, NewNamespace

from diagnosis.conftest import OperatorNode, plugins_of
from libcni import CNIError, RuntimeConf
from libcni.diagnosis import MendOutcome, repair_node
from libcni.kernel.namespace import call_in_thread, enter_namespace
from libcni.testing import wait_until

pytestmark = pytest.mark.real

T = TypeVar("T")

CONTAINERS = ("c1", "c2", "c3", "c4")
OWNERS = {"c3": "other", "c4": "go"}
"""c1 and c2 are of the owner ``runtime``, who repairs; c4 has a record as Go libcni writes it."""
OUTSIDE, UPLINK = "192.0.2.2", "192.0.2.1"
SECONDS = 0.4


@dataclass(frozen=True)
class Seen:
    """What somebody can see of a container: its network, whether its port answers, whether it reaches the outside."""

    mac: str
    addresses: tuple[str, ...]
    routes: tuple[tuple[str, str | None], ...]
    is_published: bool
    reaches_outside: bool
    reaches_neighbour: bool
    leases: tuple[str, ...]

    def has_all_of(self, other: Seen) -> bool:
        """Return whether nothing of ``other`` is missing."""
        return (
            (self.mac in {other.mac, ""} or not other.mac)
            and all(set(getattr(other, name)) <= set(getattr(self, name)) for name in ("addresses", "routes", "leases"))
            and all(
                getattr(self, name) or not getattr(other, name)
                for name in ("is_published", "reaches_outside", "reaches_neighbour")
            )
        )


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
            f"ip route add default via {OUTSIDE}",
        ):
            subprocess.run(command.split(), check=True)
        self.outside.run("ip", "address", "add", f"{OUTSIDE}/24", "dev", "outside")
        self.outside.run("ip", "link", "set", "outside", "up")
        self.listeners = [listen(self.outside.path, 9000)]
        self.settings |= {"owner": "runtime"}
        self.write_network()
        self.containers: dict[str, Namespace] = {}
        self.removed: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.without_path: dict[str, int] = {}
        for name in CONTAINERS:
            self.start(name)

    def write_network(self, name: str = "net", net: str = "") -> None:
        self.configure(
            name,
            self.bridge(f"{net or self.net}.0/24", ipMasq=True, isDefaultGateway=True, mtu=1450),
            {"type": "portmap", "capabilities": {"portMappings": True}},
            {"type": "firewall"},
        )

    def start(self, name: str) -> Namespace:
        """Attach a container that listens on port 80."""
        namespace = self.new_namespace()
        self.listeners.append(listen(namespace.path, 80))
        ports = {"portMappings": [{"hostPort": self.port(name), "containerPort": 80, "protocol": "tcp"}]}
        rt = RuntimeConf(name, namespace.path, "eth0", capability_args=ports)
        owner = OWNERS.get(name, "runtime")
        self.client(owner="" if owner == "go" else owner).add_network_list("net", rt)
        if owner == "go":
            self.strip_record(name)
            record = json.loads(self.record(name).read_text(encoding="utf-8"))
            del record["netns"]  # Go libcni 1.1 does not write it
            self.record(name).write_text(json.dumps(record), encoding="utf-8")
        self.containers[name] = namespace
        return namespace

    def port(self, name: str) -> int:
        return 8080 + int(name.removeprefix("c"))

    def address(self, name: str) -> str:
        return f"{self.net}.{int(name[1:]) + 1}"

    def look(self) -> dict[str, Seen]:
        """Return what can be seen of each container that lives."""
        with ThreadPoolExecutor(8) as pool:
            seen = {name: pool.submit(self._see, name, one) for name, one in self.containers.items()}
        return {name: one.result() for name, one in seen.items()}

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
            tuple(
                address
                for address, text in self.leased().items()
                if text == f"{name}\neth0" and any(full.startswith(f"{address}/") for full in addresses)
            ),
        )

    def rules(self, *without: str) -> set[str]:
        """Return the rules; ``without``: not those of these containers."""
        hashes = [hashlib.sha512(f"net{name}".encode()).hexdigest()[:20] for name in without]
        marks = [*hashes, *map(self.address, without)]
        found = {rule for table in ("nat", "filter") for rule in self.host.rules(table, "-A")}
        return {rule for rule in found if not any(mark in rule for mark in marks)}

    def repair_all(self, *interrupt: str, **options: Any) -> list[MendOutcome]:
        """Repair as each of the owners, and for Go's records; return the outcomes."""
        found: list[MendOutcome] = []
        for owner in ("runtime", "other", ""):
            done = repair_node(
                self.client(owner=owner), interrupt=interrupt, include_go=not owner, pending_after=0.0, **options
            )
            assert done.stopped == ""
            found += done.outcomes
        return found

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
    tmp_path: Path,
    host: Namespace,
    new_namespace: NewNamespace,
    fork_server: ForkServer,
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
    node.start("c6")
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
    ports = json.dumps({"portMappings": [{"hostPort": 8086, "containerPort": 80, "protocol": "tcp"}]})
    command = ["libcni", "add", str(file), netns, "-c", "c6", "--capabilities", ports]
    runtime = subprocess.Popen(command, env=node.env, cwd=node.root, stderr=subprocess.DEVNULL)
    node.processes.append(runtime)
    wait_until((node.bin / "began").exists)
    runtime.kill()
    runtime.wait()


def killed_add_and_plugin(node: BreakableNode) -> None:
    killed_add(node)
    for pid in plugins_of(node, "c6"):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not plugins_of(node, "c6"))


def leak(node: BreakableNode) -> None:
    node.lease(77, "lost\r\neth0")


def forget_dead(node: BreakableNode) -> None:
    kill_container(node)
    node.type("libcni forget c1 --yes")
    node.age_leases()


def rules_left(node: BreakableNode) -> None:
    kill_container(node)
    node.type("libcni del -c c1 -i eth0")


def steal_lease(node: BreakableNode) -> None:
    (node.leases / "net" / node.address("c1")).write_text("c7\r\neth0", encoding="utf-8")
    node.age_leases()


def unmount_everywhere(path: str) -> None:
    """Unmount a path, also where another test has a copy of all mounts: such a copy is a path that is not lost."""
    subprocess.run(["umount", path], check=True)
    for mounts in Path("/proc").glob("[0-9]*/mountinfo"):
        with suppress(OSError):
            if f" {path} " in mounts.read_text(encoding="utf-8", errors="replace"):
                enter = ["nsenter", f"--mount={mounts.parent}/ns/mnt", "umount", "--lazy", path]
                subprocess.run(enter, check=False, capture_output=True)


def lose_path(node: BreakableNode) -> None:
    """Unmount the name of a namespace in which a process lives."""
    container = node.containers["c1"]
    sleeper = subprocess.Popen(["ip", "netns", "exec", container.name, "sleep", "60"])
    node.processes.append(sleeper)
    wait_until(lambda: os.readlink(f"/proc/{sleeper.pid}/exe").endswith("sleep"))
    unmount_everywhere(container.path)
    node.without_path["c1"] = sleeper.pid


def live_process(node: BreakableNode) -> None:
    node.processes.append(subprocess.Popen(["ip", "netns", "exec", node.containers["c1"].name, "sleep", "60"]))
    wait_until(lambda: os.readlink(f"/proc/{node.processes[-1].pid}/exe").endswith("sleep"))


def half_done_add(node: BreakableNode) -> None:
    """Let an ADD have been killed at its very end, of a container that works."""
    live_process(node)
    node.change_record("c1", state="pending")


def half_done_del(node: BreakableNode) -> None:
    """Let a DEL have been stopped by its first plugin."""
    live_process(node)
    plugin = node.plugin("firewall", "[ $CNI_COMMAND != DEL ] || exit 1")
    with suppress(CNIError):
        node.cni.del_network_list("net", RuntimeConf("c1", None, "eth0"))
    plugin.unlink()


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

Breakage = Callable[[BreakableNode], None]


def inside_c1(*commands: str) -> Breakage:
    def type_them(node: BreakableNode) -> None:
        for command in commands:
            node.containers["c1"].run(*command.replace("GATEWAY", f"{node.net}.1").replace("NET", node.net).split())

    return type_them


def on_host(*commands: str) -> Breakage:
    return lambda node: run(*(command.replace("NET", node.net) for command in commands))(node)


def change_address(node: BreakableNode) -> None:
    node.containers["c1"].run("ip", "address", "flush", "dev", "eth0")
    node.containers["c1"].run("ip", "address", "add", f"{node.net}.200/24", "dev", "eth0")


def rename_bridge(node: BreakableNode) -> None:
    run("ip link set br-node down && ip link set br-node name br-old && ip link set br-old up")(node)


def rename_bridge_and_add(node: BreakableNode) -> None:
    """The bridge plugin makes a second bridge with the same address."""
    rename_bridge(node)
    node.start("c5")


def copy_record(node: BreakableNode) -> None:
    shutil.copy(node.record("c2"), node.record("c1"))


def lose_cache_and_add(node: BreakableNode) -> None:
    """The next container gets the address of one that lives."""
    shutil.rmtree(node.results)
    shutil.rmtree(node.leases)
    node.start("c5")


def lease_of_another_interface(node: BreakableNode) -> None:
    (node.leases / "net" / node.address("c1")).write_text("c1\r\neth9", encoding="utf-8")


def record_of_another_namespace(node: BreakableNode) -> None:
    record = json.loads(node.record("c1").read_text(encoding="utf-8"))
    record["netns"] = node.containers["c2"].path
    node.record("c1").write_text(json.dumps(record), encoding="utf-8")


def remove_outgoing(node: BreakableNode) -> None:
    address = f"{node.address('c1')}/32"
    run(f"iptables -t nat -S POSTROUTING | grep {address} | sed 's/^-A/iptables -t nat -D/' | sh")(node)


def steal_lease_and_flush(node: BreakableNode) -> None:
    steal_lease(node)
    run(FLUSH_NAT)(node)


MENDED: dict[str, Breakage] = {
    "nat flushed": run(FLUSH_NAT),
    "nat and filter flushed": run(FLUSH_NAT, FLUSH_FILTER),
    "filter flushed": run(FLUSH_FILTER),
    "ports flushed": run("iptables -t nat -F CNI-HOSTPORT-DNAT"),
    "rules of one container": remove_outgoing,
    "bridge down": run("ip link set br-node down"),
    "bridge without address": run("ip address flush dev br-node scope global"),
    "forwarding off": run("echo 0 > /proc/sys/net/ipv4/ip_forward"),
    "eth0 down": inside_c1("ip link set eth0 down"),
    "eth0 deleted": inside_c1("ip link del eth0"),
    "address flushed": inside_c1("ip address flush dev eth0"),
    "default route gone": inside_c1("ip route del default"),
    "global addresses flushed": inside_c1("ip address flush dev eth0 scope global"),
    "host end off the bridge": host_end("ip link set VETH nomaster"),
    "host end down": host_end("ip link set VETH down"),
    "route of the node gone": on_host("ip route del NET.0/24"),
    "lease removed": lambda node: (node.leases / "net" / node.address("c1")).unlink(),
    "lease directory removed": lambda node: shutil.rmtree(node.leases / "net"),
    "lease of another": steal_lease,
    "lease of another interface": lease_of_another_interface,
    "lease of another and nat flushed": steal_lease_and_flush,
    "leaked lease": leak,
    "namespace gone": kill_container,
    "namespace of a container of Go's gone": lambda node: kill_container(node, "c4"),
    "corrupt record of a dead container": truncate_and_kill,
    "forgotten dead container": forget_dead,
    "rules of a dead container": rules_left,
    "reboot": reboot,
    "killed within ADD": killed_add_and_plugin,
}
"""What ``--yes`` mends."""

LEFT: dict[str, Breakage] = {
    "bridge deleted": run("ip link del br-node"),
    "lost path": lose_path,
    "address changed by hand": change_address,
    "stolen subnet route": on_host(
        "ip link add thief type veth peer name loot",
        "ip link set loot up",
        "ip link set thief up",
        "ip route add NET.0/25 dev thief",
    ),
    "all records lost": all_records_lost,
    "all records lost and nat flushed": records_lost_and_flushed,
    "cache and leases lost, and an ADD": lose_cache_and_add,
    "another runtime": another_runtime,
    "truncated record": truncate,
    "record copied over another": copy_record,
    "configuration removed": lambda node: (node.conf_dir / "net.conflist").unlink(),
    "configuration directory removed": lambda node: shutil.rmtree(node.conf_dir),
    "configuration broken": break_configuration,
    "network renamed in its file": rename_network,
    "subnet edited": lambda node: node.write_network(net="10.225.0"),
    "killed within ADD, and its plugin runs": killed_add,
    "killed at the end of ADD": half_done_add,
    "stopped within DEL": half_done_del,
    "eth0 moved": move_interface,
    "record of another namespace": record_of_another_namespace,
    "eth0 renamed": inside("ip link set eth0 down name net7 up"),
    "bridge renamed": rename_bridge,
    "bridge renamed, and an ADD": rename_bridge_and_add,
    "record of another boot": lambda node: node.change_record("c1", bootId="another"),
    "all dropped by a firewall": run("iptables -I FORWARD -j DROP"),
}
"""What needs a person, or ``--interrupt``."""

ALL = {**MENDED, **LEFT}
FAST = {"lease of another and nat flushed", "all records lost"}
EXCLUSIVE = {
    # They break the same thing twice, or need what the other one has removed.
    frozenset({"bridge", "renamed"}),
}


def cases(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


IMPOSSIBLE = {
    ("corrupt record of a dead container", "address changed by hand"),
    ("reboot", "stopped within DEL"),
    ("lost path", "eth0 renamed"),
    ("all records lost", "record of another boot"),
}
"""Pairs of which the first breakage prevents the second one."""


def pairs() -> list[tuple[str, str]]:
    """Return each breakage with the one that comes 7 places after it, and some of the first ones with another."""
    names = list(ALL)
    steps = [(7, name) for name in names] + [(19, name) for name in names[::3]]
    all_pairs = [(name, names[(names.index(name) + step) % len(names)]) for step, name in steps]
    assert set(all_pairs) > IMPOSSIBLE
    return [pair for pair in all_pairs if pair not in IMPOSSIBLE]


def assert_nothing_is_lost(node: BreakableNode, before: dict[str, Seen]) -> None:
    after = node.look()
    twice = Counter(address for one in after.values() for address in one.addresses)
    if max(twice.values(), default=0) > 1:  # who of two containers with one address answers is a matter of chance
        silent = {"is_published": False, "reaches_outside": False, "reaches_neighbour": False}
        before = {name: replace(one, **silent) for name, one in before.items()}  # type: ignore[arg-type]
    assert {name: after[name] for name in before if not after[name].has_all_of(before[name])} == {}, before


def assert_no_duplicates(node: BreakableNode) -> None:
    """The next container must not get the address of one that lives."""
    before = {address for one in node.look().values() for address in one.addresses}
    try:
        started = node.start("c9")
    except Exception:  # noqa: BLE001 - a network without a usable configuration
        return
    assert not before & set(started.addresses("eth0"))


def repair_and_compare(node: BreakableNode) -> None:
    without_path = {name: node.containers.pop(name) for name in node.without_path if name in node.containers}
    broken = node.look()
    done = node.repair_all()
    assert_nothing_is_lost(node, broken)
    assert not [one for one in done if one.state == "failed"], done
    again = node.repair_all()
    assert [one for one in again if one.state != "left"] == [], "a second repair has nothing to do"
    assert all(one.needs for one in again)
    findings = [one for one in node.diagnose().findings if one.severity != "note"]
    assert [one for one in findings if not (one.remedy or one.mends)] == [], "what is left says what to do"
    for name, container in without_path.items():
        subprocess.run(["mount", "--bind", f"/proc/{node.without_path[name]}/ns/net", container.path], check=True)
        assert container.addresses("eth0") == [f"{node.address(name)}/24"]
        assert node.leased()[node.address(name)] == f"{name}\neth0"
    node.containers.update(without_path)


@pytest.mark.parametrize("name", cases(MENDED))
def test_it_is_as_before(broken: BreakableNode, name: str) -> None:
    before, leases, rules, others = broken.look(), broken.leased(), broken.rules(), broken.rules("c1", "c4")
    MENDED[name](broken)
    alive = broken.containers
    dead = {broken.address(one) for one in CONTAINERS if one not in alive}
    assert broken.diagnose().status != "ok"
    repair_and_compare(broken)
    assert broken.look() == {one: before[one] for one in alive}
    missing, doubled = (others if dead else rules) - broken.rules(), broken.rules() - rules
    assert (missing, doubled) == (set(), set())
    assert broken.leased() == {address: text for address, text in leases.items() if address not in dead}
    assert [one for one in broken.diagnose(run_check=True).findings if one.severity != "note"] == []
    assert_no_duplicates(broken)


@pytest.mark.parametrize("name", cases(LEFT))
def test_nothing_becomes_worse(broken: BreakableNode, name: str) -> None:
    LEFT[name](broken)
    assert broken.diagnose().status != "ok", "found without --check"
    repair_and_compare(broken)
    if "records lost" not in name and "cache" not in name:
        assert_no_duplicates(broken)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), pairs())
def test_two_breakages_at_once(broken: BreakableNode, first: str, second: str) -> None:
    before = broken.look()
    ALL[first](broken)
    ALL[second](broken)
    repair_and_compare(broken)
    if {first, second} <= MENDED.keys():
        assert broken.look() == {one: before[one] for one in broken.containers}
