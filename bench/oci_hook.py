"""How long the hook of an OCI runtime takes as a whole process, against the import of what it stands on. Needs root.

The limit is 2.0 times ``python -c "from pydantic import BaseModel"``, plus the plugins' own time. The fastest of some
runs counts: what else the machine does only ever makes a run slower.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 25
LIMIT = 2.0
BASE = [sys.executable, "-c", "from pydantic import BaseModel"]
SAID = '`python -c "from pydantic import BaseModel"`'


def seconds(command: list[str], env: dict[str, str], stdin: bytes = b"") -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, input=stdin, check=True, capture_output=True)
    return time.perf_counter() - began


def prepare(directory: str) -> Path:
    plugin = Path(directory, "noop")
    plugin.write_text("""#!/bin/sh\ncat > /dev/null\necho '{"cniVersion":"1.1.0"}'\n""", encoding="utf-8")
    plugin.chmod(0o755)
    net = {"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "noop"}]}
    Path(directory, "n.conflist").write_text(json.dumps(net), encoding="utf-8")
    return plugin


def state(status: str, **more: object) -> bytes:
    return json.dumps({"ociVersion": "1.0.2", "id": "c", "status": status, "bundle": "/", **more}).encode()


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        plugin = prepare(directory)
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [f"--conf-dir={directory}", f"--path={directory}", f"--cache-dir={directory}/cache"]
        hook = [sys.executable, "-m", "libcni.cli", "oci-hook", *words, f"--pins={directory}/pins"]
        container = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        try:
            time.sleep(0.2)
            times = measure(plugin, hook, container.pid, env)
        finally:
            container.kill()
            container.wait()
            subprocess.run(hook, env=env, input=state("stopped"), check=False)
    base, own = min(times["import"]), min(times["plugin"])
    slow = False
    for name, values in times.items():
        rest = min(values) - (own if name in {"attach", "detach"} else 0)
        slow = slow or rest > LIMIT * base
        median = statistics.median(values) * 1000
        print(f"{name:12} {min(values) * 1000:5.0f} ms (median {median:.0f})  {rest / base:4.2f} x {SAID}")
    return 1 if slow else 0


def measure(plugin: Path, hook: list[str], pid: int, env: dict[str, str]) -> dict[str, list[float]]:
    names = ("import", "plugin", "left alone", "attach", "detach")
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):  # in turns, so that a slow moment of the machine meets all alike
        times["import"].append(seconds(BASE, env))
        times["plugin"].append(seconds([str(plugin)], env))
        times["left alone"].append(seconds([*hook, "--annotated-only"], env, state("creating", pid=pid)))
        container = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        time.sleep(0.1)
        times["attach"].append(seconds(hook, env, state("creating", pid=container.pid)))
        container.kill()
        container.wait()
        times["detach"].append(seconds(hook, env, state("stopped")))
    return times


if __name__ == "__main__":
    raise SystemExit(main())
