"""Run a plugin and wait for it on asyncio: the executor that AsyncCNIConfig uses."""

from __future__ import annotations

import asyncio
import math
import signal
import time
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from libcni._helper_thread import HelperThread
from libcni.errors import PluginTimeoutError
from libcni.executor.child import KILL_WAIT, START_WAIT, Child
from libcni.executor.find import find_plugin
from libcni.executor.process import EXIT_ONLY_SECONDS, GRACE, OUTPUT_LIMIT, TERM_SHARE, TRACED_DELAY
from libcni.executor.protocol import CallOptions
from libcni.executor.semaphore import AsyncSemaphore
from libcni.executor.streams import OutputLimitError
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure

_STARTS = 8
"""How many plugins have their descriptors while they wait for the thread that starts them; the rest waits before.

The kernel copies all descriptors for each process that starts, and closes them again. For a descriptor of the lock file
it walks through all locks then: with those of 1,000 waiting verbs a start took 20 ms, instead of 0.5."""


class AsyncProcessExecutor:
    """Run plugins as ``ProcessExecutor`` does, on the running event loop.

    Args:
        output_limit: bytes that a plugin may print on stdout, and on stderr: 16 MiB by default.
        grace: seconds from the deadline until the call ends: 0.5 by default. The plugin gets SIGTERM at the deadline,
            and SIGKILL after four fifths of the grace.
    """

    def __init__(self, *, output_limit: int = OUTPUT_LIMIT, grace: float = GRACE) -> None:
        self.output_limit = output_limit
        self.grace = grace

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable; as ``find_plugin``, errors too."""
        return find_plugin(plugin, path)

    async def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run a plugin until it exits; see ``AsyncExecutor.execute``. Cancellation kills its process group.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed more than ``output_limit`` bytes, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        return await self._run(Child(invocation, options, self.output_limit), options.timeout, None)

    def prepare(self, invocation: Invocation, options: CallOptions) -> AsyncPreparedProcess | None:
        """Start a plugin that waits for its configuration; see ``AsyncPreparingExecutor.prepare``."""
        child = Child(invocation, options, self.output_limit)
        return child.start_ahead(lambda one: AsyncPreparedProcess(one, self._run), START_WAIT)

    async def _run(self, child: Child, timeout: float | None, stdin: bytes | None) -> Outcome:
        """Start ``child``, or feed it ``stdin``, and return its outcome; raises as ``execute`` does."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            if stdin is None:
                await self._start(child, deadline)
            elif not child.feed(stdin):
                child.kill(0)
                child = Child(replace(child.invocation, stdin=stdin), child.options, self.output_limit)
                await self._start(child, deadline)
            if child.options.on_started is not None:
                child.options.on_started()
            return await self._wait_for(child, timeout, deadline)
        except BaseException as error:  # noqa: BLE001 - a cancellation as well: nobody else knows the process
            child.kill(0)
            child.raise_translated(error)

    async def _start(self, child: Child, deadline: float) -> None:
        while True:
            try:
                return await _start_in_thread(child, deadline)
            except PluginTimeoutError:
                raise
            except (OSError, ValueError) as error:
                delay = child.retry_delay(error, deadline)
            await asyncio.sleep(delay)

    async def _wait_for(self, child: Child, timeout: float | None, deadline: float) -> Outcome:
        if child.exit_fd < 0:
            raise child.unknown_status()
        watcher = _Watcher(child)
        try:
            if await watcher.wait(deadline):
                watcher.close()
                return child.finish()
            child.signal(signal.SIGTERM)
            with suppress(OutputLimitError):
                await watcher.wait(deadline + self.grace * TERM_SHARE)
            await watcher.kill(deadline + self.grace)
            watcher.close()
            child.kill(0)
            raise child.timed_out(timeout)
        except (GeneratorExit, PluginTimeoutError):  # a coroutine that is closed cannot wait
            raise
        except BaseException:
            await watcher.kill(time.monotonic() + KILL_WAIT)
            raise
        finally:
            watcher.close()


