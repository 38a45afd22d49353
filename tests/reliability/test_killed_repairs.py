"""Repairs that are killed, beside ADDs and DELs of living containers, and a user without rights who attacks.

Nobody loses anything: an address, an interface, a rule, a record.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nodes import Namespace, NewNamespace, RealNode
from processes import fork, is_running, kill_after, wait
from real.published import SUBNET, assert_works, conf, publish

from libcni import CNIConfig
from libcni.diagnosis import repair_node

pytestmark = [pytest.mark.slow, pytest.mark.real]

KILLS = int(os.environ.get("LIBCNI_KILLS", "6"))
"""300 for the release: half an hour."""
REPAIRS = int(os.environ.get("LIBCNI_REPAIRS", "2"))
"""Beside reloads; 40 for the release."""
SEED = int(os.environ.get("LIBCNI_SEED", "1"))
LIVING = 4
PREFIX = SUBNET.rpartition(".")[0]

_ATTACK = """
import os, socket, subprocess, sys, time
prefix, macs = sys.argv[1], sys.argv[2:]
def ip(*lines):
    subprocess.run(["ip", "-force", "-batch", "-"], input="\\n".join(lines), text=True, capture_output=True)
ip("link set lo up", *(f"link add d{n} address {mac} type veth peer name e{n}" for n, mac in enumerate(macs)))
ip(*(f"link set d{n} up" for n in range(len(macs))))
forged = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
forged.bind((0, 0))
print("ready", flush=True)
while True:
    for change in ("add", "del"):
        for device in ("lo", "d0"):
            ip(*(f"address {change} {prefix}.{number}/32 dev {device}" for number in range(2, 40)))
        for line in open("/proc/net/netlink").readlines()[1:]:
            kind, port = line.split()[1:3]
            if kind == "0" and int(port) not in (0, forged.getsockname()[0]):
                for size in (64, 8):
                    try:
                        forged.sendto(bytes(size), socket.MSG_DONTWAIT, (int(port), 0))
                    except OSError:
                        pass
        time.sleep(0.02)
"""


@contextmanager
def attacked(macs: list[str]) -> Iterator[None]:
    """Let a user without rights have the node's addresses and hardware addresses in a namespace of his own."""
    # His number stays root's, because another one may not start this Python: rights he has in his own namespace only.
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", _ATTACK, PREFIX, *macs]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attack:
        try:
            assert attack.stdout is not None
            assert attack.stdout.readline() == b"ready\n"
            yield
            assert attack.poll() is None, "it attacked to the end"
        finally:
            attack.kill()


def work(cni: CNIConfig, netns: str, until: Path) -> None:
    """Attach and detach a container again and again."""
    while not until.exists():
        cni.add_network_list("net", conf("busy", netns, 90))
        cni.del_network_list("net", conf("busy", netns, 90))


def reload(cni: CNIConfig, until: Path) -> None:
    """Reload healthy containers again and again."""
    while not until.exists():
        for attachment in cni.get_cached_attachments():
            if attachment.container_id.startswith("live"):
                cni.reload_attachment(attachment)
                time.sleep(0.2)  # the repair waits while each look finds another container at work


def mend(node: RealNode, pending_after: float) -> None:
    """Repair what interrupts nobody."""
    repaired = repair_node(node.client(), pending_after=pending_after)
    assert not repaired.stopped, repaired.stopped


def leave_dead(node: RealNode, number: int) -> None:
    """Leave an attachment whose namespace has ended, and an old reservation without a record."""
    name = f"libcni-dead-{os.getpid()}-{number}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        node.client().add_network_list("net", conf(f"dead{number}", f"/run/netns/{name}", 10 + number % 40))
    finally:
        subprocess.run(["ip", "netns", "delete", name], check=True)
    lease = next(path for path in node.leases.rglob(f"{PREFIX}.*")).parent / f"{PREFIX}.{200 + number % 40}"
    lease.write_text(f"lost{number}\r\neth0")
    os.utime(lease, (time.time() - 3600,) * 2)


def of_living(node: RealNode, namespaces: list[Namespace]) -> list[object]:
    """Return what the living containers have."""
    rules = [*node.host.rules("nat", "-A"), *node.host.rules("filter", "-A")]
    found: list[object] = []
    for number, namespace in enumerate(namespaces):
        [attachment] = node.client().get_cached_attachments(f"live{number}")
        [address] = namespace.addresses("eth0")
        own = sorted(rule for rule in rules if f"{address.partition('/')[0]}/" in rule or f"live{number}" in rule)
        assert own
        lease = (next(node.leases.rglob(f"{PREFIX}.*")).parent / address.partition("/")[0]).read_text()
        found.append((namespace.links_and_addresses(), namespace.routes(), attachment.state, address, lease, own))
    return found


def test_nobody_loses_anything_by_repairs_that_are_killed(
    real_node: RealNode, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    node, chance = publish(real_node), random.Random(SEED)
    living = [new_namespace() for _ in range(LIVING)]
    for number, namespace in enumerate(living):
        node.cni.add_network_list("net", conf(f"live{number}", namespace.path, number))
    before = of_living(node, living)
    macs = [
        link[2] for namespace in living for link in namespace.links_and_addresses() if link[2] != "00:00:00:00:00:00"
    ]
    until, kills, seconds = tmp_path / "until", 0, 2.0
    busy = new_namespace()
    worker = fork(lambda: work(node.client(), busy.path, until))
    with attacked(macs):
        for number in range(KILLS):
            leave_dead(node, number)
            repair = fork(lambda: mend(node, 30.0))
            started = time.monotonic()
            if number % 10 == 0:  # the first one, too: it tells how long a repair takes
                assert wait(repair, 120) == 0, f"LIBCNI_SEED={SEED}"
                seconds = time.monotonic() - started
            else:
                kills += kill_after(repair, chance.uniform(0.0, seconds))
            assert of_living(node, living) == before, f"LIBCNI_SEED={SEED}, kill {number}"
            assert is_running(worker), f"LIBCNI_SEED={SEED}: the ADDs and DELs of a living container go on"
    assert kills > KILLS / 4
    until.touch()
    assert wait(worker, 120) == 0
    # Without the accidents a repair frees all that is dead, and nothing else.
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(node.leased()) > LIVING:
        mend(node, 1.0)
    assert len(node.leased()) == LIVING, node.leased()
    assert {one.container_id for one in node.cni.get_cached_attachments()} == {f"live{n}" for n in range(LIVING)}
    for number in range(LIVING):
        assert_works(node, f"live{number}")
    assert of_living(node, living) == before


def test_repairs_beside_reloads_of_healthy_containers_stop_for_nobody(
    real_node: RealNode, new_namespace: NewNamespace, tmp_path: Path
) -> None:
    """A reload takes what a container has for a moment."""
    node = publish(real_node)
    for number in range(LIVING):
        node.cni.add_network_list("net", conf(f"live{number}", new_namespace().path, number))
    until = tmp_path / "until"
    worker = fork(lambda: reload(node.client(), until))
    for number in range(REPAIRS):
        leave_dead(node, number)
        mend(node, 300.0)
        assert is_running(worker), "the reloads go on"
    until.touch()
    assert wait(worker, 120) == 0
    for number in range(LIVING):
        assert_works(node, f"live{number}")
