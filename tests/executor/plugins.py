"""Plugins in shell, Python and C for the executor's tests, and both executors behind one function."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest

from libcni.executor import CallOptions, ProcessExecutor, child, streams
from libcni.executor.async_process import AsyncProcessExecutor
from libcni.protocol.invocation import Invocation, Outcome
from libcni.testing import wait_until

__all__ = [
    "BASE",
    "ENV",
    "KINDS",
    "Kind",
    "c_program",
    "execute",
    "invocation",
    "nothing_is_left_open",
    "number_in",
    "python",
    "replace_in_executor",
    "script",
]

ENV = {"CNI_COMMAND": "ADD", "CNI_PATH": "/x"}
BASE = {"PATH": "/usr/bin:/bin"}
KINDS = ("blocking", "asyncio")
Kind = str


def script(directory: Path, body: str, *, name: str = "plugin", mode: int = 0o755) -> str:
    """Write a shell plugin and return its path."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return str(path)


def python(directory: Path, body: str, *, name: str = "plugin") -> str:
    """Write a Python plugin and return its path."""
    path = directory / name
    path.write_text(f"#!{sys.executable} -S\nimport os, signal, sys, time\n{body}\n")
    path.chmod(0o755)
    return str(path)


def c_program(directory: Path, body: str, *, name: str = "plugin") -> str:
    """Compile a plugin whose ``main`` is ``body``, and return its path."""
    includes = "".join(
        f"#include <{header}>\n"
        for header in ("errno.h", "fcntl.h", "signal.h", "stdio.h", "sys/ptrace.h", "sys/wait.h", "time.h", "unistd.h")
    )
    source = directory / f"{name}.c"
    source.write_text(f"#define _GNU_SOURCE\n{includes}int main(void) {{\n{body}\n}}\n")
    subprocess.run(["gcc", "-w", "-o", str(directory / name), str(source)], check=True)
    return str(directory / name)


def invocation(path: str, stdin: bytes = b"{}", verb: str = "ADD") -> Invocation:
    """Return a call of the plugin at ``path``."""
    return Invocation(verb, "p", path, stdin, {**ENV, "CNI_COMMAND": verb}, "net", "c1", "eth0")


_Executor = TypeVar("_Executor", ProcessExecutor, AsyncProcessExecutor)


def execute(
    kind: Kind, plugin: str | Invocation, timeout: float | None = 10.0, *, verb: str = "ADD", **options: Any
) -> Outcome:
    """Run a plugin with the blocking executor or with the one for asyncio, whose loop must stay responsive."""
    call = invocation(plugin, verb=verb) if isinstance(plugin, str) else plugin
    limits = CallOptions(timeout, BASE)
    if kind == "blocking":
        return _limited(ProcessExecutor, **options).execute(call, limits)
    return asyncio.run(_responsive(_limited(AsyncProcessExecutor, **options), call, limits))


def _limited(kind: type[_Executor], output_limit: int = 0, **options: Any) -> _Executor:
    executor = kind(**options)
    if output_limit:
        executor._output_limit = output_limit
    return executor


async def _responsive(executor: AsyncProcessExecutor, call: Invocation, options: CallOptions) -> Outcome:
    longest = 0.0

    def now() -> float:
        """Return the time without that in which this thread waited for a core: that is the busy machine's."""
        return time.monotonic() - int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9

    async def tick() -> None:
        nonlocal longest
        while True:
            started = now()
            await asyncio.sleep(0.01)
            longest = max(longest, now() - started)

    ticking = asyncio.create_task(tick())
    try:
        return await executor.execute(call, options)
    finally:
        ticking.cancel()
        assert longest < 0.5, "the event loop was blocked"


def number_in(path: Path) -> int:
    """Wait until a plugin has written a number into a file, and return it."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def _children() -> set[int]:
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(OSError):  # a thread may end meanwhile
            found.update(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
    return found


@contextmanager
def nothing_is_left_open() -> Iterator[None]:
    """Assert that the block leaves no descriptor and no child process that the next start does not reap.

    Earlier tests may have left some, which may end meanwhile. A process that this block leaves is killed.
    """
    descriptors, of_others = set(os.listdir("/proc/self/fd")), _children()
    yield

    def left() -> set[int]:
        child._reap_unreaped()
        return _children() - of_others

    try:
        wait_until(lambda: not left(), problem="this test has left a process")
        wait_until(lambda: set(os.listdir("/proc/self/fd")) <= descriptors, problem="this test has left a descriptor")
    finally:
        for process in left():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)


class _Replaced:
    """A module with some functions replaced, for the module under test alone: asyncio calls these functions as well."""

    def __init__(self, module: ModuleType, **functions: Callable[..., Any]) -> None:
        self._module = module
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def replace_in_executor(patch: pytest.MonkeyPatch, module: ModuleType, **functions: Callable[..., Any]) -> None:
    """Replace functions of a module such as ``os`` in all modules that start and end a process."""
    for user in (child, streams):
        if hasattr(user, module.__name__):
            patch.setattr(user, module.__name__, _Replaced(getattr(user, module.__name__), **functions))


def without_pidfd(patch: pytest.MonkeyPatch) -> None:
    """Let the executors find a kernel before Linux 5.3."""

    def refused(_pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    replace_in_executor(patch, os, pidfd_open=refused)


def run(path: str, stdin: bytes = b"{}", timeout: float | None = 10.0, inherit: int = -1, **options: Any) -> Outcome:
    return _limited(ProcessExecutor, **options).execute(
        invocation(path, stdin), CallOptions(timeout, BASE, lambda: inherit)
    )
