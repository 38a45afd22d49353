"""3. Debian's real plugins in namespaces, records on ext4: ADD and DEL of two chains, and eight ADDs in parallel."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import (
    EXT4,
    LOOK,
    Row,
    Setup,
    Worker,
    can_use_namespaces,
    conf_file,
    fresh_cache,
    median,
    milliseconds,
    p99,
    rotated,
)
from group_parallel import rates

NAME = "3 real plugins, records on ext4"
BIN = Path("/usr/lib/cni")
SPACES = 32


def run(*, quick: bool) -> list[Row]:
    if not can_use_namespaces() or not (BIN / "bridge").exists():
        print("group 3 needs root, ip and the plugins in /usr/lib/cni: left out")
        return []
    ipam = {
        "type": "host-local",
        "dataDir": str(fresh_cache("host-local", EXT4)),
        "ranges": [[{"subnet": "10.123.0.0/16"}]],
    }
    bridge: dict[str, Any] = {"type": "bridge", "bridge": "bench0", "isGateway": True, "ipam": ipam}
    tuning = {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    firewall = {"type": "firewall", "backend": "iptables"}
    two = Setup(conf_file("two", [bridge, tuning]), EXT4, BIN, f"/run/netns/{LOOK}-%d", ("ip", "netns", "exec", LOOK))
    four = Setup(
        conf_file("four", [{**bridge, "ipMasq": True}, tuning, portmap, firewall]), EXT4, BIN, two.netns, two.prefix
    )
    with _spaces():
        rows = _one(two, "bridge + tuning", 10 if quick else 100, {"ADD": 0.95, "DEL": 0.95})
        rows += _one(four, "bridge + tuning + portmap + firewall", 4 if quick else 25, {"ADD + DEL": 0.98})
        with _programs([two.peer(), two.subject("asyncio, durable", "--durable", mode="async"),
                        two.subject("threads, durable", "--durable")]) as workers:  # fmt: skip
            what = "8 in parallel, bridge + tuning"
            rows += rates(NAME, what, workers, 8, SPACES, 2 if quick else 8, ("asyncio, durable", 1.0), detach=True)
    return rows


def _one(setup: Setup, chain: str, rounds: int, limits: dict[str, float]) -> list[Row]:
    """Measure ADD and DEL of one container at a time, and both together."""
    started = [
        setup.peer(),
        setup.subject("durable", "--durable"),
        setup.subject("durable, not ahead", "--durable", "--ahead", "never"),
    ]
    with _programs(started) as workers:
        each: dict[str, dict[str, list[float]]] = {
            what: {worker.name: [] for worker in workers} for what in ("ADD", "DEL", "ADD + DEL")
        }
        for number in range(rounds + 1):
            for worker in rotated(workers, number):
                add = milliseconds(worker.ask("add", 1, 1, 1)["each"])[0]
                delete = milliseconds(worker.ask("del", 1, 1)["each"])[0]
                if number:  # the first ADD makes the bridge
                    for what, taken in (("ADD", add), ("DEL", delete), ("ADD + DEL", add + delete)):
                        each[what][worker.name].append(taken)
    return [
        Row(NAME, f"{chain}: {what}", name, "ms", median(taken), p99(taken), median(taken) / median(found["Go"]), "Go",
            limits.get(what) if name == "durable" else None)
        for what, found in each.items()
        for name, taken in found.items()
    ]  # fmt: skip


@contextmanager
def _spaces() -> Iterator[None]:
    """Make the containers' namespaces; the bridge and the rules of iptables are in the group's own namespace."""
    spaces = [f"{LOOK}-{number}" for number in range(1, SPACES + 1)]
    for space in spaces:
        subprocess.run(["ip", "netns", "add", space], check=True)
    try:
        yield
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)


@contextmanager
def _programs(workers: list[Worker]) -> Iterator[list[Worker]]:
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()
