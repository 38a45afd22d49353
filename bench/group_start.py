"""6. Start-up: the import, the commands, and a plugin of this library, each against a bare Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from common import ROOT, TMPFS, Row, median, p99

NAME = "6 start-up"
PYDANTIC = "from pydantic import BaseModel"
STANDARD = "import json, os, sys"
JSON = 'python -I -c "import _json"'
CNI = {"CNI_CONTAINERID": "c1", "CNI_NETNS": "/nowhere", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin"}
PLUGIN = f"""
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


def run(*, quick: bool) -> list[Row]:
    directory = TMPFS / "start"
    env = _prepare(directory)
    libcni = [sys.executable, "-m", "libcni.cli"]
    plugin = [sys.executable, "-I", str(directory / "plugin.py")]
    # what is measured, the command, what it is compared with, the bar
    measured: list[tuple[str, list[str], str, float | None]] = [
        (PYDANTIC, [sys.executable, "-c", PYDANTIC], PYDANTIC, None),
        ("import libcni; libcni.CNIConfig", [sys.executable, "-c", "import libcni; libcni.CNIConfig"], PYDANTIC, 1.3),
        ("libcni attachments", [*libcni, "attachments"], PYDANTIC, 1.7),
        ("libcni add", [*libcni, "add", "n", "/run/netns/none", "--on-existing", "allow"], PYDANTIC, 1.7),
        (STANDARD, [sys.executable, "-c", STANDARD], STANDARD, None),
        ("libcni --version", [*libcni, "--version"], STANDARD, 2.0),
        (JSON, [sys.executable, "-I", "-c", "import _json"], JSON, None),
        ("VERSION of a plugin of this library", plugin, JSON, None),
    ]
    each: dict[str, list[float]] = {what: [] for what, *_ in measured}
    for number in range((5 if quick else 25) + 1):
        for what, command, *_ in measured:  # in turns, so that a slow moment of the machine meets all alike
            began = time.perf_counter_ns()
            subprocess.run(command, env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True, cwd=directory)
            if number:  # the first one writes the bytecode
                each[what].append((time.perf_counter_ns() - began) / 1e6)
    return [
        Row(
            NAME,
            what,
            "",
            "ms",
            median(each[what]),
            p99(each[what]),
            median(each[what]) / median(each[base]),
            base,
            limit,
        )
        for what, _, base, limit in measured
    ]


def _prepare(directory: Path) -> dict[str, str]:
    """Write a network with a plugin that does nothing, a plugin of this library, and return the environment."""
    directory.mkdir()
    noop = directory / "noop"
    noop.write_text("""#!/bin/sh\necho '{"cniVersion":"1.1.0"}'\n""", encoding="utf-8")
    noop.chmod(0o755)
    (directory / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    net = {"cniVersion": "1.1.0", "name": "n", "plugins": [{"type": "noop"}]}
    (directory / "n.conflist").write_text(json.dumps(net), encoding="utf-8")
    ours = {"NETCONFPATH": directory, "CNI_PATH": directory, "LIBCNI_CACHE_DIR": directory / "cache"}
    # An installed package has its bytecode; this checkout's goes to a directory of its own.
    inherited = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        **CNI,
        "PYTHONPYCACHEPREFIX": str(directory / "bytecode"),
        **{name: str(path) for name, path in ours.items()},
        "CNI_COMMAND": "VERSION",
        "PYTHONPATH": str(ROOT),
    }
