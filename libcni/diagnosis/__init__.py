"""Explain the plugin calls of a verb, and find the problems of a node. The names are resolved on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.diagnosis.doctor import diagnose
    from libcni.diagnosis.drift import ConfigChange, config_changes
    from libcni.diagnosis.executable import executable_problem
    from libcni.diagnosis.explanation import ExplainedCall, ExplainedVerb, Explanation, explain
    from libcni.diagnosis.plugins import ask_plugins
    from libcni.diagnosis.processes import lock_users
    from libcni.diagnosis.report import Checked, Disruption, DoctorReport, NodeFinding, NotChecked
    from libcni.diagnosis.stale import StaleAttachment, attachment_age, find_stale_attachments

_MODULES = {
    "doctor": "diagnose",
    "drift": "ConfigChange config_changes",
    "executable": "executable_problem",
    "explanation": "ExplainedCall ExplainedVerb Explanation explain",
    "plugins": "ask_plugins",
    "processes": "lock_users",
    "report": "Checked Disruption DoctorReport NodeFinding NotChecked",
    "stale": "StaleAttachment attachment_age find_stale_attachments",
}

__all__ = [
    "Checked", "ConfigChange", "Disruption", "DoctorReport", "ExplainedCall", "ExplainedVerb", "Explanation",
    "NodeFinding", "NotChecked", "StaleAttachment", "ask_plugins", "attachment_age", "config_changes", "diagnose",
    "executable_problem", "explain", "find_stale_attachments", "lock_users",
]  # fmt: skip

if not TYPE_CHECKING:  # checkers read the imports above, and so find misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
