"""The types of the verbs' reports, for annotations.

    from libcni.reports import GCReport

    def log_collected(report: GCReport) -> None: ...

The names are resolved on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.verbs.check import CheckReport
    from libcni.verbs.del_report import DelReport, PluginReport
    from libcni.verbs.forget import ForgetReport
    from libcni.verbs.gc import GCReport
    from libcni.verbs.leftovers import Leftover
    from libcni.verbs.status import NetworkStatus, PluginStatus
    from libcni.verbs.version import PluginValidation, ValidationReport

_MODULES = {
    ".verbs.check": "CheckReport",
    ".verbs.del_report": "DelReport PluginReport",
    ".verbs.forget": "ForgetReport",
    ".verbs.gc": "GCReport",
    ".verbs.leftovers": "Leftover",
    ".verbs.status": "NetworkStatus PluginStatus",
    ".verbs.version": "PluginValidation ValidationReport",
}

__all__ = [
    "CheckReport", "DelReport", "ForgetReport", "GCReport", "Leftover", "NetworkStatus", "PluginReport", "PluginStatus",
    "PluginValidation", "ValidationReport",
]  # fmt: skip

if not TYPE_CHECKING:  # checkers read the imports above, and so find misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
