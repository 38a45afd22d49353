"""The cost of the plugin side: whole runs of a no-op plugin, compared with a bare Python.

Usage: plugin_start.py [RUNS]. Prints the medians and their ratios to ``python3 -I -c "import _json"``; exits with 1 if
VERSION of the built plugin takes more than 1.25 times as long, or a verb of the script more than 1.5 times as long as a
Python with json.
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

from libcni.plugin.build import build

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"built VERSION": ("bare", 1.25), "script VERSION": ("json", 1.5), "script ADD": ("json", 1.5)}
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

if __name__ == "__main__":
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
        script, built = Path(directory, "noop.py"), Path(directory, "noop")
        script.write_text(NOOP, encoding="utf-8")
        build(script, built, python=sys.executable)
        plugins = {"script": [sys.executable, "-I", str(script)], "built": [str(built)]}
        bare, json = ([sys.executable, "-I", "-c", f"import {names}"] for names in ("_json", "json, os, sys"))
        commands = {"bare": (bare, "ADD"), "json": (json, "ADD")}
        for name, command in plugins.items():
            commands |= {f"{name} {verb}": (command, verb) for verb in ("ADD", "DEL", "VERSION")}
        measure(commands, 3)  # write the bytecode
        medians = measure(commands, runs)
    for name, median in medians.items():
        print(f"{name:15} {median * 1000:7.2f} ms  {median / medians['bare']:.3f} x")
    return 0 if all(medians[name] <= limit * medians[base] for name, (base, limit) in LIMITS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
