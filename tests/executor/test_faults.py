"""System calls that fail: a PluginError that says what failed, and neither a process nor a descriptor is left."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import resource
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from processes import fork, wait

from executor.plugins import BASE, Kind, execute, invocation, replace_in_executor, script
from libcni.errors import PluginError
from libcni.executor import CallOptions, ProcessExecutor, child, loop_events

LONG = "echo out; sleep 0.3; echo '{}'"  # it prints, and runs long enough for its output to be read as it comes


def failing(number: int, real: Callable[..., Any], *, times: int = 1, after: int = 0) -> Callable[..., Any]:
    """Return ``real`` with errors: after some calls that succeed, so many fail."""
    calls = 0

    def function(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if after < calls <= after + times:
            raise OSError(number, os.strerror(number))
        return real(*args, **options)

    return function


@pytest.mark.parametrize(
    ("module", "name", "after"),
    [
        (os, "memfd_create", 0),
        (os, "pwrite", 0),
        (fcntl, "fcntl", 0),
        (os, "pipe2", 0),
        (os, "pipe2", 1),
        (child, "prepare_spawn", 0),
        (os, "set_blocking", 0),
        (os, "set_blocking", 1),
    ],
)
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM])
def test_a_start_that_fails(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, after: int, number: int
) -> None:
    path = script(tmp_path, "exec sleep 120")

    class Failing(ProcessExecutor):
        """Fails when the plugin is started, not before."""

    with monkeypatch.context() as patch:
        function = failing(number, getattr(module, name), after=after)
        if module is child:
            patch.setattr(child, name, lambda *_: function)
        else:
            replace_in_executor(patch, module, **{name: function})
        with pytest.raises(PluginError, match=f"cannot be started: {os.strerror(number)}") as caught:
            execute(kind, path)
    assert caught.value.path == path
    assert ("open files" in str(caught.value.hint)) == (number == errno.EMFILE)


@pytest.mark.parametrize(("name", "times"), [("read", 1), ("read", 99), ("waitid", 1), ("waitid", 2), ("waitid", 999)])
def test_a_plugin_that_cannot_be_watched(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch, name: str, times: int
) -> None:
    with monkeypatch.context() as patch:
        replace_in_executor(patch, os, **{name: failing(errno.EIO, getattr(os, name), times=times)})
        with pytest.raises(PluginError, match="cannot be watched: Input/output error") as caught:
            execute(kind, script(tmp_path, LONG))
    assert caught.value.plugin == "p"


def test_a_poll_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Poll:
        def register(self, *_: int) -> None: ...

        poll = staticmethod(failing(errno.ENOMEM, len))

    with monkeypatch.context() as patch:
        patch.setattr(select, "poll", Poll)
        with pytest.raises(PluginError, match="cannot be watched: Cannot allocate memory"):
            execute("blocking", script(tmp_path, "exec sleep 120"))


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_event_loop_that_cannot_watch_a_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    events = loop_events.LoopEvents
    with monkeypatch.context() as patch:
        patch.setattr(events, "add_reader", failing(errno.ENOSPC, events.add_reader, after=after))
        with pytest.raises(PluginError, match="cannot be watched: No space left"):
            execute("asyncio", script(tmp_path, "exec sleep 120"), 5.0)
    gc.collect()  # the error's frames have the epoll instance


def test_an_event_loop_without_an_epoll_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loop_events.LoopEvents, "__init__", failing(errno.EMFILE, print))
        with pytest.raises(PluginError, match="Too many open files"):
            execute("asyncio", script(tmp_path, "exec sleep 120"), 5.0)


@pytest.mark.parametrize("allowed", [0, 1000])
@pytest.mark.parametrize("size", [2, 5000, 70_000])
def test_a_limit_of_file_sizes_stops_no_plugin(tmp_path: Path, kind: Kind, allowed: int, size: int) -> None:
    """Also not one whose configuration does not fit into a pipe of the usual size."""
    path, stdin = script(tmp_path, "wc -c"), b"x" * size
    (tmp_path / "outcome").touch()

    def runtime() -> None:
        call = replace(invocation(path), stdin=stdin)
        resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, resource.RLIM_INFINITY))
        outcome = execute(kind, call)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        (tmp_path / "outcome").write_bytes(outcome.stdout)

    assert wait(fork(runtime)) == 0
    assert (tmp_path / "outcome").read_text() == f"{size}\n"


def test_a_fork_while_a_pipe_is_filled_keeps_no_write_end(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the plugin would wait for the end of its configuration as long as the forked worker lives."""
    workers: list[int] = []

    def forking(descriptor: int, is_blocking: bool) -> None:
        if not workers:
            workers.append(fork(lambda: time.sleep(60)))
        os.set_blocking(descriptor, is_blocking)

    replace_in_executor(monkeypatch, os, pwrite=failing(errno.EFBIG, os.pwrite), set_blocking=forking)
    try:
        assert execute(kind, script(tmp_path, "cat"), 10.0).stdout == b"{}"
    finally:
        os.kill(workers[0], signal.SIGKILL)
        wait(workers[0])


def test_a_configuration_that_no_pipe_holds(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without privileges a pipe has a largest size."""
    with monkeypatch.context() as patch:
        replace_in_executor(patch, os, pwrite=failing(errno.EFBIG, os.pwrite))
        replace_in_executor(patch, fcntl, fcntl=failing(errno.EPERM, fcntl.fcntl, after=1))
        with pytest.raises(PluginError, match="cannot be started: File too large") as caught:
            execute(kind, replace(invocation(script(tmp_path, "exec sleep 120")), stdin=b"x" * 70_000))
    assert "ulimit -f" in str(caught.value.hint)


@pytest.mark.parametrize("allowed", range(4, 24))
def test_few_descriptors_are_allowed(tmp_path: Path, allowed: int) -> None:
    """With 19, none can have the number that the plugin's lock descriptor has."""
    path = script(tmp_path, "echo '{}'")
    read_end, write_end = os.pipe()
    (tmp_path / "status").touch()

    def runtime() -> None:
        os.dup2(write_end, 3)
        os.closerange(4, 4096)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, 4096))
        try:
            outcome = ProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE, lambda: 3))
            status = f"exit status {outcome.exit_status}"
        except PluginError as error:
            status = f"{error.problem} ({error.hint})"
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
        (tmp_path / "status").write_text(f"{status}; descriptors: {len(os.listdir('/proc/self/fd'))}")

    assert wait(fork(runtime)) == 0
    os.close(read_end)
    os.close(write_end)
    status = (tmp_path / "status").read_text()
    assert status.endswith("descriptors: 5")
    if allowed >= 20:
        assert status.startswith("exit status 0")
    else:
        assert "cannot be started" in status
        assert "ulimit -n" in status
