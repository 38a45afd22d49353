"""The benchmark's programs still run: they use modules of the library that change their names."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.real
def test_the_benchmark_of_prices_runs() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "bench/run.py", "--quick", "--only", "3"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each further look: processor time" in done.stdout
