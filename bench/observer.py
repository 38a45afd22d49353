"""What watching costs: microseconds per ADD and DEL of three plugins that are not processes, by kind of observer."""

from __future__ import annotations

import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import libcni

NET = libcni.NetworkConfigList.from_dict({"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "noop"}] * 3})
RT = libcni.RuntimeConf("c1", "/run/netns/none", "eth0")
ROUNDS, BATCH = 40, 25


class Noop:
    def find(self, plugin: str, path: Sequence[str]) -> str:
        return f"{path[0]}/{plugin}"

    def execute(self, _invocation: libcni.Invocation, _limits: libcni.CallOptions) -> libcni.Outcome:
        return libcni.Outcome(0, b'{"cniVersion":"1.1.0"}')


def observers() -> dict[str, libcni.Observer | None]:
    quiet = logging.getLogger("bench")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    quiet.setLevel(logging.INFO)
    found: dict[str, libcni.Observer | None] = {
        "none": None,
        "Observer()": libcni.Observer(),
        "logging": libcni.LoggingObserver(quiet),
    }
    try:
        from opentelemetry.sdk.trace import TracerProvider

        found["OpenTelemetry (SDK)"] = libcni.OpenTelemetryObserver(TracerProvider())
    except ImportError:
        print("OpenTelemetry: not installed")
    return found


def microseconds(cni: libcni.CNIConfig) -> float:
    began = time.perf_counter()
    for _ in range(BATCH):
        cni.add_network_list(NET, RT)
        cni.del_network_list(NET, RT)
    return (time.perf_counter() - began) / BATCH * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        clients = {
            name: libcni.CNIConfig(["/x"], directory, executor=Noop(), observer=observer, durable=False)
            for name, observer in observers().items()
        }
        times: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(ROUNDS):  # in turns, so that a slow moment of the machine meets all alike
            for name, cni in clients.items():
                times[name].append(microseconds(cni))
    base = statistics.median(times["none"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:20} {median:8.0f} us per ADD and DEL  {median - base:+8.0f} us")


if __name__ == "__main__":
    main()
