"""Names of network namespaces beside those of ``ip netns``."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, subprocess
from libcni.kernel.namespace import make_namespace, unbind
os.mkdir("/run/netns")
make_namespace("/run/netns/before")
subprocess.run(["ip", "netns", "add", "other"], check=True)
make_namespace("/run/netns/after")
unbind("/run/netns/before")
unbind("/run/netns/after")
print(*os.listdir("/run/netns"))
"""


@pytest.mark.real
def test_a_name_can_be_removed_after_the_first_ip_netns_add_of_a_boot() -> None:
    inside = 'mount -t tmpfs none /run && exec "$@"'
    command = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        inside,
        "sh",
        sys.executable,
        "-c",
        _PROGRAM,
    ]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "other\n"
