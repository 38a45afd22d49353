"""The benchmark's programs still run: they use modules of the library that change their names."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libcni.testing import wait_until

ROOT = Path(__file__).parent.parent
STOPPED = """
import sys
from pathlib import Path
import common
common.BUILD, common.EXT4, common.TMPFS, common._build = (*map(Path, sys.argv[1:]), lambda: None)
common.run_in_own_mounts()
with common.machinery():
    print(Path("/proc/self/mountinfo").read_text() + common.LOOK + chr(10), flush=True)
    sys.stdin.read()
"""


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


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_benchmark_that_is_stopped_leaves_no_mount_and_no_namespace(tmp_path: Path, number: int) -> None:
    script, disk, memory = tmp_path / "stopped.py", tmp_path / "disk", tmp_path / "memory"
    script.write_text(STOPPED)
    words = [sys.executable, *map(str, (script, tmp_path, disk, memory))]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as bench:
        output = bench.stdout
        assert output is not None
        *mounts, look = iter(lambda: output.readline().strip(), "")
        assert look.startswith("libcni-bench-")
        assert [sum(f" {path} " in line for line in mounts) for path in (disk, memory)] == [1, 1]
        bench.send_signal(number)
    assert bench.returncode == (128 + number if number == signal.SIGTERM else -number)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert not Path("/run/netns", look).exists()
    # The kernel lets go of the file a moment after the last process of the mount namespace has ended.
    devices = ["losetup", "--list", "--noheadings"]
    assert wait_until(lambda: str(tmp_path) not in subprocess.check_output(devices, text=True))
