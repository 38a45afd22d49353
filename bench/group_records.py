"""4. Records: one container's attachments, all attachments, GC with 10 stale ones; how that grows with their number."""

from __future__ import annotations

import shutil
from pathlib import Path

from common import BUILD, Row, Worker, chain_conf, fresh_cache, median, milliseconds, peer, subject

NAME = "4 records"
STALE = 10


def run(*, quick: bool) -> list[Row]:
    rows = []
    for number in (100, 1000) if quick else (100, 1000, 10000):
        rows += _at(number, 10 if number < 10000 else 3)
    return rows


def _at(number: int, rounds: int) -> list[Row]:
    conf = chain_conf()
    template = fresh_cache("template")
    _fill(template, number, conf)
    caches = [fresh_cache(who) for who in ("peer", "subject")]
    for cache in caches:
        shutil.copytree(template / "results", cache / "results", dirs_exist_ok=True)
    go = peer(conf, cache=caches[0])
    ours = subject("sync", conf, cache=caches[1])
    valid = BUILD / "valid.txt"
    valid.write_text("\n".join(f"c{index}" for index in range(STALE, number)), encoding="ascii")
    middle = f"c{number // 2}"
    one_limit, all_limit = (0.7, 1.0) if number == 10000 else (None, None)
    rows = [
        *_pair(number, "list one container's", [go, ours], ("list", middle), 5 * rounds, 1, one_limit),
        *_pair(number, "list all", [go, ours], ("list", "-"), rounds, number, all_limit),
        *_pair(number, f"GC with {STALE} stale", [go, ours], ("gc", valid), rounds, STALE, None, template),
        *_adds(number, [go, ours], 5 * rounds),
    ]
    for worker in (go, ours):
        worker.close()
    for cache in (template, *caches):
        shutil.rmtree(cache)
    return rows


def _fill(cache: Path, number: int, conf: Path) -> None:
    """Make one real record with this library, and the others after its likeness."""
    worker = subject("sync", conf, cache=cache)
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


def _adds(number: int, workers: list[Worker], rounds: int) -> list[Row]:
    """ADD beside so many records: making sure that an interface is free must not take long."""
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for turn in range(rounds + 1):
        for worker in workers if turn % 2 else workers[::-1]:
            answer = worker.ask("add", 1_000_000, 1, 1)
            worker.ask("del", 1_000_000, 1)
            if turn:
                each[worker.name] += milliseconds(answer["each"])
    return _rows(number, "ADD", each, None)


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
