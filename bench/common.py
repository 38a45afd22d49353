"""The groups' common part: the programs that are compared, requests to them in turn, and rows of figures."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
SOURCES = ROOT / "bench" / "programs"
TMPFS = Path("/dev/shm") / f"libcni-bench-{os.getpid()}"
EXT4 = BUILD / "ext4"
LOOK = f"libcni-bench-{os.getpid()}"
_GO_PATH = "/usr/share/gocode"
_IMAGE_BYTES = 1 << 30
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Row:
    """A line of the table; ``median`` and ``p99`` in ``unit``. ``limit``: the bar for ``ratio``; -x: at least x."""

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
        """Attach new containers and move their records away, so that each turn begins with an empty cache."""
        answer = self.ask(verb, next(_numbers) * 1000, count, parallel)
        if self.cache is not None:
            forget(self.cache)
        return answer

    def processor_ms(self) -> float:
        """Return the milliseconds of processor time that the program has used so far, without its plugins."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) * 1000 / os.sysconf("SC_CLK_TCK")

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
    """Build the programs that the library is compared with; exit if a compiler is missing."""
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


@contextmanager
def machinery() -> Iterator[None]:
    """Build the programs, mount ext4 and tmpfs, make a namespace for ADD to look into; remove all in the end."""
    build()
    TMPFS.mkdir()
    is_mounted = _make_ext4()
    has_namespace = can_use_namespaces() and subprocess.run(["ip", "netns", "add", LOOK], check=False).returncode == 0
    try:
        yield
    finally:
        if has_namespace:
            subprocess.run(["ip", "netns", "del", LOOK], check=False)
        shutil.rmtree(TMPFS, ignore_errors=True)
        if is_mounted:
            subprocess.run(["umount", EXT4], check=False)
        else:
            shutil.rmtree(EXT4, ignore_errors=True)


def _make_ext4() -> bool:
    """Make a directory on ext4 with a journal: on this disk, or in a mounted image. Return whether it is an image."""
    EXT4.mkdir()
    # Nodes have a journal. Without one, other system calls make a record durable.
    if "data=" in _ext4_options(EXT4) or os.geteuid() != 0:
        return False
    image = BUILD / "ext4.img"
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    return subprocess.run(["mount", "-o", "loop", image, EXT4], check=False).returncode == 0


def _ext4_options(path: Path) -> str:
    """Return the options with which the file system of a path is mounted, "" if it is not ext4."""
    device = path.stat().st_dev
    try:
        name = os.readlink(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").rpartition("/")[2]
        return Path("/proc/fs/ext4", name, "options").read_text(encoding="utf-8")
    except OSError:
        return ""


def ext4_in_use() -> str:
    """Describe the file system of the rows that say ext4."""
    options = _ext4_options(EXT4)
    if not options:
        return "no ext4"
    journal = "with a journal" if "data=" in options else "without a journal"
    return f"ext4 {journal}, {'in an image' if (BUILD / 'ext4.img').exists() else 'on the disk'}"


def can_use_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


def netns() -> str:
    """Return the path of the namespace that plugins which do nothing are given; it need not exist."""
    return f"/run/netns/{LOOK}"


def fresh_cache(name: str, file_system: Path) -> Path:
    path = file_system / f"{name}-{next(_numbers)}"
    (path / "results").mkdir(parents=True)
    return path


@dataclass(frozen=True)
class Setup:
    """The work of a group's programs: a configuration, the plugins' directory, the records' file system, a namespace.

    ``prefix``: a command that runs the program. ``%d`` in ``netns`` is the container's number.
    """

    conf: Path
    file_system: Path
    bin: Path = BUILD / "bin"
    netns: str = field(default_factory=netns)
    prefix: tuple[str, ...] = ()
    cache: Path | None = None

    def subject(self, name: str, *options: str, mode: str = "sync") -> Worker:
        """Start this library; ``options`` of bench/subject.py: ``--durable``, ``--ahead always``."""
        cache = self.cache or fresh_cache("subject", self.file_system)
        program = [sys.executable, str(ROOT / "bench/subject.py"), "--mode", mode, *options, "--bin", str(self.bin)]
        program += ["--netns", self.netns, "--cache", str(cache), "--conf", str(self.conf)]
        return Worker(name, [*self.prefix, "env", f"PYTHONPATH={ROOT}", *program], cache)

    def peer(self, *options: str, name: str = "Go") -> Worker:
        """Start Go libcni."""
        cache = self.cache or fresh_cache("peer", self.file_system)
        program = [str(BUILD / "peer"), *options, "-bin", str(self.bin), "-netns", self.netns]
        return Worker(name, [*self.prefix, *program, "-cache", str(cache), "-conf", str(self.conf)], cache)


def floor(plugin: str = "noop") -> Worker:
    """Start the C program, with the configuration that the first plugin receives."""
    path = BUILD / f"floor-{plugin}.json"
    document = json.loads(chain_conf(plugin).read_text(encoding="ascii"))
    first = {"cniVersion": "1.0.0", "name": document["name"], **document["plugins"][0]}
    path.write_text(json.dumps(first, separators=(",", ":")), encoding="ascii")
    return Worker("C", [str(BUILD / "floor"), str(BUILD / "bin" / plugin), str(path)])


def turns(workers: Sequence[Worker], rounds: int, chains: int = 5) -> dict[str, list[float]]:
    """Ask each program for a few chains, in an order that changes from round to round; return the milliseconds."""
    each: dict[str, list[float]] = {worker.name: [] for worker in workers}
    for worker in workers:
        worker.add(20)
    for number in range(rounds // chains):
        for worker in rotated(workers, number):
            each[worker.name] += milliseconds(worker.add(chains)["each"])
    return each


def rotated(workers: Sequence[Worker], number: int) -> list[Worker]:
    shift = number % len(workers)
    return [*workers[shift:], *workers[:shift]]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def milliseconds(nanoseconds: Iterable[float]) -> list[float]:
    return [value / 1e6 for value in nanoseconds]
