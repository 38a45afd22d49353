"""Known faults of plugins: their CHECK fails for containers that are in order."""

from __future__ import annotations

from libcni._known_faults import fault_of
from libcni.errors import CNIError, PluginError

__all__ = ["known_fault"]


def known_fault(error: CNIError) -> tuple[str, str] | None:
    """Return the plugin and the meaning of its fault if an error of CHECK comes from a known fault of a plugin.

    The container may be in order, and attaching it again does not help.

    Args:
        error: the error that CHECK raised.
    """
    if not isinstance(error, PluginError):
        return None
    fault = fault_of(error)
    return (error.plugin, fault.meaning) if fault is not None and fault.cure == "none" else None
