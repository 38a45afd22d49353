"""The programs that are compared, requests to them in turn, and rows of figures."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
SOURCES = ROOT / "bench" / "programs"
TMPFS = Path("/dev/shm") / f"libcni-bench-{os.getpid()}"
EXT4 = BUILD / "ext4"
LOOK = f"libcni-bench-{os.getpid()}"
"""A namespace, and the prefix of the names of others."""

OWN_MOUNTS = "LIBCNI_BENCH_OWN_MOUNTS"
"""A variable that says that this program has a mount namespace of its own."""

DISTRIBUTION = Path("/usr/bin/python3")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Row:
    """A line of the table; ``median`` and ``p99`` in ``unit``. ``wanted``: the bar for ``ratio``; -x: at least x."""

    group: str
    what: str
    who: str
    unit: str
    median: float
    p99: float | None = None
    ratio: float | None = None
    against: str = ""
    wanted: float | None = None

    @property
    def is_missed(self) -> bool:
        ratio, wanted = self.ratio or 0.0, self.wanted
        return wanted is not None and (ratio > wanted if wanted > 0 else ratio < -wanted)


@cache
def interpreter() -> list[str]:
    """Return the command that runs this library: the distribution's Python, or else the one that runs this.

    A distribution builds Python with profile-guided optimisation, pyenv does not; the difference is up to 18 %.
    """
    packages = f"PYTHONPATH={ROOT}:{sysconfig.get_path('purelib')}"
    try_it = ["env", packages, str(DISTRIBUTION), "-c", "import libcni, pydantic, yaml, filelock; libcni.CNIConfig"]
    if DISTRIBUTION.exists() and subprocess.run(try_it, check=False, capture_output=True).returncode == 0:
        return ["env", packages, str(DISTRIBUTION)]
    return ["env", f"PYTHONPATH={ROOT}", sys.executable]


def python_in_use() -> str:
    """Describe the Python that runs this library."""
    version = subprocess.check_output([*interpreter(), "-c", "import sys; print(sys.version.split()[0])"], text=True)
    whose = "the distribution's" if interpreter()[-1] == str(DISTRIBUTION) else "another build"
    return f"Python {version.strip()} ({whose})"


def go_in_use() -> str:
    """Describe Go libcni and the compiler that the comparison was built with."""
    return (BUILD / "go.txt").read_text(encoding="utf-8").strip()


@dataclass
class Worker:
    """A program that works on request and times its work."""

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

    def add(self, count: int = 1, parallel: int = 1, *, verb: str = "add") -> dict[str, Any]:
        """Attach new containers and move their records away, so that each turn begins with an empty cache.

        Moved, not removed: ext4 takes up to ten times as long to make a file when many have just been removed.
        """
        answer = self.ask(verb, next(_numbers) * 1000, count, parallel)
        if self.cache is not None:
            (self.cache / "results").rename(self.cache / f"old-{next(_numbers)}")
            (self.cache / "results").mkdir()
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Setup:
    """The work of a group's programs. ``prefix``: a command that runs them. ``%d`` in ``netns``: the container."""

    conf: Path
    file_system: Path
    bin: Path = BUILD / "bin"
    netns: str = f"/run/netns/{LOOK}"
    prefix: tuple[str, ...] = ()
    cache: Path | None = None

    def subject(self, name: str, *options: str, mode: str = "threads") -> Worker:
        """Start this library; ``options`` and ``mode``: those of bench/subject.py."""
        program = [*interpreter(), str(ROOT / "bench/subject.py"), "--mode", mode, *options]
        return self._worker(name, program, "--")

    def peer(self) -> Worker:
        """Start Go libcni."""
        return self._worker("Go", [str(BUILD / "peer")], "-")

    def _worker(self, name: str, program: list[str], dash: str) -> Worker:
        given = {
            "bin": self.bin,
            "netns": self.netns,
            "conf": self.conf,
            "cache": self.cache or fresh_cache(self.file_system),
        }
        words = [str(word) for option, value in given.items() for word in (f"{dash}{option}", value)]
        return Worker(name, [*self.prefix, *program, *words], Path(given["cache"]))


def conf_file(name: str, plugins: Iterable[Mapping[str, Any]]) -> Path:
    """Write a configuration list, and return its path."""
    path = BUILD / f"{name}.conflist"
    path.write_text(json.dumps({"cniVersion": "1.0.0", "name": path.stem, "plugins": list(plugins)}), encoding="ascii")
    return path


