"""What the blocking and the asyncio driver share: the settings of a client, and the run of one verb."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from libcni.errors import CNIError, PluginNotFoundError, PluginTimeoutError, RecordError
from libcni.executor.protocol import AsyncExecutor, CallOptions, Executor
from libcni.observe.protocol import Observer, Operation
from libcni.protocol.invocation import Invocation, Outcome, failure
from libcni.store.locks import TOKEN_VARIABLE, Hold
from libcni.store.record import Record, boot_id
from libcni.store.records import RecordStore
from libcni.verbs.course import Course
from libcni.verbs.steps import (
    AllRecords,
    Begin,
    Complete,
    Find,
    Flow,
    Forget,
    Lock,
    Lookup,
    NamespaceOf,
    Pause,
    Recall,
    Remember,
    SetAside,
    Siblings,
    StartCleanup,
    Sweep,
)

__all__ = ["Call", "Env", "Memory", "Need", "Settings", "Sleep", "StderrSink", "Verb", "Work"]

logger: logging.Logger = logging.getLogger("libcni")
plugin_logger: logging.Logger = logging.getLogger("libcni.plugin")

_T = TypeVar("_T")

_ORPHAN_WAIT = 30.0
_REMOVALS = 3
_ORPHAN_DELAY = 0.02

StderrSink = Callable[[Invocation, str], object] | TextIO
"""Where the stderr of a plugin that succeeded goes: a callable that takes the call and the text, or a text file."""

Env = Mapping[str, str] | Sequence[str]
"""The plugins' environment: a mapping that replaces this process's, or the names that are passed on from it."""


Memory = dict[tuple[str, tuple[int, ...]], Any]
"""What plugins said of themselves, by their executable's path and file identity; shared by all verbs of a client."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a client was made with; times in seconds, None: no limit."""

    path: tuple[str, ...]
    cache_dir: str
    conf_dir: str
    timeout: float | None
    plugin_timeout: float | None
    cleanup_timeout: float | None
    env: Env | None
    durable: bool
    stderr: StderrSink | None
    observer: Observer | None

    def environment(self) -> Mapping[str, str]:
        """Return what plugins get besides the CNI_* variables; inherited CNI_* are never passed on."""
        if self.env is None:
            return _inherited()
        if isinstance(self.env, Mapping):
            return _without_ours(self.env)
        return _without_ours({name: os.environ[name] for name in self.env if name in os.environ})


_last_environment: tuple[Any, Mapping[str, str]] = ({}, {})


def _inherited() -> Mapping[str, str]:
    """Return this process's environment as plugins get it, decoded anew only where it has changed."""
    global _last_environment  # noqa: PLW0603 - a snapshot and what was made of it, replaced as one
    now = dict(getattr(os.environ, "_data", None) or os.environ)  # the copy is cheap, and the decoding is not
    seen, made = _last_environment
    if now != seen:
        made = _without_ours(os.environ)
        _last_environment = (now, made)
    return made


def _without_ours(env: Mapping[str, str]) -> Mapping[str, str]:
    return {name: text for name, text in env.items() if not name.startswith(("CNI_", TOKEN_VARIABLE))}


@dataclass(frozen=True, slots=True)
class Call:
    """A verb's need: run a plugin; its answer is the Outcome."""

    invocation: Invocation
    limits: CallOptions


@dataclass(frozen=True, slots=True)
class Sleep:
    """A verb's need: let time pass."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """A verb's need: do what may wait for the disk; its answer is what ``do`` returns."""

    do: Callable[[], Any]


Need = Call | Sleep | Work
"""What a verb cannot do at once by itself."""


