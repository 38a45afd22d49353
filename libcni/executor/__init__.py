"""The seam to the outside: where a plugin is, and how it is run. Give your own to ``CNIConfig(executor=...)``."""

from libcni.executor.process import ProcessExecutor
from libcni.executor.protocol import AsyncExecutor, Executor, Limits
from libcni.find import find_plugin

__all__ = ["AsyncExecutor", "Executor", "Limits", "ProcessExecutor", "find_plugin"]
