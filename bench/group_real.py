"""3. The real chain, bridge + host-local + tuning + portmap + firewall, in namespaces: what passes outside plugins."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from common import Row, conf_file, fresh_cache, median, milliseconds, p99, peer, subject

NAME = "3 real plugins"
BIN = "/usr/lib/cni"
HOST = "libcni-bench"


def run(*, quick: bool) -> list[Row]:
    if os.geteuid() != 0 or not Path(BIN, "bridge").exists() or shutil.which("ip") is None:
        print("group 3 needs root, ip and the plugins in /usr/lib/cni: left out")
        return []
    data = fresh_cache("host-local")
    ipam = {"type": "host-local", "dataDir": str(data), "ranges": [[{"subnet": "10.123.0.0/16"}]]}
    conf = conf_file(
        "real",
        [
            {"type": "bridge", "bridge": "bench0", "isGateway": True, "ipMasq": True, "ipam": ipam},
            {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}},
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
            {"type": "firewall", "backend": "iptables"},
        ],
    )
    spaces = [HOST, f"{HOST}-1"]
    for space in spaces:
        subprocess.run(["ip", "netns", "add", space], check=True)
    try:
        return _measure(conf, 4 if quick else 20)
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)


def _measure(conf: Path, rounds: int) -> list[Row]:
    place = ["ip", "netns", "exec", HOST]
    netns = f"/run/netns/{HOST}-1"
    go = peer(conf, "-bin", BIN, "-netns", netns, prefix=place)
    ours = subject("sync", conf, "--bin", BIN, "--netns", netns, prefix=place)
    durable = subject("sync, durable", conf, "--bin", BIN, "--netns", netns, "--durable", prefix=place)
    totals: dict[str, list[float]] = {"Go": [], "sync": [], "sync, durable": []}
    shares: dict[str, list[float]] = {"sync": [], "sync, durable": []}
    for number in range(1, rounds + 2):
        for worker in (go, ours, durable):
            answer = worker.ask("add", number, 1, 1) if worker is go else worker.ask("share", number)
            worker.ask("del", number, 1)
            if number == 1:
                continue  # the bridge is made
            totals[worker.name] += milliseconds(answer["each"])
            if worker is not go:
                shares[worker.name].append((answer["wall"] - answer["plugins"]) / answer["wall"])
    for worker in (go, ours, durable):
        worker.close()
    base = median(totals["Go"])
    rows = [
        Row(NAME, "ADD", name, "ms", median(each), p99(each), median(each) / base, "Go")
        for name, each in totals.items()
    ]
    for name, found in shares.items():
        share = median(found)
        rows.append(Row(NAME, "time outside the plugins", name, "%", 100 * share, 100 * p99(found), share, "ADD", 0.03))
    return rows