class Verb:
    """One run of one verb: its deadline, its locks, its observer, and how each step is done.

    As a context it begins with telling the observer, and ends with letting all locks go. Within it, ``drive`` drives
    the verb's flow.
    """

    def __init__(
        self,
        settings: Settings,
        executor: Executor | AsyncExecutor,
        memory: Memory,
        timeout: float | None,
        operation: Operation,
    ) -> None:
        self._settings = settings
        self._observer = settings.observer
        self._operation = operation
        self._call: Invocation | None = None
        self._memory = memory
        self._executor = executor
        self._store = RecordStore(settings.cache_dir, durable=settings.durable)
        self._deadline = _deadline(timeout)
        self._holds: list[Hold] = []
        self._env: Mapping[str, str] | None = None
        self._observed_env: Mapping[str, str | None] = {}

    def __enter__(self) -> Self:
        """Tell the observer that the verb begins, and take the environment that it adds."""
        if self._observer is not None:
            self._observed_env = self._observer.begin(self._operation) or {}
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> None:
        """Let go of all locks, and tell the observer how the verb ended."""
        while self._holds:
            self._holds.pop().close()
        if self._observer is not None:
            if self._call is not None:  # a call that was cut short, by Ctrl-C or a cancellation
                self._tell(self._call, None, error)
            self._observer.end(self._operation, error)

    def drive(self, flow: Flow[_T]) -> Generator[Need, Any, _T]:
        """Drive a flow to its end. Yield what may take time, to be sent its answer, or thrown its CNIError."""
        course = Course(flow)
        for step in course:
            at_once = _AT_ONCE.get(type(step))
            with course:
                if at_once is None or (self._settings.durable and isinstance(step, _DURABLE)):
                    course.answer = yield from self._take_time(step)
                else:
                    course.answer = at_once(self, step)
        return course.value

    def _take_time(self, step: Any) -> Generator[Need, Any, Any]:
        if isinstance(step, Invocation):
            return (yield from self._call_plugin(step))
        if isinstance(step, _DURABLE):
            return (yield Work(partial(_AT_ONCE[type(step)], self, step)))
        if isinstance(step, Pause):
            return (yield from self._pause(step))
        return (yield from (self._lock(step) if isinstance(step, Lock) else self._await_orphan("ADD")))

    def _call_plugin(self, invocation: Invocation) -> Generator[Need, Any, Outcome]:
        limits = self._limits(invocation)
        try:
            outcome: Outcome = yield Call(invocation, limits)
        except CNIError as error:
            self._ended(invocation, None, error)
            raise
        self._ended(invocation, outcome)
        return outcome

    def seconds_left(self) -> float | None:
        """Return the seconds to the deadline; None: there is none."""
        return None if self._deadline == math.inf else max(0.0, self._deadline - time.monotonic())

    def _limits(self, invocation: Invocation) -> CallOptions:
        """Return what a call may take, and tell the observer; raises PluginTimeoutError if no time is left."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise failure(PluginTimeoutError, invocation, "it was not run: the time for the whole verb is used up")
        if self._settings.plugin_timeout is not None:
            left = min(left, self._settings.plugin_timeout)
        if self._env is None:
            self._env = _merged(self._settings.environment(), self._observed_env)
        hold = self._holds[-1] if self._holds else None
        env = {**self._env, TOKEN_VARIABLE: hold.token} if hold else self._env
        limits = CallOptions(None if left == math.inf else left, env, self._in_flight(hold, invocation.verb))
        if self._observer is not None:
            self._call = invocation
            self._observer.before_call(self._operation, invocation)
        return limits

    def _in_flight(self, hold: Hold | None, verb: str) -> int:
        """Return the descriptor that tells others that the plugin lives, or -1. Only an ADD fails for want of it."""
        try:
            return hold.in_flight(verb) if hold else -1
        except RecordError as error:
            if verb == "ADD":
                raise
            logger.warning("%s goes on without a lock: %s", verb, error)
            return -1

    def _ended(self, invocation: Invocation, outcome: Outcome | None, error: CNIError | None = None) -> None:
        """Pass on what a plugin that succeeded wrote to stderr, and tell the observer."""
        if outcome is not None and outcome.exit_status == 0 and outcome.stderr:
            self._pass_on(invocation, outcome.stderr.decode(errors="backslashreplace"))
        if self._observer is not None:
            self._tell(invocation, outcome, error)

    def _tell(self, invocation: Invocation, outcome: Outcome | None, error: BaseException | None) -> None:
        self._call = None
        if self._observer is not None:
            self._observer.after_call(self._operation, invocation, outcome, error)

    def _pass_on(self, invocation: Invocation, text: str) -> None:
        sink = self._settings.stderr
        if sink is None:
            plugin_logger.warning("%s %s: %s", invocation.plugin, invocation.verb, text.rstrip())
            return
        try:
            sink(invocation, text) if callable(sink) else sink.write(text)
        except (OSError, ValueError):  # a broken log is no reason to lose an attachment
            logger.exception("the stderr of %s %s could not be passed on", invocation.plugin, invocation.verb)

    def _lock(self, step: Lock) -> Generator[Need, Any, bool]:
        while len(self._holds) > int(step.beside):
            self._holds.pop().close()
        token = self._holds[0].token if self._holds else os.environ.get(TOKEN_VARIABLE, "")
        deadline = min(self._deadline, _deadline(step.patience))
        for _ in range(_REMOVALS):
            hold = Hold(self._settings.cache_dir, step.request, token)
            self._holds.append(hold)
            for delay in hold.waits(deadline):
                yield Sleep(delay)
            if hold.is_current():
                break
            self._holds.pop().close()  # somebody removed the file and others may lock the new one: do so, too
        else:
            raise RecordError(f"{hold.path}: somebody removes it again and again", path=hold.path)
        # a DEL or CHECK whose runtime was killed may still run, and undo what comes now
        return (yield from self._await_orphan("DEL"))

    def _await_orphan(self, verb: str) -> Generator[Need, Any, bool]:
        """Wait for a plugin that its runtime left behind, but never so long that nothing could be done any more."""
        hold = self._holds[-1] if self._holds else None
        if hold is None or not hold.orphans(verb):
            return True
        now = time.monotonic()
        deadline = now + min(_ORPHAN_WAIT, (self._deadline - now) / 2)
        while hold.orphans(verb) and time.monotonic() < deadline:
            yield Sleep(_ORPHAN_DELAY)
        if not hold.orphans(verb):
            return True
        logger.warning("%s: a plugin of an earlier verb still runs (%s); going on", hold.request.what, hold.path)
        return False

    def _pause(self, step: Pause) -> Generator[Need, Any, bool]:
        in_time = time.monotonic() + step.seconds < self._deadline
        if in_time:
            yield Sleep(step.seconds)
        return in_time

    def _find(self, step: Find) -> tuple[str, ...]:
        return tuple(self._find_one(plugin, missing_allowed=step.missing_allowed) for plugin in step.plugins)

    def _find_one(self, plugin: str, *, missing_allowed: bool) -> str:
        try:
            return self._executor.find(plugin, self._settings.path)
        except PluginNotFoundError:
            if missing_allowed:
                return ""
            raise

    def _recall(self, step: Recall) -> Any:
        return self._memory.get((step.executable, _file_identity(step.executable)))

    def _remember(self, step: Remember) -> None:
        identity = _file_identity(step.executable)
        for known in [known for known in self._memory if known[0] == step.executable]:
            self._memory.pop(known, None)
        if identity:
            self._memory[step.executable, identity] = step.said

    def _begin(self, step: Begin) -> Record:
        record = step.record
        return self._store.begin(
            replace(record, created=time.time(), boot=boot_id(), netns_id=namespace_identity(record.netns))
        )

    def _sweep(self, _step: Sweep) -> None:
        try:
            self._store.sweep()
        except RecordError as error:
            logger.warning("temporary files stay: %s", error)

    def _start_cleanup(self, _step: StartCleanup) -> None:
        self._deadline = _deadline(self._settings.cleanup_timeout)


_AT_ONCE: dict[type, Callable[[Verb, Any], Any]] = {
    Find: Verb._find,  # noqa: SLF001 - one table, in the class's own module
    StartCleanup: Verb._start_cleanup,  # noqa: SLF001
    NamespaceOf: lambda _verb, step: namespace_identity(step.netns),
    Lookup: lambda verb, step: verb._store.find(step.identity),  # noqa: SLF001
    Siblings: lambda verb, step: verb._store.of_interface(step.container_id, step.ifname),  # noqa: SLF001
    AllRecords: lambda verb, step: verb._store.records(step.container_id),  # noqa: SLF001
    Begin: Verb._begin,  # noqa: SLF001
    Complete: lambda verb, step: verb._store.complete(step.record),  # noqa: SLF001
    Forget: lambda verb, step: verb._store.forget(step.record),  # noqa: SLF001
    Recall: Verb._recall,  # noqa: SLF001
    Remember: Verb._remember,  # noqa: SLF001
    Sweep: Verb._sweep,  # noqa: SLF001
    SetAside: lambda verb, step: verb._store.set_aside(step.record),  # noqa: SLF001
}

_DURABLE = (Begin, Complete)  # they wait for the disk, where records are durable


def namespace_identity(netns: str) -> tuple[int, int] | None:
    """Return (device, inode) of what is at a namespace's path, or None."""
    try:
        status = os.stat(netns)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _file_identity(path: str) -> tuple[int, ...]:
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _merged(env: Mapping[str, str], changes: Mapping[str, str | None]) -> Mapping[str, str]:
    """Return ``env`` with ``changes`` made to it, where None takes a variable away."""
    if not changes:
        return env
    return {name: text for name, text in {**env, **changes}.items() if text is not None}


def _deadline(seconds: float | None) -> float:
    return math.inf if seconds is None else time.monotonic() + seconds
