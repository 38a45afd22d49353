"""A semaphore that works on successive event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

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
        held = await semaphore.acquire(None)
        with pytest.raises(TimeoutError):
            await semaphore.acquire(0.01)
        assert held.locked()

    for _ in range(3):
        asyncio.run(wait())


def test_each_of_two_loops_has_its_own_bound() -> None:
    semaphore = AsyncSemaphore(1)

    async def held() -> bool:
        with contextlib.closing(asyncio.new_event_loop()) as other:
            held = await semaphore.acquire(None)
            theirs = await asyncio.to_thread(other.run_until_complete, semaphore.acquire(None))
            return held is not theirs and held.locked() and theirs.locked() and semaphore.locked()

    assert asyncio.run(held())


def test_waiters_that_their_loop_left_behind_are_freed() -> None:
    """A verb that waits has its container's lock, and only its end releases that."""
    semaphore = AsyncSemaphore(1)

    class Verb:
        pass

    async def run(verb: Verb) -> Verb:
        held = await semaphore.acquire(None)
        await asyncio.sleep(60)
        held.release()
        return verb

    loop = asyncio.new_event_loop()
    verbs = [Verb(), Verb()]
    tasks = [loop.create_task(run(verb)) for verb in verbs]
    loop.run_until_complete(asyncio.sleep(0))
    left = [weakref.ref(verb) for verb in verbs]
    loop.close()
    del loop, verbs, tasks
    gc.collect()
    assert [one() for one in left] == [None, None]
