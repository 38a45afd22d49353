"""The unit that runs reload after firewalld's: its shell command, with a bus and a libcni that only print."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

UNITS = Path(__file__).resolve().parents[2] / "examples" / "systemd"


def test_reload_runs_once_for_each_reload_of_firewalld(tmp_path: Path) -> None:
    unit = (UNITS / "libcni-reload.service").read_text(encoding="utf-8")
    found = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", unit, re.MULTILINE)
    assert found is not None
    signal = "  Type=signal\n  Sender=:1.7  Path=/  Interface=org.fedoraproject.FirewallD1  Member="
    for name, body in (
        ("busctl", f"printf '{signal}Reloaded\n{signal}Other\n{signal}Reloaded\n'"),
        ("libcni", 'echo "$@" >> "${0%/*}/ran"'),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    subprocess.run(["/bin/sh", "-c", found[1]], env={"PATH": str(tmp_path)}, check=True, timeout=20)
    assert (tmp_path / "ran").read_text(encoding="utf-8") == "reload --all\n" * 2
