"""1. Debian's real plugins in namespaces: ADD and DEL of two chains, alone, and 8 and 64 at once."""

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
    can_use_namespaces,
    conf_file,
    fresh_cache,
    milliseconds,
    rates,
    rotated,
    rows_to_go,
    running,
)  # fmt: skip

NAME = "1 real plugins, records on ext4"
BIN = Path("/usr/lib/cni")
SPACES = 64


def run(*, quick: bool) -> list[Row]:
    if not can_use_namespaces() or not (BIN / "bridge").exists():
        print("group 1 needs root, ip and the plugins in /usr/lib/cni: left out")
        return []
    ipam = {"type": "host-local", "dataDir": str(fresh_cache(EXT4)), "ranges": [[{"subnet": "10.123.0.0/16"}]]}
    bridge: dict[str, Any] = {"type": "bridge", "bridge": "bench0", "isGateway": True, "ipam": ipam}
    tuning = {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
    firewall = {"type": "firewall", "backend": "iptables"}
    place = (EXT4, BIN, f"/run/netns/{LOOK}-%d", ("ip", "netns", "exec", LOOK))
    two = Setup(conf_file("two", [bridge, tuning]), *place)
    four = Setup(conf_file("four", [{**bridge, "ipMasq": True}, tuning, portmap, firewall]), *place)
    with _spaces():
        rows = _one(two, "bridge + tuning", 4 if quick else 80, {"durable": 0.98, "not durable": 0.9})
        rows += _one(four, "bridge + tuning + portmap + firewall", 2 if quick else 20, {"durable": 0.97})
        for parallel in (8, 64):
            with running(
                two.peer(),
                two.subject("asyncio", mode="asyncio"),
                two.subject("asyncio, durable", "--durable", mode="asyncio"),
                two.subject("threads, durable", "--durable"),
                two.subject("3 processes, durable", "--durable", mode="processes"),
            ) as workers:
                what = f"{parallel} at once, bridge + tuning"
                wanted = {"asyncio": 1.0, "asyncio, durable": 0.95} if parallel == 8 else {}
                rows += rates(NAME, what, workers, parallel, SPACES, 1 if quick else 6, wanted, detach=True)
    return rows


def _one(setup: Setup, chain: str, rounds: int, wanted: dict[str, float]) -> list[Row]:
    """Measure ADD and DEL of one container at a time, and both together."""
    with running(
        setup.peer(),
        setup.subject("durable", "--durable"),
        setup.subject("not durable"),
        setup.subject("durable, not ahead", "--durable", "--ahead", "never"),
    ) as workers:
        each: dict[str, dict[str, list[float]]] = {
            what: {worker.name: [] for worker in workers} for what in ("ADD", "DEL", "ADD + DEL")
        }
        for number in range(rounds + 1):
            for worker in rotated(workers, number):
                add = milliseconds(worker.ask("add", 1, 1, 1)["each"])[0]
                delete = milliseconds(worker.ask("del", 1, 1, 1)["each"])[0]
                if number:  # the first ADD makes the bridge
                    for what, taken in (("ADD", add), ("DEL", delete), ("ADD + DEL", add + delete)):
                        each[what][worker.name].append(taken)
    return [row for what, found in each.items() for row in rows_to_go(NAME, f"{chain}: {what}", found, wanted)]


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
