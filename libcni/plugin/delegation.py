"""Run another plugin on behalf of this one (spec 1.1.0, section 4)."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from libcni._dataclass import replace
from libcni.errors import InvalidOutputError
from libcni.executor.find import find_plugin
from libcni.executor.interface import CallOptions
from libcni.executor.process import ProcessExecutor
from libcni.plugin.failure import VerbError
from libcni.plugin.received import ReceivedCall, decode_document
from libcni.plugin.results import PluginResult
from libcni.protocol.invocation import Invocation, Outcome

_VARIABLES = {"ifname": "CNI_IFNAME", "netns": "CNI_NETNS", "args": "CNI_ARGS"}


class Delegate:
    """A plugin that this plugin runs during a call, with the call's environment.

    Args:
        call: the call of this plugin.
        plugin_type: the executable's name, to be found on CNI_PATH.
        stdin: the configuration for the delegate.
        changes: ``ifname``, ``netns`` or ``args``, if they differ from those of the call.

    Raises:
        PluginNotFoundError: if no such executable is on CNI_PATH.
        InvalidIdentifierError: if ``plugin_type`` is empty or a path.
        TypeError: if ``changes`` has another name.
    """

    def __init__(self, call: ReceivedCall, plugin_type: str, stdin: bytes, changes: Mapping[str, str]) -> None:
        path = find_plugin(plugin_type, call.path)
        if unknown := changes.keys() - _VARIABLES.keys():
            names = ", ".join(sorted(unknown))
            raise TypeError(f"{names} cannot be changed for a delegate; only {', '.join(_VARIABLES)} can")
        own = {name: value for name, value in call.env.items() if name.startswith("CNI_")}
        own.update({_VARIABLES[name]: value for name, value in changes.items()})
        attachment = call.name, call.container_id, own.get("CNI_IFNAME", "")
        self._invocation = Invocation(call.verb, plugin_type, path, stdin, own, *attachment)
        rest = {name: value for name, value in call.env.items() if name not in own}
        # A runtime may kill this plugin alone: a delegate that goes on would allocate after the runtime's clean-up.
        self._options = CallOptions(env=rest, ends_with_caller=True)
        self._version = call.version

    def serves_as(self, other: Delegate) -> bool:
        """Return whether a DEL of the delegate ``other`` frees what this delegate has allocated."""
        mine, its = self._invocation, other._invocation
        return (mine.path, mine.env, mine.stdin) == (its.path, its.env, its.stdin)

    def run(self, verb: str) -> Outcome:
        """Run ``verb``, and print the delegate's stderr on this plugin's stderr.

        There is no deadline: the runtime has one for this plugin. Raises PluginError if the delegate does not exit with
        status 0, or cannot be started.
        """
        env = {**self._invocation.env, "CNI_COMMAND": verb}
        invocation = replace(self._invocation, verb=verb, env=env)
        # The executor returns at the delegate's exit, even if a child of the delegate keeps its stdout open.
        with _sigterm_as_exception():
            outcome = ProcessExecutor().execute(invocation, self._options)
        sys.stderr.write(outcome.stderr.decode(errors="backslashreplace"))
        if outcome.exit_status != 0:
            from libcni.protocol.answer import plugin_error  # takes 10 ms, and most delegates succeed

            raise plugin_error(invocation, outcome)
        return outcome

    def add(self) -> PluginResult:
        """Run ADD and return its result, to be printed in the call's spec version.

        Raises PluginError if ADD fails, with the code of the error document. Raises InvalidOutputError if the delegate
        exits with status 0 and prints no result.
        """
        outcome = self.run("ADD")
        try:
            return PluginResult.from_document(decode_document(outcome.stdout), self._version)
        except VerbError as error:
            problem = f"it printed no result: {error.details or error.msg}"
            raise InvalidOutputError(problem, self._invocation, outcome) from error


@contextmanager
def _sigterm_as_exception() -> Iterator[None]:
    """Let SIGTERM stop the delegate before it stops this plugin.

    The delegate has a process group of its own, so a runtime that signals the group of this plugin does not reach it.
    Without this handler the delegate would go on, and allocate after the runtime's clean-up.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise_terminated)
    try:
        yield
    except _TerminatedError:
        # The executor has killed the delegate. Now the same signal ends this process.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _TerminatedError(BaseException):
    """SIGTERM arrived. It is a BaseException, so that no ``except Exception`` handles it as a failure."""


def _raise_terminated(_number: int, _frame: object) -> None:
    raise _TerminatedError
