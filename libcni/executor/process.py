"""Run a plugin and wait for it, blocking: the executor that CNIConfig uses."""

from __future__ import annotations

import math
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from libcni.errors import InvalidOutputError
from libcni.executor.child import Child, is_busy, start_problem
from libcni.executor.find import find_plugin
from libcni.executor.gate import Passage
from libcni.executor.protocol import Limits
from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["GRACE", "OUTPUT_LIMIT", "QUIET", "ProcessExecutor", "busy_delays"]

OUTPUT_LIMIT = 16 * 1024 * 1024
"""How many bytes a plugin may print on stdout, and on stderr."""

GRACE = 0.5
"""Seconds between TERM and KILL for a plugin that is at its deadline."""

QUIET = 0.005
"""For so many seconds only the end of a plugin is waited for; then what it prints is read as it comes."""

_BUSY_SECONDS = 5.0
_LONGEST_POLL = 86400.0


class ProcessExecutor:
    """Run plugins as processes of their own process group, with a deadline, and an end to what they may print.

    Args:
        output_limit: bytes of stdout, and of stderr, that a plugin may print: 16 MiB unless given.
        grace: seconds between TERM and KILL at the deadline: 0.5 unless given.
    """

    def __init__(self, *, output_limit: int = OUTPUT_LIMIT, grace: float = GRACE) -> None:
        self.output_limit = output_limit
        self.grace = grace

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable, as ``find_plugin`` does.

        Raises:
            PluginNotFoundError: there is none in the directories ``path``.
            InvalidIdentifierError: ``plugin`` is a path or empty.
        """
        return find_plugin(plugin, path)

    def execute(self, invocation: Invocation, limits: Limits) -> Outcome:
        """Run a plugin to its end; see ``Executor.execute``. An exception in between kills its process group.

        Raises:
            PluginTimeoutError: it was stopped at ``limits.timeout``.
            InvalidOutputError: it printed more than ``output_limit`` bytes, and was stopped.
            PluginError: it could not be started, or its exit status cannot be known.
        """
        deadline = math.inf if limits.timeout is None else time.monotonic() + limits.timeout
        child = self._start(invocation, limits, deadline)
        try:
            if child.exit_fd < 0:
                child.close()
                raise child.unknown_end()
            if not _listen(child, deadline):
                self._stop(child)
                raise child.timed_out(limits.timeout or 0.0)
            with Passage():
                return child.finish()
        except BaseException:
            child.kill()
            raise

    def _start(self, invocation: Invocation, limits: Limits, deadline: float) -> Child:
        for delay in busy_delays(deadline):
            try:
                with Passage():
                    return Child(invocation, limits, self.output_limit)
            except (OSError, ValueError) as error:
                if not is_busy(error) or delay is None:
                    raise start_problem(invocation, error) from error
                time.sleep(delay)
        raise AssertionError("the last delay is None")

    def _stop(self, child: Child) -> None:
        child.signal(signal.SIGTERM)
        with suppress(InvalidOutputError):
            _listen(child, time.monotonic() + self.grace)


def busy_delays(deadline: float) -> Iterator[float | None]:
    """Yield how long to wait before the next try while an executable is being written; None: do not try again."""
    deadline = min(deadline, time.monotonic() + _BUSY_SECONDS)
    delay = 0.01
    while time.monotonic() + delay < deadline:
        yield delay
        delay = min(2 * delay, 0.5)
    yield None


def _listen(child: Child, deadline: float) -> bool:
    """Read what the child prints until it ends; return whether it ended before the deadline."""
    poll = select.poll()
    poll.register(child.exit_fd, select.POLLIN)
    # most end soon, and what they print fits into their pipes: then one wake-up does
    if poll.poll(_milliseconds(min(deadline, time.monotonic() + QUIET))):
        return True
    for pipe in child.open_pipes:
        poll.register(pipe, select.POLLIN)
    while True:
        events = poll.poll(_milliseconds(deadline))
        if not events:
            if time.monotonic() >= deadline:
                return False
            continue
        for descriptor, _ in events:
            if descriptor == child.exit_fd:
                return True
            child.read(descriptor)
            if descriptor not in child.open_pipes:
                poll.unregister(descriptor)


def _milliseconds(deadline: float) -> int | None:
    if deadline == math.inf:
        return None
    return max(0, math.ceil(min(deadline - time.monotonic(), _LONGEST_POLL) * 1000))
