"""Run a plugin and wait for it on asyncio: the executor that AsyncCNIConfig uses."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

from libcni.errors import PluginTimeoutError
from libcni.executor import loop_events
from libcni.executor.child import POLL_SECONDS, UNWATCHED_WAIT, Child
from libcni.executor.interface import CallOptions
from libcni.executor.loop_events import LoopEvents
from libcni.executor.process import AsyncPreparedProcess, ProcessCalls, Waiter, exit_only_seconds
from libcni.executor.streams import OutputLimitError
from libcni.kernel.helper_thread import HelperThread
from libcni.protocol.invocation import Invocation, Outcome

_starter = HelperThread()


async def _started(ended: asyncio.Future[None], child: Child, deadline: float) -> None:
    """Wait for the end of a start. A file system that hangs blocks the thread, and the starts that wait for it."""

    def give_up() -> None:
        _set(ended, PluginTimeoutError("it did not start in time, and was stopped", child.invocation))

    # Not asyncio.wait or asyncio.timeout: they would double the time that a start needs in this thread.
    events = loop_events.of_running_loop()
    if deadline != math.inf:
        events.call_at(deadline, ended, give_up)
    try:
        await ended
    finally:
        events.cancel(ended)
        del events  # an exception keeps its frames, and the events keep a descriptor


def _set(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


class _LoopWaiter(Waiter):
    """A Waiter on the running event loop.

    ``_stage`` is "exit" at first: only the process's exit is watched, because most plugins end soon and their output
    fits into the pipes. In "output" the pipes are watched too. After ``kill_and_wait`` it is "killed": only the exit is
    watched.
    """

    unwatched_wait = UNWATCHED_WAIT

    def __init__(self, invocation: Invocation, options: CallOptions, output_limit: int) -> None:
        super().__init__(invocation, options, output_limit)
        self._stage: Literal["exit", "output", "killed"] = "exit"
        self._is_polled = False
        self._deadline = math.inf
        self._ended: asyncio.Future[bool] | None = None
        self._watched: set[int] = set()
        self._events: LoopEvents | None = None

    async def start(self, deadline: float) -> None:
        """Start a process like ``Child.start``, but in a thread.

        On a busy machine a start takes some milliseconds. The starts of 64 verbs would block the event loop for a tenth
        of a second.
        """
        child, loop = self.child, asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def spawn() -> None:
            error: BaseException | None = None
            try:
                child.spawn()
            except BaseException as problem:  # noqa: BLE001 - the caller raises it
                error = problem
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_set, ended, error)

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
            child.kill_and_release(UNWATCHED_WAIT)
            raise

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def watch(self) -> None:
        self._events = loop_events.of_running_loop()
        self._is_polled = self.child.exit_fd < 0
        if not self._is_polled:
            self._watch(self.child.exit_fd, self._on_exit)

    async def wait(self, deadline: float) -> bool:
        if self.child.has_ended():
            return True
        self._ended = asyncio.get_running_loop().create_future()
        self._deadline = deadline
        self._set_timer(exit_only_seconds(self.child) if self._stage == "exit" else math.inf)
        return await self._ended

    async def kill_and_wait(self, deadline: float) -> None:
        self.child.signal(signal.SIGKILL)
        self._stage = "killed"
        for pipe in self._watched - {self.child.exit_fd}:
            self._unwatch(pipe)
        with suppress(OSError):
            await self.wait(deadline)

    def close(self) -> None:
        for descriptor in tuple(self._watched):
            self._unwatch(descriptor)
        # An exception keeps its frames and so this object. The events keep a descriptor.
        events, self._events = self._events, None
        if events is not None:
            events.cancel(self)

    def _set_timer(self, seconds: float = math.inf) -> None:
        """Call ``_on_time`` at the deadline, or after ``seconds`` if that is earlier."""
        seconds = min(seconds, POLL_SECONDS) if self._is_polled else seconds
        when = min(self._deadline, time.monotonic() + seconds)
        if self._events is not None and when != math.inf:
            self._events.call_at(when, self, self._on_time)

    def _on_time(self) -> None:
        if self._is_polled and self._look():
            return
        if time.monotonic() >= self._deadline:
            self._end(is_ended=False)
            return
        if self._stage == "exit":
            self._stage = "output"
            try:
                for pipe in self.child.streams.open_pipes:
                    self._watch(pipe, partial(self._on_output, pipe))
            except OSError as error:
                # If it were raised, the loop would log it, and the call would wait for its deadline.
                self._end(error)
                return
        self._set_timer()

    def _on_exit(self) -> None:
        self._unwatch(self.child.exit_fd)
        if not self._look():
            # A tracer keeps the exit status. The descriptor stays readable, so the loop would spin if it were watched.
            self._is_polled = True
            self._set_timer()

    def _look(self) -> bool:
        """Examine the process and its output; return whether the wait is over."""
        try:
            has_ended = self.child.has_ended()
        except OSError as error:
            self._end(error)
            return True
        if has_ended:
            self._end()
        return has_ended

    def _on_output(self, pipe: int) -> None:
        try:
            self.child.streams.read(pipe)
        except (OutputLimitError, OSError) as error:
            self._unwatch(pipe)
            self._end(error)
            return
        if pipe not in self.child.streams.open_pipes:
            self._unwatch(pipe)

    def _watch(self, descriptor: int, call: Callable[[], None]) -> None:
        if self._events is not None:
            self._events.add_reader(descriptor, call)
            self._watched.add(descriptor)

    def _unwatch(self, descriptor: int) -> None:
        # A forked child shares the epoll instance with its parent: a removal there would affect the parent too.
        if self._events is not None and self.child.is_owned():
            self._watched.discard(descriptor)
            self._events.remove_reader(descriptor)

    def _end(self, error: Exception | None = None, *, is_ended: bool = True) -> None:
        """End the wait with ``error``, or with ``is_ended`` as its value."""
        if self._ended is None or self._ended.done():
            return
        if error is None:
            self._ended.set_result(is_ended)
        else:
            self._ended.set_exception(error.with_traceback(None))  # a traceback would keep the events


class AsyncProcessExecutor(ProcessCalls):
    """An executor that runs plugins like ``ProcessExecutor``, on the running event loop.

    Args:
        grace: seconds from the deadline until the call ends: 0.5 by default. The plugin gets SIGTERM at the deadline,
            and SIGKILL after four fifths of the grace.
    """

    _waiter = _LoopWaiter

    async def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run a plugin until it exits; see ``AsyncExecutor.execute``. Cancellation kills its process group.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed more than 16 MiB on stdout or on stderr, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        waiter = self._waiter(invocation, options, self._output_limit)
        return await self._run(waiter, options.timeout)

    def prepare(self, invocation: Invocation, options: CallOptions) -> AsyncPreparedProcess | None:
        """Start a plugin that waits for its configuration; see ``AsyncExecutor``."""
        return self._prepare(invocation, options)
