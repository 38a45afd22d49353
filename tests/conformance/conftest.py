"""The Go program, built once for the tests that need it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from conformance.golang import GOPATH, ROOT, build


@pytest.fixture(scope="session")
def go_program() -> Path:
    """Return the Go program; skip where it cannot be built, which in CI is a failure."""
    if shutil.which("go") is None or not GOPATH.exists():
        reason = "needs Go and Go libcni: apt-get install golang-go golang-github-appc-cni-dev"
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI=true, and {reason}", pytrace=False)
        pytest.skip(reason)
    return build(ROOT / "build" / "go_libcni")
