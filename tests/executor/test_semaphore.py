"""A semaphore that works on successive event loops."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from libcni.executor.semaphore import AsyncSemaphore


def test_it_bounds_and_times_out_and_is_released() -> None:
    async def main() -> None:
        semaphore = AsyncSemaphore(1)
        held = await semaphore.acquire(None)
        assert semaphore.locked()
        with pytest.raises(TimeoutError):
            await semaphore.acquire(0.01)
        held.release()
        assert not semaphore.locked()

    asyncio.run(main())


def test_a_waiter_on_a_loop_that_has_ended_does_not_hold_the_next_loop() -> None:
    semaphore = AsyncSemaphore(1)

    async def wait() -> None:
        await semaphore.acquire(None)
        with pytest.raises(TimeoutError):
            await semaphore.acquire(0.01)

    for _ in range(3):
        asyncio.run(wait())


def test_each_of_two_loops_has_its_own_bound() -> None:
    semaphore = AsyncSemaphore(1)

    async def held() -> bool:
        with contextlib.closing(asyncio.new_event_loop()) as other:
            await semaphore.acquire(None)
            await asyncio.to_thread(other.run_until_complete, semaphore.acquire(None))
            return semaphore.locked()

    assert asyncio.run(held())
