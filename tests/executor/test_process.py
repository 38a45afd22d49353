"""The process executor, with shell scripts for plugins."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from processes import fork, is_running, wait

from executor.plugins import BASE, Kind, execute, invocation, run, script, without_pidfd
from libcni.errors import PluginError, PluginTimeoutError
from libcni.executor import CallOptions, Executor, ProcessExecutor, process
from libcni.protocol.invocation import Outcome
from libcni.testing import wait_until

# run


def test_a_plugin_gets_its_input_and_its_output_comes_back(tmp_path: Path) -> None:
    outcome = run(script(tmp_path, "cat; echo oops >&2; exit 3"), b'{"a":1}')
    assert outcome == Outcome(3, b'{"a":1}', b"oops\n")
    assert 0 < outcome.seconds < 10
    assert isinstance(ProcessExecutor(), Executor)


def test_the_plugin_gets_the_given_environment_and_no_more(tmp_path: Path) -> None:
    outcome = run(script(tmp_path, "env | sort; echo $#; pwd"))
    lines = outcome.stdout.decode().splitlines()
    assert lines[-2:] == ["0", os.getcwd()]
    given = {line for line in lines[:-2] if not line.startswith(("PWD=", "SHLVL=", "_=", "OLDPWD="))}
    assert given == {"CNI_COMMAND=ADD", "CNI_PATH=/x", "PATH=/usr/bin:/bin"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_the_outcome_has_the_signal_that_ended_the_plugin(tmp_path: Path, number: int) -> None:
    outcome = run(script(tmp_path, f"ulimit -c 0; echo said; kill -{number} $$"))
    assert (outcome.exit_status, outcome.signal, outcome.stdout) == (None, number, b"said\n")


def test_the_plugin_inherits_the_given_descriptor_and_no_other(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, False)
    try:
        outcome = run(script(tmp_path, "echo hello > /proc/self/fd/19; ls /proc/$$/fd"), inherit=write_end)
        assert os.read(read_end, 10) == b"hello\n"
    finally:
        os.close(read_end)
        os.close(write_end)
    shell, ours = {b"10"}, {number.encode() for number in before} - {b"0", b"1", b"2", b"19"}
    assert set(outcome.stdout.split()) - shell - ours == {b"0", b"1", b"2", b"19"}
    assert str(read_end).encode() not in outcome.stdout.split()


def test_the_exit_ends_the_call_not_the_closing_of_the_pipes(tmp_path: Path) -> None:
    body = f"echo out; sleep 120 & echo $! > {tmp_path}/pid; exit 0"
    started = time.monotonic()
    outcome = run(script(tmp_path, body), timeout=60.0)
    assert (outcome.exit_status, outcome.stdout) == (0, b"out\n")
    assert time.monotonic() - started < 20
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


# deadlines


@pytest.mark.parametrize("body", ["", "trap '' TERM;"], ids=["polite", "ignores TERM"])
def test_a_plugin_is_stopped_at_its_deadline_with_its_group(tmp_path: Path, body: str) -> None:
    body += f"echo started; echo why >&2; (sleep 120) & echo $! > {tmp_path}/pid; sleep 120; sleep 120"
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError) as caught:
        run(script(tmp_path, body), timeout=2.0)
    elapsed = time.monotonic() - started
    assert 2.0 <= elapsed < 20
    error = caught.value
    assert (error.stdout, error.stderr) == ("started\n", "why\n")
    assert (error.plugin, error.verb, error.container_id) == ("p", "ADD", "c1")
    assert "within 2 s" in error.problem
    # The timeout counts from the call, and these seconds from the start of the process: on a busy machine less.
    assert 0.5 <= error.seconds <= elapsed
    grandchild = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(grandchild))


def test_term_comes_before_kill(tmp_path: Path) -> None:
    trap = f"trap 'echo tidied > {tmp_path}/tidied; exit 0' TERM"
    path = script(tmp_path, f"{trap}; touch {tmp_path}/is-set; while :; do sleep 0.01; done")
    prepared = ProcessExecutor(grace=20.0).prepare(invocation(path), CallOptions(10.0, BASE))
    assert prepared is not None
    wait_until((tmp_path / "is-set").exists)
    with pytest.raises(PluginTimeoutError):
        prepared.feed(b"{}", 0.2)
    assert (tmp_path / "tidied").read_text() == "tidied\n"


def test_without_a_timeout_the_call_waits_for_the_exit(tmp_path: Path) -> None:
    assert run(script(tmp_path, "sleep 0.1; echo done"), timeout=None).stdout == b"done\n"


# what cannot be started


@pytest.mark.parametrize(
    ("content", "problem", "hint"),
    [
        ("no magic", "Exec format error", "install a program for this machine"),
        ("#!/no/such/interpreter\n", "No such file", "the file or its interpreter"),
    ],
)
def test_a_file_that_is_no_program_is_an_error(tmp_path: Path, content: str, problem: str, hint: str) -> None:
    path = tmp_path / "plugin"
    path.write_text(content)
    path.chmod(0o755)
    with pytest.raises(PluginError, match=problem) as caught:
        run(str(path))
    assert caught.value.path == str(path)
    assert hint in str(caught.value.hint)
    assert caught.value.exit_status is None


def test_an_executable_that_is_missing_or_forbidden_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="No such file"):
        run(str(tmp_path / "gone"))
    with pytest.raises(PluginError, match="Permission denied") as caught:
        run(script(tmp_path, "", mode=0o644))
    assert caught.value.hint is None
    with pytest.raises(PluginError, match=r"null (byte|character)"):
        run("/a\0b")


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"CNI_ARGS": "x" * 131_072}, "Argument list too long"),
        ({"A": "a\0b"}, "null byte"),
        ({"A=B": ""}, "variable name"),
        ({"A": "\ud800"}, "surrogates"),
    ],
)
def test_an_environment_that_no_process_can_have(tmp_path: Path, kind: Kind, env: dict[str, str], problem: str) -> None:
    call = replace(invocation(script(tmp_path, "")), env=env)
    with pytest.raises(PluginError, match=f"cannot be started: .*{problem}") as caught:
        execute(kind, call)
    assert not caught.value.was_run
    assert ("128 KiB" in str(caught.value.hint)) == ("CNI_ARGS" in env)


def test_an_executable_that_is_being_written_is_tried_again(tmp_path: Path, kind: Kind) -> None:
    path = script(tmp_path, "echo done")
    writer = os.open(path, os.O_WRONLY)
    threading.Timer(0.1, os.close, [writer]).start()
    assert execute(kind, path).stdout == b"done\n"


# what the host program does to its children


def test_an_exit_status_that_cannot_be_known_is_never_success(tmp_path: Path, kind: Kind) -> None:
    old = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(PluginError, match="exit status is unknown") as caught:
            execute(kind, script(tmp_path, "echo out; sleep 0.05"))
    finally:
        signal.signal(signal.SIGCHLD, old)
    assert "SIGCHLD" in str(caught.value.hint)
    assert caught.value.exit_status is None


def test_a_process_that_was_reaped_at_once(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    def reaped(pid: int, _flags: int = 0) -> int:
        os.waitpid(pid, 0)
        raise ProcessLookupError(errno.ESRCH, "No such process")

    monkeypatch.setattr(os, "pidfd_open", reaped)
    with pytest.raises(PluginError, match="exit status is unknown"):
        execute(kind, script(tmp_path, ""))


def test_a_process_that_the_host_reaps_during_its_grace(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another process group's by then."""
    groups: list[int] = []

    def reaped(group: int, number: int) -> None:
        groups.append(number)
        os.kill(group, signal.SIGKILL)
        os.waitpid(group, 0)

    monkeypatch.setattr(os, "killpg", reaped)
    with pytest.raises(PluginTimeoutError):
        execute(kind, script(tmp_path, "exec sleep 120"), 0.2)
    assert groups == [signal.SIGTERM]


