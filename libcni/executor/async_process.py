"""Run a plugin and wait for it on asyncio, without threads: the executor that AsyncCNIConfig uses."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

from libcni.errors import InvalidOutputError, PluginTimeoutError
from libcni.executor.child import Child, is_busy, start_problem
from libcni.executor.find import find_plugin
from libcni.executor.process import GRACE, OUTPUT_LIMIT, QUIET, busy_delays
from libcni.executor.protocol import Limits
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure

__all__ = ["MAX_PROCESSES", "AsyncProcessExecutor", "Places"]

MAX_PROCESSES = 256
"""How many plugins run at once, at most."""

_AFTER_KILL = 1.0


class AsyncProcessExecutor:
    """Run plugins as ``ProcessExecutor`` does, on the running event loop.

    Args:
        output_limit: bytes of stdout, and of stderr, that a plugin may print: 16 MiB unless given.
        grace: seconds between TERM and KILL at the deadline: 0.5 unless given.
        max_processes: how many plugins run at once: 256 unless given; others wait, within their time.
    """

    def __init__(
        self, *, output_limit: int = OUTPUT_LIMIT, grace: float = GRACE, max_processes: int = MAX_PROCESSES
    ) -> None:
        self.output_limit = output_limit
        self.grace = grace
        self.max_processes = max_processes
        self._places = Places(max_processes)

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable, as ``find_plugin`` does.

        Raises:
            PluginNotFoundError: there is none in the directories ``path``.
            InvalidIdentifierError: ``plugin`` is a path or empty.
        """
        return find_plugin(plugin, path)

    async def execute(self, invocation: Invocation, limits: Limits) -> Outcome:
        """Run a plugin to its end; see ``Executor.execute``. Cancellation kills the plugin's process group.

        Raises:
            PluginTimeoutError: it was stopped at ``limits.timeout``, or had to wait until then and was not run.
            InvalidOutputError: it printed more than ``output_limit`` bytes, and was stopped.
            PluginError: it could not be started, or its exit status cannot be known.
        """
        deadline = math.inf if limits.timeout is None else time.monotonic() + limits.timeout
        try:
            place = await self._places.take(limits.timeout)
        except TimeoutError:
            problem = f"it was not run: {self.max_processes} plugins ran for {limits.timeout} s"
            raise plugin_failure(PluginTimeoutError, invocation, problem) from None
        try:
            return await self._run(await self._start(invocation, limits, deadline), limits, deadline)
        finally:
            place.release()

    async def _run(self, child: Child, limits: Limits, deadline: float) -> Outcome:
        if child.exit_fd < 0:
            child.close()
            raise child.unknown_end()
        listener = _Listener(child)
        try:
            if not await listener.ended(deadline):
                child.signal(signal.SIGTERM)
                with suppress(InvalidOutputError):
                    await listener.ended(time.monotonic() + self.grace)
                raise child.timed_out(limits.timeout or 0.0)
            listener.close()
            return child.finish()
        except BaseException:
            child.signal(signal.SIGKILL)
            with suppress(asyncio.CancelledError, InvalidOutputError):
                await listener.ended(time.monotonic() + _AFTER_KILL)
            listener.close()
            child.kill()
            raise

    async def _start(self, invocation: Invocation, limits: Limits, deadline: float) -> Child:
        for delay in busy_delays(deadline):
            try:
                return Child(invocation, limits, self.output_limit)
            except (OSError, ValueError) as error:
                if not is_busy(error) or delay is None:
                    raise start_problem(invocation, error) from error
                await asyncio.sleep(delay)
        raise AssertionError("the last delay is None")


class Places:
    """So many at once and no more, on whatever event loop."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._semaphore = asyncio.Semaphore(number)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def take(self, timeout: float | None) -> asyncio.Semaphore:
        """Wait for a place, and return what to release; raises TimeoutError."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # a semaphore that has waited belongs to its loop for ever
            self._loop, self._semaphore = loop, asyncio.Semaphore(self.number)
        places = self._semaphore
        if places.locked():
            async with asyncio.timeout(timeout):
                await places.acquire()
        else:
            await places.acquire()
        return places


class _Listener:
    """Notices the end of a child and, if that takes its time, reads what it prints as it comes.

    Most end soon, and what they print fits into their pipes: then one descriptor is watched instead of three.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._has_ended = False
        self._is_quiet = True
        self._deadline = math.inf
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watched = {child.exit_fd}
        self._loop.add_reader(child.exit_fd, self._on_end)

    async def ended(self, deadline: float) -> bool:
        """Wait until the child has ended, or the deadline; return whether it has ended."""
        if self._has_ended:
            return True
        self._waiter = self._loop.create_future()
        self._deadline = deadline
        self._set_timer(min(deadline, time.monotonic() + QUIET) if self._is_quiet else deadline)
        try:
            return await self._waiter
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _set_timer(self, when: float) -> None:
        self._timer = None if when == math.inf else self._loop.call_later(when - time.monotonic(), self._on_time)

    def _on_time(self) -> None:
        if time.monotonic() >= self._deadline:
            self._wake(False)
            return
        if self._is_quiet:
            self._is_quiet = False
            for pipe in self._child.open_pipes:
                self._loop.add_reader(pipe, self._on_output, pipe)
                self._watched.add(pipe)
        self._set_timer(self._deadline)

    def close(self) -> None:
        """Stop listening; the descriptors must still be open."""
        for descriptor in self._watched:
            self._loop.remove_reader(descriptor)
        self._watched = set()

    def _on_end(self) -> None:
        self._has_ended = True
        self._loop.remove_reader(self._child.exit_fd)
        self._watched.discard(self._child.exit_fd)
        self._wake(True)

    def _on_output(self, pipe: int) -> None:
        try:
            self._child.read(pipe)
        except InvalidOutputError as error:
            self._forget(pipe)
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_exception(error)
            return
        if pipe not in self._child.open_pipes:
            self._forget(pipe)

    def _forget(self, pipe: int) -> None:
        self._loop.remove_reader(pipe)
        self._watched.discard(pipe)

    def _wake(self, ended: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(ended)
