"""1. ADD of a chain of three no-op plugins, one at a time."""

from __future__ import annotations

from common import Row, Worker, chain_conf, floor, median, milliseconds, p99, peer, subject

NAME = "1 chain of 3"
CHAINS = 5


def run(*, quick: bool) -> list[Row]:
    conf = chain_conf()
    workers = [
        floor(),
        peer(conf),
        subject("sync", conf),
        subject("async", conf, mode="async"),
        subject("sync, durable", conf, "--durable"),
        subject("async, durable", conf, "--durable", mode="async"),
    ]
    each = turns(workers, 60 if quick else 400)
    go, c = median(each["Go"]), median(each["C"])
    limits = {"sync": (0.85, 1.35), "sync, durable": (1.25, None)}
    rows = []
    for name, taken in each.items():
        to_go, to_c = limits.get(name, (None, None))
        if name != "Go":
            rows.append(_row(name, taken, go, "Go", to_go))
        if name != "C":
            rows.append(_row(name, taken, c, "C", to_c))
    for worker in workers:
        worker.close()
    return rows


def _row(name: str, taken: list[float], base: float, against: str, limit: float | None) -> Row:
    return Row(NAME, "ADD", name, "ms", median(taken), p99(taken), median(taken) / base, against, limit)


def turns(workers: list[Worker], rounds: int) -> dict[str, list[float]]:
    """Ask each in turn for a few chains, again and again; the order changes from round to round."""
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for worker in workers:
        worker.add(20)
    for number in range(rounds // CHAINS):
        shift = number % len(workers)
        for worker in workers[shift:] + workers[:shift]:
            each[worker.name] += milliseconds(worker.add(CHAINS)["each"])
    return each
