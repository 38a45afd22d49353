"""The verbs without I/O: what runs next, with what, given what the last plugin answered. See ``libcni.steps``."""

from libcni.flows.add import OnExisting, add_flow
from libcni.flows.chain import RetryPolicy
from libcni.flows.check import check_flow
from libcni.flows.detach import DelPolicy, DelReport, PluginReport, del_flow
from libcni.flows.gc import GCReport, ValidAttachment, gc_flow
from libcni.flows.query import (
    NetworkStatus,
    PluginInfo,
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
