"""2. The same chain in parallel, records on tmpfs: rate, p99 and processor time, on asyncio and from threads."""

from __future__ import annotations

from common import TMPFS, Row, Setup, Worker, chain_conf, floor, median, milliseconds, p99, rotated

NAME = "2 in parallel, no-op plugins"
AHEAD = ("--ahead", "always")


def run(*, quick: bool) -> list[Row]:
    rounds = 3 if quick else 15
    rows = []
    for parallel, count in ((8, 128), (64, 256)):
        setup = Setup(chain_conf(), TMPFS)
        workers = [
            floor(),
            setup.peer(),
            setup.subject("asyncio", *AHEAD, mode="async"),
            setup.subject("threads", *AHEAD),
        ]
        rows += rates(NAME, f"{parallel} in parallel", workers, parallel, count, rounds, ("asyncio", 0.9))
        answers = [workers[2].add(count, parallel, verb="delay") for _ in range(rounds)]
        late = [one for answer in answers for one in milliseconds(answer["each"])]
        what = f"{parallel} in parallel: delay of another task of the event loop"
        rows.append(Row(NAME, what, "asyncio", "ms", median(late), p99(late)))
        for worker in workers:
            worker.close()
    return rows + _threads(1 if quick else 4)


def rates(  # noqa: PLR0913, PLR0917 - a measurement has that many sides
    group: str, what: str, workers: list[Worker], parallel: int, count: int, rounds: int, bar: tuple[str, float],
    *, detach: bool = False,
) -> list[Row]:  # fmt: skip
    """Measure ADDs a second, their p99, and the processor time that the program itself takes for each.

    ``bar``: a program's name and the least ratio of its rate to Go's.
    """
    rate: dict[str, list[float]] = {worker.name: [] for worker in workers}
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    processor = dict.fromkeys(rate, 0.0)
    for number in range(rounds + 1):
        for worker in rotated(workers, number):
            before = worker.processor_ms()
            answer = worker.ask("add", 1, count, parallel) if detach else worker.add(count, parallel)
            taken = worker.processor_ms() - before
            if detach:
                worker.ask("del", 1, count)
            if number:
                rate[worker.name].append(count / (answer["wall"] / 1e9))
                each[worker.name] += milliseconds(answer["each"])
                processor[worker.name] += taken / count / rounds
    rows = []
    for name, found in rate.items():
        is_barred = name == bar[0]
        ratio = median(found) / median(rate["Go"])
        rows.append(
            Row(group, f"{what}: rate", name, "/s", median(found), None, ratio, "Go", -bar[1] if is_barred else None)
        )
        late = p99(each[name]) / p99(each["Go"])
        rows.append(
            Row(group, f"{what}: p99", name, "ms", p99(each[name]), None, late, "Go", 1.0 if is_barred else None)
        )
        more = processor[name] / processor["Go"]
        rows.append(Row(group, f"{what}: processor time of the program", name, "ms", processor[name], None, more, "Go"))
    return rows


def _threads(rounds: int) -> list[Row]:
    """Threads that wait for plugins must not hold each other up."""
    worker = Setup(chain_conf("noop20"), TMPFS).subject("threads", "--ahead", "always")
    rates: dict[int, list[float]] = {2: [], 16: []}
    worker.add(4)
    for _ in range(rounds):
        for parallel, found in rates.items():
            count = 8 * parallel
            found.append(count / (worker.add(count, parallel)["wall"] / 1e9))
    worker.close()
    base = median(rates[2])
    return [
        Row(NAME, f"plugins of 20 ms, {parallel} threads: rate", "threads", "/s", median(found), None,
            median(found) / base, "2 threads", -1.0 if parallel > 2 else None)
        for parallel, found in rates.items()
    ]  # fmt: skip
