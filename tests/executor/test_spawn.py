"""The start of a process: what it gets, and what goes on meanwhile."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from processes import fork, wait

from executor.plugins import BASE, invocation, script
from libcni.errors import PluginTimeoutError
from libcni.executor import CallOptions, ProcessExecutor, async_process, child
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.executor.child import _running
from libcni.executor.spawn import prepare_spawn
from libcni.testing import wait_until

_CONTENT, _CLOEXEC, _ADD, _OPEN_EXEC_PERM, _ALLOW = 4, 1, 1, 0x40000, 1
_EVENT = struct.Struct("=IBBHQii")


class HeldStart:
    """A start that the kernel waits with until this is called."""

    def __init__(self, held: int, go: int) -> None:
        self._held, self._go = held, go

    async def begins(self) -> None:
        """Wait until the start has begun."""
        await asyncio.to_thread(os.read, self._held, 1)

    def __call__(self) -> None:
        os.write(self._go, b"!")


@contextmanager
def held_start(path: str) -> Iterator[HeldStart]:
    """Keep the kernel from starting an executable, until what this yields is called, or for 10 s.

    Fails if the time has passed before the call.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    listener = libc.fanotify_init(_CONTENT | _CLOEXEC, os.O_RDONLY)
    if listener < 0:
        pytest.skip(f"fanotify_init: {os.strerror(ctypes.get_errno())}")
    assert libc.fanotify_mark(listener, _ADD, ctypes.c_uint64(_OPEN_EXEC_PERM), -100, os.fsencode(path)) == 0
    read_end, write_end = os.pipe()
    held, is_held = os.pipe()

    def allow() -> None:
        os.close(write_end)
        *_, descriptor, _ = _EVENT.unpack(os.read(listener, _EVENT.size))
        os.write(is_held, b"!")
        os.set_blocking(read_end, False)
        deadline = time.monotonic() + 10
        is_in_time = False
        while not is_in_time and time.monotonic() < deadline:
            with suppress(BlockingIOError):
                is_in_time = os.read(read_end, 1) == b"!"
            time.sleep(0.001)
        os.write(listener, struct.pack("=iI", descriptor, _ALLOW))
        os._exit(0 if is_in_time else 3)

    listening = fork(allow)
    os.close(listener)
    os.close(read_end)
    try:
        yield HeldStart(held, write_end)
        assert wait(listening) == 0, "nothing else ran while the executable was being started"
    finally:
        for descriptor in (write_end, held, is_held):
            os.close(descriptor)


def test_other_threads_run_while_a_process_starts(tmp_path: Path) -> None:
    path = script(tmp_path, "echo '{}'")
    with held_start(path) as let_it_start:
        thread = threading.Timer(0.1, let_it_start)
        thread.start()
        assert ProcessExecutor().execute(invocation(path), CallOptions(20.0, BASE)).stdout == b"{}\n"
        thread.join()


def test_an_event_loop_runs_while_a_process_starts(tmp_path: Path) -> None:
    path = script(tmp_path, "echo '{}'")

    async def main(let_it_start: HeldStart) -> None:
        asyncio.get_running_loop().call_later(0.1, let_it_start)
        assert (await AsyncProcessExecutor().execute(invocation(path), CallOptions(20.0, BASE))).stdout == b"{}\n"

    with held_start(path) as let_it_start:
        asyncio.run(main(let_it_start))


def test_a_start_that_hangs_ends_at_the_deadline(tmp_path: Path) -> None:
    path = script(tmp_path, f"touch {tmp_path}/ran; exec sleep 120")

    async def main() -> None:
        with pytest.raises(PluginTimeoutError, match="did not start in time"):
            await AsyncProcessExecutor().execute(invocation(path), CallOptions(0.1, BASE))

    with held_start(path) as let_it_start:
        asyncio.run(main())
        assert len(_running) == 1  # until the kernel has started it
        let_it_start()
        wait_until(lambda: len(_running) == 0)


