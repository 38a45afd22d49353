"""Plugins that are started before their configuration is known: fed, discarded, or left alone by a dead runtime."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import fork, is_running, wait

from executor.plugins import BASE, Kind, invocation, number_in, python, replace_in_executor, script
from libcni.errors import PluginError
from libcni.executor import CallOptions, ProcessExecutor, child
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.executor.child import _running
from libcni.protocol.invocation import Outcome
from libcni.testing import wait_until

OPTIONS = CallOptions(None, BASE)


class Prepared:
    """A prepared plugin of either executor, called as if both blocked."""

    def __init__(self, kind: Kind, path: str, **options: Any) -> None:
        self._runner = asyncio.Runner() if kind == "asyncio" else None
        call = invocation(path, b"is ignored")
        if self._runner is None:
            self.plugin: Any = ProcessExecutor(**options).prepare(call, OPTIONS)
        else:
            try:
                self.plugin = self._runner.run(self._prepare(AsyncProcessExecutor(**options), call))
            except BaseException:
                self.close()
                raise

    @staticmethod
    async def _prepare(executor: AsyncProcessExecutor, call: Any) -> Any:
        return executor.prepare(call, OPTIONS)

    def feed(self, stdin: bytes, timeout: float | None = 10.0) -> Outcome:
        try:
            outcome: Outcome = self._result(self.plugin.feed(stdin, timeout))
            return outcome
        finally:
            self.close()

    def discard(self) -> None:
        self._result(self.plugin.discard())
        self.close()

    def _result(self, result: Any) -> Any:
        return result if self._runner is None else self._runner.run(result)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()


def logging(directory: Path, after: str = "") -> str:
    """Return a plugin that notes when it has started, and when it has read its configuration."""
    return script(directory, f"echo started >> {directory}/log; read -r x; echo read $x >> {directory}/log; {after}")


def log(directory: Path) -> list[str]:
    path = directory / "log"
    return path.read_text().splitlines() if path.exists() else []


def test_a_plugin_waits_for_its_configuration(tmp_path: Path, kind: Kind) -> None:
    prepared = Prepared(kind, logging(tmp_path, "echo '{}'; echo why >&2; exit 3"))
    wait_until(lambda: log(tmp_path) == ["started"])
    time.sleep(0.1)
    assert log(tmp_path) == ["started"]
    assert len(_running) == 1
    assert prepared.feed(b"now\n") == Outcome(3, b"{}\n", b"why\n")
    assert log(tmp_path) == ["started", "read now"]
    assert len(_running) == 0


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1_000_000])
def test_the_whole_configuration_arrives(tmp_path: Path, kind: Kind, size: int) -> None:
    """If it is larger than the pipe, in a process that is started then."""
    path = script(tmp_path, f"cat > {tmp_path}/stdin; echo '{{}}'; echo $$ >> {tmp_path}/log")
    assert Prepared(kind, path).feed(b"x" * size).exit_status == 0
    assert (tmp_path / "stdin").stat().st_size == size
    assert len(log(tmp_path)) == 1


def test_no_part_of_a_large_configuration_reaches_the_waiting_plugin(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that acts on the first line would act twice."""
    written: list[bytes] = []
    path = script(tmp_path, f"read -r x; echo $x >> {tmp_path}/log; echo '{{}}'")
    prepared = Prepared(kind, path)
    replace_in_executor(monkeypatch, os, write=lambda _, data: written.append(data))
    assert prepared.feed(b"first\n" + b"x" * 100_000).exit_status == 0
    assert (written, log(tmp_path)) == ([], ["first"])


