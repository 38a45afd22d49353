"""A run of one verb on this node: its deadline, locks, observer, records and executor.

A verb is a coroutine over a VerbRun. Only three things can wait: running a plugin, sleeping and waiting for the disk.
The run of a blocking client blocks in them, so its coroutine never suspends. The run of an asyncio client awaits
them.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import libcni.kernel.system as system
from libcni.config.directory import load_network_conf
from libcni.config.network import NetworkConfigList
from libcni.errors import (
    CNIError,
    ConfigError,
    Hint,
    NetworkNotFoundError,
    PluginNotFoundError,
    PluginTimeoutError,
    RecordError,
    name_client,
)
from libcni.executor.interface import AsyncExecutor, AsyncPreparedPlugin, CallOptions, Executor, PreparedPlugin
from libcni.executor.start_ahead import reads_first
from libcni.observe.observer import Operation
from libcni.protocol.answer import plugin_error
from libcni.protocol.invocation import Invocation, Outcome
from libcni.store.journal import Journal
from libcni.store.locks import TOKEN_VARIABLE
from libcni.store.model import Record
from libcni.store.other_records import OtherRecords
from libcni.store.present_interfaces import Sight
from libcni.verbs.locking import LockingRun
from libcni.verbs.settings import ClientState

logger: logging.Logger = logging.getLogger("libcni")
plugin_logger: logging.Logger = logging.getLogger("libcni.plugin")

_T = TypeVar("_T")
_P = ParamSpec("_P")
AnyExecutor = Executor | AsyncExecutor
WaitingPlugin = PreparedPlugin | AsyncPreparedPlugin


class _Ahead(NamedTuple):
    """A plugin that was started ahead, and its expected call."""

    invocation: Invocation
    plugin: WaitingPlugin


class VerbRun(LockingRun):
    """One run of one verb on this node.

    As a context manager it reports the verb's start and end to the observer, and releases the locks at the end.

    Attributes:
        starts_ahead: whether the executor can start plugins ahead, and the client's settings allow it.
        others: the records of all attachments.
        sight: examines namespaces and interfaces.
        is_interrupted: whether a plugin call ended with an exception that is not a CNIError: a cancellation, Ctrl-C, or
            an exception of the program's signal handler.
    """

    def __init__(
        self,
        client: ClientState,
        executor: AnyExecutor,
        timeout: float | None,
        operation: Operation,
        part_of: VerbRun | None = None,
    ) -> None:
        super().__init__(client, timeout, operation, needs_turn=part_of is None)
        self._executor: AnyExecutor = executor
        # The method is optional. Not isinstance, which takes much longer.
        self._prepare: Callable[[Invocation, CallOptions], WaitingPlugin | None] | None
        self._prepare = getattr(executor, "prepare", None) if self.settings.start_ahead != "never" else None
        self.starts_ahead: bool = self._prepare is not None
        self.is_interrupted: bool = False
        self._ahead: _Ahead | None = None
        self._next_call: Callable[[], Invocation] | None = None
        self.others: OtherRecords = OtherRecords(self.records)
        self.sight: Sight = Sight(self.others)
        self._env: Mapping[str, str] | None = None
        self._observer_env: Mapping[str, str | None] = {}

    def __enter__(self) -> Self:
        if self._observer is not None:
            env: Mapping[str, str | None] | None = self._notify(self._observer.begin)
            self._observer_env = env or {}
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        # Release the namespace and the locks first: the observer is foreign code, and no other verb should wait for it.
        self.sight.close()
        self.release()
        if error is not None:
            name_client(error, self.settings.client)
        if self._observer is not None:
            self._notify(self._observer.end, error)

    async def complete(
        self, verb: Callable[Concatenate[VerbRun, _P], Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run a verb on this run: wait for its turn, and release all locks at its end, even after an exception."""
        with self:
            await self.take_turn()
            try:
                return await verb(self, *args, **kwargs)
            finally:
                # Even after a cancellation or Ctrl-C: a plugin that was started ahead must not outlive the verb.
                await self.discard_prepared()

    # The operations that can wait.

    async def run_plugin(self, invocation: Invocation, options: CallOptions) -> Outcome:
        """Run one plugin to its end."""
        answer = self._executor.execute(invocation, options)
        return answer if isinstance(answer, Outcome) else await answer

    async def on_disk(self, work: Callable[[], _T], *, is_short: bool = False) -> _T:  # noqa: ARG002 - see the clients
        """Call ``work``, a function that may wait for the disk, and return its value.

        ``is_short``: it examines a few files, so that no other verb needs to run meanwhile. Each system call would let
        the threads of all verbs compete for the interpreter.
        """
        return work()

    async def shielded(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end, even if the verb is cancelled meanwhile."""
        return await work

    async def side_by_side(self, works: Sequence[Callable[[], Coroutine[Any, Any, _T]]]) -> list[_T]:
        """Run coroutines at the same time, within the client's limit for such groups; return their values in order."""
        return await self._client.side_by_side(works)

    def part(self, operation: Operation) -> Self:
        """Return a run for an inner verb of this verb.

        The inner verb has its own turn and locks, but this verb's timeout.
        """
        return type(self)(self._client, self._executor, self.seconds_left(), operation)

    async def read_others(self) -> None:
        """Look at the records of all attachments now; an event loop does not wait for a long look."""
        await self.on_disk(self.others.read, is_short=self.records.index.is_quick())

    # Plugins.

    def find(self, plugin: str) -> str:
        """Return the path of a plugin type's executable; raises PluginNotFoundError."""
        return self._executor.find(plugin, self.settings.path)

    def find_all(self, net: NetworkConfigList, *, skip_missing: bool = False) -> tuple[str, ...]:
        """Return the paths of a network's executables, in order; "" for a missing executable if ``skip_missing``."""
        paths = []
        for plugin in net.plugins:
            try:
                paths.append(self.find(plugin.type))
            except PluginNotFoundError:
                if not skip_missing:
                    raise
                paths.append("")
        return tuple(paths)

    async def execute(
        self, invocation: Invocation, *, sharers: int = 1, next_call: Callable[[], Invocation] | None = None
    ) -> Outcome:
        """Run one plugin within the time that the verb has left.

        Args:
            invocation: the call.
            sharers: how many calls share the remaining time, this call included; each gets an equal part.
            next_call: returns the next call, without its configuration. Its process may be started ahead.

        Raises:
            PluginTimeoutError: the deadline had passed, or the plugin was stopped at the deadline.
            PluginError: the plugin could not be started, its exit status is unknown, or it is not 0.
        """
        options = self._call_options(invocation, sharers)
        self._next_call = next_call
        try:
            if self._observer is not None:
                self._notify(self._observer.before_call, invocation)
            started = self._ahead
            # A process that was started ahead fits only a call with the same executable and environment.
            if started and (started.invocation.path, started.invocation.env) != (invocation.path, invocation.env):
                await self.discard_prepared()  # for example before the DEL of a roll-back
                started = None
            if started is None:
                outcome = await self.run_plugin(invocation, options)
            else:
                outcome = await self._feed(started, invocation.stdin, options.timeout)
            failure = None if outcome.exit_status == 0 else plugin_error(invocation, outcome)
        except BaseException as error:
            if isinstance(error, PluginTimeoutError):
                self._explain_timeout(error, options.timeout)
            self.is_interrupted |= not isinstance(error, CNIError)
            self._observe_end(invocation, None, error)
            raise
        finally:
            self._next_call = None
        self._observe_end(invocation, outcome, None)
        if outcome.stderr and outcome.exit_status == 0:
            self._forward_stderr(invocation, outcome.stderr.decode(errors="backslashreplace"))
        if failure is not None:
            raise failure
        return outcome

    def _explain_timeout(self, error: PluginTimeoutError, timeout: float | None) -> None:
        # Otherwise a plugin that got only the short rest of the verb's time would seem to be slow.
        if self._seconds and timeout != self.settings.plugin_timeout and timeout and timeout < 0.9 * self._seconds:
            text = "a higher {argument} gives the plugin more time: "
            text += f"other calls used the rest of the {self._seconds:g} s"
            error.hint = Hint(text, argument="timeout", value=None)

    async def _feed(self, started: _Ahead, stdin: bytes, timeout: float | None) -> Outcome:
        try:
            # Keep the process in self._ahead until it has its configuration: a signal handler may raise before that.
            answer = started.plugin.feed(stdin, timeout)
            outcome = answer if isinstance(answer, Outcome) else await answer
        except CNIError:
            # Otherwise the next call, if it differs only in its configuration, would use this process again.
            if self._ahead is started:
                await self.discard_prepared()
            raise
        if self._ahead is started:  # the executor did not call on_started
            self._ahead = None
        return outcome

    def start_ahead(self, invocation: Invocation) -> None:
        """Start the process of the next call, if its plugin is known to read its configuration first.

        The process waits for its configuration, and cannot act without it.
        """
        if self._ahead is not None or self._prepare is None or not self._turns.has_idle_cores():
            return
        if self.settings.start_ahead != "always" and not reads_first(invocation.path):
            return
        with suppress(CNIError):  # the call itself will raise the error
            plugin = self._prepare(invocation, self._call_options(invocation, 1))
            self._ahead = None if plugin is None else _Ahead(invocation, plugin)

    def _on_started(self) -> None:
        self._ahead = None  # the executor has fed it, and is responsible for stopping it
        next_call, self._next_call = self._next_call, None
        if next_call is not None:
            self.start_ahead(next_call())
        if self._locks:
            self._locks[-1].close_plugin_descriptor()

    async def discard_prepared(self) -> None:
        """Kill the plugin that was started ahead, if any. That plugin has received no byte of its configuration."""
        started, self._ahead = self._ahead, None
        if started is not None and (discarding := started.plugin.discard()) is not None:
            await discarding

    def _call_options(self, invocation: Invocation, sharers: int) -> CallOptions:
        left = (self._deadline - system.monotonic()) / sharers
        if left <= 0:
            raise PluginTimeoutError("it was not run: the timeout had passed", invocation, was_run=False)
        if self.settings.plugin_timeout is not None:
            left = min(left, self.settings.plugin_timeout)
        timeout = None if left == math.inf else left
        if self._env is None:
            changed: Mapping[str, str | None] = {**self.settings.environment(), **self._observer_env}
            self._env = {name: text for name, text in changed.items() if text is not None}
        env = self._env
        if not self._locks:
            return CallOptions(timeout, env, on_started=self._on_started)
        locks = self._locks[-1]
        env = {**env, TOKEN_VARIABLE: locks.token}
        return CallOptions(timeout, env, partial(locks.plugin_descriptor, invocation.verb), self._on_started)

    def _observe_end(self, invocation: Invocation, outcome: Outcome | None, error: BaseException | None) -> None:
        if self._observer is not None:
            self._notify(self._observer.after_call, invocation, outcome, error)

    def _forward_stderr(self, invocation: Invocation, text: str) -> None:
        sink = self.settings.stderr
        if sink is None:
            plugin_logger.warning("%s %s: %s", invocation.plugin, invocation.verb, text.rstrip())
            return
        try:
            sink(invocation, text) if callable(sink) else sink.write(text)
        except Exception:  # a broken log is no reason to lose an attachment, nor to stop a DEL half-way
            logger.exception("cannot forward the stderr of %s %s", invocation.plugin, invocation.verb)

    # Records and configurations.

    def configured(self, network: str) -> NetworkConfigList | None:
        """Return a network's current configuration in ``conf_dir``, or None if no file has a usable configuration.

        The file may be removed while containers are attached. Their records hold the configuration.
        """
        try:
            return load_network_conf(self.settings.conf_dir, network)
        except NetworkNotFoundError:
            return None
        except ConfigError as error:
            logger.warning("network %s: the verb goes on without the network's configuration: %s", network, error)
            return None

    async def begin(self, record: Record, changed: Record | None, event: str = "", *, take_back: bool) -> Journal:
        """Write a new file for a record as ``RecordStore.begin`` does, and return its journal.

        Args:
            record: the record.
            changed: the previous record of an attachment in use that the verb changes; or None.
            event: the reason for rewriting an existing record.
            take_back: if the call is cancelled, remove the record, or restore ``changed``: no plugin has run.
        """
        # A cancelled caller does not receive the thread's return value.
        written: list[Journal] = []
        try:
            if self.records.durable:
                await self.on_disk(lambda: written.append(self.records.begin(record, event)))
            else:  # a thread is worth its cost only if the write waits for the disk
                written.append(self.records.begin(record, event))
            return written[0]
        except BaseException as error:
            for journal in written:
                with suppress(RecordError):
                    journal.close()
            if take_back and written and not isinstance(error, Exception | GeneratorExit):
                try:
                    if changed is not None:
                        self.records.rewrite(changed, "restored")
                    else:
                        self.records.forget(written[0].record)
                except RecordError as problem:
                    undone = "removed" if changed is None else "restored"
                    error.add_note(f"the record that this ADD had written could not be {undone}: {problem}")
            raise
