"""Run a plugin and wait for it: the executor that CNIConfig uses.

A call is written once, as a coroutine that suspends only on asyncio.
"""

from __future__ import annotations

import math
import select
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from libcni._dataclass import replace
from libcni.executor.baton import Holding, Waiting
from libcni.executor.cancel import check_cancelled, is_in_scope, wake_descriptor
from libcni.executor.child import KILL_WAIT, POLL_SECONDS, Child, is_foreign
from libcni.executor.find import find_plugin
from libcni.executor.interface import CallOptions
from libcni.executor.streams import OutputLimitError
from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["ProcessExecutor"]

OUTPUT_LIMIT = 16 * 1024 * 1024
"""The maximum number of bytes that a plugin may print on stdout, and on stderr."""

GRACE = 0.5
"""Seconds from a plugin's deadline until the call ends at the latest."""

TERM_SHARE = 0.8
"""The part of the grace between SIGTERM and SIGKILL. The rest is for the plugin's end after SIGKILL."""

EXIT_ONLY_SECONDS = 0.05
"""Seconds to wait for the plugin's exit before polling its output.

Most plugins end sooner and print less than a pipe holds, so the call wakes up only once. A plugin that prints more
waits until then.
"""
_UNREPORTED_EXIT_SECONDS = 0.005
"""The same for a process whose end no descriptor reports: it may have ended meanwhile."""

_LONGEST_POLL = 86400.0


_T = TypeVar("_T")


