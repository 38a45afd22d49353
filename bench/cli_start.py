"""How long the command line takes to start, against the import of what it stands on; the ratio is to stay below 2.5.

The fastest of some runs counts: what else the machine does only ever makes a run slower.
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
LIMIT = 2.5
BASE = [sys.executable, "-c", "import pydantic, typer, rich"]
SAID = "`python -c 'import pydantic, typer, rich'`"
LIBCNI = [sys.executable, "-m", "libcni.cli"]


def seconds(command: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True, capture_output=True)
    return time.perf_counter() - began


def prepare(directory: str) -> dict[str, str]:
    plugin = Path(directory, "noop")
    plugin.write_text("""#!/bin/sh\necho '{"cniVersion":"1.1.0"}'\n""", encoding="utf-8")
    plugin.chmod(0o755)
    net = {"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "noop"}]}
    Path(directory, "n.conflist").write_text(json.dumps(net), encoding="utf-8")
    ours = {"NETCONFPATH": directory, "CNI_PATH": directory, "LIBCNI_CACHE_DIR": f"{directory}/cache"}
    return {**os.environ, **ours, "PYTHONPATH": str(ROOT)}


def main() -> int:
    with tempfile.TemporaryDirectory() as directory:
        env = prepare(directory)
        commands = {
            "import": BASE,
            "--help": [*LIBCNI, "--help"],
            "add": [*LIBCNI, "add", "n", "/run/netns/none", "--on-existing", "allow"],
            "networks": [*LIBCNI, "networks"],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):  # in turns, so that a slow moment of the machine meets all alike
            for name, command in commands.items():
                times[name].append(seconds(command, env))
    base = min(times["import"])
    for name, values in times.items():
        best, median = min(values) * 1000, statistics.median(values) * 1000
        print(f"{name:10} {best:5.0f} ms (median {median:.0f})  {best / base / 1000:4.2f} x {SAID}")
    slow = [name for name, values in times.items() if min(values) > LIMIT * base]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
