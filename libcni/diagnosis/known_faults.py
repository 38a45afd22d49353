"""Known faults of plugins whose CHECK fails for healthy containers."""

from __future__ import annotations

from libcni.errors import CNIError, PluginError

__all__ = ["known_fault"]


def known_fault(error: CNIError) -> tuple[str, str] | None:
    """Return (plugin, its ``known_fault``) if the error of a CHECK is a known fault of the plugin; else None.

    Args:
        error: the error that CHECK raised.
    """
    return (error.plugin, error.known_fault) if isinstance(error, PluginError) and error.known_fault else None
