"""Explain the plugin calls of a verb, and find the problems of a node. The names are resolved on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libcni import _lazy

if TYPE_CHECKING:
    from libcni.diagnosis.doctor import diagnose
    from libcni.diagnosis.executable import executable_problem
    from libcni.diagnosis.explanation import ExplainedCall, ExplainedVerb, explain
    from libcni.diagnosis.known_faults import known_fault
    from libcni.diagnosis.lock_holders import lock_users
    from libcni.diagnosis.mends import Mend
    from libcni.diagnosis.namespaces import attachment_age
    from libcni.diagnosis.obstacles import obstacles_to_reload
    from libcni.diagnosis.plugins import ask_plugins
    from libcni.diagnosis.repair import MendOutcome, NodeRepair, repair_node
    from libcni.diagnosis.report import Checked, DoctorReport, NodeFinding, NotChecked

_MODULES = {
    "doctor": "diagnose",
    "executable": "executable_problem",
    "explanation": "ExplainedCall ExplainedVerb explain",
    "known_faults": "known_fault",
    "mends": "Mend",
    "namespaces": "attachment_age",
    "obstacles": "obstacles_to_reload",
    "plugins": "ask_plugins",
    "lock_holders": "lock_users",
    "repair": "MendOutcome NodeRepair repair_node",
    "report": "Checked DoctorReport NodeFinding NotChecked",
}

__all__ = [
    "Checked", "DoctorReport", "ExplainedCall", "ExplainedVerb",
    "Mend", "MendOutcome", "NodeFinding", "NodeRepair", "NotChecked", "ask_plugins", "attachment_age",
    "diagnose", "executable_problem", "explain", "known_fault", "lock_users", "obstacles_to_reload", "repair_node",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers read the imports above, and report misspelt names
    __getattr__, __dir__ = _lazy(__name__, _MODULES)
