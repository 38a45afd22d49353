"""Fill a node of its own with containers that real plugins attach, and measure at each size.

Usage: unshare --mount --net growth.py DIRECTORY CACHE SIZE... DIRECTORY has the networks, one for each thousand
containers. The output has a line of JSON for each size: {"size": 100, "ADD": [milliseconds, own milliseconds], ...},
and for commands the memory in MiB as a third number.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from libcni import CNIConfig, NetworkConfigList, RuntimeConf

BIN = "/usr/lib/cni"
PER_NETWORK = 1000
"""A bridge has at most 1,023 ports."""
TRIES = 5
COMMAND = """
import atexit, sys
from libcni.cli import run
atexit.register(lambda: print(open("/proc/self/status").read(), file=sys.stderr))
run()
"""


class Node:
    def __init__(self, directory: Path, cache: str) -> None:
        self.options = [f"--conf-dir={directory}", f"--path={BIN}", f"--cache-dir={cache}"]
        self.nets = [NetworkConfigList.from_file(path) for path in sorted(directory.glob("*.conflist"))]
        self.cni = CNIConfig([BIN], cache, conf_dir=directory, timeout=300.0)
        self.quick = CNIConfig([BIN], cache, conf_dir=directory, timeout=300.0, durable=False)

    def net(self, number: int) -> NetworkConfigList:
        return self.nets[number // PER_NETWORK % len(self.nets)]

    def conf(self, number: int) -> RuntimeConf:
        mapping = {"hostPort": 10000 + number, "containerPort": 80, "protocol": "tcp"}
        return RuntimeConf(f"c{number}", f"/run/netns/c{number}", "eth0", capability_args={"portMappings": [mapping]})

    def make(self, number: int) -> RuntimeConf:
        subprocess.run(["ip", "netns", "add", f"c{number}"], check=True)
        return self.conf(number)

    def fill(self, number: int) -> None:
        self.quick.add_network_list(self.net(number), self.make(number))

    def measure(self, size: int) -> dict[str, list[float]]:
        """Measure at a size: verbs of further containers, a sweep that finds all alive, and commands."""
        found: dict[str, list[list[float]]] = {}
        for number in range(size, size + TRIES):
            rt, net = self.make(number), self.nets[0]
            found.setdefault("ADD", []).append(timed(partial(self.cni.add_network_list, net, rt)))
            [one] = self.cni.get_cached_attachments(rt.container_id)
            found.setdefault("reload of one", []).append(timed(partial(self.cni.reload_attachment, one)))
            found.setdefault("DEL", []).append(timed(partial(self.cni.del_network_list, net, rt)))
            subprocess.run(["ip", "netns", "del", rt.container_id], check=True)
        valid = self.cni.get_cached_attachments()
        assert len(valid) == size, len(valid)
        found["GC"] = [timed(partial(self.cni.gc_network_list, self.nets[0], valid))]
        for words in (["attachments"], ["doctor"], ["repair"]):
            found[f"libcni {words[0]}"] = [command([*words, *self.options])]
        return {what: [statistics.median(column) for column in zip(*each, strict=True)] for what, each in found.items()}


def timed(work: Callable[[], object]) -> list[float]:
    began, own = time.perf_counter(), time.process_time()
    work()
    return [(time.perf_counter() - began) * 1000, (time.process_time() - own) * 1000]


def command(words: list[str]) -> list[float]:
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    taken = (time.perf_counter() - began) * 1000
    highest = re.search(r"VmHWM:\s*(\d+) kB", said)
    if process.returncode not in {0, 1, 2} or highest is None:  # 1, 2: findings
        raise SystemExit(f"libcni {words[0]} ended with {process.returncode}: {said}")
    return [taken, (usage.ru_utime + usage.ru_stime) * 1000, int(highest[1]) / 1024]


def main() -> None:
    directory, cache, *sizes = sys.argv[1:]
    for words in ("mount --make-rprivate /", "mount -t tmpfs none /run", "mkdir /run/netns", "ip link set lo up"):
        subprocess.run(words.split(), check=True)
    node, begun = Node(Path(directory), cache), 0
    with ThreadPoolExecutor(4) as pool:
        for size in map(int, sizes):
            list(pool.map(node.fill, range(begun, size)))
            begun = size
            print(json.dumps({"size": size, **node.measure(size)}), flush=True)


if __name__ == "__main__":
    main()
