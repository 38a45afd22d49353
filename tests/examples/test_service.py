"""examples/service.py with any stdin, without root: no job of these tests gets as far as its namespace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SERVICE = Path(__file__).parents[2] / "examples/service.py"


def test_the_service_reads_a_file_a_pipe_and_nothing(tmp_path: Path) -> None:
    job = tmp_path / "jobs"
    job.write_text('{"name": "job1", "networks": ["nonet"], "command": ["true"]}\n')
    (tmp_path / "net.d").mkdir()
    env = {
        **os.environ, "RUNTIME_HOME": str(tmp_path), "LIBCNI_CACHE_DIR": str(tmp_path),
        "NETCONFPATH": str(tmp_path / "net.d"),
    }  # fmt: skip

    def serve(stdin: str) -> str:
        command = f"{sys.executable} {SERVICE} {stdin}"
        done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    for stdin in (f"< {job}", f"<<END\n{job.read_text()}END\n"):
        assert serve(stdin).startswith("job1 failed: no configuration in"), stdin
    assert serve("< /dev/null") == ""
