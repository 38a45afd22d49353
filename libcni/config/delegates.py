"""Find the plugin configurations that really run: flannel and Multus run those of their delegates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SUBNET_FILE = "/run/flannel/subnet.env"

SUBNET_FILE = "subnetFile"
"""The key, in flannel's configuration, of the file to which flannel's daemon writes the subnets."""


def delegated(network: str, document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (network's name, plugin configuration) of a plugin, or of its delegates.

    Add to a delegate of flannel what flannel adds (flannel_linux.go), except values from the file of flannel's daemon.
    """
    delegate, delegates = document.get("delegate"), document.get("delegates")
    if document.get("type") == "flannel":
        own = delegate if isinstance(delegate, dict) else {}
        ipam = document.get("ipam")
        yield network, {
            "type": "bridge", "isGateway": True, **own,
            "ipam": {"type": "host-local", **(ipam if isinstance(ipam, dict) else {})},
            SUBNET_FILE: str(document.get(SUBNET_FILE) or _SUBNET_FILE),
        }  # fmt: skip
    elif isinstance(delegates, list):  # of Multus
        for one in (one for one in delegates if isinstance(one, dict)):
            plugins = one.get("plugins")
            for plugin in plugins if isinstance(plugins, list) else [one]:
                if isinstance(plugin, dict):
                    yield from delegated(str(one.get("name") or network), plugin)
    else:
        yield network, document
        if isinstance(delegate, dict):
            yield from delegated(str(delegate.get("name") or network), delegate)
