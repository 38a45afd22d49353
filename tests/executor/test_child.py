"""Stopping plugins: those that left their group, are traced, cannot be killed; helpers of those that failed; forks."""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import is_running

from executor.plugins import (
    BASE,
    Kind,
    c_program,
    execute,
    invocation,
    number_in,
    replace_in_executor,
    script,
    without_pidfd,
)
from libcni.errors import PluginError, PluginTimeoutError
from libcni.executor import CallOptions, ProcessExecutor, child
from libcni.testing import wait_until


def test_a_plugin_that_left_its_process_group_is_stopped(tmp_path: Path, kind: Kind) -> None:
    # In C: the plugin must have left its group before the deadline, and Python's start may take longer than that.
    plugin = c_program(
        tmp_path,
        f"""
        static int log;
        void note(int number) {{ write(log, "t", 1); }}
        log = open("{tmp_path}/log", O_CREAT | O_WRONLY, 0600);
        signal(SIGTERM, note);
        setpgid(0, getpgid(getppid()));
        FILE *file = fopen("{tmp_path}/pid", "w");
        fprintf(file, "%d\\n", getpid()); fclose(file);
        for (;;) pause();
        """,
    )
    with pytest.raises(PluginTimeoutError):
        execute(kind, plugin, 0.5, grace=0.3)
    wait_until(lambda: not is_running(number_in(tmp_path / "pid")))
    assert (tmp_path / "log").read_text() == "t"


def test_a_plugin_in_its_process_group_gets_one_term(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many programs take the second one for "at once, without cleaning up"."""
    sent: list[tuple[str, int]] = []

    def recorded(name: str, send: Callable[[int, int], None]) -> Callable[[int, int], None]:
        def record(target: int, number: int) -> None:
            sent.append((name, number))
            send(target, number)

        return record

    functions = {"kill": recorded("one", os.kill), "killpg": recorded("group", os.killpg)}
    replace_in_executor(monkeypatch, os, **functions)
    with pytest.raises(PluginTimeoutError):
        execute(kind, script(tmp_path, "exec sleep 120"), 0.3)
    assert sent[:2] == [("group", signal.SIGTERM), ("one", signal.SIGKILL)]


@pytest.mark.parametrize("end", ["echo '{}'; exit 1", "echo '{}'; kill -9 $$", "exit 0", "echo garbage"])
def test_helpers_of_a_plugin_that_failed_are_killed(tmp_path: Path, kind: Kind, end: str) -> None:
    execute(kind, script(tmp_path, f"(sleep 120) & echo $! > {tmp_path}/pid; {end}"))
    wait_until(lambda: not is_running(number_in(tmp_path / "pid")))


@pytest.mark.parametrize(("verb", "output"), [("ADD", "{}"), ("DEL", "")])
def test_helpers_of_a_plugin_that_succeeded_live_on(tmp_path: Path, kind: Kind, verb: str, output: str) -> None:
    execute(kind, script(tmp_path, f"(sleep 120) & echo $! > {tmp_path}/pid; echo '{output}'"), verb=verb)
    assert is_running(number_in(tmp_path / "pid"))
    os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)


def traced(directory: Path, *, lets_go: bool) -> str:
    """Return a plugin whose grandchild traces it when it exits, and keeps its exit status or lets go after a while."""
    keep = "usleep(200000); return 0;" if lets_go else "setsid(); for (;;) pause();"
    return c_program(
        directory,
        f"""
        int ready[2]; char byte;
        pipe(ready);
        if (fork() == 0) {{
            FILE *file = fopen("{directory}/pid", "w");
            fprintf(file, "%d\\n", getpid()); fclose(file);
            if (ptrace(PTRACE_SEIZE, getppid(), 0, 0)) return 1;
            write(ready[1], "x", 1);
            close(1); close(2);  // only a look at the plugin shows that the tracer has let go
            {keep}
        }}
        read(ready[0], &byte, 1);
        puts("{{}}");
        return 0;
        """,
    )


def time_out(kind: Kind, plugin: str, timeout: float) -> tuple[PluginTimeoutError, float]:
    """Run a plugin until its deadline; return the error and the seconds that the call took."""
    started = time.monotonic()
    with pytest.raises(PluginTimeoutError) as caught:
        execute(kind, plugin, timeout, grace=0.2)
    return caught.value, time.monotonic() - started


def test_a_traced_plugin_whose_status_is_kept_does_not_block_the_call(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    has_ended = child.Child.has_ended

    def look(process: child.Child) -> bool:
        nonlocal looks
        looks += 1
        return has_ended(process)

    monkeypatch.setattr(child.Child, "has_ended", look)
    plugin = traced(tmp_path, lets_go=False)
    try:
        error, taken = time_out(kind, plugin, 0.4)
    finally:
        os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)  # then the fixture reaps the plugin
    assert taken < 10, "the tracer keeps the status for ever"
    assert error.stdout == "{}\n"
    assert "another process traces it" in error.problem
    assert looks < 200, "its descriptor is readable all the time: the call must not spin"


def test_a_traced_plugin_whose_tracer_lets_go_has_succeeded(tmp_path: Path, kind: Kind) -> None:
    outcome = execute(kind, traced(tmp_path, lets_go=True))
    assert (outcome.exit_status, outcome.stdout) == (0, b"{}\n")
    assert outcome.seconds < 5, "the call waited for its deadline"


@pytest.mark.parametrize("has_pidfd", [True, False])
def test_a_plugin_that_cannot_be_killed_does_not_block_the_call(
    tmp_path: Path, kind: Kind, unkillable: pytest.MonkeyPatch, has_pidfd: bool
) -> None:
    if not has_pidfd:
        without_pidfd(unkillable)
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 120")
    try:
        error, taken = time_out(kind, path, 0.3)
    finally:
        unkillable.undo()
        os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)
    assert 0.5 <= taken < 10
    assert "and still runs after SIGKILL" in error.problem


# forks

FORK_IN_A_HANDLER = """
import os, signal, sys
def handler(*_):
    if os.fork() == 0:
        sys.exit(0)
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.2)
outcome = ProcessExecutor().execute(call, options)
os.wait()
"""
FORK_IN_THE_LOOP = """
import asyncio, os, sys
# Under Python 3.14 a child of a running loop hangs in sys.exit(), also without this library.
leave = sys.exit if sys.version_info < (3, 14) else os._exit
async def main():
    task = asyncio.create_task(AsyncProcessExecutor().execute(call, options))
    await asyncio.sleep(0.2)
    child = os.fork()
    if child == 0:
        leave(0)
    os.waitpid(child, 0)  # not wait(): that could reap the plugin
    return await task
