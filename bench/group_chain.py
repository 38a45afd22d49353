"""1. ADD of a chain of three no-op plugins, one at a time, with the records on tmpfs and on ext4."""

from __future__ import annotations

from pathlib import Path

from common import EXT4, TMPFS, Row, Setup, Worker, chain_conf, floor, median, p99, turns

NAME = "1 one ADD of 3 no-op plugins"
AHEAD = ("--ahead", "always")


def run(*, quick: bool) -> list[Row]:
    rounds = 60 if quick else 400
    return _on(TMPFS, "tmpfs", rounds) + _on(EXT4, "ext4", rounds)


def _on(file_system: Path, label: str, rounds: int) -> list[Row]:
    setup = Setup(chain_conf(), file_system)
    workers: list[Worker] = [floor(), setup.peer()]
    # every column's ratio: to Go, to C
    limits: dict[str, tuple[float | None, float | None]]
    if label == "tmpfs":
        workers += [
            setup.subject("ahead", *AHEAD),
            setup.subject("not ahead", "--ahead", "never"),
            setup.subject("asyncio, ahead", *AHEAD, mode="async"),
        ]
        limits = {"ahead": (0.85, 1.25)}
    else:
        workers += [
            setup.subject("durable, ahead", "--durable", *AHEAD),
            setup.subject("durable, not ahead", "--durable", "--ahead", "never"),
            setup.subject("not durable, ahead", *AHEAD),
            setup.subject("asyncio, durable, ahead", "--durable", *AHEAD, mode="async"),
        ]
        limits = {"durable, ahead": (1.1, None)}
    each = turns(workers, rounds)
    for worker in workers:
        worker.close()
    rows = []
    for name, taken in each.items():
        for base, limit in zip(("Go", "C"), limits.get(name, (None, None)), strict=True):
            if name != base and not (base == "C" and label == "ext4"):
                ratio = median(taken) / median(each[base])
                rows.append(Row(NAME, f"ADD, {label}", name, "ms", median(taken), p99(taken), ratio, base, limit))
    return rows
