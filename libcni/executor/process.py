"""Run a plugin and wait for it, blocking: the executor that CNIConfig uses."""

from __future__ import annotations

import math
import select
import signal
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from libcni.executor.child import Child
from libcni.executor.find import find_plugin
from libcni.executor.protocol import CallOptions
from libcni.executor.streams import OutputLimitError
from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["ProcessExecutor"]

OUTPUT_LIMIT = 16 * 1024 * 1024
"""Bytes that a plugin may print on stdout, and on stderr."""

GRACE = 0.5
"""Seconds from a plugin's deadline until the call ends at the latest."""

TERM_SHARE = 0.8
"""The part of the grace that a plugin has after SIGTERM. SIGKILL comes then, and the rest is for its end."""

EXIT_ONLY_SECONDS = 0.005
"""Seconds to wait for the plugin's exit alone, before reading its output as it comes."""

TRACED_DELAY = 0.02
"""Seconds between two looks at a plugin that has ended and whose tracer keeps its exit status."""

_LONGEST_POLL = 86400.0


class ProcessExecutor:
    """Run plugins as processes, each in a process group of its own, with a deadline and a limit on its output.

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

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run a plugin until it exits; see ``Executor.execute``. An exception meanwhile kills its process group.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed more than ``output_limit`` bytes, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        return self._run(Child(invocation, options, self.output_limit), options.timeout)

    def prepare(self, invocation: Invocation, options: CallOptions) -> PreparedProcess | None:
        """Start a plugin that waits for its configuration; see ``PreparingExecutor.prepare``."""
        child = Child(invocation, options, self.output_limit)
        return child.start_ahead(lambda one: PreparedProcess(one, self._run))

    def _run(self, child: Child, timeout: float | None, stdin: bytes | None = None) -> Outcome:
        """Start ``child``, or feed it ``stdin``, and return its outcome; raises as ``execute`` does."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            if stdin is None:
                self._start(child, deadline)
            elif not child.feed(stdin):
                child.kill()
                child = Child(replace(child.invocation, stdin=stdin), child.options, self.output_limit)
                self._start(child, deadline)
            if child.options.on_started is not None:
                child.options.on_started()
            if child.exit_fd < 0:
                raise child.unknown_status()
            if _wait_for_end(child, deadline):
                return child.finish()
            child.signal(signal.SIGTERM)
            with suppress(OutputLimitError):
                _wait_for_end(child, deadline + self.grace * TERM_SHARE)
            child.kill(max(0.0, deadline + self.grace - time.monotonic()))
            raise child.timed_out(timeout)
        except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt as well: nobody else knows the process
            child.kill()
            child.raise_translated(error)

    def _start(self, child: Child, deadline: float) -> None:
        while True:
            try:
                return child.start()
            except (OSError, ValueError) as error:
                delay = child.retry_delay(error, deadline)
            time.sleep(delay)


class PreparedProcess:
    """A plugin process that waits for its configuration; see ``PreparedPlugin``."""

    def __init__(self, child: Child, run: Callable[[Child, float | None, bytes], Outcome]) -> None:
        self._child = child
        self._run = run
        # Not __del__: that would run after every call as well, and what a signal handler raises within it is lost.
        self._finalizer = weakref.finalize(self, child.kill_unused)
        self._finalizer.atexit = False

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration and run the plugin until it exits; see ``PreparedPlugin.feed``.

        Raises:
            PluginTimeoutError: the plugin was stopped ``timeout`` seconds after it was fed.
            InvalidOutputError: the plugin printed too much, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
            RuntimeError: the plugin was fed or discarded before.
        """
        if not self._finalizer.alive:
            raise RuntimeError("this plugin was fed or discarded before")
        try:
            return self._run(self._child, timeout, stdin)
        finally:
            self._finalizer.detach()

    def discard(self) -> None:
        """Kill the process unfed, reap it and close its descriptors. Nothing if it was fed."""
        self._child.kill()
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _wait_for_end(child: Child, deadline: float) -> bool:
    """Read what the plugin prints until it ends; return whether it ended before the deadline."""
    poll = select.poll()  # select() cannot watch descriptors from 1024 on
    poll.register(child.exit_fd, select.POLLIN)
    # Most plugins end soon, and their output fits into the pipes: then one wake-up does, and no read comes before it.
    if poll.poll(_milliseconds(min(deadline, time.monotonic() + EXIT_ONLY_SECONDS))) and child.has_ended():
        return True
    for pipe in child.streams.open_pipes:
        poll.register(pipe, select.POLLIN)
    delay = math.inf
    while not child.has_ended():
        now = time.monotonic()
        if now >= deadline:
            return False
        for descriptor, _ in poll.poll(_milliseconds(min(deadline, now + delay))):
            if descriptor != child.exit_fd:
                child.streams.read(descriptor)
                if descriptor not in child.streams.open_pipes:
                    poll.unregister(descriptor)
            elif not child.has_ended():
                # A tracer keeps the exit status. The descriptor stays readable, and poll would return at once for ever.
                poll.unregister(descriptor)
                delay = TRACED_DELAY
    return True


def _milliseconds(deadline: float) -> int | None:
    if deadline == math.inf:
        return None
    return max(0, math.ceil(min(deadline - time.monotonic(), _LONGEST_POLL) * 1000))
