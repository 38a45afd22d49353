"""5. A large configuration, the import, and what 1,000 attachments in flight take."""

from __future__ import annotations

import subprocess
import sys
import time

from common import ROOT, Row, chain_conf, conf_file, median, milliseconds, p99, peer, subject

NAME = "5 size"
PLUGINS, BYTES = 50, 1_000_000
FLIGHT = 1000


def run(*, quick: bool) -> list[Row]:
    return _large(3 if quick else 12) + _import(5 if quick else 15) + _flight()


def _large(rounds: int) -> list[Row]:
    rules = [{"id": index, "match": {"cidr": f"10.{index % 256}.0.0/16"}, "then": "accept"} for index in range(250)]
    one = {"type": "noop", "capabilities": {"portMappings": True}, "rules": rules}
    conf = conf_file("large", [{**one, "number": index} for index in range(PLUGINS)])
    size = conf.stat().st_size
    assert size > BYTES, size
    go, ours = peer(conf), subject("sync", conf)
    rows = []
    for verb, what in (("load", "load"), ("derive", "derive (ADD without processes)")):
        each: dict[str, list[float]] = {"Go": [], "sync": []}
        for _ in range(rounds):
            for worker in (go, ours):
                each[worker.name] += milliseconds(worker.ask(verb, 2)["each"])
        base = median(each["Go"])
        label = f"{what} {PLUGINS} plugins, {size / 1e6:.1f} MB"
        rows += [
            Row(NAME, label, name, "ms", median(taken), p99(taken), median(taken) / base, "Go")
            for name, taken in each.items()
        ]
    go.close()
    ours.close()
    return rows


def _import(rounds: int) -> list[Row]:
    statements = {
        "pydantic, filelock": "import pydantic, filelock",
        "libcni": "import libcni",
        "libcni with CNIConfig": "import libcni; libcni.CNIConfig; libcni.NetworkConfigList",
        "pydantic with BaseModel": "import pydantic, filelock; pydantic.BaseModel",
        "nothing": "pass",
    }
    each: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(rounds + 1):
        for name, statement in statements.items():
            start = time.perf_counter_ns()
            subprocess.run([sys.executable, "-c", statement], check=True, env={"PYTHONPATH": str(ROOT)}, cwd="/")
            each[name].append((time.perf_counter_ns() - start) / 1e6)
    # pydantic itself loads most of itself on first use, as this library does: like is compared with like
    bases = {"libcni with CNIConfig": "pydantic with BaseModel"}
    rows = []
    for name, taken in each.items():
        base = bases.get(name, "pydantic, filelock")
        ratio = median(taken[1:]) / median(each[base][1:])
        limit = 1.3 if name == "libcni" else None
        rows.append(Row(NAME, f"import {name}", "", "ms", median(taken[1:]), None, ratio, base, limit))
    return rows


def _flight() -> list[Row]:
    worker = subject("async", chain_conf("noop1000"), mode="async")
    worker.ask("add", 1, 1, 1)
    before = worker.ask("usage")
    wall = worker.ask("add", 1000, FLIGHT, FLIGHT)["wall"] / 1e9
    after = worker.ask("usage")
    worker.close()
    left = after["descriptors"] - before["descriptors"]
    peak = after["peak"] / 1e6
    what = f"{FLIGHT:,} in flight, plugins of 1 s"
    return [
        Row(NAME, f"{what}: peak memory", "async", "MB", peak, None, peak / 150, "150 MB", 1.0),
        Row(NAME, f"{what}: descriptors left", "async", "", left, None, float(left), "0", 0.5),
        Row(NAME, f"{what}: time", "async", "s", wall, None, wall / 3, "3 s"),
    ]
