"""A state directory of the C plugin (plugin.c), and what its log says."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from libcni import CNIConfig, NetworkConfigList

TYPES = ("alloc-a", "alloc-b", "plain")


@dataclass(frozen=True)
class Call:
    """Be one call of a plugin, as its log has it; times in nanoseconds, ``end`` 0 where it was killed."""

    start: int
    end: int
    verb: str
    network: str
    container: str
    ifname: str
    type: str
    token: str
    outcome: str


@dataclass(frozen=True)
class Place:
    """Be a directory with plugins, their state, and a cache directory."""

    root: Path
    plugins: str

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def state(self) -> Path:
        return self.root / "state"

    def network(
        self, name: str = "net", *types: str, slow: int = 0, fail: int = 0, **more: object
    ) -> NetworkConfigList:
        config = {"dir": str(self.state), "slow": slow, "fail": fail, **more}
        plugins = [{"type": kind, **config} for kind in types or TYPES]
        return NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": name, "plugins": plugins})

    def client(self, **options: object) -> CNIConfig:
        defaults: dict[str, object] = {"durable": False}
        return CNIConfig([self.plugins], self.cache, **{**defaults, **options})  # type: ignore[arg-type]

    def calm(self) -> None:
        (self.state / "calm").touch()

    def owners(self) -> list[tuple[str, ...]]:
        """Return (network, container, interface, type) for each address that is held."""
        ips = self.state / "ips"
        return [tuple(os.readlink(ips / name).split(" ")) for name in os.listdir(ips)]

    def lines(self) -> list[list[str]]:
        log = self.state / "log"
        return [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []

    def calls(self) -> list[Call]:
        """Return the plugins' calls in the order of their starts."""
        begun: dict[str, Call] = {}
        done: list[Call] = []
        for mark, when, verb, network, container, ifname, kind, token, pid, outcome in self.lines():
            if mark == "S":
                begun[pid] = Call(int(when), 0, verb, network, container, ifname, kind, token, outcome)
            else:
                first = begun.pop(pid)
                done.append(Call(first.start, int(when), verb, network, container, ifname, kind, token, outcome))
        return sorted([*done, *begun.values()], key=lambda call: call.start)

    def wait_for_plugins(self, seconds: float = 10.0) -> None:
        """Wait until no plugin runs any more, also none that was left behind."""
        end = time.monotonic() + seconds
        while any(_runs(call) for call in self._pids()):
            assert time.monotonic() < end, "a plugin does not end"
            time.sleep(0.002)

    def _pids(self) -> Iterator[str]:
        begun: set[str] = set()
        for line in self.lines():
            (begun.add if line[0] == "S" else begun.discard)(line[8])
        yield from begun

    def empty(self) -> None:
        """Forget the log, as if the plugins had just been installed."""
        (self.state / "log").unlink(missing_ok=True)


def _runs(pid: str) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def make_place(root: Path, plugins: str) -> Place:
    place = Place(root, plugins)
    (place.state / "ips").mkdir(parents=True)
    return place


def build_plugins(directory: Path) -> str:
    """Compile plugin.c, once under the name of each type; return the directory."""
    source = Path(__file__).with_name("plugin.c")
    first = directory / TYPES[0]
    subprocess.run(["gcc", "-O1", "-Wall", "-static", "-o", first, source], check=True)
    for kind in TYPES[1:]:
        os.link(first, directory / kind)
    return str(directory)


def as_json(net: NetworkConfigList) -> object:
    return json.loads(net.raw)
