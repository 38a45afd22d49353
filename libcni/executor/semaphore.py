"""A semaphore for asyncio that outlives an event loop, and that several loops can use."""

from __future__ import annotations

import asyncio


class AsyncSemaphore:
    """A semaphore that works on successive event loops, and on several at once.

    Args:
        value: how many can hold it at once on each loop.
    """

    def __init__(self, value: int) -> None:
        self.value = value
        self._semaphores: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    def locked(self) -> bool:
        """Return whether ``acquire`` would wait."""
        return self._of_this_loop().locked()

    async def acquire(self, timeout: float | None) -> asyncio.Semaphore:
        """Acquire the semaphore and return the object to release.

        Raises:
            TimeoutError: nobody released it within ``timeout`` seconds.
        """
        semaphore = self._of_this_loop()
        if semaphore.locked():
            async with asyncio.timeout(timeout):
                await semaphore.acquire()
        else:
            await semaphore.acquire()
        return semaphore

    def _of_this_loop(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        semaphore = self._semaphores.get(loop)
        if semaphore is None:
            # An asyncio.Semaphore that somebody has waited for belongs to that loop for ever, and keeps it in memory.
            open_ones = {one: its for one, its in self._semaphores.copy().items() if not one.is_closed()}
            semaphore = open_ones[loop] = asyncio.Semaphore(self.value)
            self._semaphores = open_ones
        return semaphore
