"""What the groups share: the programs that are compared, asking them in turn, and rows of figures."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
SOURCES = ROOT / "bench" / "programs"
_GO_PATH = "/usr/share/gocode"
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Row:
    """One line of the table; ``values`` in ``unit``, ``limit`` on ``ratio`` (below zero: at least that much)."""

    group: str
    what: str
    who: str
    unit: str
    median: float
    p99: float | None = None
    ratio: float | None = None
    against: str = ""
    limit: float | None = None

    @property
    def met(self) -> bool | None:
        if self.ratio is None or self.limit is None:
            return None
        return self.ratio <= self.limit if self.limit > 0 else self.ratio >= -self.limit


@dataclass
class Worker:
    """A program that does what it is asked, and times it."""

    name: str
    command: Sequence[str]
    cache: Path | None = None
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )

    def ask(self, *words: object) -> dict[str, Any]:
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(" ".join(str(word) for word in words) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self.process.wait()}: {' '.join(self.command)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def add(self, count: int = 1, parallel: int = 1) -> dict[str, Any]:
        """Attach fresh containers, and forget them: each turn begins with an empty cache."""
        first = next(_numbers) * 1000
        answer = self.ask("add", first, count, parallel)
        if self.cache is not None:
            forget(self.cache)
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def forget(cache: Path) -> None:
    """Move the records out of the way. Removed, they would slow down the next: ext4 passes over freed inodes."""
    grave = cache / f"old-{next(_numbers)}"
    (cache / "results").rename(grave)
    (cache / "results").mkdir()


def build() -> None:
    """Build what is compared with; says what is missing."""
    missing = [name for name in ("gcc", "go") if shutil.which(name) is None]
    if missing or not Path(_GO_PATH, "src/github.com/containernetworking/cni").is_dir():
        raise SystemExit(f"missing: {missing or 'Go libcni'}; apt install gcc golang-go golang-github-appc-cni-dev")
    shutil.rmtree(BUILD, ignore_errors=True)
    (BUILD / "bin").mkdir(parents=True)
    c = ["gcc", "-O2", "-Wall", "-Wextra", "-static", "-pthread"]
    subprocess.run([*c, "-o", BUILD / "bin/noop", SOURCES / "noop.c"], check=True)
    subprocess.run([*c, "-o", BUILD / "floor", SOURCES / "floor.c"], check=True)
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": _GO_PATH}
    subprocess.run(["go", "build", "-o", BUILD / "peer", SOURCES / "peer.go"], check=True, env=environment)
    for name in ("noop20", "noop1000"):
        os.link(BUILD / "bin/noop", BUILD / "bin" / name)


def conf_file(name: str, plugins: Iterable[Mapping[str, Any]], **more: Any) -> Path:
    """Write a configuration list, and return its path."""
    path = BUILD / f"{name}.conflist"
    document = {"cniVersion": "1.0.0", "name": name, **more, "plugins": list(plugins)}
    text = json.dumps(document, indent=1)
    if not path.exists() or path.read_text(encoding="ascii") != text:  # a program may be reading it
        path.write_text(text, encoding="ascii")
    return path


def chain_conf(plugin: str = "noop") -> Path:
    """Write the list of three no-op plugins that most groups run."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}]]}
    first = {"type": plugin, "bridge": "cni0", "isGateway": True, "ipMasq": True, "mtu": 1500, "ipam": ipam}
    second = {"type": plugin, "sysctl": {"net.core.somaxconn": "500"}}
    third = {"type": plugin, "capabilities": {"portMappings": True}, "snat": True}
    return conf_file(f"chain-{plugin}", [first, second, third])


def fresh_cache(name: str) -> Path:
    path = BUILD / "cache" / f"{name}-{os.getpid()}-{next(_numbers)}"
    (path / "results").mkdir(parents=True)
    return path


def subject(
    name: str, conf: Path, *options: str, mode: str = "sync", prefix: Sequence[str] = (), cache: Path | None = None
) -> Worker:
    """Start this library."""
    cache = cache or fresh_cache("subject")
    program = [sys.executable, str(ROOT / "bench/subject.py"), "--mode", mode, *options]
    if "--bin" not in options:
        program += ["--bin", str(BUILD / "bin")]
    return Worker(
        name, [*prefix, "env", f"PYTHONPATH={ROOT}", *program, "--cache", str(cache), "--conf", str(conf)], cache
    )


def peer(conf: Path, *options: str, prefix: Sequence[str] = (), cache: Path | None = None) -> Worker:
    """Start Go libcni."""
    cache = cache or fresh_cache("peer")
    bin_options = () if "-bin" in options else ("-bin", str(BUILD / "bin"))
    return Worker(
        "Go", [*prefix, str(BUILD / "peer"), *options, *bin_options, "-cache", str(cache), "-conf", str(conf)], cache
    )


def floor(plugin: str = "noop") -> Worker:
    """Start the floor, with what the first plugin receives."""
    path = BUILD / f"floor-{plugin}.json"
    document = json.loads(chain_conf(plugin).read_text(encoding="ascii"))
    first = {"cniVersion": "1.0.0", "name": document["name"], **document["plugins"][0]}
    path.write_text(json.dumps(first, separators=(",", ":")), encoding="ascii")
    return Worker("C", [str(BUILD / "floor"), str(BUILD / "bin" / plugin), str(path)])


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def milliseconds(nanoseconds: Iterable[float]) -> list[float]:
    return [value / 1e6 for value in nanoseconds]
