"""What the tests of the conformance helper share."""

from __future__ import annotations

import subprocess
from pathlib import Path

from libcni.testing import ConformanceReport

NEWEST = ("1.1.0",)
PREVIOUS = {
    "interfaces": [{"name": "eth0", "sandbox": "/run/netns/x"}],
    "ips": [
        {"address": "10.0.0.2/24", "gateway": "10.0.0.1", "interface": 0},
        {"address": "fd00::2/64", "interface": 0},
    ],
    "routes": [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}],
    "dns": {"nameservers": ["10.0.0.1"]},
}


def failing(report: ConformanceReport) -> set[str]:
    return {finding.check for finding in report.failures}


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def write_shell_plugin(directory: Path, **verbs: str) -> Path:
    """Write a right plugin that starts fast, and has one command more for each of some verbs."""
    path = directory / "shell"
    answers = {"VERSION": '"supportedVersions": ["1.1.0"], ', "ADD": ""}
    lines = [f"[ $CNI_COMMAND != {verb} ] || {command}" for verb, command in verbs.items()]
    for verb, more in answers.items():
        lines.append(f'[ $CNI_COMMAND != {verb} ] || echo \'{{{more}"cniVersion": "1.1.0"}}\'')
    path.write_text("\n".join(["#!/bin/sh", "cat >/dev/null", *lines, ""]), encoding="utf-8")
    path.chmod(0o755)
    return path
