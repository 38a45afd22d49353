"""The work of programs/peer.go with this library: the same requests and answers.

Requests come on stdin, one a line; each is answered with a line of JSON, times in nanoseconds. Three are not in
peer.go: ``usage`` (memory and open descriptors), ``hold COUNT`` (so many verbs that hold their locks from now on
while their plugins run), and ``delay`` (how late another task of the event loop runs during ADDs).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from libcni import (
    AsyncCNIConfig,
    CallOptions,
    CNIConfig,
    Invocation,
    NetworkConfigList,
    Outcome,
    RuntimeConf,
)
from libcni.executor import ProcessExecutor

ANSWER = (
    b'{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","mac":"02:00:00:00:00:01","sandbox":"/run/netns/bench"}],'
    b'"ips":[{"interface":0,"address":"10.1.0.5/16","gateway":"10.1.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],'
    b'"dns":{"nameservers":["10.1.0.1"]}}'
)


class Instant(ProcessExecutor):
    """Answer at once, without a process."""

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        del invocation, options
        return Outcome(stdout=ANSWER)


class Waiting:
    """Say that a plugin has started, and never that it has ended; no process runs."""

    max_processes = 100_000

    def find(self, plugin: str, path: Sequence[str]) -> str:
        return f"{path[0]}/{plugin}"

    async def execute(self, _invocation: Invocation, options: CallOptions) -> Outcome:
        if options.on_started is not None:
            options.on_started()
        return await asyncio.get_running_loop().create_future()


class Subject:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        settings: dict[str, Any] = {
            "cache_dir": options.cache, "durable": options.durable, "start_ahead": options.ahead
        }  # fmt: skip
        self.sync = CNIConfig([options.bin], **settings)
        self.waiting = AsyncCNIConfig([options.bin], executor=Waiting(), timeout=None, **settings)
        self.held: set[asyncio.Task[object]] = set()
        self.loop = asyncio.Runner()
        self.dry = CNIConfig([options.bin], executor=Instant(), **{**settings, "start_ahead": "never"})
        self.aio = AsyncCNIConfig([options.bin], **settings)
        self.net = NetworkConfigList.from_file(options.conf)
        self.takes_ports = not self.net.unused_capabilities({"portMappings": []})
        self.memory = bytearray(options.hold << 20)
        self.memory[::4096] = b"\1" * len(self.memory[::4096])

    def runtime_conf(self, number: int) -> RuntimeConf:
        netns = self.options.netns.replace("%d", str(number))
        mapping = {"hostPort": 20000 + number % 20000, "containerPort": 80, "protocol": "tcp"}
        args = {"portMappings": [mapping]}
        return RuntimeConf(f"c{number}", netns, "eth0", capability_args=args if self.takes_ports else None)

    def add(self, first: str, count: str, parallel: str = "1") -> dict[str, Any]:
        confs = (self.runtime_conf(int(first) + index) for index in range(int(count)))
        if self.options.mode == "async":
            return self.loop.run(self._in_tasks(confs, int(parallel)))
        return self._in_threads(lambda rt: self.sync.add_network_list(self.net, rt), confs, int(parallel))

    def delay(self, first: str, count: str, parallel: str) -> dict[str, Any]:
        """Attach containers, and measure how late another task of the event loop runs meanwhile."""
        confs = (self.runtime_conf(int(first) + index) for index in range(int(count)))
        return self.loop.run(self._delay(confs, int(parallel)))

    async def _delay(self, confs: Iterator[RuntimeConf], parallel: int) -> dict[str, Any]:
        each: list[int] = []

        async def tick() -> None:
            while True:
                due = time.perf_counter_ns() + 1_000_000
                await asyncio.sleep(0.001)
                each.append(time.perf_counter_ns() - due)

        ticking = asyncio.create_task(tick())
        answer = await self._in_tasks(confs, parallel)
        ticking.cancel()
        return {**answer, "each": each}

    def delete(self, first: str, count: str) -> dict[str, Any]:
        confs = (self.runtime_conf(int(first) + index) for index in range(int(count)))
        return self._in_threads(lambda rt: self.sync.del_network_list(self.net, rt), confs, 1)

    def hold(self, count: str) -> dict[str, Any]:
        return self.loop.run(self._hold(int(count)))

    async def _hold(self, count: int) -> dict[str, Any]:
        while len(self.held) < count:
            rt = RuntimeConf(f"held{len(self.held)}", None, "eth0")
            self.held.add(asyncio.create_task(self.waiting.add_network_list(self.net, rt)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        return {"wall": 0, "each": []}

    def list(self, container: str) -> dict[str, Any]:
        taken, found = timed(lambda: self.sync.get_cached_attachments(container if container != "-" else None))
        return {"wall": taken, "each": [taken], "found": len(found)}

    def gc(self, file: str) -> dict[str, Any]:
        valid = [(name, "eth0") for name in Path(file).read_text(encoding="ascii").split()]
        taken, report = timed(lambda: self.sync.gc_network_list(self.net, valid))
        return {"wall": taken, "each": [taken], "found": len(report.detached)}

    def load(self, count: str) -> dict[str, Any]:
        each = [timed(lambda: NetworkConfigList.from_file(self.options.conf))[0] for _ in range(int(count))]
        return {"wall": sum(each), "each": each}

    def derive(self, count: str) -> dict[str, Any]:
        confs = (self.runtime_conf(index) for index in range(int(count)))
        answer = self._in_threads(lambda rt: self.dry.add_network_list(self.net, rt), confs, 1)
        for file in Path(self.options.cache, "results").iterdir():
            file.unlink()  # or the next ADD would be refused
        return answer

    def usage(self) -> dict[str, Any]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"wall": 0, "each": [], "peak": peak, "descriptors": len(os.listdir("/proc/self/fd")) - 1}

    async def _in_tasks(self, confs: Iterator[RuntimeConf], parallel: int) -> dict[str, Any]:
        each: list[int] = []

        async def work() -> None:
            for rt in confs:
                start = time.perf_counter_ns()
                await self.aio.add_network_list(self.net, rt)
                each.append(time.perf_counter_ns() - start)

        start = time.perf_counter_ns()
        async with asyncio.TaskGroup() as group:
            for _ in range(parallel):
                group.create_task(work())
        return {"wall": time.perf_counter_ns() - start, "each": each}

    def _in_threads(
        self, call: Callable[[RuntimeConf], object], confs: Iterator[RuntimeConf], parallel: int
    ) -> dict[str, Any]:
        each: list[int] = []
        work = list(confs)

        def run() -> None:
            while True:
                try:
                    rt = work.pop()
                except IndexError:
                    return
                each.append(timed(partial(call, rt))[0])

        threads = [threading.Thread(target=run) for _ in range(parallel if parallel > 1 else 0)]
        start = time.perf_counter_ns()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run()
        return {"wall": time.perf_counter_ns() - start, "each": each}


def timed(call: Callable[[], Any]) -> tuple[int, Any]:
    start = time.perf_counter_ns()
    answer = call()
    return time.perf_counter_ns() - start, answer


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("sync", "async"), default="sync")
    parser.add_argument("--durable", action="store_true")
    parser.add_argument("--bin", required=True)
    parser.add_argument("--cache", required=True)
    parser.add_argument("--conf", required=True)
    parser.add_argument("--netns", required=True)
    parser.add_argument("--ahead", choices=("auto", "always", "never"), default="auto")
    parser.add_argument("--hold", type=int, default=0)
    subject = Subject(parser.parse_args())
    verbs = {"del": subject.delete}
    for line in sys.stdin:
        verb, *words = line.split()
        print(json.dumps(verbs.get(verb, getattr(subject, verb, None))(*words)), flush=True)  # type: ignore[misc]
    os._exit(0)  # the verbs of ``hold`` do not end


if __name__ == "__main__":
    main()
