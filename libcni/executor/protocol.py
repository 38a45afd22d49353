"""What an executor is: two methods, blocking or as coroutines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from libcni.protocol.invocation import Invocation, Outcome

__all__ = ["AsyncExecutor", "Executor", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may take, and what it takes along.

    Attributes:
        timeout: seconds until the plugin is stopped; None: no limit.
        env: the environment apart from the CNI_* variables.
        inherit: a descriptor for the plugin to inherit, or -1. It tells others that the plugin still lives.
    """

    timeout: float | None = None
    env: Mapping[str, str] | None = None
    inherit: int = -1


@runtime_checkable
class Executor(Protocol):
    """Find and run plugins, blocking."""

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable.

        Args:
            plugin: the plugin's type, which is the executable's file name.
            path: the directories to look in, in order.

        Raises:
            PluginNotFoundError: there is none.
        """
        ...

    def execute(self, invocation: Invocation, limits: Limits) -> Outcome:
        """Run a plugin to its end (spec 1.1.0, section 2).

        Whatever its exit status, a plugin that ended by itself is an Outcome.

        Args:
            invocation: what the plugin is given.
            limits: what the call may take: seconds, environment, a descriptor to inherit.

        Raises:
            PluginTimeoutError: it was stopped at ``limits.timeout``.
            InvalidOutputError: it printed too much, and was stopped.
            PluginError: it could not be started, or its exit status cannot be known.
        """
        ...


@runtime_checkable
class AsyncExecutor(Protocol):
    """Find and run plugins on asyncio; the methods are those of Executor."""

    def find(self, plugin: str, path: Sequence[str]) -> str:
        """Return the path of a plugin type's executable, as ``Executor.find`` does; quick, so it is no coroutine.

        Raises:
            PluginNotFoundError: there is none.
        """
        ...

    async def execute(self, invocation: Invocation, limits: Limits) -> Outcome:
        """Run a plugin to its end, as ``Executor.execute`` does (spec 1.1.0, section 2).

        A cancelled call stops the plugin.

        Raises:
            PluginTimeoutError: it was stopped at ``limits.timeout``.
            InvalidOutputError: it printed too much, and was stopped.
            PluginError: it could not be started, or its exit status cannot be known.
        """
        ...
