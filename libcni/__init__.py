"""The runtime's side of CNI, the Container Network Interface.

    import libcni

    net = libcni.load_network_conf("/etc/cni/net.d", "dbnet")
    rt = libcni.RuntimeConf(container_id="c1", netns="/run/netns/blue", ifname="eth0")
    cni = libcni.CNIConfig(path=["/opt/cni/bin"])
    result = cni.add_network_list(net, rt)

The first use of a name imports its module, so that ``import libcni.plugin`` stays light.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing and importlib cost a plugin a quarter of its start; type checkers know the name
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from libcni._version import __version__
    from libcni.aio import AsyncCNIConfig
    from libcni.client import CNIConfig
    from libcni.config.capability_args import Bandwidth, CapabilityArgs, DNSServers, IPRange, PortMapping
    from libcni.config.cni_args import format_args, parse_args
    from libcni.config.directory import ConfigDirectory, load_network_conf, read_config_directory
    from libcni.config.identifiers import validate_container_id, validate_interface_name, validate_network_name
    from libcni.config.network import NetworkConfigList, PluginConfig, inject_conf
    from libcni.config.runtime_conf import RuntimeConf
    from libcni.config.versions import (
        ALL_VERSIONS,
        CURRENT_VERSION,
        greater_than,
        greater_than_or_equal_to,
        parse_version,
        versions_starting_from,
    )
    from libcni.errors import (
        AttachmentExistsError,
        CNIError,
        CNIErrorGroup,
        ConfigError,
        Hint,
        InterfaceExistsError,
        InvalidIdentifierError,
        InvalidOutputError,
        LockTimeoutError,
        NamespaceMismatchError,
        NetworkNotFoundError,
        NotAttachedError,
        PluginError,
        PluginNotFoundError,
        PluginTimeoutError,
        RecordError,
        VersionError,
    )
    from libcni.executor.cancel import Cancelled, CancelScope
    from libcni.options import DelPolicy
    from libcni.protocol.answer import PluginInfo
    from libcni.protocol.error_code import ErrorCode
    from libcni.protocol.invocation import Invocation, Outcome
    from libcni.protocol.result import DNS, Interface, IPConfig, Result, Route
    from libcni.store.attachments import Attachment

_MODULES = {
    "_version": "__version__",
    "aio": "AsyncCNIConfig",
    "store.attachments": "Attachment",
    "config.capability_args": "Bandwidth CapabilityArgs DNSServers IPRange PortMapping",
    "client": "CNIConfig",
    "config.cni_args": "format_args parse_args",
    "config.directory": "ConfigDirectory load_network_conf read_config_directory",
    "config.identifiers": "validate_container_id validate_interface_name validate_network_name",
    "config.network": "NetworkConfigList PluginConfig inject_conf",
    "errors": "AttachmentExistsError CNIError CNIErrorGroup ConfigError Hint InterfaceExistsError "
    "InvalidIdentifierError InvalidOutputError LockTimeoutError NamespaceMismatchError NetworkNotFoundError "
    "NotAttachedError PluginError PluginNotFoundError PluginTimeoutError RecordError VersionError",
    "executor.cancel": "CancelScope Cancelled",
    "options": "DelPolicy",
    "protocol.answer": "PluginInfo",
    "protocol.error_code": "ErrorCode",
    "protocol.invocation": "Invocation Outcome",
    "protocol.result": "DNS IPConfig Interface Result Route",
    "config.runtime_conf": "RuntimeConf",
    "config.versions": "ALL_VERSIONS CURRENT_VERSION greater_than greater_than_or_equal_to parse_version "
    "versions_starting_from",
}

__all__ = [
    "ALL_VERSIONS", "CURRENT_VERSION", "DNS", "AsyncCNIConfig", "Attachment", "AttachmentExistsError", "Bandwidth",
    "CNIConfig", "CNIError", "CNIErrorGroup", "CancelScope", "Cancelled", "CapabilityArgs", "ConfigDirectory",
    "ConfigError", "DNSServers", "DelPolicy", "ErrorCode", "Hint", "IPConfig", "IPRange", "Interface",
    "InterfaceExistsError", "InvalidIdentifierError", "InvalidOutputError", "Invocation", "LockTimeoutError",
    "NamespaceMismatchError", "NetworkConfigList", "NetworkNotFoundError", "NotAttachedError", "Outcome",
    "PluginConfig", "PluginError", "PluginInfo", "PluginNotFoundError", "PluginTimeoutError", "PortMapping",
    "RecordError", "Result", "Route", "RuntimeConf", "VersionError", "__version__", "format_args", "greater_than",
    "greater_than_or_equal_to", "inject_conf", "load_network_conf", "parse_args", "parse_version",
    "read_config_directory", "validate_container_id", "validate_interface_name", "validate_network_name",
    "versions_starting_from",
]  # fmt: skip


def _lazy(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports each module when a name of it is used (PEP 562).

    ``modules``: the modules of the package, each with the public names that it defines.
    """
    home = {name: module for module, names in modules.items() for name in names.split()}

    def resolve(name: str) -> Any:
        from importlib import import_module

        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{home[name]}", package), name)
        setattr(import_module(package), name, value)  # Python calls this function for missing names only
        return value

    return resolve, lambda: sorted(home)


_resolve = _lazy(__name__, _MODULES)[0]


if not TYPE_CHECKING:  # checkers read the imports above, and so find misspelt names

    def __getattr__(name: str) -> Any:
        import logging

        # Without a handler Python prints warnings to stderr, which belongs to the program. Not done at import: a plugin
        # uses no name of this module, and logging would cost it 3 ms at each start.
        logger = logging.getLogger(__name__)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
        return _resolve(name)

    def __dir__() -> list[str]:
        return __all__
