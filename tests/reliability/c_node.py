"""A node with the plugin in C (plugin.c), and the log of the plugin."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helpers import network
from nodes import FakeNode
from processes import is_running

from libcni import NetworkConfigList
from libcni.testing import wait_until

TYPES = ("alloc-a", "alloc-b", "plain")


@dataclass(frozen=True)
class Call:
    """A call in the plugin's log; times in nanoseconds, ``end`` 0 where it was killed."""

    start: int
    end: int
    verb: str
    network: str
    container: str
    ifname: str
    type: str
    token: str
    outcome: str


class CNode(FakeNode):
    """A node whose plugins are in C; their addresses and their log are in ``state``."""

    def __init__(self, root: Path, plugins: str) -> None:
        super().__init__(root, path=[plugins])
        self.plugins = plugins
        self.state = root / "state"
        (self.state / "ips").mkdir(parents=True)

    def chain(self, name: str = "net", *types: str, slow: int = 0, fail: int = 0) -> NetworkConfigList:
        """Return a network of plugins that take milliseconds, and of which so many of a hundred calls fail."""
        config = {"dir": str(self.state), "slow": slow, "fail": fail}
        return network(*({"type": kind, **config} for kind in types or TYPES), name=name, cniVersion="1.1.0")

    def calm(self) -> None:
        (self.state / "calm").touch()

    def owners(self) -> list[tuple[str, ...]]:
        """Return (network, container, interface, type) for each address that is held."""
        ips = self.state / "ips"
        return [tuple(os.readlink(ips / name).split(" ")) for name in os.listdir(ips)]

    def lines(self) -> list[list[str]]:
        log = self.state / "log"
        return [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []

    def logged(self) -> list[Call]:
        """Return the plugins' calls in the order of their starts."""
        begun: dict[str, Call] = {}
        done: list[Call] = []
        for mark, when, verb, name, container, ifname, kind, token, pid, outcome in self.lines():
            if mark == "S":
                begun[pid] = Call(int(when), 0, verb, name, container, ifname, kind, token, outcome)
            else:
                first = begun.pop(pid)
                done.append(Call(first.start, int(when), verb, name, container, ifname, kind, token, outcome))
        return sorted([*done, *begun.values()], key=lambda call: call.start)

    def wait_for_plugins(self) -> None:
        """Wait until no plugin runs any more, also none that was left behind."""
        wait_until(lambda: not any(is_running(int(pid)) for pid in self._pids()), problem="a plugin does not end")

    def _pids(self) -> Iterator[str]:
        begun: set[str] = set()
        for line in self.lines():
            (begun.add if line[0] == "S" else begun.discard)(line[8])
        yield from begun


def build_plugins(directory: Path) -> str:
    """Compile plugin.c, once under the name of each type; return the directory."""
    source = Path(__file__).with_name("plugin.c")
    first = directory / TYPES[0]
    subprocess.run(["gcc", "-O1", "-Wall", "-static", "-o", first, source], check=True)
    for kind in TYPES[1:]:
        os.link(first, directory / kind)
    return str(directory)
