"""The reports that verbs return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from libcni.errors import CNIError
from libcni.store.attachments import Attachment

__all__ = [
    "DelReport",
    "ForgetReport",
    "GCReport",
    "NetworkStatus",
    "PluginReport",
    "PluginStatus",
    "PluginValidation",
    "ValidationReport",
]

RecordSeen = Literal["found", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class PluginReport:
    """The outcome of DEL for one plugin of a chain.

    Attributes:
        plugin: its type.
        state: ``done``, ``failed`` (see ``error``) or ``skipped`` (its executable is missing).
        error: why it failed, or None.
        seconds: how long it ran.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [one.plugin for one in report.plugins if one.state == "done"]
        ['bridge']
    """

    plugin: str
    state: Literal["done", "failed", "skipped"]
    error: CNIError | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DelReport:
    """The outcome of a DEL.

    Attributes:
        plugins: one report for each plugin, in the order of the calls.
        record: the state of the attachment's record: ``found``, ``missing`` or ``unreadable``.
        netns: the CNI_NETNS that the plugins received.
        left: what the plugins are known to leave behind, in words. The commands of ``libcni doctor`` remove it.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.del_attachment(cni.get_cached_attachments()[0])
        >>> [(plugin.plugin, plugin.state) for plugin in report.plugins]
        [('bridge', 'done')]
    """

    plugins: tuple[PluginReport, ...]
    record: RecordSeen = "found"
    netns: str = ""
    left: tuple[str, ...] = ()

    @property
    def errors(self) -> list[CNIError]:
        """The errors of the plugins that failed, in the order of the calls."""
        return [plugin.error for plugin in self.plugins if plugin.error is not None]


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """A record that was removed without running a plugin.

    Attributes:
        path: the file that was removed.
        plugins: the types of the plugins whose effects may still exist; () if the record did not name them.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> cni.forget_attachment(cni.get_cached_attachments()[0]).plugins
        ('bridge',)
    """

    path: str
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GCReport:
    """The outcome of a GC, or of a dry run.

    Attributes:
        stale: the attachments that were not valid.
        detached: the stale attachments that were detached; () on a dry run.
        corrupt: records that cannot be read; GC leaves them alone, and does not call the plugins.
        made_by_go: records of Go libcni that are not valid; GC leaves them alone without ``include_go``.
        plugins: the types of the plugins that ran GC.
        disabled: whether the configuration sets ``disableGC``; then GC did nothing.
        errors: the errors, in the order in which they happened.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> report = cni.gc_network_list(net, valid=[])
        >>> [one.container_id for one in report.detached], report.errors
        (['c1'], ())
    """

    stale: tuple[Attachment, ...] = ()
    detached: tuple[Attachment, ...] = ()
    corrupt: tuple[Attachment, ...] = ()
    made_by_go: tuple[Attachment, ...] = ()
    plugins: tuple[str, ...] = ()
    disabled: bool = False
    errors: tuple[CNIError, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginValidation:
    """The validation of one plugin of a list.

    Attributes:
        plugin: its type.
        path: its executable, or "" if it is missing.
        supported_versions: its answer to VERSION; () if it did not answer.
        capabilities: the capabilities that its configuration declares.
        problem: why it cannot serve this configuration, or None.

    Examples:
        >>> report = cni.validate_network_list(net)
        >>> [(one.plugin, one.path) for one in report.plugins]
        [('bridge', '/opt/cni/bin/bridge')]
    """

    plugin: str
    path: str = ""
    supported_versions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    problem: CNIError | None = None


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The validation of a network.

    Attributes:
        network: its name.
        version: the spec version that the verbs would use.
        plugins: one for each plugin, in list order.

    Examples:
        >>> report = cni.validate_network_list(net)
        >>> report.version, report.problems
        ('1.1.0', ())
    """

    network: str
    version: str
    plugins: tuple[PluginValidation, ...]

    @property
    def problems(self) -> tuple[CNIError, ...]:
        """All problems; () for a network that can be used."""
        return tuple(plugin.problem for plugin in self.plugins if plugin.problem is not None)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that any of the plugins declares, each once, sorted."""
        return tuple(sorted({name for plugin in self.plugins for name in plugin.capabilities}))


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """Whether one plugin can serve ADD (spec 1.1.0, section 2, STATUS).

    Attributes:
        plugin: its type.
        state: ``ready``; ``not-ready`` (``error`` says why, its code is 50 or 51 by the specification);
            ``unsupported`` (the network's version has no STATUS, so the plugin was not asked); ``missing`` (no
            executable).
        error: why it cannot, or None.

    Examples:
        >>> [(one.plugin, one.state, one.error) for one in cni.network_status(net).plugins]
        [('bridge', 'ready', None)]
    """

    plugin: str
    state: Literal["ready", "not-ready", "unsupported", "missing"]
    error: CNIError | None = None


@dataclass(frozen=True, slots=True)
class NetworkStatus:
    """Whether a network can serve ADD (spec 1.1.0, section 2, STATUS).

    Attributes:
        network: its name.
        plugins: one for each plugin that was asked, in list order.

    Examples:
        >>> status = cni.network_status(net)
        >>> status.ready, [(one.plugin, one.state) for one in status.plugins]
        (True, [('bridge', 'ready')])
    """

    network: str
    plugins: tuple[PluginStatus, ...]

    @property
    def ready(self) -> bool:
        """Whether no plugin is missing or not ready."""
        return not self.errors

    @property
    def errors(self) -> tuple[CNIError, ...]:
        """The errors of the plugins that are not ready or missing."""
        return tuple(plugin.error for plugin in self.plugins if plugin.error is not None)
