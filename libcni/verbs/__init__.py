"""The verbs without I/O: what runs next, with what, given what the last plugin answered. See ``libcni.verbs.steps``."""

from libcni.protocol.answer import PluginInfo
from libcni.verbs.add import OnExisting, add_flow
from libcni.verbs.chain import RetryPolicy
from libcni.verbs.check import check_flow
from libcni.verbs.delete import DelPolicy, DelReport, PluginReport, del_flow
from libcni.verbs.gc import GCReport, ValidAttachment, gc_flow
from libcni.verbs.query import (
    NetworkStatus,
    PluginStatus,
    PluginValidation,
    ValidationReport,
    negotiate_flow,
    status_flow,
    validate_flow,
    version_flow,
)

__all__ = [
    "DelPolicy",
    "DelReport",
    "GCReport",
    "NetworkStatus",
    "OnExisting",
    "PluginInfo",
    "PluginReport",
    "PluginStatus",
    "PluginValidation",
    "RetryPolicy",
    "ValidAttachment",
    "ValidationReport",
    "add_flow",
    "check_flow",
    "del_flow",
    "gc_flow",
    "negotiate_flow",
    "status_flow",
    "validate_flow",
    "version_flow",
]
