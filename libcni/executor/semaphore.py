"""A semaphore for asyncio that outlives an event loop, and that several loops can use."""

from __future__ import annotations

import asyncio
import weakref


class AsyncSemaphore:
    """A semaphore that works on successive event loops, and on several at once.

    Args:
        value: how many can hold it at once on each loop.
    """

    def __init__(self, value: int) -> None:
        self.value = value
        # Only those who hold a semaphore or wait for it keep it. Waiters that their loop left behind when it was closed
        # would otherwise never be freed, nor the locks of their verbs.
        self._semaphores: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[asyncio.Semaphore]]
        self._semaphores = weakref.WeakKeyDictionary()

    def locked(self) -> bool:
        """Return whether ``acquire`` would wait."""
        return self._of_this_loop().locked()

    async def acquire(self, timeout: float | None) -> asyncio.Semaphore:
        """Acquire the semaphore and return the object to release. Keep it until then.

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
        known = self._semaphores.get(loop)
        semaphore = None if known is None else known()
        if semaphore is None:
            semaphore = asyncio.Semaphore(self.value)
            self._semaphores[loop] = weakref.ref(semaphore)
        return semaphore
