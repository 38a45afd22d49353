"""The report of a DEL: the outcome of each plugin, and the resources that are left."""

from __future__ import annotations

from typing import Literal

from libcni._dataclass import dataclass
from libcni.errors import CNIError
from libcni.verbs.leftovers import Leftover

__all__ = ["DelReport", "PluginReport"]


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The outcome of DEL for one plugin of a chain.

    Attributes:
        plugin: its type.
        state: ``done``, ``failed`` (see ``error``) or ``skipped`` (its executable is missing).
        error: why it failed, or None.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [plugin.plugin for plugin in report.plugins if plugin.state == "done"]
        ['bridge']
    """

    plugin: str
    state: Literal["done", "failed", "skipped"]
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class DelReport:
    """The outcome of a DEL.

    Attributes:
        plugins: one report for each plugin, in the order of the calls.
        record: whether the attachment had a record: ``found``, ``missing`` or ``unreadable``.
        netns: the CNI_NETNS that the plugins received.
        left: rules and reservations that the plugins could not remove. ``libcni repair`` removes them.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [(plugin.plugin, plugin.state) for plugin in report.plugins]
        [('bridge', 'done')]
    """

    plugins: tuple[PluginReport, ...]
    record: Literal["found", "missing", "unreadable"] = "found"
    netns: str = ""
    left: tuple[Leftover, ...] = ()

    @property
    def errors(self) -> list[CNIError]:
        """The errors of the plugins that failed, in the order of the calls."""
        return [plugin.error for plugin in self.plugins if plugin.error is not None]
