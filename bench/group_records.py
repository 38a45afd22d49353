"""4. Listing, GC with 10 stale attachments and ADD among 100 to 10,000 records, on ext4."""

from __future__ import annotations

import shutil
from pathlib import Path

from common import BUILD, EXT4, Row, Setup, Worker, chain_conf, fresh_cache, median, milliseconds

NAME = "4 records"
STALE = 10


def run(*, quick: bool) -> list[Row]:
    rows, adds = [], {}
    for number in (100, 10000):
        found, adds[number] = _at(number, (4 if quick else 10) if number < 10000 else 3)
        rows += found
    for name, base in adds[100].items():
        taken = adds[10000][name]
        limit = 1.3 if name == "sync" else None
        rows.append(Row(NAME, "ADD among 10,000 against 100", name, "ms", taken, None, taken / base, "100", limit))
    return rows


def _at(number: int, rounds: int) -> tuple[list[Row], dict[str, float]]:
    """Return the rows, and each program's median of an ADD."""
    conf = chain_conf()
    template = fresh_cache("template", EXT4)
    _fill(template, number)
    caches = [fresh_cache(who, EXT4) for who in ("peer", "subject")]
    for cache in caches:
        shutil.copytree(template / "results", cache / "results", dirs_exist_ok=True)
    go = Setup(conf, EXT4, cache=caches[0]).peer()
    ours = Setup(conf, EXT4, cache=caches[1]).subject("sync", "--ahead", "always")
    workers = [go, ours]
    valid = BUILD / "valid.txt"
    valid.write_text("\n".join(f"c{index}" for index in range(STALE, number)), encoding="ascii")
    middle = f"c{number // 2}"
    one_limit, all_limit = (0.7, 1.3) if number == 10000 else (None, None)
    adds = _adds(workers, 60)
    rows = [
        *_pair(number, "list one container's", workers, ("list", middle), 5 * rounds, 1, one_limit),
        *_pair(number, "list all", workers, ("list", "-"), rounds, number, all_limit),
        *_pair(number, f"GC with {STALE} stale", workers, ("gc", valid), rounds, STALE, None, template),
        *_rows(number, "ADD", adds, None),
    ]
    for worker in workers:
        worker.close()
    for cache in (template, *caches):
        shutil.rmtree(cache)
    return rows, {name: median(taken) for name, taken in adds.items()}


def _fill(cache: Path, number: int) -> None:
    """Make one real record with this library, and copies of it for the other containers."""
    worker = Setup(chain_conf(), EXT4, cache=cache).subject("sync")
    worker.ask("add", 0, 1, 1)
    worker.close()
    (first,) = (cache / "results").iterdir()
    data = first.read_text(encoding="utf-8")
    for index in range(1, number):
        name = first.name.replace("-c0-", f"-c{index}-")
        (cache / "results" / name).write_text(data.replace('"c0"', f'"c{index}"'), encoding="utf-8")


def _pair(  # noqa: PLR0913, PLR0917 - a measurement has that many sides
    number: int, what: str, workers: list[Worker], request: tuple[object, ...], rounds: int, found: int,
    limit: float | None, template: Path | None = None,
) -> list[Row]:  # fmt: skip
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for turn in range(rounds + 1):
        for worker in workers if turn % 2 else workers[::-1]:
            answer = worker.ask(*request)
            assert answer["found"] == found, (worker.name, request, answer["found"])
            if turn:
                each[worker.name] += milliseconds(answer["each"])
            if template is not None and worker.cache is not None:
                _put_back(template, worker.cache)
    return _rows(number, what, each, limit)


def _adds(workers: list[Worker], rounds: int) -> dict[str, list[float]]:
    """Measure ADD among so many records: it must find out that the interface has none."""
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for turn in range(rounds + 3):
        for worker in workers if turn % 2 else workers[::-1]:
            answer = worker.ask("add", 1_000_000, 1, 1)
            worker.ask("del", 1_000_000, 1)
            if turn >= 3:  # the first ones start to watch the directory
                each[worker.name] += milliseconds(answer["each"])
    return each


def _rows(number: int, what: str, each: dict[str, list[float]], limit: float | None) -> list[Row]:
    base = median(each["Go"])
    return [
        Row(NAME, f"{number:,}: {what}", name, "ms", median(taken), None, median(taken) / base, "Go",
            limit if name != "Go" else None)
        for name, taken in each.items()
    ]  # fmt: skip


def _put_back(template: Path, cache: Path) -> None:
    for index in range(STALE):
        for file in (template / "results").glob(f"*-c{index}-*"):
            target = cache / "results" / file.name
            if not target.exists():
                shutil.copy(file, target)
