"""Real podman 5 and 6 with CNI networks: the scenarios of ``inside.py``, each in a small Debian of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from peers import with_peers

REPOSITORY = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.may_skip]  # the packages are downloaded

SCENARIOS = [
    ("trixie", "two_containers"),
    *(("sid", name) for name in ("two_containers", "networks_and_pods", "reload", "twelve_at_once", "kills")),
    *(("sid", name) for name in ("reboot", "read_only_records", "refusals", "page")),
    *(("experimental", name) for name in ("two_containers", "networks_and_pods", "kills")),
    *(("experimental", name) for name in ("collected", "built", "rootless")),
]
"""Debian 13 has podman 5.4, sid 5.8, experimental 6."""
AGAIN = [
    *(("trixie", name) for name in ("kills", "reboot")),
    *(("experimental", name) for name in ("reload", "twelve_at_once", "reboot", "read_only_records")),
]
"""What sid shows, with the other versions: ``make peers`` alone runs it."""
if os.environ.get("LIBCNI_ALL_SCENARIOS"):
    SCENARIOS += AGAIN


def in_debian(release: str, *command: str) -> str:
    return with_peers(f"podman@{release}", "--", *command)


@pytest.mark.parametrize(("release", "name"), SCENARIOS)
def test_scenario(release: str, name: str) -> None:
    if name == "page":
        one_file = REPOSITORY / "build" / "one-file" / "libcni"
        one_file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, REPOSITORY / "scripts/one_file.py", "-o", one_file], check=True)
    in_debian(release, "python3", "/repository/tests/engines/netavark/inside.py", name)


def test_the_demo_shows_containers_that_talk_and_leave_nothing() -> None:
    told = in_debian("sid", "python3", "-u", "/repository/examples/demo_podman.py")
    assert re.search(r"^podman version [5-9]", told, re.MULTILINE)
    assert told.count("\nhello, this is web\n") == 3
    assert "two 10.1.0.77 c2:11:22:33:44:55 via 10.1.0.1" in told
    assert told.endswith("reservations: 0, interfaces of containers: 0\n\n$ podman network rm front\nfront\n")