def chain_conf(plugin: str = "noop", *, publishes: bool = False) -> Path:
    """Write the list of three no-op plugins; ``publishes``: the last one takes a port of the host."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/16", "gateway": "10.1.0.1"}]]}
    first = {"type": plugin, "bridge": "cni0", "isGateway": True, "ipMasq": True, "mtu": 1500, "ipam": ipam}
    second = {"type": plugin, "sysctl": {"net.core.somaxconn": "500"}}
    third = {"type": plugin, **({"capabilities": {"portMappings": True}} if publishes else {}), "snat": True}
    return conf_file(f"{plugin}-ports" if publishes else plugin, [first, second, third])


def fresh_cache(file_system: Path) -> Path:
    path = file_system / f"cache-{next(_numbers)}"
    (path / "results").mkdir(parents=True)
    return path


def rotated(workers: Sequence[Worker], number: int) -> list[Worker]:
    """Return the programs in an order that changes, so that a slow moment of the machine meets all alike."""
    shift = number % len(workers)
    return [*workers[shift:], *workers[:shift]]


@contextmanager
def running(*workers: Worker) -> Iterator[list[Worker]]:
    try:
        yield list(workers)
    finally:
        for worker in workers:
            worker.close()


def rows_to_go(
    group: str, what: str, each: Mapping[str, Sequence[float]], wanted: Mapping[str, float] | None = None
) -> list[Row]:
    """Return a row for each program's milliseconds, with the ratio to Go."""
    base = median(each["Go"])
    return [
        Row(group, what, name, "ms", median(taken), p99(taken), median(taken) / base, "Go", (wanted or {}).get(name))
        for name, taken in each.items()
    ]


def rates(  # noqa: PLR0913, PLR0917 - a measurement has that many sides
    group: str, what: str, workers: list[Worker], parallel: int, count: int, rounds: int, wanted: Mapping[str, float],
    *, detach: bool = False,
) -> list[Row]:  # fmt: skip
    """Measure ADDs a second, and their p99; ``wanted``: a program's name to the least ratio of its rate to Go's."""
    rate: dict[str, list[float]] = {worker.name: [] for worker in workers}
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for number in range(rounds + 1):
        for worker in rotated(workers, number):
            answer = worker.ask("add", 1, count, parallel) if detach else worker.add(count, parallel)
            if detach:
                worker.ask("del", 1, count, 1)
            if number:  # the first round warms up
                rate[worker.name].append(count / (answer["wall"] / 1e9))
                each[worker.name] += milliseconds(answer["each"])
    rows = []
    for name, found in rate.items():
        ratio, bar = median(found) / median(rate["Go"]), wanted.get(name)
        late = p99(each[name]) / p99(each["Go"])
        rows.append(Row(group, f"{what}: rate", name, "/s", median(found), None, ratio, "Go", bar and -bar))
        rows.append(Row(group, f"{what}: p99", name, "ms", p99(each[name]), None, late, "Go", bar and 1.0))
    return rows


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def milliseconds(nanoseconds: Iterable[float]) -> list[float]:
    return [value / 1e6 for value in nanoseconds]


def run_in_own_mounts() -> None:
    """Run this program in a mount namespace of its own: then its mounts and namespaces end with it, even if killed.

    A signal that stops it raises SystemExit, so that the programs that it has started end too.
    """
    if can_use_namespaces() and OWN_MOUNTS not in os.environ:
        command = ["unshare", "--mount", sys.executable, *sys.argv]
        os.execvpe(command[0], command, {**os.environ, OWN_MOUNTS: "1"})
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)


def _stop(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one must not stop the clean-up
    raise SystemExit(128 + number)


@contextmanager
def machinery() -> Iterator[None]:
    """Build the programs, mount ext4 and tmpfs, and make a namespace for ADD to look into."""
    _build()
    EXT4.mkdir()
    TMPFS.mkdir()
    try:
        if can_use_namespaces():
            _mount()
        yield
    finally:
        if can_use_namespaces():
            subprocess.run(["umount", "--lazy", TMPFS, EXT4], check=False)
        shutil.rmtree(TMPFS)


def _mount() -> None:
    # Nodes have a journal, and this disk may have none. Without one, other system calls make a record durable.
    with (BUILD / "ext4.img").open("wb") as image:
        image.truncate(1 << 30)
    Path("/run/netns").mkdir(exist_ok=True)
    for words in (
        ["mkfs.ext4", "-q", BUILD / "ext4.img"],
        ["mount", "-o", "loop", BUILD / "ext4.img", EXT4],
        ["mount", "-t", "tmpfs", "none", TMPFS],
        ["mount", "-t", "tmpfs", "none", "/run/netns"],
        ["ip", "netns", "add", LOOK],
    ):
        subprocess.run(words, check=True)


def _build() -> None:
    shutil.rmtree(BUILD, ignore_errors=True)
    (BUILD / "bin").mkdir(parents=True)
    subprocess.run(["gcc", "-O2", "-static", "-o", BUILD / "bin/noop", SOURCES / "noop.c"], check=True)
    describe = "grep -h appc-cni $PEER_GO/.packages | tr '\\t' ' ' | sed 's/-dev / /; s/^/Go libcni: /' || true"
    describe = f"go build -o {BUILD}/peer {SOURCES}/peer.go && ({describe}; go version) | paste -sd, >{BUILD}/go.txt"
    go = ["sh", "-c", describe]
    if subprocess.run([ROOT / "scripts/peers", "go", "--", *go], check=False).returncode:
        raise SystemExit("the program with Go libcni could not be built")
    for milliseconds_each in (5, 20, 1000):
        os.link(BUILD / "bin/noop", BUILD / f"bin/noop{milliseconds_each}")


def can_use_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None
