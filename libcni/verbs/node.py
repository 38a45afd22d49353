"""A run of one verb on this node: its deadline, locks, observer, records and executor.

A verb is a coroutine over a Node. Only three things can wait: running a plugin, sleeping and waiting for the disk.
The node of a blocking client does them at once, so its coroutine never suspends. The node of an asyncio client awaits
them.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TextIO, TypeVar, cast

from libcni.config.directory import load_network_conf
from libcni.config.network import NetworkConfigList
from libcni.errors import CNIError, ConfigError, PluginNotFoundError, PluginTimeoutError, RecordError
from libcni.executor.protocol import CallOptions, Executor, PreparingExecutor
from libcni.executor.start_ahead import can_start_ahead, reads_first
from libcni.observe.protocol import Observer, Operation
from libcni.protocol.answer import decode_is_expensive
from libcni.protocol.invocation import Invocation, Outcome, plugin_failure
from libcni.protocol.request import check_environment_size
from libcni.store.locks import TOKEN_VARIABLE, LockRequest, LockSet
from libcni.store.namespace import EnteredNamespace, InterfaceLookup, is_no_namespace, is_own_namespace
from libcni.store.record import DETACHING, PENDING, Record, boot_id, namespace_identity, pid_namespace
from libcni.store.records import RecordStore
from libcni.verbs.reports import PluginInfo

__all__ = ["BlockingNode", "Env", "Node", "Settings", "StartAhead", "StderrSink", "VersionCache", "run_to_end"]

logger: logging.Logger = logging.getLogger("libcni")
plugin_logger: logging.Logger = logging.getLogger("libcni.plugin")

_T = TypeVar("_T")

_ORPHAN_SECONDS = 30.0
"""Seconds to wait, at most, for a plugin whose runtime was killed."""

# Seconds. A killed runtime cannot send an event, so only polling finds the end of its plugin.
_ORPHAN_POLL = 0.02

_REOPENINGS = 3
"""How often to lock a new file after another program removed the locked one."""

StartAhead = Literal["auto", "always", "never"]
"""The plugins that may start before their configuration is known: those that read it first, all, or none."""

StderrSink = Callable[[Invocation, str], object] | TextIO
"""Receives the stderr of a plugin that succeeded: a callable with the invocation and the text, or a text file."""

Env = Mapping[str, str] | Sequence[str]
"""The plugins' environment: a mapping that replaces this process's, or the names of the variables to inherit."""

VersionCache = dict[str, tuple[tuple[int, ...], PluginInfo]]
"""Answers to VERSION by executable, with the identity of the file that gave the answer; shared by a client's verbs."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a client; times in seconds, None: no limit."""

    path: tuple[str, ...]
    cache_dir: str
    conf_dir: str
    owner: str = ""
    timeout: float | None = 60.0
    plugin_timeout: float | None = None
    cleanup_timeout: float | None = 30.0
    env: Env | None = None
    durable: bool = True
    stderr: StderrSink | None = None
    observer: Observer | None = None
    start_ahead: StartAhead = "auto"

    def environment(self) -> Mapping[str, str]:
        """Return the plugins' environment without the CNI_* variables; inherited CNI_* are never passed on."""
        if self.env is None:
            return _inherited_environment()
        if isinstance(self.env, Mapping):
            return _without_cni(self.env)
        return _without_cni({name: os.environ[name] for name in self.env if name in os.environ})


_decoded: tuple[dict[bytes, bytes], Mapping[str, str]] = ({}, {})


def _inherited_environment() -> Mapping[str, str]:
    """Return this process's environment without the CNI_* variables. It is decoded again only if it has changed."""
    global _decoded  # noqa: PLW0603 - one tuple, replaced as a whole, because several threads may come here
    encoded = getattr(os.environ, "_data", None)  # to decode 40 variables takes 20 µs of each verb
    if not isinstance(encoded, dict):
        return _without_cni(os.environ)
    known, inherited = _decoded
    if encoded != known:
        known = encoded.copy()
        inherited = _without_cni({os.fsdecode(name): os.fsdecode(text) for name, text in known.items()})
        _decoded = known, inherited
    return inherited


def _without_cni(env: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in env.items() if not name.startswith(("CNI_", TOKEN_VARIABLE))}


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


