"""Known faults of plugins: their CHECK fails for containers that are in order."""

from __future__ import annotations

import re

from libcni.errors import CNIError, PluginError

__all__ = ["known_fault"]

_KNOWN_FAULTS = (
    ("portmap", "could not check ipv6 dnat", "portmap 1.1.1 looks for IPv4 rules in the IPv6 table"),
    ("bandwidth", "nil pointer dereference", "bandwidth 1.1.1 crashes in CHECK of a container without limits"),
    ("bandwidth", r"goroutine 1 \[", "bandwidth 1.1.1 crashes in CHECK of a container without limits"),
    ("bridge", "no plugin name provided", "bridge cannot check a network without IPAM"),
    ("bridge", r"gw:<nil>\} not found in routing table", "bridge 1.1.1 looks for the route without its gateway"),
    ("bridge", "failed to find gateway", "bridge looks for routes in the main table, and sbr has moved them"),
    (
        "bridge",
        r"^bridge interface \S+ mac doesn't match",
        "a bridge without an address changes its MAC with its ports",
    ),
)
"""Faults of plugins in CHECK: (plugin, a pattern in its message, the meaning). The container may be in order.

Release 1.9.1 still has the faults without a version here.
"""


def known_fault(error: CNIError) -> tuple[str, str] | None:
    """Return the plugin and the meaning of its fault if an error of CHECK comes from a known fault of a plugin.

    The container may be in order, and attaching it again does not help.

    Args:
        error: the error that CHECK raised.
    """
    if not isinstance(error, PluginError):
        return None
    text = f"{error.msg} {error.details} {error.stderr}".lower()
    faults = (fault for fault in _KNOWN_FAULTS if fault[0] == error.plugin and re.search(fault[1], text))
    return next((fault[::2] for fault in faults), None)
