"""5. A large configuration, a large program, and many verbs at once in one program."""

from __future__ import annotations

from common import TMPFS, Row, Setup, chain_conf, conf_file, median, milliseconds, p99, rotated, turns

NAME = "5 size"
PLUGINS, BYTES = 50, 1_000_000
FLIGHT = 1000
MEBIBYTES = 2048


def run(*, quick: bool) -> list[Row]:
    return _large(3 if quick else 12) + _verbs(8 if quick else 60) + _flight() + _parent(30 if quick else 150)


def _large(rounds: int) -> list[Row]:
    rules = [{"id": index, "match": {"cidr": f"10.{index % 256}.0.0/16"}, "then": "accept"} for index in range(250)]
    one = {"type": "noop", "capabilities": {"portMappings": True}, "rules": rules}
    conf = conf_file("large", [{**one, "number": index} for index in range(PLUGINS)])
    size = conf.stat().st_size
    assert size > BYTES, size
    setup = Setup(conf, TMPFS)
    workers = [setup.peer(), setup.subject("sync")]
    rows = []
    for verb, what, limit in (("load", "load", 1.5), ("derive", "ADD without processes", None)):
        each: dict[str, list[float]] = {worker.name: [] for worker in workers}
        for number in range(rounds):
            for worker in rotated(workers, number):
                each[worker.name] += milliseconds(worker.ask(verb, 2)["each"])
        base = median(each["Go"])
        rows += [
            Row(NAME, f"configuration of {size / 1e6:.1f} MB: {what}", name, "ms", median(taken), p99(taken),
                median(taken) / base, "Go", limit if name == "sync" else None)
            for name, taken in each.items()
        ]  # fmt: skip
    for worker in workers:
        worker.close()
    return rows


def _verbs(rounds: int) -> list[Row]:
    """Measure a plugin's whole run, while so many other verbs of the same program hold their locks."""
    worker = Setup(conf_file("one", [{"type": "noop"}]), TMPFS).subject("asyncio", "--ahead", "never", mode="async")
    found: dict[int, list[float]] = {}
    for others in (0, 256, 1000):
        worker.ask("hold", others)
        worker.add(5)
        found[others] = milliseconds(worker.add(rounds)["each"])
    worker.close()
    base = median(found[0])
    return [
        Row(NAME, f"ADD of one plugin while {others:,} verbs run", "asyncio", "ms", median(taken), p99(taken),
            median(taken) / base, "0 verbs")
        for others, taken in found.items()
    ]  # fmt: skip


def _flight() -> list[Row]:
    worker = Setup(chain_conf("noop1000"), TMPFS).subject("asyncio", mode="async")
    worker.ask("add", 1, 1, 1)
    before = worker.ask("usage")
    wall = worker.ask("add", 1000, FLIGHT, FLIGHT)["wall"] / 1e9
    after = worker.ask("usage")
    worker.close()
    left = after["descriptors"] - before["descriptors"]
    peak = after["peak"] / 1e6
    what = f"{FLIGHT:,} ADDs at once, 3 plugins of 1 s"
    return [
        Row(NAME, f"{what}: peak memory", "asyncio", "MB", peak, None, peak / 150, "150 MB", 1.0),
        Row(NAME, f"{what}: descriptors left", "asyncio", "", left, None, None, "", None),
        Row(NAME, f"{what}: time", "asyncio", "s", wall, None, wall / 3, "3 s"),
    ]


def _parent(rounds: int) -> list[Row]:
    """The start of a plugin must not cost more in a program that has much memory."""
    setup = Setup(chain_conf(), TMPFS)
    workers = [setup.subject("small program"), setup.subject("program of 2 GiB", "--hold", str(MEBIBYTES))]
    each = turns(workers, rounds)
    for worker in workers:
        worker.close()
    base = median(each["small program"])
    return [
        Row(NAME, "ADD", name, "ms", median(taken), p99(taken), median(taken) / base, "small program",
            1.1 if name != "small program" else None)
        for name, taken in each.items()
    ]  # fmt: skip
