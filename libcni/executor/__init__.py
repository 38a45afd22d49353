"""How plugins are found and run. Give your own executor to ``CNIConfig(executor=...)``.

The names are resolved on first use, so that plugins can import ``libcni.executor.find`` alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from libcni.executor.find import find_plugin
    from libcni.executor.process import ProcessExecutor
    from libcni.executor.protocol import (
        AsyncExecutor,
        AsyncPreparedPlugin,
        AsyncPreparingExecutor,
        CallOptions,
        Executor,
        PreparedPlugin,
        PreparingExecutor,
    )

_HOME = {
    "AsyncExecutor": "protocol",
    "AsyncPreparedPlugin": "protocol",
    "AsyncPreparingExecutor": "protocol",
    "CallOptions": "protocol",
    "Executor": "protocol",
    "PreparedPlugin": "protocol",
    "PreparingExecutor": "protocol",
    "ProcessExecutor": "process",
    "find_plugin": "find",
}

__all__ = [
    "AsyncExecutor",
    "AsyncPreparedPlugin",
    "AsyncPreparingExecutor",
    "CallOptions",
    "Executor",
    "PreparedPlugin",
    "PreparingExecutor",
    "ProcessExecutor",
    "find_plugin",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value