def test_kernels_without_pidfd(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pidfd(monkeypatch)
    monkeypatch.setattr(process, "EXIT_ONLY_SECONDS", 3600.0)  # no exit would end that wait
    outcome = execute(kind, script(tmp_path, "echo out; sleep 0.1; exit 4"))
    assert outcome == Outcome(4, b"out\n")
    assert outcome.seconds < 5
    with pytest.raises(PluginTimeoutError, match="was stopped"):
        execute(kind, script(tmp_path, "exec sleep 120"), 0.2, grace=0.1)


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_host_that_has_closed_its_stdio(tmp_path: Path, is_prepared: bool) -> None:
    """The descriptor to inherit may have the number of a stream then."""
    lock = tmp_path / "lock"
    path = script(tmp_path, "cat; echo err >&2; readlink /proc/$$/fd/19")

    def host() -> None:
        for descriptor in (0, 1, 2):
            os.close(descriptor)
        inherited = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        options = CallOptions(10.0, BASE, lambda: inherited)
        executor, call = ProcessExecutor(), invocation(path, b"in ")
        prepared = executor.prepare(call, options) if is_prepared else None
        outcome = prepared.feed(b"in ", 10.0) if prepared else executor.execute(call, options)
        (tmp_path / "outcome").write_text(repr((outcome.exit_status, outcome.stdout.decode(), outcome.stderr)))

    assert wait(fork(host)) == 0
    assert (tmp_path / "outcome").read_text() == repr((0, f"in {lock}\n", b"err\n"))
