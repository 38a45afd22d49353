"""Who holds a lock."""

from __future__ import annotations

import subprocess
import sys

from libcni import CNIConfig
from libcni.diagnosis import lock_users


def test_a_program_that_only_has_the_lock_file_open_holds_no_lock(cni: CNIConfig) -> None:
    path = f"{cni.cache_dir}/locks"
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(lock_users(path)) == []
        process.communicate()
