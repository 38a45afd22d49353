"""AsyncProcessExecutor and the event loop. The tests of both executors are in the other files."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from processes import is_running

from executor.plugins import (
    BASE,
    invocation,
    number_in,
    script,
)
from libcni.executor import CallOptions
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.testing import wait_until


def test_cancelling_a_plugin_that_cannot_be_killed_does_not_block_the_loop(
    tmp_path: Path, unkillable: pytest.MonkeyPatch
) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 30")

    async def main() -> None:
        task = asyncio.create_task(AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE)))
        await asyncio.sleep(0.2)
        task.cancel()
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert task.cancelled()
        assert ticks > 10

    asyncio.run(main())
    unkillable.undo()
    os.kill(number_in(tmp_path / "pid"), signal.SIGKILL)


def test_a_coroutine_that_is_closed_with_its_loop_kills_the_plugin(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 30")
    loop = asyncio.new_event_loop()
    coroutine = AsyncProcessExecutor().execute(invocation(path), CallOptions(10.0, BASE))
    task = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0.2))
    pid = number_in(tmp_path / "pid")
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    loop.close()
    coroutine.close()
    wait_until(lambda: not is_running(pid))
