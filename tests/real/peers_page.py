"""Write testdata/evidence/peers.md, versions and results of all peers: ``make peers``, in about ten minutes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "testdata/evidence/peers.md"
HEAD = """# Other programs, and what was tried with them

`make peers` writes this page: it asks each program for its version and runs the tests that use it. `scripts/peers`
unpacks the programs from a release of Debian and installs none. A failure that is expected has its reason in the test.
What is skipped cannot run on this machine: crun needs cgroups of one version only. `make package` runs
all tests that are not slow on Python 3.11 and 3.14.

| program | version | tests | passed | expected to fail | skipped | failed |
| --- | --- | --- | --: | --: | --: | --: |
"""


class Peer(NamedTuple):
    """A row: the peer for ``scripts/peers``, a command that prints its version, and its tests."""

    name: str
    peer: str
    version: Sequence[str]
    tests: Sequence[str]
    with_peer: bool = False


ROWS = [
    Peer("containerd, runc", "containerd@bookworm", ("sh", "-c", "containerd --version; runc --version"),
         ("tests/real/test_containerd.py", "tests/real/test_node_repaired.py", "-k", "bookworm")),
    Peer("containerd, runc", "containerd@sid", ("sh", "-c", "containerd --version; runc --version"),
         ("tests/real/test_containerd.py", "tests/real/test_node_repaired.py", "-k", "sid")),
    Peer("apptainer", "apptainer", ("apptainer", "--version"), ("tests/real/test_three_runtimes.py",)),
    Peer("Go libcni 1.1.2, 1.3.0", "go", ("go", "version"),
         ("tests/conformance/test_go.py", "tests/conformance/test_records_across.py",
          "tests/conformance/test_nodes_across.py", "tests/conformance/test_plugins_across.py")),
    *(Peer("podman", f"podman@{release}", ("podman", "--version"),
           ("tests/engines/netavark/test_podman.py", "-k", f"{release} or demo" if release == "sid" else release))
      for release in ("trixie", "sid", "experimental")),
    Peer("runc, crun", "runc", ("sh", "-c", "runc --version; crun --version"), ("tests/real/test_runc.py",),
         with_peer=True),
    Peer("netavark", "netavark", ("netavark", "--version"),
         ("tests/engines/netavark/test_netavark.py", "-m", "not slow")),
    Peer("plugins", "plugins", ("sh", "-c", "grep ^containernetworking-plugins $PEER_PLUGINS/.packages"),
         ("tests/real", "-m", "real and not slow"), with_peer=True),
]  # fmt: skip


def versions(row: Peer) -> str:
    done = subprocess.run(
        [REPOSITORY / "scripts/peers", row.peer, "--", *row.version], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    lines = re.findall(
        r"^(?:containerd|runc|crun|apptainer|go version|podman|netavark|containernetworking).*",
        done.stdout,
        re.MULTILINE,
    )
    found = re.findall(r"(?<![\d.])\d+\.\d+(?:\.\d+)?", "\n".join(lines))
    return ", ".join(dict.fromkeys(found))


def results(row: Peer) -> list[str]:
    """Run the tests of a row; return how many passed, failed as expected, were skipped, and failed."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report.xml")
        words = [sys.executable, "-m", "pytest", "-q", "-m", "slow", "--junitxml", str(report), *row.tests]
        if row.with_peer:
            words = [str(REPOSITORY / "scripts/peers"), row.peer, "--", *words]
        subprocess.run(words, cwd=REPOSITORY, check=False, stdout=sys.stderr)
        cases = list(ET.parse(report).iter("testcase"))
    expected = skipped = failed = 0
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (skip := case.find("skipped")) is not None:
            expected += skip.get("type") == "pytest.xfail"
            skipped += skip.get("type") != "pytest.xfail"
    return [str(len(cases) - expected - skipped - failed), str(expected), str(skipped), str(failed)]


def title(row: Peer) -> str:
    return f"{row.name} of Debian {row.peer.partition('@')[2] or 'sid'}"


def line(row: Peer, numbers: Sequence[str]) -> str:
    tests = ", ".join(f"`{one.removeprefix('tests/')}`" for one in row.tests if one.startswith("tests/"))
    return f"| {' | '.join([title(row), versions(row), tests, *numbers])} |\n"


def main() -> None:
    """Write the page. With arguments only the rows of these peers are made anew, such as ``runc`` or ``podman@sid``."""
    rows = [row for row in ROWS if row.peer in sys.argv[1:] or len(sys.argv) == 1]
    if not rows:
        raise SystemExit(f"the peers are {', '.join(row.peer for row in ROWS)}")
    before = PAGE.read_text(encoding="utf-8").splitlines(keepends=True) if PAGE.exists() else []
    lines = {one.split(" | ")[0].removeprefix("| "): one for one in before}
    # The others run on this machine itself, and their doctor sees each other's containers.
    with ThreadPoolExecutor(2) as threads:
        beside = [row for row in rows if not row.with_peer]
        lines |= {title(row): line(row, found) for row, found in zip(beside, threads.map(results, beside), strict=True)}
    lines |= {title(row): line(row, results(row)) for row in rows if row.with_peer}
    PAGE.write_text(HEAD + "".join(lines.get(title(row), "") for row in ROWS), encoding="utf-8")


if __name__ == "__main__":
    main()
