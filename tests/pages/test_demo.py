"""The demos that the README names run, and show what they are said to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def demo(name: str) -> str:
    done = subprocess.run([sys.executable, EXAMPLES / name], check=False, capture_output=True, text=True, timeout=60)
    # Debian's ip prints this line if a link's other end was in a namespace that is gone; other tests leave such ends.
    complaints = [line for line in done.stderr.splitlines() if line != "Error: Peer netns reference is invalid."]
    assert (done.returncode, complaints) == (0, [])
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


@pytest.mark.slow
@pytest.mark.real
def test_real_demo_shows_packets_that_cross_and_a_killed_runtime_of_which_nothing_is_left() -> None:
    told = demo("demo_real.py")
    assert "200 from http://10.1.0.2/" in told
    assert "the machine:\n200 from http://10.1.0.1:8080/" in told
    killed, ended = told.index("kill -9"), told.index("The end")
    assert "detached lost demonet eth0" in told[killed:ended]
    assert "lost" not in told[told.index("$ runtime.py ps") :]
    assert told[ended:].index("no record") < told[ended:].index("no lease")


@pytest.mark.slow
@pytest.mark.real
def test_node_demo_frees_the_addresses_of_dead_pods_and_the_living_ones_never_stop_answering() -> None:
    told = " ".join(demo("demo_node.py").split())  # however wide the terminal is
    failed, shown, mended, attached = (told.index(f"$ libcni {verb}") for verb in ("add", "doctor", "repair", "att"))
    assert "no IP addresses available in range set" in told[failed:shown]
    seen = "network cbr0 has no free address: 61 of 61 are reserved, 58 for containers that no longer exist"
    assert seen in told[shown:mended]
    assert "shop/next-0" in told[attached:]
    assert "answered, 0 not 4 addresses are reserved" in told[attached:]
