"""The work of programs/peer.go with this library: the same requests and answers.

Requests come on stdin, one a line; each is answered with a line of JSON, times in nanoseconds. ``delay`` is not in
peer.go: how late another task of the event loop runs during ADDs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from libcni import AsyncCNIConfig, CNIConfig, CNIError, NetworkConfigList, RuntimeConf

PROCESSES = 3


class Subject:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        settings: dict[str, Any] = {"cache_dir": options.cache, "durable": options.durable, "timeout": options.timeout}
        settings["start_ahead"] = options.ahead
        if options.max_verbs is not None:
            settings["max_verbs"] = options.max_verbs
        self.cni = CNIConfig([options.bin], **settings)
        self.aio = AsyncCNIConfig([options.bin], **settings)
        self.net = NetworkConfigList.from_file(options.conf)
        self.takes_ports = not self.net.unused_capabilities({"portMappings": []})
        self.loop = asyncio.Runner()

    def runtime_conf(self, number: int) -> RuntimeConf:
        mapping = {"hostPort": 20000 + number % 20000, "containerPort": 80, "protocol": "tcp"}
        args = {"portMappings": [mapping]} if self.takes_ports else None
        return RuntimeConf(f"c{number}", self.options.netns.replace("%d", str(number)), "eth0", capability_args=args)

    def add_one(self, number: int) -> int:
        """Attach a container, and return the nanoseconds."""
        return timed(lambda: self.cni.add_network_list(self.net, self.runtime_conf(number)))[0]

    def add(self, first: str, count: str, parallel: str) -> dict[str, Any]:
        numbers = range(int(first), int(first) + int(count))
        if self.options.mode == "asyncio":
            return self.loop.run(self._in_tasks(iter(numbers), int(parallel)))
        if self.options.mode == "processes":
            wall, each = timed(lambda: list(pool().map(add_in_process, numbers)))
            return {"wall": wall, "each": each}
        return in_threads(self.add_one, list(numbers), int(parallel))

    def delete(self, first: str, count: str, _parallel: str) -> dict[str, Any]:
        def one(number: int) -> int:
            return timed(lambda: self.cni.del_network_list(self.net, self.runtime_conf(number)))[0]

        return in_threads(one, list(range(int(first), int(first) + int(count))), 1)

    def list(self, container: str) -> dict[str, Any]:
        taken, found = timed(lambda: self.cni.get_cached_attachments(container if container != "-" else None))
        return {"wall": taken, "each": [taken], "found": len(found)}

    def delay(self, first: str, count: str, parallel: str) -> dict[str, Any]:
        """Attach containers, and measure how late another task of the event loop runs meanwhile."""
        return self.loop.run(self._delay(iter(range(int(first), int(first) + int(count))), int(parallel)))

    async def _delay(self, numbers: Iterator[int], parallel: int) -> dict[str, Any]:
        late: list[int] = []

        async def tick() -> None:
            while True:
                due = time.perf_counter_ns() + 1_000_000
                await asyncio.sleep(0.001)
                late.append(time.perf_counter_ns() - due)

        ticking = asyncio.create_task(tick())
        answer = await self._in_tasks(numbers, parallel)
        ticking.cancel()
        return {**answer, "late": late}

    async def _in_tasks(self, numbers: Iterator[int], parallel: int) -> dict[str, Any]:
        each: list[int] = []
        failed = 0

        async def work() -> None:
            nonlocal failed
            for number in numbers:
                start = time.perf_counter_ns()
                try:
                    await self.aio.add_network_list(self.net, self.runtime_conf(number))
                except CNIError:
                    failed += 1  # of a crowd that is too large; the other groups notice it by their figures
                each.append(time.perf_counter_ns() - start)

        start = time.perf_counter_ns()
        async with asyncio.TaskGroup() as group:
            for _ in range(parallel):
                group.create_task(work())
        return {"wall": time.perf_counter_ns() - start, "each": each, "failed": failed}


def in_threads(call: Callable[[int], int], numbers: list[int], parallel: int) -> dict[str, Any]:
    each: list[int] = []

    def run() -> None:
        while numbers:
            try:
                each.append(call(numbers.pop()))
            except IndexError:  # another thread took the last one
                return

    threads = [threading.Thread(target=run) for _ in range(parallel)]
    wall, _ = timed(lambda: [[thread.start() for thread in threads], [thread.join() for thread in threads]])
    return {"wall": wall, "each": each}


def timed(call: Callable[[], Any]) -> tuple[int, Any]:
    start = time.perf_counter_ns()
    answer = call()
    return time.perf_counter_ns() - start, answer


_pools: list[ProcessPoolExecutor] = []


def pool() -> ProcessPoolExecutor:
    """Return the worker processes, each with a client of its own: locks and records are shared through the files."""
    if not _pools:
        _pools.append(ProcessPoolExecutor(PROCESSES, get_context("spawn")))
    return _pools[0]


def add_in_process(number: int) -> int:
    global _subject  # noqa: PLW0603 - the client of a worker process
    if _subject is None:
        _subject = Subject(options())
    return _subject.add_one(number)


_subject: Subject | None = None


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("threads", "asyncio", "processes"), default="threads")
    parser.add_argument("--durable", action="store_true")
    for name in ("bin", "cache", "conf", "netns"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--ahead", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--max-verbs", type=int)
    parser.add_argument("--timeout", type=float, default=60.0)
    return parser.parse_args()


def main() -> None:
    subject = Subject(options())
    verbs = {"add": subject.add, "del": subject.delete, "list": subject.list, "delay": subject.delay}
    for line in sys.stdin:
        verb, *words = line.split()
        print(json.dumps(verbs[verb](*words)), flush=True)
    for one in _pools:
        one.shutdown()


if __name__ == "__main__":
    main()