def test_a_process_that_starts_after_its_call_was_given_up_is_released_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that close the same descriptors could close another file, which has got one of the numbers."""
    path = script(tmp_path, "exec sleep 120")
    is_killing, may_kill = threading.Event(), threading.Event()
    released: list[int] = []

    class Late(child.Child):
        def signal(self, number: int) -> None:
            if threading.current_thread() is not threading.main_thread():
                is_killing.set()
                may_kill.wait(20)
            super().signal(number)

        def release(self) -> None:
            released.append(threading.get_ident())
            super().release()

    with held_start(path) as let_it_start:
        late = Late(invocation(path), CallOptions(None, BASE), 1000)
        late.set_up()
        thread = threading.Thread(target=late.spawn)
        thread.start()
        late.kill_and_release(0.1)
        let_it_start()
        assert is_killing.wait(20)
        late.kill_and_release(0.1)
        assert released == []
        may_kill.set()
        thread.join()
    assert released == [thread.ident]
    assert len(_running) == 0


def test_a_call_that_is_cancelled_while_its_process_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = script(tmp_path, "exec sleep 120")
    monkeypatch.setattr(async_process, "UNWATCHED_WAIT", 20.0)  # a busy machine may take longer than the library waits

    async def main(let_it_start: HeldStart) -> None:
        task = asyncio.create_task(AsyncProcessExecutor().execute(invocation(path), CallOptions(20.0, BASE)))
        await let_it_start.begins()
        # The event loop waits for the start, so a thread must end it.
        threading.Timer(0.02, let_it_start).start()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(_running) == 0

    with held_start(path) as let_it_start:
        asyncio.run(main(let_it_start))


def test_a_call_that_is_cancelled_before_its_process_starts(tmp_path: Path) -> None:
    """The thread is busy with another start."""
    held, path = script(tmp_path, "echo '{}'", name="held"), script(tmp_path, f"touch {tmp_path}/ran")

    async def main(let_it_start: HeldStart) -> None:
        executor = AsyncProcessExecutor()
        first = asyncio.create_task(executor.execute(invocation(held), CallOptions(20.0, BASE)))
        await let_it_start.begins()
        second = asyncio.create_task(executor.execute(invocation(path), CallOptions(20.0, BASE)))
        await asyncio.sleep(0.05)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        # Other files get the numbers of the descriptors that the second one had.
        files = [os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) for _ in range(16)]
        let_it_start()
        assert (await first).exit_status == 0
        await executor.execute(invocation(held), CallOptions(20.0, BASE))  # the thread starts one after the other
        for file in files:
            os.close(file)

    with held_start(held) as let_it_start:
        asyncio.run(main(let_it_start))
    assert not (tmp_path / "ran").exists()


def test_a_forked_worker_has_no_descriptor_of_a_process_that_is_being_started(tmp_path: Path) -> None:
    path = script(tmp_path, "echo '{}'")

    def has_none() -> None:
        numbers = os.listdir("/proc/self/fd")
        links = [
            os.readlink(f"/proc/self/fd/{number}") for number in numbers if os.path.lexists(f"/proc/self/fd/{number}")
        ]
        assert not [link for link in links if "cni-stdin" in link], links

    async def main(let_it_start: HeldStart) -> None:
        call = asyncio.create_task(AsyncProcessExecutor().execute(invocation(path), CallOptions(20.0, BASE)))
        await let_it_start.begins()
        assert wait(fork(has_none)) == 0
        let_it_start()
        await call

    with held_start(path) as let_it_start:
        asyncio.run(main(let_it_start))


def test_nothing_of_a_call_stays_in_memory_until_its_deadline(tmp_path: Path) -> None:
    path = script(tmp_path, "echo '{}'")

    def children() -> list[child.Child]:
        gc.collect()
        return [one for one in gc.get_objects() if isinstance(one, child.Child)]

    of_others = children()  # the tests before this one may have kept some

    async def main() -> None:
        await AsyncProcessExecutor().execute(invocation(path), CallOptions(3600.0, BASE))
        async with asyncio.timeout(20):  # the thread that started the process may not have let go of it yet
            while not set(children()) <= set(of_others):  # noqa: ASYNC110 - a thread does it
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_an_exception_out_of_a_signal_handler_does_not_lose_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(*args: Any) -> Callable[[array[int]], None]:
        def interrupted(pid: array[int]) -> None:
            prepare_spawn(*args)(pid)
            raise KeyboardInterrupt

        return interrupted

    with monkeypatch.context() as patch:
        patch.setattr(child, "prepare_spawn", prepare)
        with pytest.raises(KeyboardInterrupt):
            ProcessExecutor().execute(invocation(script(tmp_path, "exec sleep 120")), CallOptions(20.0, BASE))
    assert len(_running) == 0


def test_what_a_process_gets(tmp_path: Path) -> None:
    # awk, because a shell unblocks signals and Python ignores some when they start
    path = tmp_path / "plugin"
    path.write_text(
        "#!/usr/bin/awk -f\n"
        'BEGIN { while ((getline line < "/proc/self/status") > 0) if (line ~ /^Sig(Blk|Ign)/) print line;'
        ' getline < "/proc/self/stat"; print ENVIRON["A"], ARGC, $1, $5 }\n'
    )
    path.chmod(0o755)
    pid = array("i", [0])
    ignored_here = {signal.SIGUSR1, signal.SIGWINCH}
    out = os.open(tmp_path / "out", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC)
    try:
        for one in ignored_here:
            signal.signal(one, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        prepare_spawn(str(path), {**BASE, "A": "é\udcff"}, [(1, out)])(pid)
        assert os.waitpid(pid[0], 0)[1] == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        for one in ignored_here:
            signal.signal(one, signal.SIG_DFL)
        os.close(out)
    blocked, ignored, words = (tmp_path / "out").read_bytes().splitlines()
    # libc itself ignores two of its own signals while it starts a process.
    standard = 0x7FFFFFFF
    assert (int(blocked.split()[1], 16) & standard, int(ignored.split()[1], 16) & standard) == (0, 0)
    variable, arguments, number, group = words.split()
    assert (variable, arguments) == (b"\xc3\xa9\xff", b"1")
    assert int(number) == int(group) == pid[0]
