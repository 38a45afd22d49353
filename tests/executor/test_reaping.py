"""Processes that outlive their call are reaped, each once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from processes import is_running

from executor.plugins import Kind, execute, number_in, script
from libcni.errors import PluginTimeoutError
from libcni.executor import child
from libcni.testing import wait_until


def test_the_next_start_reaps_what_could_not_be_killed(
    tmp_path: Path, kind: Kind, unkillable: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PluginTimeoutError):
        execute(kind, script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 120"), 0.3, grace=0.1)
    unkillable.undo()
    pid = number_in(tmp_path / "pid")
    assert execute(kind, script(tmp_path, "echo {}")).exit_status == 0
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    assert execute(kind, script(tmp_path, "echo {}")).exit_status == 0
    assert not Path(f"/proc/{pid}").exists(), "it is a zombie"


def test_two_threads_do_not_release_the_same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would close the same descriptor, which may be another file's by then."""
    released: list[int] = []

    class Unreaped:
        def __init__(self, number: int) -> None:
            self.number = number

        def release(self) -> None:
            released.append(self.number)
            if len(released) == 1:
                other = threading.Thread(target=child._reap_unreaped)
                other.start()
                other.join()

    monkeypatch.setattr(child, "_unreaped", [Unreaped(number) for number in range(3)])
    child._reap_unreaped()
    assert released == [0, 1, 2]