class AsyncPreparedProcess:
    """A plugin process that waits for its configuration; see ``AsyncPreparedPlugin``."""

    def __init__(
        self, child: Child, run: Callable[[Child, float | None, bytes | None], Coroutine[Any, Any, Outcome]]
    ) -> None:
        self._child = child
        self._run = run
        self._finalizer = weakref.finalize(self, child.kill_unused, 0)
        self._finalizer.atexit = False

    async def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration and run the plugin until it exits; see ``AsyncPreparedPlugin.feed``.

        Raises:
            PluginTimeoutError: the plugin was stopped ``timeout`` seconds after the call, or was not run until then.
            InvalidOutputError: the plugin printed too much, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
            RuntimeError: the plugin was fed or discarded before.
        """
        if self._finalizer.detach() is None:
            raise RuntimeError("this plugin was fed or discarded before")
        return await self._run(self._child, timeout, stdin)

    async def discard(self) -> None:
        """Kill the process unfed, reap it and close its descriptors. Nothing if it was fed."""
        # A forked child shares the loop's epoll instance with its parent: it must not watch anything there.
        if self._finalizer.detach() is None or not self._child.is_owned():
            return
        try:
            watcher = _Watcher(self._child)
            try:
                await watcher.kill(time.monotonic() + KILL_WAIT)
            finally:
                watcher.close()
        finally:
            self._child.kill(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.discard()


_starter = HelperThread()
_turns = AsyncSemaphore(_STARTS)


async def _start_in_thread(child: Child, deadline: float) -> None:
    """Start a process as ``Child.start`` does, but in a thread.

    On a busy machine a start takes some milliseconds. If 64 verbs start plugins, the event loop would be blocked for a
    tenth of a second again and again.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    try:
        turn = await _turns.acquire(None if deadline == math.inf else deadline - time.monotonic())
    except TimeoutError:
        problem = "it was not run: it waited for the start of other plugins until the deadline"
        raise plugin_failure(PluginTimeoutError, child.invocation, problem) from None

    def spawn() -> bool:
        error: BaseException | None = None
        try:
            child.spawn()
        except BaseException as problem:  # noqa: BLE001 - the caller raises it
            error = problem
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_set, ended, error)
        return True

    try:
        child.set_up()
        try:
            _starter.do(spawn)
        except RuntimeError:  # no thread can be started
            child.spawn()
        else:
            await _started(ended, child, deadline)
        child.watch()
    except BaseException:
        child.kill(START_WAIT)
        raise
    finally:
        turn.release()


async def _started(ended: asyncio.Future[None], child: Child, deadline: float) -> None:
    """Wait for the end of a start. A file system that hangs keeps the thread, and the starts that wait for it."""

    def give_up() -> None:
        _set(ended, plugin_failure(PluginTimeoutError, child.invocation, "it did not start in time, and was stopped"))

    seconds = deadline - time.monotonic()
    # Not asyncio.wait or asyncio.timeout: they take as long as all the rest of the start in this thread.
    timer = None if seconds == math.inf else asyncio.get_running_loop().call_later(seconds, give_up)
    try:
        await ended
    finally:
        if timer is not None:
            timer.cancel()


def _set(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


class _Watcher:
    """Waits on the running event loop for the end of a plugin process, and reads its output."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._has_ended = False
        # Most plugins end soon, and their output fits into the pipes: then one descriptor is watched instead of three.
        self._is_exit_only = True
        self._deadline = math.inf
        self._waiter: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._traced_timer: asyncio.TimerHandle | None = None
        self._watched = {child.exit_fd}
        self._loop.add_reader(child.exit_fd, self._on_exit)

    async def wait(self, deadline: float) -> bool:
        """Wait until the process has ended, or until the deadline; return whether it has ended.

        Raises:
            OutputLimitError: the plugin printed more than its output limit.
            OSError: the process or its output cannot be read.
        """
        if self._has_ended:
            return True
        self._waiter = self._loop.create_future()
        self._deadline = deadline
        self._set_timer(min(deadline, time.monotonic() + EXIT_ONLY_SECONDS) if self._is_exit_only else deadline)
        try:
            return await self._waiter
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def kill(self, deadline: float) -> None:
        """Kill the plugin with its group, and wait until it has ended, or until the deadline."""
        if not self._child.is_owned():
            return
        self._child.signal(signal.SIGKILL)
        self._is_exit_only = False
        for pipe in self._watched - {self._child.exit_fd}:
            self._unwatch(pipe)
        with suppress(OSError):
            await self.wait(deadline)

    def close(self) -> None:
        """Stop watching; the descriptors must still be open."""
        if self._traced_timer is not None:
            self._traced_timer.cancel()
        # A forked child shares the epoll instance with its parent: what it removes there, its parent would lose.
        if self._child.is_owned():
            for descriptor in tuple(self._watched):
                self._unwatch(descriptor)

    def _set_timer(self, when: float) -> None:
        self._timer = None if when == math.inf else self._loop.call_later(when - time.monotonic(), self._on_time)

    def _on_time(self) -> None:
        if time.monotonic() >= self._deadline:
            self._wake(ended=False)
            return
        if self._is_exit_only:
            self._is_exit_only = False
            try:
                for pipe in self._child.streams.open_pipes:
                    self._loop.add_reader(pipe, self._on_output, pipe)
                    self._watched.add(pipe)
            except OSError as error:  # the loop would log it, and the call would wait for its deadline
                self._fail(error)
                return
        self._set_timer(self._deadline)

    def _on_exit(self) -> None:
        self._unwatch(self._child.exit_fd)
        try:
            self._has_ended = self._child.has_ended()
        except OSError as error:
            self._fail(error)
        if self._has_ended:
            self._wake(ended=True)
        else:
            # A tracer keeps the exit status. The descriptor stays readable, so the loop would spin if it were watched.
            self._traced_timer = self._loop.call_later(TRACED_DELAY, self._on_exit)

    def _on_output(self, pipe: int) -> None:
        try:
            self._child.streams.read(pipe)
        except (OutputLimitError, OSError) as error:
            self._unwatch(pipe)
            self._fail(error)
            return
        if pipe not in self._child.streams.open_pipes:
            self._unwatch(pipe)

    def _unwatch(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._loop.remove_reader(descriptor)

    def _wake(self, *, ended: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(ended)

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
