"""2. The library's own cost: three plugins that do nothing, alone, at once, and a thousand at once."""

from __future__ import annotations

from pathlib import Path

from common import (
    EXT4,
    TMPFS,
    Row,
    Setup,
    chain_conf,
    median,
    milliseconds,
    p99,
    rates,
    rotated,
    rows_to_go,
    running,
)

NAME = "2 three plugins that do nothing"
AHEAD = ("--ahead", "always")
CROWD = 1000


def run(*, quick: bool) -> list[Row]:
    rounds = 4 if quick else 80
    rows = _alone(TMPFS, "tmpfs", rounds, {"ahead": 0.8}) + _alone(EXT4, "ext4", rounds, {"durable, ahead": 1.15})
    setup = Setup(chain_conf(), TMPFS)
    for parallel, count in ((8, 128), (64, 256)):
        with running(
            setup.peer(),
            setup.subject("asyncio", *AHEAD, mode="asyncio"),
            setup.subject("threads", *AHEAD),
            setup.subject("3 processes", *AHEAD, mode="processes"),
        ) as workers:
            rows += rates(NAME, f"{parallel} at once", workers, parallel, count, 1 if quick else 12, {"asyncio": 0.9})
            late = milliseconds(workers[1].add(count, parallel, verb="delay")["late"])
            what = f"{parallel} at once: delay of another task of the event loop"
            rows.append(Row(NAME, what, "asyncio", "ms", median(late), p99(late)))
    # Each ADD with a port looks at the records of all others, and at the sockets of the host.
    further = {"64 at once, each with a port": chain_conf(publishes=True)}
    further |= {f"64 at once, three plugins of {wait} ms": chain_conf(f"noop{wait}") for wait in (5, 20)}
    for what, conf in further.items():
        setup = Setup(conf, TMPFS)
        with running(
            setup.peer(), setup.subject("asyncio", *AHEAD, mode="asyncio"), setup.subject("threads", *AHEAD)
        ) as workers:
            rows += rates(NAME, what, workers, 64, 256, 1 if quick else 4, {})
    return rows + _crowd()


def _alone(file_system: Path, label: str, rounds: int, wanted: dict[str, float]) -> list[Row]:
    setup = Setup(chain_conf(), file_system)
    options = {"ahead": AHEAD, "not ahead": ("--ahead", "never")} if label == "tmpfs" else {
        "durable, ahead": ("--durable", *AHEAD), "not durable, ahead": AHEAD}  # fmt: skip
    ours = [setup.subject(name, *words) for name, words in options.items()]
    with running(setup.peer(), *ours) as workers:
        each: dict[str, list[float]] = {worker.name: [] for worker in workers}
        for worker in workers:
            worker.add(20)
        for number in range(rounds):
            for worker in rotated(workers, number):
                each[worker.name] += milliseconds(worker.add(5)["each"])
    return rows_to_go(NAME, f"ADD, {label}", each, wanted)


def _crowd() -> list[Row]:
    """Ask for a thousand ADDs at once whose plugins take a second, with the client's limit and without."""
    setup = Setup(chain_conf("noop1000"), TMPFS)
    rows = []
    for who, most in (("max_verbs=128", 128), ("no limit", CROWD)):
        with running(setup.subject(who, "--max-verbs", str(most), "--timeout", "120", mode="asyncio")) as [worker]:
            answer = worker.add(CROWD, CROWD, verb="delay")
        what = f"{CROWD:,} ADDs at once, 3 plugins of 1 s, timeout 120 s"
        late = milliseconds(answer["late"])
        rows += [
            Row(NAME, f"{what}: failed", who, "", answer["failed"]),
            Row(NAME, f"{what}: time", who, "s", answer["wall"] / 1e9),
            Row(NAME, f"{what}: longest stop of the event loop", who, "ms", max(late)),
        ]
    return rows
