"""2. The same chain in parallel: throughput and p99, on asyncio and from threads."""

from __future__ import annotations

from common import Row, Worker, chain_conf, floor, median, milliseconds, p99, peer, subject

NAME = "2 in parallel"


def run(*, quick: bool) -> list[Row]:
    rounds = 2 if quick else 7
    rows = []
    for parallel, limit in ((2, None), (8, -1.0), (64, -1.0)):
        rows += _against_go("noop", parallel, 128 if parallel < 64 else 256, rounds, limit)
    rows += _against_go("noop20", 64, 256, 2 if quick else 4, -0.98)
    return rows + _threads(rounds) + _slow()


def _against_go(plugin: str, parallel: int, count: int, rounds: int, limit: float | None) -> list[Row]:
    conf = chain_conf(plugin)
    workers = [
        floor(plugin),
        peer(conf),
        subject("async", conf, mode="async"),
        subject("sync threads", conf),
        subject("async, durable", conf, "--durable", mode="async"),
    ]
    wall: dict[str, list[float]] = {worker.name: [] for worker in workers}
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for worker in workers:
        worker.add(parallel, parallel)
    for number in range(rounds):
        shift = number % len(workers)
        for worker in workers[shift:] + workers[:shift]:
            answer = worker.add(count, parallel)
            wall[worker.name].append(count / (answer["wall"] / 1e9))
            each[worker.name] += milliseconds(answer["each"])
    what = f"{parallel} in parallel" + (", plugins of 20 ms" if plugin == "noop20" else "")
    rows = []
    go, tail = median(wall["Go"]), p99(each["Go"])
    for name, rates in wall.items():
        here = limit if name == "async" else None
        rate = median(rates)
        rows.append(Row(NAME, f"{what}: chains", name, "/s", rate, None, rate / go, "Go", here))
        if name != "Go":
            late = p99(each[name])
            limit_late = 1.0 if here and plugin == "noop" else None
            rows.append(Row(NAME, f"{what}: p99", name, "ms", median(each[name]), late, late / tail, "Go", limit_late))
    for worker in workers:
        worker.close()
    return rows


def _threads(rounds: int) -> list[Row]:
    worker = subject("sync", chain_conf())
    rates: dict[int, list[float]] = {2: [], 8: [], 16: []}
    worker.add(20)
    for _ in range(rounds):
        for parallel, found in rates.items():
            found.append(128 / (worker.add(128, parallel)["wall"] / 1e9))
    worker.close()
    base = median(rates[2])
    return [
        Row(NAME, f"{parallel} threads", "sync", "/s", median(found), None, median(found) / base, "2 threads",
            -0.7 if parallel > 2 else None)
        for parallel, found in rates.items()
    ]  # fmt: skip


def _slow() -> list[Row]:
    """16 threads with plugins of one second: nothing that one waits for may hold another up."""
    worker: Worker = subject("sync", chain_conf("noop1000"))
    answer = worker.add(16, 16)
    worker.close()
    seconds = answer["wall"] / 1e9 / 3
    return [Row(NAME, "16 threads, plugins of 1 s: a plugin", "sync", "s", seconds, None, seconds, "1 s", 1.3)]
