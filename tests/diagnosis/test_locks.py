"""Who holds a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernel.test_life import _FUSE, Start, start
from processes import fork, wait

from libcni import CNIConfig
from libcni.diagnosis import diagnose, lock_users

__all__ = ["start"]


def test_a_program_that_only_has_the_lock_file_open_holds_no_lock(cni: CNIConfig) -> None:
    path = f"{cni.cache_dir}/locks"
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(lock_users(path)) == []
        process.communicate()


@pytest.mark.root
def test_a_file_system_that_never_answers_does_not_hang_the_search(
    cni: CNIConfig, start: Start, tmp_path: Path
) -> None:
    """A user's, or a server's on the network; a process has a file of it open."""
    if not os.path.exists("/dev/fuse"):
        pytest.skip("this machine has no FUSE")
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", _FUSE, str(tmp_path / "fuse")]
    fuse = start(*command)
    search = fork(lambda: list(lock_users(f"{cni.cache_dir}/locks")))
    assert wait(search, 30) == 0
    assert fuse.poll() is None


def test_the_doctor_names_the_program_that_holds_a_lock(cni: CNIConfig) -> None:
    code = """if True:
        import sys
        from libcni.store.locks import LockRequest, LockSet
        locks = LockSet(sys.argv[1], LockRequest((), "c1"))
        print(locks.try_acquire(), flush=True)
        sys.stdin.read()
    """
    command = [sys.executable, "-c", code, cni.cache_dir]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        assert f"({process.pid})" in _records_row(cni)
        process.communicate()
    assert "locks are held" not in _records_row(cni)


def _records_row(cni: CNIConfig) -> str:
    (row,) = (row.what for row in diagnose(cni).checked if row.check == "records")
    return row
