"""What the tests of the conformance helper share."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, cast

from plugin.plugins import write_plugin

from libcni.plugin import Plugin, VerbError
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
    return write_executable(path, "\n".join(["#!/bin/sh", "cat >/dev/null", *lines, ""]))


# A right IPAM plugin that starts fast. Its pool is a directory of files: each has the name of a number, and an owner.
SHELL_IPAM = r"""#!/bin/sh
stdin=$(cat)
case $stdin in *'"cniVersion": "0.4.0"'*) version=0.4.0 family='"version": "4", ' ;; *) version=1.1.0 family= ;; esac
pool=$0.pool
owner="$CNI_CONTAINERID $CNI_IFNAME"
fail() { printf '{"cniVersion": "%s", "code": %s, "msg": "%s"}' $version "$1" "$2"; exit 1; }
each() {
    for file in "$pool"/*; do
        { read -r found <"$file"; } 2>/dev/null || found=
        [ "$found" != "$owner" ] || eval "$1"
    done
}
mkdir -p "$pool"
set -C
case $CNI_COMMAND in
VERSION) printf '{"cniVersion": "%s", "supportedVersions": ["0.4.0", "1.1.0"]}' $version ;;
ADD)
    each 'fail 100 "it has an address"'
    number=2
    until { echo "$owner" >"$pool/$number"; } 2>/dev/null; do
        number=$((number + 1))
        [ $number -lt 60 ] || fail 11 "no free address"
    done
    printf '{"cniVersion": "%s", "ips": [{%s"address": "10.99.0.%s/24", ' $version "$family" $number
    echo '"gateway": "10.99.0.1"}], "routes": [{"dst": "10.98.0.0/16", "gw": "10.99.0.1"}]}' ;;
CHECK) each 'exit 0'; fail 100 "no address" ;;
DEL) each 'rm -f "$file"' ;;
esac
"""

# A right main plugin.
MAIN = """
import zlib
def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise VerbError(f"ip {' '.join(words)}: {done.stderr.strip()}", code=100)
    return done.stdout
def host_end(r):
    return f"ft{zlib.crc32((r.container_id + r.ifname).encode()):08x}"
@plugin.add
def add(r):
    ip("link", "add", host_end(r), "type", "veth", "peer", "name", r.ifname, "netns", r.netns)
    try:
        r.result = r.ipam_add()
        index = r.result.add_interface(r.ifname, sandbox=r.netns)
        with r.in_namespace():
            for address in r.result.ips:
                address["interface"] = index
                ip("address", "add", address["address"], "dev", r.ifname)
            ip("link", "set", r.ifname, "up")
            for route in r.result.routes:
                ip("route", "add", route["dst"], "via", route["gw"])
        ip("link", "set", host_end(r), "up")
    except BaseException:
        delete(r)
        raise
@plugin.check
def check(r):
    with r.in_namespace():
        shown = ip("-o", "address", "show", "dev", r.ifname).split()
    for address in r.require_prev_result().ips:
        if address["address"] not in shown:
            raise VerbError("an address is missing", code=100)
@plugin.delete
def delete(r):
    subprocess.run(["ip", "link", "delete", host_end(r)], capture_output=True)
@plugin.gc
def gc(r):
    r.valid_attachments
"""


def write_executable(path: Path, text: str) -> Path:
    """Write a plugin to a file."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def changed(text: str, *changes: tuple[str, str]) -> str:
    """Put faults into a plugin's text."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


Change = tuple[str, str]


def main_plugin(directory: Path, *changes: Change, runs: bool = False) -> Path | Plugin:
    """Return the main plugin with its faults: as an executable, or to be called here, which takes less time."""
    body = changed(MAIN, *changes)
    if not runs:
        names: dict[str, Any] = {"plugin": Plugin("main", ipam=True), "VerbError": VerbError}
        exec(compile(f"import os, subprocess\n{body}", "main", "exec", dont_inherit=True), names)
        return cast("Plugin", names["plugin"])
    path = write_plugin(directory, "main", body)
    return write_executable(path, changed(path.read_text("utf-8"), ("Plugin('main')", "Plugin('main', ipam=True)")))
