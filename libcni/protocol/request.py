"""Build a plugin's environment and stdin from its configuration (spec 1.1.0, section 3).

Members that the runtime does not set are forwarded in their order, with their text unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from libcni.config.cni_args import format_args
from libcni.config.jsontext import dumps, join_array, merge, quote
from libcni.config.network import PluginConfig
from libcni.config.runtime_conf import RuntimeConf

VALID_ATTACHMENTS = "cni.dev/valid-attachments"
# The key's older name. Some plugins read only this key, so Go libcni sends both (libcni/api.go, GCNetworkList).
_OLD_VALID_ATTACHMENTS = "cni.dev/attachments"


def execution_config(  # noqa: PLR0913 - the parts of an execution configuration
    plugin: PluginConfig,
    network: str,
    version: str,
    *,
    rt: RuntimeConf | None = None,
    prev_result: str | None = None,
    valid: str | None = None,
) -> bytes:
    """Return the stdin of one plugin (spec 1.1.0, section 3, Deriving execution configuration).

    Args:
        plugin: the plugin's configuration.
        network: the list's name, which replaces the plugin's own name.
        version: the list's spec version, which replaces the plugin's own version.
        rt: the attachment, for ``runtimeConfig`` and ``args``; None for GC and STATUS.
        prev_result: the text of ``prevResult``, or None for none.
        valid: the text of the list of valid attachments, for GC.
    """
    passed = plugin.forwarded_text
    if rt is not None and rt.network_args:
        # A record by Go libcni can have an "args" that is not an object. It is replaced.
        passed = merge(f"{{{passed}}}", {"args": dict(rt.network_args)})[1:-1]
    parts = [f'"cniVersion":{quote(version)},"name":{quote(network)}', passed]
    capabilities = (rt.capability_args if rt is not None else None) or {}
    # A plugin gets only the capabilities that it declares as true (spec 1.1.0, section 3): others may hold secrets.
    if runtime_config := {name: capabilities[name] for name in plugin.capabilities if name in capabilities}:
        parts.append(f'"runtimeConfig":{dumps(runtime_config)}')
    if prev_result is not None:
        parts.append(f'"prevResult":{prev_result}')
    if valid is not None:
        parts += [f'"{VALID_ATTACHMENTS}":{valid}', f'"{_OLD_VALID_ATTACHMENTS}":{valid}']
    return ("{" + ",".join(parts) + "}").encode()


def valid_attachments(valid: Iterable[tuple[str, str]]) -> str:
    """Return the text of GC's list for (container ID, interface name) pairs; ``[]`` if there is no pair."""
    return join_array([dumps({"containerID": container_id, "ifname": ifname}) for container_id, ifname in valid])


def cni_variables(verb: str, path: Sequence[str], rt: RuntimeConf | None = None) -> dict[str, str]:
    """Return the six CNI_* variables (spec 1.1.0, section 2, Parameters), "" if the verb has none."""
    return {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": rt.container_id if rt else "",
        "CNI_NETNS": (rt.netns or "") if rt else "",
        "CNI_IFNAME": rt.ifname if rt else "",
        "CNI_ARGS": format_args(rt.args or ()) if rt else "",
        "CNI_PATH": os.pathsep.join(path),
    }
