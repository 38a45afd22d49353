"""The demos that the README names run, and show what they are said to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def demo(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def calls(told: str) -> list[str]:
    """Return the numbered lines: the plugins, in the order in which they ran."""
    lines = (line.split() for line in told.splitlines())
    return [words[1] for words in lines if len(words) == 4 and words[0].rstrip(".").isdigit() and words[3] == "ms"]


def test_demo_shows_the_calls_the_record_and_the_times() -> None:
    told = demo("demo.py")
    chain = ["fake-bridge", "fake-tuning", "fake-portmap"]
    assert calls(told) == [*chain, *chain, *reversed(chain)]
    assert '"runtimeConfig": {"mac": "02:11:22:33:44:55"}' in told
    assert '"vendorNumber": 9007199254740993' in told
    assert "taken out: capabilities" in told
    assert '"kind": "cniCacheV1"' in told
    assert "addresses/demonet/10.1.0.2" in told
    assert "nothing has leaked" in told
    assert "whole verb" in told


@pytest.mark.real
def test_real_demo_shows_packets_that_cross() -> None:
    told = demo("demo_real.py")
    chain = ["bridge", "tuning", "portmap", "firewall"]
    assert calls(told) == [*chain, *chain, *reversed(chain)]
    assert 'green connects to 10.1.0.2:80, and blue says: "hello, you are 10.1.0.3"' in told
    assert "the machine connects to 10.1.0.1:8080, and blue says:" in told
    assert "Debian's portmap 1.1.1 fails every CHECK" in told
    assert told.index("no record") < told.index("no lease")
