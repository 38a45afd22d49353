"""A script that calls cnitool, run with Go's cnitool (built from Debian's source) and with libcni in its place."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from nodes import PLUGINS

from cli.node import DBNET, REPOSITORY, CommandNode
from libcni.testing import NetworkNamespace

pytestmark = pytest.mark.slow

SOURCE = "pool/main/g/golang-github-appc-cni/golang-github-appc-cni_1.1.2.orig.tar.xz"
SHA256 = "d16939874ef2e2ff2e34970e2ef62bac910a518b17f3bd2e72bfd05096a1dfec"
GOCODE = "/usr/share/gocode"
SCRIPT = """
set -u
export CNI_IFNAME=net1 CNI_ARGS='A=b;IgnoreUnknown=1' CAP_ARGS='{"mac": "c2:11:22:33:44:55"}'
$TOOL add dbnet "$NS" || echo "add: $?"
echo
$TOOL check dbnet "$NS" || echo "check: $?"
$TOOL del dbnet "$NS" || echo "del: $?"
$TOOL del dbnet "$NS" || echo "del again: $?"
unset CNI_IFNAME CAP_ARGS
id=$($TOOL add dbnet ./relative/../ns/b 2>/dev/null | grep -c '"address"'); echo "addresses: $id"
$TOOL del dbnet ./relative/../ns/b || echo "del: $?"
$TOOL add nothere "$NS" 2>/dev/null; echo "no such network: $(($? != 0))"
CNI_ARGS=nonsense $TOOL add dbnet "$NS" 2>/dev/null; echo "bad CNI_ARGS: $(($? != 0))"
CAP_ARGS='{' $TOOL add dbnet "$NS" 2>/dev/null; echo "bad CAP_ARGS: $(($? != 0))"
$TOOL add 2>/dev/null; echo "usage: $(($? != 0))"
"""


@pytest.fixture(scope="module")
def cnitool() -> str:
    """Return Go's program, which is built once for this clone."""
    go = shutil.which("go")
    if go is None or not Path(GOCODE, "src/github.com/containernetworking/cni").is_dir():
        pytest.skip("needs golang-go and golang-github-appc-cni-dev")
    built = REPOSITORY / "build/cnitool-1.1.2"
    built.parent.mkdir(exist_ok=True)
    with Path(f"{built}.lock").open("w") as lock, TemporaryDirectory() as directory:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            env = {
                **os.environ,
                "GO111MODULE": "off",
                "GOPATH": GOCODE,
                "GOCACHE": str(REPOSITORY / "build/go-cache-1.1.2"),
            }
            words = [go, "build", "-o", f"{built}.new", "."]
            subprocess.run(words, cwd=cnitool_source(Path(directory)), env=env, check=True)
            os.replace(f"{built}.new", built)
    return str(built)


def cnitool_source(directory: Path) -> Path:
    """Load the source of Debian's package, and return the directory of the program."""
    archive = directory / "source.tar.xz"
    asked = subprocess.run([REPOSITORY / "scripts/debian-archive"], capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip(f"Debian's archive is unknown: {asked.stderr.strip()}")
    try:
        with urllib.request.urlopen(asked.stdout.strip() + SOURCE, timeout=30) as answer:
            archive.write_bytes(answer.read())
    except urllib.error.URLError as error:
        pytest.skip(f"Debian's archive cannot be reached: {error}")
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256
    with tarfile.open(archive) as source:
        source.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # new in Python 3.11.4
        source.extractall(directory)
    (package,) = directory.glob("*/cnitool")
    return package


def run_script(node: CommandNode, tool: str) -> str:
    node.netns("b")
    env = {**node.env, "TOOL": tool, "NS": node.netns("a")}
    ran = subprocess.run(["bash", "-c", SCRIPT], env=env, cwd=node.root, capture_output=True, text=True, check=False)
    return ran.stdout


@pytest.mark.may_skip  # the source is downloaded
@pytest.mark.skipif(os.geteuid() != 0, reason="cnitool writes below /var/lib/cni")
def test_a_script_cannot_tell_libcni_from_cnitool(node: CommandNode, cnitool: str) -> None:
    node.write("10-dbnet.conflist", {**DBNET, "cniVersion": "1.0.0"})
    go = run_script(node, cnitool)
    ours = run_script(node, " ".join(node.command))
    assert without_looks(ours) == without_looks(go)
    assert "c2:11:22:33:44:55" in ours
    assert "addresses: 1" in ours
    left = [
        path for path in (node.root / "state").rglob("*-*") if not path.relative_to(node.root).parts[1].startswith(".")
    ]
    assert left == [], "every address was released"


def without_looks(text: str) -> str:
    """Sort a result's keys and leave out empty ones: Go prints them as its types have it, we as the plugin did."""
    result, end, rest = text.partition("\n}\n")
    document = {key: value for key, value in json.loads(result + end).items() if value}
    return json.dumps(document, sort_keys=True) + rest


@pytest.mark.real
def test_what_a_plugin_prints_comes_out_byte_for_byte(node: CommandNode, cni_netns: NetworkNamespace) -> None:
    """Go's cnitool prints the same if it was built with the plugin's version of Go libcni: the order is its types'."""
    node.write("10-lo.conflist", {"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]})
    ours = node.run_script("add", "lo", cni_netns.path, CNI_PATH=PLUGINS, CNI_IFNAME="lo").out
    env = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": cni_netns.path,
        "CNI_IFNAME": "lo",
        "CNI_PATH": PLUGINS,
    }
    conf = '{"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}'
    plugin = subprocess.run([f"{PLUGINS}/loopback"], env=env, input=conf, capture_output=True, text=True, check=True)
    assert "127.0.0.1/8" in ours
    assert ours == plugin.stdout
