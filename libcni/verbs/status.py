"""STATUS: ask a network's plugins whether they can serve ADD."""

from __future__ import annotations

from typing import Literal

from libcni._dataclass import dataclass
from libcni.config.identifiers import validate_network_name
from libcni.config.network import NetworkConfigList, check_plugins
from libcni.config.versions import supports
from libcni.errors import CNIError, PluginError, PluginNotFoundError
from libcni.verbs.chain import Chain
from libcni.verbs.verb_run import VerbRun

__all__ = ["NetworkStatus", "PluginStatus"]


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """Whether one plugin can serve ADD (spec 1.1.0, section 2, STATUS).

    Attributes:
        plugin: its type.
        state: ``ready``; ``not-ready`` (``error`` says why; by the specification its code is 50 or 51);
            ``unsupported`` (the network's version has no STATUS, so the plugin was not asked); ``missing`` (no
            executable).
        error: why it cannot serve ADD, or None.

    Examples:
        >>> [(plugin.plugin, plugin.state, plugin.error) for plugin in cni.network_status(net).plugins]
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
        plugins: the status of each plugin that was asked, in list order.

    Examples:
        >>> status = cni.network_status(net)
        >>> status.ready, [(plugin.plugin, plugin.state) for plugin in status.plugins]
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
        """The errors of the plugins that are missing or not ready."""
        return tuple(plugin.error for plugin in self.plugins if plugin.error is not None)


async def status(run: VerbRun, net: NetworkConfigList, *, stop_at_first: bool = False) -> NetworkStatus:
    """Ask every plugin whether it can serve ADD (spec 1.1.0, section 2, STATUS).

    Args:
        run: runs the plugins.
        net: the network.
        stop_at_first: stop at the first plugin that cannot serve ADD.

    Raises:
        ConfigError: the network has no plugins.
    """
    validate_network_name(net.name)
    check_plugins(net)
    statuses: list[PluginStatus] = []
    for index in range(len(net.plugins)):
        statuses.append(await _plugin_status(run, net, index))
        if stop_at_first and statuses[-1].error is not None:
            break
    return NetworkStatus(net.name, tuple(statuses))


async def status_or_raise(run: VerbRun, net: NetworkConfigList) -> NetworkStatus:
    """Ask each plugin, like ``status``; raise the error of the first plugin that cannot serve ADD."""
    report = await status(run, net, stop_at_first=True)
    if report.errors:
        raise report.errors[0]
    return report


async def _plugin_status(run: VerbRun, net: NetworkConfigList, index: int) -> PluginStatus:
    plugin = net.plugins[index].type
    try:
        executable = run.find(plugin)
        # Search for the executable first, so that a missing plugin is reported at every version.
        if not supports(net.cni_version, "STATUS"):
            return PluginStatus(plugin, "unsupported")
        chain = Chain(run, net, None, ("",) * index + (executable,))
        await run.execute(chain.invocation("STATUS", index))
    except PluginNotFoundError as error:
        return PluginStatus(plugin, "missing", error)
    except PluginError as error:
        return PluginStatus(plugin, "not-ready", error)
    return PluginStatus(plugin, "ready")
