"""Processes that outlive their call are reaped, each once."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from processes import is_running

from executor.plugins import (
    BASE,
    Kind,
    execute,
    invocation,
    number_in,
    replace_in_executor,
    script,
)
from libcni.errors import PluginTimeoutError
from libcni.executor import CallOptions, ProcessExecutor, child, reaping
from libcni.testing import wait_until


def test_without_a_thread_the_next_start_reaps_what_could_not_be_killed(
    tmp_path: Path, kind: Kind, unkillable: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    unkillable.setattr(threading.Thread, "start", refuse)
    with pytest.raises(PluginTimeoutError):
        execute(kind, script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 30"), 0.3, grace=0.1)
    unkillable.undo()
    pid = number_in(tmp_path / "pid")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    assert execute(kind, script(tmp_path, "echo {}")).exit_status == 0


def test_two_threads_do_not_reap_the_same_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first wait the number may be another process's."""
    waited: list[int] = []

    def wait(pid: int, _: int) -> tuple[int, int]:
        waited.append(pid)
        if len(waited) == 1:
            other = threading.Thread(target=reaping.reap_stragglers)
            other.start()
            other.join()
        return (pid, 0) if pid != 2 else (0, 0)

    replace_in_executor(monkeypatch, os, waitpid=wait)
    monkeypatch.setattr(reaping, "unreaped", stragglers := [1, 2, 3])
    reaping.reap_stragglers()
    assert [pid for pid in waited if pid != 2] == [1, 3]
    assert stragglers == [2], "it still runs"


def test_a_hanging_plugin_is_reaped_by_a_thread_after_ctrl_c(tmp_path: Path, unkillable: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 30")
    unkillable.setattr(child.Child.kill, "__defaults__", (0.1,))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            ProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE))
    finally:
        signal.signal(signal.SIGALRM, old)
    unkillable.undo()
    os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)
