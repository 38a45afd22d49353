"""Test plugins and runtimes: call a plugin, check it against the specification, fake it, or run without plugins.

Each module is imported on first use, because pytest imports this package before it measures coverage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.executor.recording import RecordedCall, RecordingExecutor, error_outcome, timeout_error
    from libcni.testing.calling import Answer, call_plugin
    from libcni.testing.conformance import ConformanceFinding, ConformanceReport, assert_plugin_conforms, check_plugin
    from libcni.testing.fakes import FakeCall, FakePlugin, FakePlugins
    from libcni.testing.namespaces import NetworkNamespace, network_namespace, wait_until, why_no_namespaces

_MODULES = {
    ".executor.recording": "RecordedCall RecordingExecutor error_outcome timeout_error",
    "calling": "Answer call_plugin",
    "conformance": "ConformanceFinding ConformanceReport assert_plugin_conforms check_plugin",
    "fakes": "FakeCall FakePlugin FakePlugins",
    "namespaces": "NetworkNamespace network_namespace wait_until why_no_namespaces",
}

__all__ = [
    "Answer", "ConformanceFinding", "ConformanceReport", "FakeCall", "FakePlugin",
    "FakePlugins", "NetworkNamespace", "RecordedCall", "RecordingExecutor", "assert_plugin_conforms", "call_plugin",
    "check_plugin", "error_outcome", "network_namespace", "timeout_error", "wait_until", "why_no_namespaces",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers read the imports above, and report misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
