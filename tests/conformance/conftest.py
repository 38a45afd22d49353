"""The Go program, built once for the tests that need it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from conformance.golang import GOPATH, ROOT, build


@pytest.fixture(scope="session")
def go_program() -> Path:
    """Return the Go program; skip if it cannot be built."""
    if shutil.which("go") is None or not GOPATH.exists():
        pytest.skip("needs Go and Go libcni: apt-get install golang-go golang-github-appc-cni-dev")
    return build(ROOT / "build" / "go_libcni")
