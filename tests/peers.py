"""Other programs of the container world, as ``scripts/peers`` unpacks them."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def with_peers(*words: str, timeout: float = 600.0) -> str:
    """Run ``scripts/peers`` and return what it printed; skip the test, with the reason, if a peer cannot be had."""
    command = [str(REPOSITORY / "scripts/peers"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def peer_files(peer: str) -> Path:
    """Return the unpacked files of a peer, such as ``containerd@bookworm``."""
    name = peer.partition("@")[0].upper().replace(".", "_")
    return Path(with_peers(peer, "--", "printenv", f"PEER_{name}").strip())
