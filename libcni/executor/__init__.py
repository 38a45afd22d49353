"""Find and run plugins. Give your own executor to ``CNIConfig(executor=...)``.

The names are resolved on first use, so that plugins can import ``libcni.executor.find`` alone.
"""

from __future__ import annotations

from libcni import _lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from libcni.executor.find import find_plugin
    from libcni.executor.interface import AsyncExecutor, AsyncPreparedPlugin, CallOptions, Executor, PreparedPlugin
    from libcni.executor.invoke import (
        PluginArgs,
        args_from_env,
        delegate_args,
        exec_plugin_with_result,
        exec_plugin_without_result,
    )
    from libcni.executor.process import ProcessExecutor

_MODULES = {
    "invoke": "PluginArgs args_from_env delegate_args exec_plugin_with_result exec_plugin_without_result",
    "find": "find_plugin",
    "process": "ProcessExecutor",
    "interface": "AsyncExecutor AsyncPreparedPlugin CallOptions Executor PreparedPlugin",
}

__all__ = [
    "AsyncExecutor", "AsyncPreparedPlugin", "CallOptions", "Executor", "PluginArgs", "PreparedPlugin",
    "ProcessExecutor", "args_from_env", "delegate_args", "exec_plugin_with_result", "exec_plugin_without_result",
    "find_plugin",
]  # fmt: skip

if not TYPE_CHECKING:  # checkers read the imports above, and so find misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
