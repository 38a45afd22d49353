"""VERSION: ask plugins for the spec versions that they support, and validate a network."""

from __future__ import annotations

from libcni._dataclass import dataclass
from libcni.config import jsontext
from libcni.config.identifiers import check_plugin_type, validate_network_name
from libcni.config.network import NetworkConfigList, check_plugins
from libcni.config.versions import CURRENT_VERSION
from libcni.errors import CNIError, PluginError, VersionError
from libcni.protocol.answer import PluginInfo, read_version_info
from libcni.protocol.invocation import Invocation
from libcni.protocol.request import cni_variables
from libcni.verbs.verb_run import VerbRun

__all__ = ["PluginValidation", "ValidationReport"]

_TOO_OLD_FOR_VERSION = "unknown CNI_COMMAND: VERSION"


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
        >>> [(plugin.plugin, plugin.path) for plugin in report.plugins]
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
        plugins: the validation of each plugin, in list order.

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
        """All problems, a tuple of CNIErrors; () for a network that can be used."""
        return tuple(plugin.problem for plugin in self.plugins if plugin.problem is not None)

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that any of the plugins declares, each once, sorted."""
        return tuple(sorted({name for plugin in self.plugins for name in plugin.capabilities}))


async def version(run: VerbRun, plugin: str) -> PluginInfo:
    """Ask a plugin for the spec versions that it supports (spec 1.1.0, section 2, VERSION)."""
    return await _ask(run, plugin, run.find(check_plugin_type(plugin)))


async def _ask(run: VerbRun, plugin: str, executable: str) -> PluginInfo:
    # Plugins older than 0.2.0 require these variables for every verb (Go: pkg/invoke/exec.go).
    env = {**cni_variables("VERSION", ()), "CNI_NETNS": "dummy", "CNI_IFNAME": "dummy", "CNI_PATH": "dummy"}
    stdin = jsontext.dumps({"cniVersion": CURRENT_VERSION}).encode()
    invocation = Invocation("VERSION", plugin, executable, stdin, env)
    try:
        return read_version_info(invocation, await run.execute(invocation))
    except PluginError as error:
        if (error.msg, error.details) != (_TOO_OLD_FOR_VERSION, ""):
            raise
        # Version 0.1.0 of the specification has no VERSION. Go libcni recognizes such plugins by the same text.
        return PluginInfo("0.1.0", ("0.1.0",))


async def validate(run: VerbRun, net: NetworkConfigList) -> ValidationReport:
    """Find every plugin of a network and ask it whether it supports the network's version. Attach nothing.

    Raises:
        ConfigError: the network has no plugins.
    """
    validate_network_name(net.name)
    check_plugins(net)
    validations = []
    for plugin in net.plugins:
        executable = ""
        versions: tuple[str, ...] = ()
        problem: CNIError | None = None
        try:
            executable = run.find(plugin.type)
            versions = (await _ask(run, plugin.type, executable)).supported_versions
            if net.cni_version not in versions:
                problem = VersionError(
                    f'plugin "{plugin.type}" does not support version "{net.cni_version}"',
                    version=net.cni_version,
                    hint=f"it supports {', '.join(versions)}",
                )
        except CNIError as error:
            problem = error
        validations.append(PluginValidation(plugin.type, executable, versions, plugin.capabilities, problem))
    return ValidationReport(net.name, net.cni_version, tuple(validations))
