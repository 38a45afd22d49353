"""The protocols of executors, which find and run plugins, blocking or on asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from libcni._dataclass import dataclass, field
from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["AsyncExecutor", "AsyncPreparedPlugin", "CallOptions", "Executor", "PreparedPlugin"]


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of one plugin call.

    Attributes:
        timeout: seconds until the plugin is stopped; None: no limit.
        env: the plugin's environment without the CNI_* variables.
        inherit: a function that returns a descriptor for the plugin to inherit, or -1 for none; None: none. Call it
            just before the start, because it opens the descriptor. It raises RecordError if that fails. While any
            process has the descriptor, the next verb of the container considers the plugin running.
        on_started: a function to call once the plugin has started and has its configuration, before the wait for its
            end; None: no function. An executor need not call it.
        ends_with_caller: whether the kernel kills the plugin when this program ends, even by SIGKILL. In a program
            with several threads this has no effect: the plugin goes on.

    Examples:
        >>> CallOptions(timeout=5.0).timeout
        5.0
    """

    timeout: float | None = None
    env: Mapping[str, str] | None = field(default=None, repr=False)  # it may hold secrets, and fills a screen
    inherit: Callable[[], int] | None = None
    on_started: Callable[[], object] | None = None
    ends_with_caller: bool = False


@runtime_checkable
class Executor(Protocol):
    """An object that finds and runs plugins, blocking.

    It may have a method ``prepare(invocation, options)``, which starts a plugin before its configuration is known. The
    method ignores ``stdin`` and ``timeout``, and returns a PreparedPlugin, or None if the plugin cannot be started now.

    Examples:
        >>> class Logged(ProcessExecutor):
        ...     def execute(self, invocation, options):
        ...         print(invocation.verb, invocation.plugin)
        ...         return super().execute(invocation, options)
        >>> cni = libcni.CNIConfig("/opt/cni/bin", "cache", executor=Logged())
    """

    def find(self, plugin: str, path: Sequence[str], /) -> str:
        """Return the path of a plugin type's executable.

        Args:
            plugin: the plugin's type, which is the executable's file name.
            path: the directories to search, in order.

        Raises:
            PluginNotFoundError: no directory has an executable of that name.
        """
        ...

    def execute(self, invocation: Invocation, options: CallOptions, /) -> Outcome:
        """Run a plugin until it exits (spec 1.1.0, section 2).

        If the plugin exits by itself, return an Outcome, whatever its exit status is.

        Args:
            invocation: the executable, its stdin and its CNI_* variables.
            options: the timeout in seconds, the rest of the environment, a descriptor to inherit.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed too much, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        ...


@runtime_checkable
class AsyncExecutor(Protocol):
    """An object that finds and runs plugins on asyncio; the methods are those of Executor.

    ``prepare`` is not a coroutine, must not block, and returns an AsyncPreparedPlugin or None.
    """

    def find(self, plugin: str, path: Sequence[str], /) -> str:
        """Return the path of a plugin type's executable, like ``Executor.find``. It is fast, so it is not a coroutine.

        Raises:
            PluginNotFoundError: no directory has an executable of that name.
        """
        ...

    async def execute(self, invocation: Invocation, options: CallOptions, /) -> Outcome:
        """Run a plugin until it exits, as ``Executor.execute`` does (spec 1.1.0, section 2).

        Cancelling the call kills the plugin.

        Raises:
            PluginTimeoutError: the plugin was stopped at ``options.timeout``.
            InvalidOutputError: the plugin printed too much, and was stopped.
            PluginError: the plugin cannot be started or watched, or its exit status is unknown.
        """
        ...


class PreparedPlugin(Protocol):
    """A plugin process that waits for its configuration on stdin. Feed it or discard it."""

    def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration, close stdin and run the plugin until it exits, as ``Executor.execute`` does.

        If the configuration does not fit into the pipe, this process is killed and a new one receives it.

        Args:
            stdin: the execution configuration, UTF-8 JSON.
            timeout: seconds from now until the plugin is stopped; None: no limit.

        Raises:
            PluginError: as ``Executor.execute``.
            RuntimeError: the plugin was fed or discarded before.
        """
        ...

    def discard(self) -> None:
        """Kill the waiting process, reap it and close its descriptors. Does nothing after ``feed``."""
        ...


class AsyncPreparedPlugin(Protocol):
    """A plugin process that waits for its configuration; the methods are those of PreparedPlugin, as coroutines."""

    async def feed(self, stdin: bytes, timeout: float | None) -> Outcome:
        """Send the configuration, close stdin and run the plugin until it exits, as ``PreparedPlugin.feed`` does.

        Raises:
            PluginError: as ``Executor.execute``.
            RuntimeError: the plugin was fed or discarded before.
        """
        ...

    async def discard(self) -> None:
        """Kill the waiting process, reap it and close its descriptors. Does nothing after ``feed``."""
        ...
