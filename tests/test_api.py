"""What is promised to programs and scripts stands in testdata/api.txt, and is what the library has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_public_api_is_the_one_that_is_promised() -> None:
    """A change is a decision: ``make frozen`` writes the file, and the commit's message says why."""
    command = [sys.executable, str(ROOT / "scripts" / "api.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    changes = checked.stdout + checked.stderr
    assert checked.returncode == 0, f"if this change is meant, call make frozen:\n{changes}"
    assert changes == ""
