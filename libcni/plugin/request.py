"""One call of a plugin, as its function sees it."""

from __future__ import annotations

import os

from libcni.errors import ErrorCode
from libcni.plugin.failure import VerbError
from libcni.plugin.reading import version_of
from libcni.plugin.results import PluginResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, TypeVar

    from libcni.plugin.runtime_config import RuntimeConfig

    ArgsT = TypeVar("ArgsT")

__all__ = ["Request"]

_VALID = ("cni.dev/valid-attachments", "cni.dev/attachments")


class Request:
    """Hold what the runtime sent: environment and configuration, read and checked for the verb.

    Attributes:
        verb (str): ``ADD``, ``DEL``, ``CHECK``, ``GC`` or ``STATUS``.
        version: the configuration's spec version, one that the plugin supports.
        container_id: the container, "" where the verb has none.
        netns: the path of its network namespace, "" where the verb has none, and on some DELs.
        ifname: the interface's name, "" where the verb has none.
        path: the directories of CNI_PATH.
        config (dict[str, Any]): the whole configuration, as JSON says it.
        stdin (bytes): the same, byte for byte: what a delegated plugin receives.
        env (Mapping[str, str]): the environment.
        name: the network's name.
    """

    def __init__(self, verb: str, env: Mapping[str, str], config: dict[str, Any], stdin: bytes) -> None:
        self.verb = verb
        self.env = env
        self.config = config
        self.stdin = stdin
        self.version: str = version_of(config)
        self.name: str = str(config.get("name", ""))
        self.container_id: str = env.get("CNI_CONTAINERID", "")
        self.netns: str = env.get("CNI_NETNS", "")
        self.ifname: str = env.get("CNI_IFNAME", "")
        self.path: tuple[str, ...] = tuple(part for part in env.get("CNI_PATH", "").split(os.pathsep) if part)
        self._result: PluginResult | None = None

    @property
    def prev_result(self) -> PluginResult | None:
        """The previous plugin's result (on CHECK and DEL: the chain's), or None.

        It is read when asked for, so that a DEL that does not need it survives a broken one.

        Raises:
            VerbError: code 6, it is not a result.
        """
        document = self.config.get("prevResult")
        return None if document is None else PluginResult.from_document(document, self.version)

    @property
    def result(self) -> PluginResult:
        """The result in the making, which an ADD prints: a copy of ``prev_result`` to change, or an empty one."""
        if self._result is None:
            self._result = self.prev_result or PluginResult(self.version)
        return self._result

    @result.setter
    def result(self, result: PluginResult) -> None:
        self._result = result

    @property
    def args(self) -> dict[str, str]:
        """The pairs of CNI_ARGS; the last of a name wins.

        Raises:
            VerbError: code 4, a pair has not exactly one ``=``.
        """
        from libcni.plugin.arguments import parse_args

        return dict(parse_args(self.env.get("CNI_ARGS", "")))

    def load_args(self, into: type[ArgsT]) -> ArgsT:
        """Return CNI_ARGS as an object of the class ``into``: one annotated attribute per known name.

        Raises:
            VerbError: code 4, a malformed pair or value, or an unknown name without ``IgnoreUnknown=1``.
        """
        from libcni.plugin.arguments import load_args

        return load_args(self.env.get("CNI_ARGS", ""), into)

    @property
    def runtime_config(self) -> RuntimeConfig:
        """The capabilities that the runtime passed, typed; keys in whatever case.

        Raises:
            VerbError: code 7, a well-known one is not as the conventions have it.
        """
        from libcni.plugin.runtime_config import RuntimeConfig

        return RuntimeConfig(self.config.get("runtimeConfig"), self.name)

    @property
    def valid_attachments(self) -> frozenset[tuple[str, str]]:
        """The (container ID, interface name) pairs of this network that a GC must leave alone.

        Raises:
            VerbError: code 7, there is no such list: nothing may be collected then.
        """
        key = next((key for key in _VALID if key in self.config), None)
        if key is None:
            raise VerbError(f"{_VALID[0]} is missing", code=ErrorCode.INVALID_NETWORK_CONFIG)
        # Go libcni sends null for the empty list.
        return frozenset(_attachment(key, entry) for entry in self.config[key] or [])

    def delegate_add(self, plugin_type: str, config: Mapping[str, Any] | None = None) -> PluginResult:
        """Run another plugin's ADD and return its result (spec 1.1.0, section 4); where it fails, its DEL as well.

        Args:
            plugin_type: the executable's name, looked for on CNI_PATH.
            config: what it gets on stdin; None for exactly what this plugin got.

        Raises:
            PluginError: it failed; let it pass, and its code and text reach the runtime.
            PluginNotFoundError: it is not on CNI_PATH.
        """
        from libcni.plugin.delegation import add

        return add(self, plugin_type, config)

    def delegate_check(self, plugin_type: str, config: Mapping[str, Any] | None = None) -> None:
        """Run another plugin's CHECK; parameters and errors as for ``delegate_add``."""
        self._delegate("CHECK", plugin_type, config)

    def delegate_del(self, plugin_type: str, config: Mapping[str, Any] | None = None) -> None:
        """Run another plugin's DEL; parameters and errors as for ``delegate_add``."""
        self._delegate("DEL", plugin_type, config)

    def delegate_status(self, plugin_type: str, config: Mapping[str, Any] | None = None) -> None:
        """Run another plugin's STATUS; parameters and errors as for ``delegate_add``."""
        self._delegate("STATUS", plugin_type, config)

    def delegate_gc(self, plugin_type: str, config: Mapping[str, Any] | None = None) -> None:
        """Run another plugin's GC; parameters and errors as for ``delegate_add``."""
        self._delegate("GC", plugin_type, config)

    def _delegate(self, verb: str, plugin_type: str, config: Mapping[str, Any] | None) -> None:
        from libcni.plugin.delegation import delegate

        delegate(self, verb, plugin_type, config)


def _attachment(key: str, entry: object) -> tuple[str, str]:
    if isinstance(entry, dict):
        container_id, ifname = entry.get("containerID"), entry.get("ifname")
        if isinstance(container_id, str) and isinstance(ifname, str):
            return container_id, ifname
    raise VerbError(f"{key}: {entry!r} is not an attachment", code=ErrorCode.INVALID_NETWORK_CONFIG)