def run_to_end(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, and return its value.

    Raises:
        RuntimeError: the coroutine suspended: it awaited something that only an event loop can do.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: _T = end.value
        return value
    coroutine.close()
    raise RuntimeError(f"{coroutine} suspended without an event loop")


def run_holding(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine as ``run_to_end`` does, while this thread holds the ``baton``."""
    with Holding():
        return run_to_end(coroutine)


def exit_only_seconds(child: Child) -> float:
    """Return how long to wait for a process's exit before polling its output."""
    return EXIT_ONLY_SECONDS if child.exit_fd >= 0 else _UNREPORTED_EXIT_SECONDS


class Waiter:
    """Starts a plugin process and waits for it. This class blocks, and its subclass for asyncio suspends."""

    unwatched_wait: float = KILL_WAIT
    """Seconds that the call may block for the end of a killed process that is not watched."""

    def __init__(self, invocation: Invocation, options: CallOptions, output_limit: int) -> None:
        self.child: Child = Child(invocation, options, output_limit)

    async def start(self, _deadline: float) -> None:
        """Start the process; see ``Child.start``."""
        self.child.start()

    async def sleep(self, seconds: float) -> None:
        """Sleep before another start."""
        with Waiting():
            time.sleep(seconds)  # noqa: ASYNC251 - this class blocks

    def watch(self) -> None:
        """Watch the process from now on. Raises OSError."""

    async def wait(self, deadline: float) -> bool:
        """Read the plugin's output until the plugin ends or the deadline passes; return whether the plugin has ended.

        Raises:
            OutputLimitError: the plugin printed more than its output limit.
            OSError: the process or its output cannot be read.
        """
        if not is_in_scope():
            return self._wait(deadline, -1)
        with wake_descriptor() as cancelled:
            return self._wait(deadline, cancelled)

    def _wait(self, deadline: float, cancelled: int) -> bool:
        """Wait as ``wait`` does. ``cancelled``: a descriptor that becomes readable if the verb is cancelled, or -1."""
        child, poll = self.child, select.poll()  # select() cannot watch descriptors from 1024 on
        for descriptor in {child.exit_fd, cancelled} - {-1}:
            poll.register(descriptor, select.POLLIN)
        # Most plugins end soon, and their output fits into the pipes: then this call needs one wake-up only.
        with Waiting():
            poll.poll(_milliseconds(min(deadline, time.monotonic() + exit_only_seconds(child))))
        for pipe in child.streams.open_pipes:
            poll.register(pipe, select.POLLIN)
        pause = math.inf if child.exit_fd >= 0 else POLL_SECONDS
        while not child.has_ended():
            moment = time.monotonic()
            if moment >= deadline:
                return False
            with Waiting():
                events = poll.poll(_milliseconds(min(deadline, moment + pause)))
            for descriptor, _ in events:
                if descriptor == cancelled:
                    check_cancelled()
                elif descriptor != child.exit_fd:
                    child.streams.read(descriptor)
                    if descriptor not in child.streams.open_pipes:
                        poll.unregister(descriptor)
                elif not child.has_ended():
                    # A tracer keeps the exit status. The descriptor stays readable, so poll would return at once.
                    poll.unregister(descriptor)
                    pause = POLL_SECONDS
        return True

    async def kill_and_wait(self, deadline: float) -> None:
        """Kill the plugin with its group, and wait until it has ended, or until the deadline."""
        self.child.kill_and_release(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop watching; the descriptors must still be open."""


class ProcessCalls:
    """Base class of the executors that run plugins as processes."""

    _waiter: type[Waiter]

    def __init__(self, *, grace: float = GRACE) -> None:
        self.grace = grace
        self._output_limit = OUTPUT_LIMIT

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable; see ``find_plugin``."""
        return find_plugin(plugin, path)

    def _prepare(self, invocation: Invocation, options: CallOptions) -> AsyncPreparedProcess | None:
        waiter = self._waiter(invocation, options, self._output_limit)
        return AsyncPreparedProcess(waiter, self._run) if waiter.child.start_ahead() else None

    async def _run(self, waiter: Waiter, timeout: float | None, stdin: bytes | None = None) -> Outcome:
        """Start a process, or feed it ``stdin``, and return its outcome; raises as ``execute`` does."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        child = waiter.child
        try:
            if stdin is not None and not child.feed(stdin):
                child.kill_and_release(waiter.unwatched_wait)
                waiter = self._waiter(replace(child.invocation, stdin=stdin), child.options, self._output_limit)
                child, stdin = waiter.child, None
            if stdin is None:
                await _start(waiter, deadline)
            if child.options.on_started is not None:
                child.options.on_started()
            return await self._wait_for(waiter, timeout, deadline)
        except (OSError, OutputLimitError) as error:
            if is_foreign(error):
                raise
            raise child.unwatchable(error) from error
        finally:
            child.kill_and_release(waiter.unwatched_wait)

    async def _wait_for(self, waiter: Waiter, timeout: float | None, deadline: float) -> Outcome:
        waiter.watch()
        try:
            if await waiter.wait(deadline):
                waiter.close()
                return waiter.child.finish()
            waiter.child.signal(signal.SIGTERM)
            with suppress(OutputLimitError):
                await waiter.wait(deadline + self.grace * TERM_SHARE)
            await waiter.kill_and_wait(deadline + self.grace)
        except GeneratorExit:  # a coroutine that is closed cannot wait on its event loop
            waiter.close()
            waiter.child.kill_and_release(waiter.unwatched_wait)
            raise
        except BaseException:
            await waiter.kill_and_wait(time.monotonic() + KILL_WAIT)
            raise
        finally:
            waiter.close()
            waiter.child.kill_and_release(wait=0)
        raise waiter.child.timed_out(timeout)


async def _start(waiter: Waiter, deadline: float) -> None:
    while True:
        try:
            return await waiter.start(deadline)
        except (OSError, ValueError) as error:
            delay = waiter.child.retry_delay(error, deadline)
        await waiter.sleep(delay)


class AsyncPreparedProcess:
    """A plugin process that waits for its configuration; see ``AsyncPreparedPlugin``."""

    def __init__(
        self, waiter: Waiter, run: Callable[[Waiter, float | None, bytes], Coroutine[Any, Any, Outcome]]
    ) -> None:
        self._waiter: Waiter | None = waiter
        self._run = run

    async def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration and run the plugin until it exits; raises as ``execute`` does.

        The plugin is stopped ``timeout`` seconds after the call.

        Raises:
            RuntimeError: the plugin was fed or discarded before.
        """
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            raise RuntimeError("this started plugin has already received its input, or was discarded")
        return await self._run(waiter, timeout, stdin)

    async def discard(self) -> None:
        """Kill the waiting process, reap it and close its descriptors. Does nothing after ``feed``."""
        waiter, self._waiter = self._waiter, None
        # A forked child shares the loop's epoll instance with its parent: so it must not watch anything.
        if waiter is None or not waiter.child.is_owned():
            return
        try:
            waiter.watch()
        except (OSError, RuntimeError):  # no epoll instance, or no event loop: it was closed with the verb
            waiter.child.kill_and_release(waiter.unwatched_wait)
            return
        try:
            await waiter.kill_and_wait(time.monotonic() + KILL_WAIT)
        finally:
            waiter.close()
            waiter.child.kill_and_release(wait=0)


class PreparedProcess:
    """A plugin process that waits for its configuration; see ``PreparedPlugin``."""

    def __init__(self, prepared: AsyncPreparedProcess) -> None:
        self._prepared = prepared

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration and run the plugin until it exits; see ``PreparedPlugin.feed``."""
        return run_to_end(self._prepared.feed(stdin, timeout))

    def discard(self) -> None:
        """Kill the waiting process, reap it and close its descriptors. Does nothing after ``feed``."""
        run_to_end(self._prepared.discard())


class ProcessExecutor(ProcessCalls):
    """An executor that runs each plugin as a process in its own process group, with a deadline.

    A plugin that prints more than 16 MiB on stdout or on stderr is stopped.

    Args:
        grace: seconds from the deadline until the call ends: 0.5 by default. The plugin gets SIGTERM at the deadline,
            and SIGKILL after four fifths of the grace.

    Examples:
        >>> cni = libcni.CNIConfig("/opt/cni/bin", "cache", executor=ProcessExecutor(grace=2.0))
    """

    _waiter = Waiter

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run a plugin until it exits; see ``Executor.execute``. An exception during the call kills the process group.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed more than 16 MiB on stdout or on stderr, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        waiter = self._waiter(invocation, options, self._output_limit)
        return run_to_end(self._run(waiter, options.timeout))

    def prepare(self, invocation: Invocation, options: CallOptions) -> PreparedProcess | None:
        """Start a plugin that waits for its configuration; see ``Executor``."""
        prepared = self._prepare(invocation, options)
        return None if prepared is None else PreparedProcess(prepared)


def _milliseconds(deadline: float) -> int | None:
    if deadline == math.inf:
        return None
    return max(0, math.ceil(min(deadline - time.monotonic(), _LONGEST_POLL) * 1000))
