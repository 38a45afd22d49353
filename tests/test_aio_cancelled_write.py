"""AsyncCNIConfig: a cancelled verb waits until its record is written."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from libcni import AsyncCNIConfig, NetworkConfigList, RuntimeConf
from libcni import _system as system
from libcni.testing import RecordingExecutor

NET = NetworkConfigList.from_dict({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "a"}]})
RT = RuntimeConf("c1", None, "eth0")


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Let fsync set the first event, and wait for the second."""
    begun, go_on = threading.Event(), threading.Event()

    def slow_fsync(_: int) -> None:
        begun.set()
        go_on.wait(20)

    monkeypatch.setattr(system, "fsync", slow_fsync)
    return begun, go_on


def test_a_cancelled_add_keeps_its_locks_until_the_record_is_written(
    tmp_path: Path, slow_disk: tuple[threading.Event, threading.Event]
) -> None:
    """Otherwise the write could end after a later verb of the same container, and put an old record over its own."""
    begun, go_on = slow_disk
    cni = AsyncCNIConfig(["/bin"], tmp_path, executor=RecordingExecutor().on_asyncio)

    async def main() -> bool:
        task = asyncio.create_task(cni.add_network_list(NET, RT))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        for _ in range(100):  # turns of the loop, more than an unhindered cancellation needs
            await asyncio.sleep(0)
        ended_early = task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ended_early

    assert asyncio.run(main()) is False
    assert [one.state for one in cni.get_cached_attachments()] == ["pending"]


def test_an_add_that_is_cancelled_while_its_record_is_written_takes_it_back(
    tmp_path: Path, slow_disk: tuple[threading.Event, threading.Event]
) -> None:
    begun, go_on = slow_disk
    executor = RecordingExecutor()
    cni = AsyncCNIConfig(["/bin"], tmp_path, executor=executor.on_asyncio)

    async def main() -> None:
        task = asyncio.create_task(cni.add_network_list(NET, RT, on_cancel="rollback"))
        await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cni.get_cached_attachments() == []
    assert executor.calls == []
