"""One call of a plugin, as the object that the plugin's function receives."""

from __future__ import annotations

import sys

from libcni.errors import CNIError
from libcni.plugin.failure import INVALID_ENVIRONMENT_VARIABLES, INVALID_NETWORK_CONFIG, VerbError
from libcni.plugin.fastjson import dumps
from libcni.plugin.received import REQUIRED, ReceivedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any, TypeVar

    from libcni.plugin.delegation import Delegate
    from libcni.plugin.results import PluginResult
    from libcni.plugin.runtime_config import RuntimeConfig

    ConfigT = TypeVar("ConfigT")

__all__ = ["Request"]

# Go libcni and spec 1.1.0 name the list differently: spec, section 2, GC; Go, pkg/types/types.go.
_VALID = ("cni.dev/valid-attachments", "cni.dev/attachments")


class Request(ReceivedCall):
    """One call of a plugin: the environment and the configuration, checked for the verb.

    Attributes:
        verb (str): ``ADD``, ``DEL``, ``CHECK``, ``GC`` or ``STATUS``.
        version: the configuration's spec version, one that the plugin supports.
        container_id: the container's ID; "" if the verb has none.
        netns: the path of its network namespace; "" if the verb has none, and on some DELs.
        ifname: the interface's name; "" if the verb has none.
        path: the directories of CNI_PATH.
        config (dict[str, Any]): the whole configuration, as ``json`` decodes it.
        stdin (bytes): the configuration's bytes, which a delegate receives.
        env (Mapping[str, str]): the environment.
        name: the network's name.

    Examples:
        >>> def hostname(request: Request) -> str:
        ...     return request.args.get("K8S_POD_NAME", request.container_id)
        >>> hostname(Request("ADD", {"CNI_ARGS": "K8S_POD_NAME=web"}, {"name": "net"}, b'{"name": "net"}'))
        'web'
    """

    def __init__(
        self, verb: str, env: Mapping[str, str], config: dict[str, Any], stdin: bytes, *, ipam: bool = True
    ) -> None:
        super().__init__(verb, env, config, stdin)
        self._declares_ipam = ipam
        self._result: PluginResult | None = None
        self._to_undo: list[Delegate] = []

    @property
    def prev_result(self) -> PluginResult | None:
        """The previous plugin's result (on CHECK and DEL: that of the whole chain), or None.

        The result is decoded on access, so that a DEL that does not use it succeeds even if the result is malformed.

        Raises:
            VerbError: with code 6, if it is not a result.
        """
        from libcni.plugin.results import PluginResult

        document = self.config.get("prevResult")
        return None if document is None else PluginResult.from_document(document, self.version)

    def require_prev_result(self) -> PluginResult:
        """Return the previous result, for a plugin that cannot be the first of a chain.

        Raises:
            VerbError: with code 7, if there is no previous result; with code 6, as ``prev_result``.
        """
        previous = self.prev_result
        if previous is None:
            raise VerbError(
                "missing prevResult: put this plugin after one that creates an interface", code=INVALID_NETWORK_CONFIG
            )
        return previous

    @property
    def result(self) -> PluginResult:
        """The result that ADD prints: a copy of ``prev_result`` to change, or an empty one."""
        from libcni.plugin.results import PluginResult

        if self._result is None:
            self._result = self.prev_result or PluginResult(self.version)
        return self._result

    @result.setter
    def result(self, result: PluginResult) -> None:
        self._result = result

    @property
    def args(self) -> dict[str, str]:
        """The pairs of CNI_ARGS; the last of several pairs with one name is used.

        Raises:
            VerbError: with code 4, if a pair does not have exactly one ``=``.
        """
        pairs = {}
        text = self.env.get("CNI_ARGS", "")
        for part in text.split(";") if text else ():
            name, *values = part.split("=")
            if len(values) != 1:
                problem = f'CNI_ARGS: invalid pair "{part}": it must be KEY=VALUE'
                raise VerbError(problem, code=INVALID_ENVIRONMENT_VARIABLES)
            pairs[name] = values[0]
        return pairs

    def load_config(self, into: type[ConfigT], key: str = "") -> ConfigT:
        """Return the configuration as an object of the class ``into``; unknown keys are ignored.

        Args:
            into: a class with annotated attributes, whose values are the defaults. A dataclass or a NamedTuple does
                as well; their imports take longer. An attribute ``data_dir`` also takes the key ``dataDir``. Upper
                and lower case do not matter.
            key: the part to load, such as ``ipam``; "" for the whole configuration.

        Raises:
            VerbError: with code 7, if a key is missing or its value has another type; the text names the key.
            TypeError: if ``into`` has an annotation that JSON cannot fill, such as ``set[str]`` or a TypedDict.
        """
        from libcni.plugin.typed_config import check_kind, load

        check_kind(into)
        if key and key not in self.config:
            raise VerbError(f'missing key "{key}"', code=INVALID_NETWORK_CONFIG)
        loaded: ConfigT = load(self.config[key] if key else self.config, into, key)
        return loaded

    def load_args(self, into: type[ConfigT]) -> ConfigT:
        """Return CNI_ARGS as an object of the class ``into``; true, false, 1 and 0 in any case are valid for a bool.

        An argument that the class does not have is refused, unless the arguments contain ``IgnoreUnknown=1``, which
        Kubernetes' runtimes send.

        Args:
            into: a class as for ``load_config``, with strings, numbers, bools, or classes that take one string. Upper
                and lower case of the names do not matter.

        Raises:
            VerbError: with code 4, if an argument is unknown or missing or has another type; the text names it.
            TypeError: if ``into`` cannot be loaded from text.
        """
        from libcni.plugin.typed_config import load_args

        loaded: ConfigT = load_args(self.args, into)
        return loaded

    def in_namespace(self) -> AbstractContextManager[None]:
        """Return a context in which this thread, and programs that it starts, are in the container's namespace.

        Raises:
            VerbError: with code 8, if the namespace cannot be entered.
        """
        from libcni.plugin.namespace import in_namespace

        return in_namespace(self.netns)

    @property
    def runtime_config(self) -> RuntimeConfig:
        """The well-known capabilities that the runtime passed; others are in ``config["runtimeConfig"]``.

        Raises:
            VerbError: with code 7, if a well-known capability does not follow the conventions.
        """
        from libcni.plugin.runtime_config import read_runtime_config

        return read_runtime_config(self.config.get("runtimeConfig"), self.name)

    @property
    def valid_attachments(self) -> frozenset[tuple[str, str]]:
        """The (container ID, interface name) pairs of this network that a GC must keep.

        Raises:
            VerbError: with code 7, if there is no such list: then a GC must free nothing.
        """
        key = next((key for key in _VALID if key in self.config), None)
        if key is None:
            problem = f'missing key "{_VALID[0]}": without this list GC must free nothing'
            raise VerbError(problem, code=INVALID_NETWORK_CONFIG)
        # Go libcni sends null for the empty list.
        return frozenset(_attachment(key, entry) for entry in self.config[key] or [])

    def delegate_add(self, plugin_type: str, config: Mapping[str, Any] | None = None, **changes: str) -> PluginResult:
        """Run ADD of another plugin and return its result; parameters and errors as for ``delegate``.

        If this plugin's ADD fails after this call, the delegate's DEL undoes it. An ADD that the delegate refuses with
        an error document is not undone: it has allocated nothing, and DEL would free the allocation of an earlier ADD
        of the same attachment.
        """
        delegate = self._delegate(plugin_type, config, changes)
        # Before the call: an exception such as KeyboardInterrupt may come after the delegate has allocated.
        self._to_undo.append(delegate)
        try:
            return delegate.add()
        except CNIError as error:
            if getattr(error, "code", None) is not None:
                self._to_undo.remove(delegate)
            raise

    def forward(self, plugin_type: str, config: Mapping[str, Any] | None = None, **changes: str) -> None:
        """Run another plugin with the verb of this call, except ADD; parameters and errors as for ``delegate``."""
        self._delegate(plugin_type, config, changes).run(self.verb)

    def delegate(
        self, verb: str, plugin_type: str, config: Mapping[str, Any] | None = None, **changes: str
    ) -> PluginResult | None:
        """Run a verb of another plugin, from any verb of this one (spec 1.1.0, section 4); only ADD returns a result.

        For example, a meta-plugin asks STATUS before it runs ADD, and undoes one of several ADDs with DEL.

        Args:
            verb: ``ADD``, ``CHECK``, ``DEL``, ``GC`` or ``STATUS``.
            plugin_type: the executable's name, to be found on CNI_PATH.
            config: the delegate's configuration; None for this plugin's own, byte for byte.
            changes: what differs for the delegate from this call: ``ifname``, ``netns``, ``args`` (CNI_ARGS). The DEL
                that undoes an ADD has them too.

        Raises:
            PluginError: if the delegate fails. Do not catch it: its code and text reach the runtime.
            PluginNotFoundError: if it is not on CNI_PATH.
            ValueError: if there is no such verb.
        """
        if verb == "ADD":
            return self.delegate_add(plugin_type, config, **changes)
        if verb not in REQUIRED or verb == "VERSION":
            raise ValueError(f"{verb!r} is no verb for a delegate")
        delegate = self._delegate(plugin_type, config, changes)
        delegate.run(verb)
        if verb == "DEL":
            self._to_undo = [other for other in self._to_undo if not other.serves_as(delegate)]
        return None

    def _delegate(self, plugin_type: str, config: Mapping[str, Any] | None, changes: Mapping[str, str]) -> Delegate:
        from libcni.plugin.delegation import Delegate

        return Delegate(self, plugin_type, self.stdin if config is None else dumps(dict(config)).encode(), changes)

    @property
    def ipam_type(self) -> str:
        """The type of the IPAM plugin that the configuration names; "" if there is no ``ipam`` section.

        Raises:
            VerbError: with code 7, if there is a section without a type.
        """
        ipam = self.config.get("ipam")
        if not ipam:
            return ""
        plugin_type = ipam.get("type") if isinstance(ipam, dict) else None
        if not isinstance(plugin_type, str) or not plugin_type:
            raise VerbError('missing key "ipam.type"', code=INVALID_NETWORK_CONFIG)
        return plugin_type

    def ipam_add(self) -> PluginResult:
        """Run ADD of the IPAM plugin that the configuration names; see ``delegate_add``.

        Declare the delegation with ``Plugin(..., ipam=True)``: CHECK, DEL, GC and STATUS are then forwarded.

        Raises:
            TypeError: the plugin was made without ``Plugin(..., ipam=True)``.
            VerbError: with code 7, if the configuration names no IPAM plugin.
            PluginError: if the IPAM plugin fails.
            PluginNotFoundError: if it is not on CNI_PATH.
        """
        if not self._declares_ipam:
            raise TypeError("ipam_add() needs Plugin(..., ipam=True): otherwise no DEL frees the address")
        if not self.ipam_type:
            raise VerbError('missing key "ipam"', code=INVALID_NETWORK_CONFIG)
        return self.delegate_add(self.ipam_type)

    def undo_delegated(self) -> None:
        """Run DEL of the delegates whose ADD this call has run, the last one first; print failures on stderr."""
        while self._to_undo:
            delegate = self._to_undo.pop()
            try:
                delegate.run("DEL")
            except CNIError as error:
                sys.stderr.write(f"cannot undo the delegated ADD: {error}\n")


def _attachment(key: str, entry: object) -> tuple[str, str]:
    if isinstance(entry, dict):
        container_id, ifname = entry.get("containerID"), entry.get("ifname")
        if isinstance(container_id, str) and isinstance(ifname, str):
            return container_id, ifname
    problem = f"{key}: {entry!r} is not an object with containerID and ifname"
    raise VerbError(problem, code=INVALID_NETWORK_CONFIG)