class Node:
    """One run of one verb on this node.

    As a context manager it reports the verb's begin and end to the observer, and releases the locks at the end.

    Attributes:
        path: the plugin directories (CNI_PATH).
        settings: those of the client.
        records: the attachments on disk.
        versions: the answers to VERSION that the client's verbs have received so far.
        is_interrupted: whether a plugin call ended with an exception that is not a CNIError: a cancellation, Ctrl-C, or
            an exception of the program's signal handler.
    """

    def __init__(
        self,
        settings: Settings,
        store: RecordStore,
        versions: VersionCache,
        timeout: float | None,
        operation: Operation,
    ) -> None:
        self.path: tuple[str, ...] = settings.path
        self.settings = settings
        self.records = store
        self.versions = versions
        self._observer = settings.observer
        self._operation = operation
        self._running: Invocation | None = None
        self.is_interrupted: bool = False
        self._is_cleanup = False
        self._prepared: tuple[Invocation, Any] | None = None
        self._ahead: Callable[[], Invocation] | None = None
        self._deadline = _deadline(timeout)
        self._locks: list[LockSet] = []
        self._entered: EnteredNamespace | None = None
        self._env: Mapping[str, str] | None = None
        self._observer_env: Mapping[str, str | None] = {}

    def __enter__(self) -> Self:
        if self._observer is not None:
            self._observer_env = self._observer.begin(self._operation) or {}
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        # Namespace and locks first: the observer is foreign code, and nobody else need wait for it.
        self._leave_namespace()
        while self._locks:
            self._locks.pop().close()
        if self._observer is not None:
            if self._running is not None:  # Ctrl-C or a cancellation ended the call
                self._observe_end(self._running, None, error)
            self._observer.end(self._operation, error)

    # The operations that can wait.

    async def run_plugin(self, invocation: Invocation, options: CallOptions, started: Any = None) -> Outcome:
        """Run one plugin to its end; ``started``: its process, from ``prepare_plugin``."""
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        """Sleep for ``seconds``."""
        raise NotImplementedError

    async def on_disk(self, work: Callable[[], _T]) -> _T:
        """Call ``work``, which may wait for the disk."""
        return work()

    async def shielded(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine to its end, even if the verb is cancelled meanwhile."""
        return await work

    # Plugins that are started ahead; only nodes with ``starts_ahead`` have any.

    starts_ahead: bool = False
    """Whether this node's executor can start plugins ahead, and the client wants it."""

    def prepare_plugin(self, invocation: Invocation, options: CallOptions) -> Any:
        """Start a plugin that waits for its configuration; None if it cannot be started now."""
        raise NotImplementedError

    async def discard_plugin(self, plugin: Any) -> None:
        """Kill a plugin that waits for its configuration."""
        raise NotImplementedError

    # Plugins.

    def find(self, plugin: str) -> str:
        """Return the path of a plugin type's executable; raises PluginNotFoundError."""
        raise NotImplementedError

    def find_all(self, plugins: Sequence[str], *, skip_missing: bool = False) -> tuple[str, ...]:
        """Return the paths of plugin types' executables, "" for a missing one if ``skip_missing``."""
        found = []
        for plugin in plugins:
            try:
                found.append(self.find(plugin))
            except PluginNotFoundError:
                if not skip_missing:
                    raise
                found.append("")
        return tuple(found)

    async def execute(
        self, invocation: Invocation, *, sharers: int = 1, ahead: Callable[[], Invocation] | None = None
    ) -> Outcome:
        """Run one plugin within the verb's time.

        Args:
            invocation: the call.
            sharers: how many calls share the time that is left, this one included; each gets an equal part.
            ahead: returns the call that follows, without its configuration. Its process may be started ahead.

        Raises:
            PluginTimeoutError: there was no time left, or the plugin was stopped at the deadline.
            PluginError: the plugin could not be started, or its exit status is unknown.
        """
        options = self._call_options(invocation, sharers)
        if self._observer is not None:
            self._running = invocation
            self._notify(self._observer.before_call, invocation)
        self._ahead = ahead
        try:
            started = None if self._prepared is None else await self._prepared_for(invocation)
            outcome = await self.run_plugin(invocation, options, started)
            if self._prepared is not None and self._prepared[1] is started:  # the executor did not call on_started
                self._prepared = None
        except CNIError as error:
            self._observe_end(invocation, None, error)
            raise
        except BaseException:
            self.is_interrupted = True
            raise
        finally:
            self._ahead = None
        if outcome.stderr and outcome.exit_status == 0:
            self._forward_stderr(invocation, outcome.stderr.decode(errors="backslashreplace"))
        if self._observer is not None:
            self._observe_end(invocation, outcome, None)
        return outcome

    async def _prepared_for(self, invocation: Invocation) -> Any:
        """Return the process that was started ahead for this call. If it was for another call, kill it: None."""
        waiting, process = self._prepared or (None, None)
        # All that the process was started with.
        if waiting and (waiting.path, waiting.env) == (invocation.path, invocation.env):
            # It stays this verb's until it has got its configuration: a signal handler may raise before that.
            return process
        await self.discard_prepared()  # for example before the DEL of a roll-back
        return None

    def start_ahead(self, invocation: Invocation) -> None:
        """Start the process of a call that comes next, if its plugin is known to read its configuration first.

        The process waits for its configuration. Without it the plugin cannot act.
        """
        if self._prepared is not None or not self.starts_ahead or not can_start_ahead():
            return
        if self.settings.start_ahead != "always" and not reads_first(invocation.path):
            return
        with suppress(CNIError):  # the call itself will raise the error
            plugin = self.prepare_plugin(invocation, self._call_options(invocation, 1))
            self._prepared = None if plugin is None else (invocation, plugin)

    def _on_started(self) -> None:
        self._prepared = None  # the executor has fed it, and stops it from now on
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self.start_ahead(ahead())
        if self._locks:
            self._locks[-1].plugins_started()

    async def discard_prepared(self) -> None:
        """Kill the plugin that was started ahead, if there is one. It has not received a byte."""
        if self._prepared is not None:
            (_, plugin), self._prepared = self._prepared, None
            await self.discard_plugin(plugin)

    def _call_options(self, invocation: Invocation, sharers: int) -> CallOptions:
        # Monotonic time: a change of the system's clock must neither kill a plugin nor let it run for ever.
        left = (self._deadline - time.monotonic()) / sharers
        if left <= 0:
            raise plugin_failure(PluginTimeoutError, invocation, "it was not run: no time was left for it")
        if self.settings.plugin_timeout is not None:
            left = min(left, self.settings.plugin_timeout)
        env, descriptor = self._env or self._environment(), -1
        if self._locks:
            locks = self._locks[-1]
            env = {**env, TOKEN_VARIABLE: locks.token}
            try:
                descriptor = locks.plugin_descriptor(invocation.verb)
            except RecordError as error:
                # Every other verb only cleans up or reads, so a full descriptor table must not stop it.
                if invocation.verb == "ADD":  # without it, the next verb would not wait for this plugin
                    raise
                logger.warning("%s goes on without a lock: %s", invocation.verb, error)
        return CallOptions(None if left == math.inf else left, env, descriptor, self._on_started)

    def _environment(self) -> Mapping[str, str]:
        if self._env is None:
            self._env = self.settings.environment()
            if self._observer_env:
                changed = {**self._env, **self._observer_env}
                self._env = {name: text for name, text in changed.items() if text is not None}
        return self._env

    def _observe_end(self, invocation: Invocation, outcome: Outcome | None, error: BaseException | None) -> None:
        if self._observer is not None:
            self._running = None
            self._notify(self._observer.after_call, invocation, outcome, error)

    def _notify(self, method: Callable[..., object], *args: object) -> None:
        try:
            method(self._operation, *args)
        except Exception:
            if not self._is_cleanup:
                raise
            # An observer's exception may have caused the roll-back. It must not stop the plugins that undo the ADD.
            logger.exception("an observer failed in a roll-back")

    def _forward_stderr(self, invocation: Invocation, text: str) -> None:
        sink = self.settings.stderr
        if sink is None:
            plugin_logger.warning("%s %s: %s", invocation.plugin, invocation.verb, text.rstrip())
            return
        try:
            sink(invocation, text) if callable(sink) else sink.write(text)
        except Exception:  # a broken log is no reason to lose an attachment, nor to stop a DEL half-way
            logger.exception("cannot forward the stderr of %s %s", invocation.plugin, invocation.verb)

    def check_environment(self, invocation: Invocation) -> None:
        """Raise ConfigError if no process can be started with the environment of a call."""
        check_environment_size({**self._environment(), **invocation.env})

    async def decode(self, invocation: Invocation, data: bytes, work: Callable[[], _T]) -> _T:
        """Call ``work``, which decodes a plugin's output ``data``; it counts against the deadline.

        Raises:
            PluginTimeoutError: the deadline has passed meanwhile.
        """
        if not decode_is_expensive(data):
            return work()
        decoded = await self.on_disk(work)  # in a thread, so that the event loop is not blocked
        if time.monotonic() > self._deadline:
            raise plugin_failure(PluginTimeoutError, invocation, "the deadline passed while its output was decoded")
        return decoded

    # Namespaces.

    def namespace_identity(self, netns: str) -> tuple[int, int] | None:
        """Return (device, inode) of the file at a namespace's path, or None if there is none."""
        return namespace_identity(netns)

    def is_own_namespace(self, netns: str) -> bool:
        """Return whether a path leads to the network namespace of this program."""
        return is_own_namespace(netns)

    def is_no_namespace(self, netns: str) -> bool:
        """Return whether something else than a network namespace is at a path, or nothing."""
        return is_no_namespace(netns)

    def look_up(self, netns: str, ifname: str) -> InterfaceLookup | None:
        """Look up an interface in a namespace; return None if this program cannot enter the namespace."""
        # Entering takes a thread. An ADD looks twice, and the second time the path may lead elsewhere.
        if self._entered is None or not self._entered.is_at(netns):
            self._leave_namespace()
            self._entered = EnteredNamespace.enter(netns)
        return None if self._entered is None else self._entered.look_up(ifname)

    def _leave_namespace(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.close()

    # Time.

    def seconds_left(self) -> float | None:
        """Return the seconds to the deadline; None: there is none."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def start_cleanup(self) -> None:
        """Use the clean-up timeout from here on, instead of the rest of the verb's timeout."""
        self._deadline = _deadline(self.settings.cleanup_timeout)
        self._is_cleanup = True

    async def pause(self, seconds: float) -> bool:
        """Sleep for ``seconds`` and return True. If the verb's deadline is earlier, return False at once."""
        if time.monotonic() + seconds >= self._deadline:
            return False
        await self.sleep(seconds)
        return True

    # Locks.

    async def lock(self, networks: Sequence[str], container_id: str = "", *, exclusive: bool = False) -> None:
        """Release the locks that this verb holds and acquire these, network before container.

        Then wait, for a limited time, for a plugin of this container whose runtime was killed: it could change the
        container's network at the same time as this verb.

        Args:
            networks: the networks' names.
            container_id: the container, always exclusive; "" for none.
            exclusive: whether to lock the networks exclusively (GC).

        Raises:
            LockTimeoutError: other verbs held the locks until the deadline.
            RecordError: the lock file cannot be used.
        """
        while self._locks:
            self._locks.pop().close()
        request = LockRequest(tuple(sorted(networks)), container_id, exclusive)
        # If this program is a plugin, its caller holds locks. The token proves that, so that the two do not wait for
        # each other.
        await self._acquire(request, os.environ.get(TOKEN_VARIABLE, ""), self._deadline)

    async def lock_container(self, container_id: str, seconds: float) -> None:
        """Acquire a container's lock in addition to those of ``lock``. Release the one that this acquired before.

        Raises:
            LockTimeoutError: another verb held it for ``seconds``, or until the deadline.
            RecordError: the lock file cannot be used.
        """
        while len(self._locks) > 1:
            self._locks.pop().close()
        deadline = min(self._deadline, time.monotonic() + seconds)
        await self._acquire(LockRequest((), container_id), self._locks[0].token, deadline)

    async def _acquire(self, request: LockRequest, token: str, deadline: float) -> None:
        for _ in range(_REOPENINGS):
            locks = LockSet(self.settings.cache_dir, request, token)
            self._locks.append(locks)
            for delay in locks.retry_delays(deadline):
                await self.sleep(delay)
            if locks.is_current():
                await self._wait_for_orphan(locks)
                return
            # Another program removed the file while this verb waited. Later verbs lock the new file, so this one must.
            self._locks.pop().close()
        raise RecordError(f"{locks.path}: other programs keep removing the lock file", path=locks.path)

    async def _wait_for_orphan(self, locks: LockSet) -> None:
        if not self._has_orphan(locks):
            return
        now = time.monotonic()
        # Half of the time that is left: the verb still needs some for its own plugins.
        deadline = now + min(_ORPHAN_SECONDS, (self._deadline - now) / 2)
        while time.monotonic() < deadline:
            await self.sleep(_ORPHAN_POLL)
            if not self._has_orphan(locks):
                return
        logger.warning(
            "%s: a plugin of an earlier verb is still running (%s); going on", locks.request.what, locks.path
        )

    def _has_orphan(self, locks: LockSet) -> bool:
        """Return whether a plugin of an earlier verb of this container runs whose runtime was killed.

        An ADD may start a daemon that keeps its descriptor for ever. So an ADD's descriptor counts only if a record
        says that an ADD of this container did not end.
        """
        if locks.has_running_plugin("DEL"):
            return True
        if not locks.has_running_plugin("ADD"):
            return False
        try:
            records = self.records.records(locks.request.container_id)
        except RecordError:
            return False
        return any(record.state in {PENDING, DETACHING} for record in records)

    def is_of_caller(self, record: Record) -> bool:
        """Return whether this process is a plugin, and the verb that runs it works on this record."""
        return any(locks.is_held_by_caller(record.network, record.container_id) for locks in self._locks)

    async def plugins_have_ended(self, seconds: float) -> bool:
        """Wait until no process of this ADD's plugins runs; return False if one still runs after ``seconds``."""
        if not self._locks:
            return True
        locks = self._locks[-1]
        deadline = min(self._deadline, time.monotonic() + seconds)
        while locks.has_running_plugin("ADD"):
            if time.monotonic() >= deadline:
                return False
            await self.sleep(_ORPHAN_POLL)
        return True

    # Records and configurations.

    def configured(self, network: str) -> NetworkConfigList | None:
        """Return a network's current configuration in ``conf_dir``, or None if it has no usable one."""
        try:
            return load_network_conf(self.settings.conf_dir, network)
        except ConfigError:
            return None

    def sweep_drafts(self) -> None:
        """Remove the drafts of records whose writers were killed."""
        try:
            self.records.sweep()
        except RecordError as error:
            logger.warning("cannot remove temporary record files: %s", error)

    async def begin(self, record: Record, earlier: Record | None, *, take_back: bool) -> Record:
        """Write the pending record of an ADD, and return it with its path, time, boot and namespace identity.

        Args:
            record: the record.
            earlier: the record that it replaces, or None.
            take_back: if this is cancelled, remove the record again, or restore the earlier one. No plugin has run.
        """
        stamped = record.with_fields(
            owner=self.settings.owner,
            created=time.time(),
            uptime=time.clock_gettime(time.CLOCK_BOOTTIME),
            boot=boot_id(),
            netns_id=namespace_identity(record.netns),
            pid_namespace=pid_namespace(),
        )
        try:
            return await self._write(partial(self.records.begin, stamped))
        except BaseException as error:
            if take_back and not isinstance(error, Exception | GeneratorExit):
                try:
                    # The verb holds the container's lock, so a pending record is the one that was just written.
                    written = self.records.find(stamped.identity)
                    if earlier is not None:
                        self.records.complete(earlier)
                    elif written is not None and written.state == PENDING:
                        self.records.forget(written)
                except RecordError as problem:
                    error.add_note(f"when its record was removed again: {problem}")
            raise

    async def complete(self, record: Record) -> None:
        """Write the record of an ADD that succeeded."""
        await self._write(partial(self.records.complete, record))

    async def mark_detaching(self, record: Record) -> Record:
        """Write to the record that its DEL has begun. If the disk refuses, DEL goes on."""
        return await self._write(partial(self.records.mark_detaching, record))

    async def _write(self, work: Callable[[], _T]) -> _T:
        # Only the wait for the disk takes long enough to be worth a thread.
        return await self.on_disk(work) if self.settings.durable else work()


class BlockingNode(Node):
    """A node whose methods block, so that its coroutines never suspend."""

    def __init__(  # noqa: PLR0913, PLR0917 - those of Node
        self,
        settings: Settings,
        executor: Executor,
        store: RecordStore,
        versions: VersionCache,
        timeout: float | None,
        operation: Operation,
    ) -> None:
        super().__init__(settings, store, versions, timeout, operation)
        self._executor = executor
        self.starts_ahead: bool = settings.start_ahead != "never" and hasattr(executor, "prepare")

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        # Also after Ctrl-C: a plugin that was started ahead must not outlive the verb.
        if self._prepared is not None:
            self._prepared[1].discard()
            self._prepared = None
        super().__exit__(kind, error, trace)

    def prepare_plugin(self, invocation: Invocation, options: CallOptions) -> Any:
        """Start a plugin that waits for its configuration."""
        return cast("PreparingExecutor", self._executor).prepare(invocation, options)

    async def discard_plugin(self, plugin: Any) -> None:
        """Kill a plugin that waits for its configuration."""
        plugin.discard()

    async def run_plugin(self, invocation: Invocation, options: CallOptions, started: Any = None) -> Outcome:
        """Run one plugin to its end, blocking."""
        if started is None:
            return self._executor.execute(invocation, options)
        outcome: Outcome = started.feed(invocation.stdin, options.timeout)
        return outcome

    async def sleep(self, seconds: float) -> None:
        """Sleep, blocking."""
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop to block

    def find(self, plugin: str) -> str:
        """Return the path of a plugin type's executable; raises PluginNotFoundError."""
        return self._executor.find(plugin, self.path)


def _deadline(seconds: float | None) -> float:
    return math.inf if seconds is None else time.monotonic() + seconds
