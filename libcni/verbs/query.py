"""VERSION and STATUS, and what can be found out with them: what plugins support, and whether a network can serve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from libcni.config import jsontext
from libcni.config.identifiers import check_network_name, check_plugin_type
from libcni.config.network import NetworkConfigList
from libcni.config.versions import ALL_VERSIONS, CURRENT_VERSION, parse_version, supports
from libcni.errors import CNIError, PluginError, PluginNotFoundError, VersionError
from libcni.protocol.answer import PluginInfo, read_version_info
from libcni.protocol.invocation import Invocation
from libcni.protocol.request import environment
from libcni.verbs.chain import Chain, run
from libcni.verbs.steps import Find, Flow, Recall, Remember

__all__ = [
    "NetworkStatus",
    "PluginStatus",
    "PluginValidation",
    "ValidationReport",
    "negotiate_flow",
    "status_flow",
    "validate_flow",
    "version_flow",
]

_TOO_OLD_FOR_VERSION = "unknown CNI_COMMAND: VERSION"


@dataclass(frozen=True, slots=True)
class PluginValidation:
    """What was found out about one plugin of a list.

    Attributes:
        plugin: its type.
        path: its executable, or "" where it is missing.
        supported_versions: what it answered to VERSION; () where it could not be asked.
        capabilities: what its configuration declares.
        problem: why it cannot serve this configuration, or None.
    """

    plugin: str
    path: str = ""
    supported_versions: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    problem: CNIError | None = None


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """What was found out about a network.

    Attributes:
        network: its name.
        version: the spec version that it would be used at.
        plugins: one for each plugin, in list order.
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
            ``unsupported`` (the network's version has no STATUS); ``missing`` (no executable).
        error: why it cannot, or None.
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
    """

    network: str
    plugins: tuple[PluginStatus, ...]

    @property
    def ready(self) -> bool:
        """Whether no plugin is missing or not ready."""
        return not self.errors

    @property
    def errors(self) -> tuple[CNIError, ...]:
        """Why it is not ready."""
        return tuple(plugin.error for plugin in self.plugins if plugin.error is not None)


def version_flow(plugin: str, path: Sequence[str]) -> Flow[PluginInfo]:
    """Ask a plugin for the spec versions that it supports (spec 1.1.0, section 2, VERSION)."""
    (executable,) = yield Find((check_plugin_type(plugin),))
    return (yield from _ask_version(plugin, executable, path))


def _ask_version(plugin: str, executable: str, path: Sequence[str]) -> Flow[PluginInfo]:
    known: PluginInfo | None = yield Recall(executable)
    if known is not None:
        return known
    # plugins of before 0.2.0 insist on these variables, whatever the verb
    env = {**environment("VERSION", path), "CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"}
    stdin = jsontext.dumps({"cniVersion": CURRENT_VERSION}).encode()
    invocation = Invocation("VERSION", plugin, executable, stdin, env)
    try:
        outcome = yield from run(invocation)
    except PluginError as error:
        if (error.msg, error.details) != (_TOO_OLD_FOR_VERSION, ""):
            raise
        info = PluginInfo("0.1.0", ("0.1.0",))
    else:
        info = read_version_info(invocation, outcome)
    yield Remember(executable, info)
    return info


def validate_flow(net: NetworkConfigList, path: Sequence[str]) -> Flow[ValidationReport]:
    """Find every plugin of a network and ask it whether it supports the network's version. Attaches nothing."""
    check_network_name(net.name)
    found = []
    for plugin in net.plugins:
        executable = ""
        versions: tuple[str, ...] = ()
        problem: CNIError | None = None
        try:
            (executable,) = yield Find((plugin.type,))
            info = yield from _ask_version(plugin.type, executable, path)
            versions = info.supported_versions
            problem = _version_problem(plugin.type, net.cni_version, versions)
        except CNIError as error:
            problem = error
        found.append(PluginValidation(plugin.type, executable, versions, plugin.capabilities, problem))
    return ValidationReport(net.name, net.cni_version, tuple(found))


def _version_problem(plugin: str, version: str, supported: tuple[str, ...]) -> VersionError | None:
    if version in supported:
        return None
    return VersionError(
        f'plugin "{plugin}" does not support version "{version}"',
        version=version,
        hint=f"it supports {', '.join(supported)}",
    )


def negotiate_flow(net: NetworkConfigList, path: Sequence[str]) -> Flow[NetworkConfigList]:
    """Return the network at the highest version that its document names and all its plugins support.

    Raises:
        VersionError: there is none; the error names the plugins that stand in the way.
    """
    wanted = [version for version in ALL_VERSIONS if version in (net.cni_versions or (net.cni_version,))]
    common = set(wanted)
    blockers = []
    executables = yield Find(tuple(plugin.type for plugin in net.plugins))
    for plugin, executable in zip(net.plugins, executables, strict=True):
        info = yield from _ask_version(plugin.type, executable, path)
        if not common & set(info.supported_versions):
            blockers.append(f'"{plugin.type}" supports {", ".join(info.supported_versions)}')
        else:
            common &= set(info.supported_versions)
    if blockers:
        raise VersionError(
            f'network "{net.name}": no version of {", ".join(wanted)} is supported by all plugins: '
            f"plugin {'; plugin '.join(blockers)}",
            version=net.cni_version,
        )
    return net.with_version(max(common, key=parse_version))


def status_flow(net: NetworkConfigList, path: Sequence[str], *, stop: bool = False) -> Flow[NetworkStatus]:
    """Ask every plugin whether it can serve ADD (spec 1.1.0, section 2, STATUS); ``stop``: only up to the first no."""
    check_network_name(net.name)
    found: list[PluginStatus] = []
    for index, plugin in enumerate(net.plugins):
        found.append((yield from _plugin_status(net, index, plugin.type, path)))
        if stop and found[-1].error is not None:
            break
    return NetworkStatus(net.name, tuple(found))


def _plugin_status(net: NetworkConfigList, index: int, plugin: str, path: Sequence[str]) -> Flow[PluginStatus]:
    try:
        (executable,) = yield Find((plugin,))
        if not supports(net.cni_version, "STATUS"):
            return PluginStatus(plugin, "unsupported")
        chain = Chain(net, None, ("",) * index + (executable,), path)
        yield from run(chain.invocation("STATUS", index))
    except PluginNotFoundError as error:
        return PluginStatus(plugin, "missing", error)
    except PluginError as error:
        return PluginStatus(plugin, "not-ready", error)
    return PluginStatus(plugin, "ready")
