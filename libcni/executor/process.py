"""Run a plugin and wait for it, blocking: the executor that CNIConfig uses."""

from __future__ import annotations

import math
import select
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from libcni.executor.child import POLL_SECONDS, Child, is_foreign
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

EXIT_ONLY_SECONDS = 0.005
"""Seconds to wait for the plugin's exit before polling its output."""

_LONGEST_POLL = 86400.0


class ProcessExecutor:
    """An executor that runs each plugin as a process in its own process group, with a deadline.

    A plugin that prints more than 16 MiB on stdout or on stderr is stopped.

    Args:
        grace: seconds from the deadline until the call ends: 0.5 by default. The plugin gets SIGTERM at the deadline,
            and SIGKILL after four fifths of the grace.

    Examples:
        >>> cni = libcni.CNIConfig("/opt/cni/bin", "cache", executor=ProcessExecutor(grace=2.0))
    """

    def __init__(self, *, grace: float = GRACE) -> None:
        self.grace = grace
        self._output_limit = OUTPUT_LIMIT

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable; see ``find_plugin``."""
        return find_plugin(plugin, path)

    def execute(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run a plugin until it exits; see ``Executor.execute``. An exception during the call kills the process group.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed more than 16 MiB on stdout or on stderr, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        return self._run(Child(invocation, options, self._output_limit), options.timeout)

    def prepare(self, invocation: Invocation, options: CallOptions) -> PreparedProcess | None:
        """Start a plugin that waits for its configuration; see ``Executor``."""
        child = Child(invocation, options, self._output_limit)
        return PreparedProcess(child, self._run) if child.start_ahead() else None

    def _run(self, child: Child, timeout: float | None, stdin: bytes | None = None) -> Outcome:
        """Start ``child``, or feed it ``stdin``, and return its outcome; raises as ``execute`` does."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            if stdin is None:
                self._start(child, deadline)
            elif not child.feed(stdin):
                child.kill()
                child = Child(replace(child.invocation, stdin=stdin), child.options, self._output_limit)
                self._start(child, deadline)
            if child.options.on_started is not None:
                child.options.on_started()
            if _wait_for_end(child, deadline):
                return child.finish()
            child.signal(signal.SIGTERM)
            with suppress(OutputLimitError):
                _wait_for_end(child, deadline + self.grace * TERM_SHARE)
            child.kill(max(0.0, deadline + self.grace - time.monotonic()))
            raise child.timed_out(timeout)
        except (OSError, OutputLimitError) as error:
            if is_foreign(error):
                raise
            raise child.unwatchable(error) from error
        finally:
            child.kill()

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
        self._child: Child | None = child
        self._run = run

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration and run the plugin until it exits; see ``PreparedPlugin.feed``.

        Raises:
            PluginTimeoutError: the plugin was stopped ``timeout`` seconds after it was fed.
            InvalidOutputError: the plugin printed too much, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
            RuntimeError: the plugin was fed or discarded before.
        """
        child, self._child = self._child, None
        if child is None:
            raise RuntimeError("this started plugin has already received its input, or was discarded")
        return self._run(child, timeout, stdin)

    def discard(self) -> None:
        """Kill the process without a configuration, reap it and close its descriptors. Does nothing if it was fed."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()


def _wait_for_end(child: Child, deadline: float) -> bool:
    """Read the plugin's output until its end; return whether it ended before the deadline."""
    poll = select.poll()  # select() cannot watch descriptors from 1024 on
    if child.exit_fd >= 0:
        poll.register(child.exit_fd, select.POLLIN)
    # Most plugins end soon, and their output fits into the pipes: then this call needs one wake-up only.
    poll.poll(_milliseconds(min(deadline, time.monotonic() + EXIT_ONLY_SECONDS)))
    for pipe in child.streams.open_pipes:
        poll.register(pipe, select.POLLIN)
    pause = math.inf if child.exit_fd >= 0 else POLL_SECONDS
    while not child.has_ended():
        moment = time.monotonic()
        if moment >= deadline:
            return False
        for descriptor, _ in poll.poll(_milliseconds(min(deadline, moment + pause))):
            if descriptor != child.exit_fd:
                child.streams.read(descriptor)
                if descriptor not in child.streams.open_pipes:
                    poll.unregister(descriptor)
            elif not child.has_ended():
                # A tracer keeps the exit status. The descriptor stays readable, and poll would return at once for ever.
                poll.unregister(descriptor)
                pause = POLL_SECONDS
    return True


def _milliseconds(deadline: float) -> int | None:
    if deadline == math.inf:
        return None
    return max(0, math.ceil(min(deadline - time.monotonic(), _LONGEST_POLL) * 1000))
