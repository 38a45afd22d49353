"""How much the plugin side costs: whole runs of a no-op plugin against a bare Python with json.

Usage: plugin_start.py [RUNS]. Prints the medians and their ratio; exits with 1 where it is above 1.5.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.5
ENV = {"CNI_CONTAINERID": "c1", "CNI_NETNS": "/nowhere", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin"}
STDIN = b'{"cniVersion": "1.1.0", "name": "net", "type": "noop"}'
NOOP = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from libcni.plugin import Plugin
plugin = Plugin("noop")

@plugin.add
def add(request):
    pass

@plugin.delete
def delete(request):
    pass

plugin.run()
"""


def seconds(arguments: list[str], verb: str) -> float:
    start = time.perf_counter()
    subprocess.run(
        arguments, input=STDIN, env={**os.environ, **ENV, "CNI_COMMAND": verb}, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - start


def measure(commands: dict[str, tuple[list[str], str]], runs: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name in random.sample(list(commands), len(commands)):
            taken[name].append(seconds(*commands[name]))
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> int:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as directory:
        script = Path(directory, "noop.py")
        script.write_text(NOOP, encoding="utf-8")
        plugin = [sys.executable, "-I", str(script)]
        commands = {"bare": ([sys.executable, "-I", "-c", "import json, os, sys"], "ADD")}
        commands |= {verb: (plugin, verb) for verb in ("ADD", "DEL", "VERSION")}
        measure(commands, 3)  # write the bytecode
        medians = measure(commands, runs)
    for name, median in medians.items():
        print(f"{name:8} {median * 1000:7.2f} ms  {median / medians['bare']:.3f} x")
    return 0 if all(median <= LIMIT * medians["bare"] for median in medians.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
