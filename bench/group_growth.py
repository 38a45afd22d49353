"""4. Growth with real parts: verbs, sweeps, listings and commands beside more and more containers on one node."""

from __future__ import annotations

import json
import subprocess

from common import BUILD, EXT4, ROOT, Row, can_use_namespaces, conf_file, fresh_cache, interpreter
from group_real import BIN
from growth import PER_NETWORK

NAME = "4 growth: bridge, host-local and portmap"
SIZES = (50, 100, 200)
LARGE_SIZES = (100, 500, 1000, 2000)
is_large = False


def run(*, quick: bool) -> list[Row]:
    if not can_use_namespaces() or not (BIN / "bridge").exists():
        print("group 4 needs root, ip and the plugins in /usr/lib/cni: left out")
        return []
    sizes = (4, 8) if quick else LARGE_SIZES if is_large else SIZES
    directory = BUILD / "growth"
    directory.mkdir()
    for number in range(-(-sizes[-1] // PER_NETWORK)):
        ranges = [[{"subnet": f"10.{number}.0.0/16"}]]
        ipam = {"type": "host-local", "dataDir": str(fresh_cache(EXT4)), "ranges": ranges}
        bridge = {"type": "bridge", "bridge": f"growth{number}", "isGateway": True, "ipMasq": True, "ipam": ipam}
        portmap = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
        conf_file(f"growth/net{number}", [bridge, portmap])
    program = [*interpreter(), str(ROOT / "bench/growth.py"), str(directory), str(fresh_cache(EXT4))]
    words = ["unshare", "--mount", "--net", *program, *map(str, sizes)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return [row for line in done.stdout.splitlines() for row in _rows(json.loads(line))]


def _rows(answer: dict[str, list[float]]) -> list[Row]:
    what = f"{answer.pop('size'):,} containers"
    rows = []
    for work, (wall, own, *memory) in answer.items():
        rows.append(Row(NAME, f"{what}: {work}", "", "ms", wall))
        rows.append(Row(NAME, f"{what}: {work}: own processor time", "", "ms", own))
        rows += [Row(NAME, f"{what}: {work}: memory", "", "MiB", one) for one in memory]
    return rows