outcome = asyncio.run(main())
"""
FORK_THAT_CLOSES_DESCRIPTORS_IN_THE_LOOP = FORK_IN_THE_LOOP.replace(
    "leave(0)",
    """
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2 and "pidfd" in os.path.realpath(f"/proc/self/fd/{name}"):
                os.close(int(name))
        leave(0)""",
)
FORK_WITH_A_PREPARED_PLUGIN = """
import os, sys
prepared = ProcessExecutor().prepare(call, options)
child = os.fork()
if child == 0:
    prepared.discard()
    del prepared
    sys.exit(0)
os.waitpid(child, 0)
outcome = prepared.feed(b"{}", 10.0)
"""

FORK_WITH_A_PREPARED_PLUGIN_IN_THE_LOOP = """
import asyncio, os, sys
async def main():
    loop = asyncio.get_running_loop()
    prepared = AsyncProcessExecutor().prepare(call, options)
    child = os.fork()
    if child == 0:
        loop.add_reader = None  # the child must not even try to
        await prepared.discard()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    return await prepared.feed(b"{}", 10.0)
outcome = asyncio.run(main())
"""


@pytest.mark.usefixtures("measured_children")
@pytest.mark.parametrize(
    "host",
    [
        FORK_IN_A_HANDLER,
        FORK_IN_THE_LOOP,
        FORK_THAT_CLOSES_DESCRIPTORS_IN_THE_LOOP,
        FORK_WITH_A_PREPARED_PLUGIN,
        FORK_WITH_A_PREPARED_PLUGIN_IN_THE_LOOP,
    ],
)
def test_a_forked_child_that_exits_does_not_kill_its_parents_plugin(tmp_path: Path, host: str) -> None:
    path = script(tmp_path, "cat > /dev/null; sleep 0.6; echo '{}'")
    code = f"""
from libcni.executor import CallOptions, ProcessExecutor
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.protocol.invocation import Invocation
call, options = Invocation("ADD", "p", {path!r}, b"{{}}", {{}}), CallOptions(10.0, {BASE!r})
{host}
assert outcome.exit_status == 0, outcome
print("alive")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    assert (done.stdout, done.returncode) == ("alive\n", 0), done.stderr


def test_a_timeout_error_of_a_signal_handler_stays_one(tmp_path: Path) -> None:
    """It is an OSError too, but no system call's."""

    def interrupt(*_: object) -> None:
        raise TimeoutError("mine")

    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(TimeoutError, match="mine") as caught:
            ProcessExecutor().execute(invocation(script(tmp_path, "exec sleep 120")), CallOptions(10.0, BASE))
    finally:
        signal.signal(signal.SIGALRM, old)
    assert not isinstance(caught.value, PluginError)


@pytest.mark.parametrize(("deadline", "seconds"), [(math.inf, 5.0), (2.0, 2.0)])
def test_a_busy_executable_is_tried_for_five_seconds_or_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch, deadline: float, seconds: float
) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    error, tried = OSError(errno.ETXTBSY, "Text file busy"), child.Child(invocation("/x"), CallOptions(), 1)

    def wait() -> None:
        while True:
            now[0] += tried.retry_delay(error, deadline)

    with pytest.raises(PluginError, match="Text file busy") as caught:
        wait()
    assert str(caught.value.hint) == "another program writes to the file: try again when it has finished"
    assert seconds - 0.1 <= now[0] <= seconds


def test_a_lock_that_an_interrupt_has_lost_does_not_hold_up_the_clean_up() -> None:
    """A signal handler may raise between the acquisition of a lock and the block of its "with"."""
    running = child.Child(invocation("/bin/true"), CallOptions(), 1)
    assert running._lock.acquire(timeout=1)
    assert running._lock.acquire(timeout=1), "the thread that has lost it may go on"
    running.kill_and_release(0.1)
    assert running._state == "released"
