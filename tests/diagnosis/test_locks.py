"""The doctor names who holds a lock."""

from __future__ import annotations

import subprocess
import sys

from diagnosis.conftest import only
from libcni import CNIConfig
from libcni.diagnosis import diagnose, lock_users
from libcni.store.locks import LockRequest, LockSet


def test_who_holds_a_lock_is_named(cni: CNIConfig) -> None:
    locks = LockSet(cni.cache_dir, LockRequest((), "c1"))
    assert locks.try_acquire()
    try:
        assert only(cni).check == "locks"
    finally:
        locks.close()
    assert diagnose(cni).findings == ()


def test_a_program_that_only_has_the_lock_file_open_holds_no_lock(cni: CNIConfig) -> None:
    path = f"{cni.cache_dir}/locks"
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert list(lock_users(path)) == []
        process.communicate()
