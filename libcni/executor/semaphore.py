"""A semaphore for asyncio that outlives an event loop."""

from __future__ import annotations

import asyncio

__all__ = ["AsyncSemaphore"]


class AsyncSemaphore:
    """A semaphore that works on successive event loops.

    Args:
        value: how many can hold it at once.
    """

    def __init__(self, value: int) -> None:
        self.value = value
        self._semaphore = asyncio.Semaphore(value)
        self._loop: asyncio.AbstractEventLoop | None = None

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
        # An asyncio.Semaphore that somebody has waited for belongs to that loop for ever.
        if self._loop is not loop:
            self._loop, self._semaphore = loop, asyncio.Semaphore(self.value)
        return self._semaphore