def test_a_plugin_that_makes_its_pipe_smaller(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write must not block: this process holds the read end too, so it would block for ever."""
    body = "import fcntl, stat\nis_pipe = stat.S_ISFIFO(os.fstat(0).st_mode)\nif is_pipe: fcntl.fcntl(0, 1031, 4096)\n"
    body += f"open('{tmp_path}/pid', 'w').write(f'{{os.getpid()}}\\n')\n"
    body += "if is_pipe: time.sleep(60)\nprint('{}', len(sys.stdin.read()), file=sys.stderr)"
    prepared = Prepared(kind, python(tmp_path, body))
    number_in(tmp_path / "pid")

    def large(*args: Any) -> int:  # the plugin makes it smaller after this was asked
        return 65_536 if args[1:] == (fcntl.F_GETPIPE_SZ,) else fcntl.fcntl(*args)

    replace_in_executor(monkeypatch, fcntl, fcntl=large)
    assert prepared.feed(b"x" * 10_000).stderr == b"{} 10000\n"


def test_a_discarded_plugin_leaves_nothing(tmp_path: Path, kind: Kind) -> None:
    prepared = Prepared(kind, logging(tmp_path, f"touch {tmp_path}/acted"))
    group = script(tmp_path, f"(sleep 120) & echo $! > {tmp_path}/pid; read -r x; touch {tmp_path}/acted", name="group")
    with_helper = Prepared(kind, group)
    helper = number_in(tmp_path / "pid")
    assert len(_running) == 2
    for one in (prepared, with_helper):
        one.discard()
    assert len(_running) == 0
    wait_until(lambda: not is_running(helper))
    assert not (tmp_path / "acted").exists()


@pytest.mark.parametrize("first", ["feed", "discard"])
def test_a_plugin_is_fed_once(tmp_path: Path, kind: Kind, first: str) -> None:
    prepared = Prepared(kind, script(tmp_path, "cat; exit 0"))
    prepared._result(prepared.plugin.feed(b"{}", 10.0) if first == "feed" else prepared.plugin.discard())
    prepared._result(prepared.plugin.discard())
    with pytest.raises(RuntimeError, match="has already received its input, or was discarded"):
        prepared.feed(b"{}")


def test_a_plugin_that_is_lost_is_killed(tmp_path: Path, kind: Kind) -> None:
    prepared = Prepared(kind, logging(tmp_path, f"touch {tmp_path}/acted"))
    prepared.plugin = None
    gc.collect()
    prepared.close()
    assert len(_running) == 0
    assert not (tmp_path / "acted").exists()


def test_an_executable_that_cannot_be_started_is_not_prepared(tmp_path: Path, kind: Kind) -> None:
    missing, busy = str(tmp_path / "missing"), script(tmp_path, "")
    with open(busy, "ab"):
        for path in (missing, busy, "/a\0b"):
            prepared = Prepared(kind, path)
            assert prepared.plugin is None
            prepared.close()


def test_an_exception_out_of_a_signal_handler_is_not_taken_for_a_start_that_failed(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise TimeoutError("mine")

    monkeypatch.setattr(child, "prepare_spawn", lambda *_: interrupted)
    with pytest.raises(TimeoutError, match="mine"):
        Prepared(kind, script(tmp_path, ""))


def test_an_executable_that_cannot_be_started_when_it_is_fed_is_an_error(tmp_path: Path, kind: Kind) -> None:
    prepared = Prepared(kind, path := logging(tmp_path))
    os.unlink(path)
    with pytest.raises(PluginError, match="cannot be started: No such file"):
        prepared.feed(b"x" * 100_000)


def test_cancelling_kills_a_plugin_that_was_fed(tmp_path: Path) -> None:
    path = script(tmp_path, f"read -r x; echo $$ > {tmp_path}/pid; exec sleep 120")

    async def main() -> None:
        prepared = AsyncProcessExecutor().prepare(invocation(path), OPTIONS)
        assert prepared is not None
        task = asyncio.create_task(prepared.feed(b"\n", 10.0))
        await asyncio.to_thread(number_in, tmp_path / "pid")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not is_running(number_in(tmp_path / "pid"))

    asyncio.run(main())


# the runtime dies


EOF_PLUGIN = 'x=$(cat); echo "read <$x>" >> {0}/log; echo done >> {0}/log'


def test_a_plugin_whose_runtime_was_killed_reads_an_empty_stdin(tmp_path: Path) -> None:
    path = script(tmp_path, EOF_PLUGIN.format(tmp_path))

    def runtime() -> None:
        prepared = ProcessExecutor().prepare(invocation(path), OPTIONS)
        os.kill(os.getpid(), signal.SIGKILL)
        del prepared

    assert wait(fork(runtime)) == -signal.SIGKILL
    wait_until(lambda: log(tmp_path) == ["read <>", "done"])


def test_a_process_that_the_host_has_reaped_at_once_keeps_no_descriptor(
    tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reaped(pid: int) -> int:
        os.waitpid(pid, 0)
        raise ProcessLookupError

    with monkeypatch.context() as patch:
        replace_in_executor(patch, os, pidfd_open=reaped)
        prepared = Prepared(kind, script(tmp_path, "exit 0"))
        prepared.close()
        assert prepared.plugin is None
    assert len(_running) == 0


def test_a_forked_worker_does_not_keep_a_plugins_stdin_open(tmp_path: Path) -> None:
    """Neither after the runtime has fed the plugin, nor after its death."""
    path, worker = script(tmp_path, EOF_PLUGIN.format(tmp_path)), tmp_path / "worker"

    def runtime() -> None:
        fed, unfed = (ProcessExecutor().prepare(invocation(path), OPTIONS) for _ in range(2))
        worker.write_text(f"{fork(lambda: time.sleep(120))}\n")
        assert fed is not None
        assert fed.feed(b"fed", 5.0).exit_status == 0
        os.kill(os.getpid(), signal.SIGKILL)
        del unfed

    assert wait(fork(runtime)) == -signal.SIGKILL
    try:
        wait_until(lambda: log(tmp_path) == ["read <fed>", "done", "read <>", "done"])
    finally:
        os.kill(int(worker.read_text()), signal.SIGKILL)


def test_a_forked_child_runs_none_of_its_parents_plugins(tmp_path: Path) -> None:
    prepared = ProcessExecutor().prepare(invocation(script(tmp_path, "cat")), OPTIONS)
    assert prepared is not None
    assert wait(fork(lambda: os._exit(len(_running)))) == 0
    assert len(_running) == 1
    prepared.discard()


def test_feeding_a_plugin_that_has_ended_does_not_kill_a_host_with_the_default_sigpipe(tmp_path: Path) -> None:
    code = f"""
import signal, time
from libcni.executor import CallOptions, ProcessExecutor
from libcni.protocol.invocation import Invocation
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
prepared = ProcessExecutor().prepare(Invocation("ADD", "p", {script(tmp_path, "exit 5")!r}, b"", {{}}), CallOptions())
time.sleep(0.2)
print(prepared.feed(b"{{}}", 5.0).exit_status)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
