"""The directories of configurations and plugins on a node: each distribution and runtime has its own."""

from __future__ import annotations

import os

# Import nothing slow here: plugins import this module to find the plugins that they delegate to.

DIRECTORIES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Debian": (("/etc/cni/net.d",), ("/usr/lib/cni",)),
    "k3s": (
        ("/var/lib/rancher/k3s/agent/etc/cni/net.d",),
        ("/var/lib/rancher/k3s/data/cni", "/var/lib/rancher/k3s/data/current/bin"),
    ),
    "MicroK8s": (("/var/snap/microk8s/current/args/cni-network",), ("/var/snap/microk8s/current/opt/cni/bin",)),
    "OpenShift": (("/etc/kubernetes/cni/net.d",), ("/var/lib/cni/bin",)),
    "RKE2": (("/etc/cni/net.d",), ("/opt/cni/bin",)),
    "kind": (("/etc/cni/net.d",), ("/opt/cni/bin",)),
    "CRI-O": (("/etc/cni/net.d",), ("/opt/cni/bin", "/usr/libexec/cni", "/usr/lib/cni")),
    "podman 4": (
        ("/etc/cni/net.d", "~/.config/cni/net.d"),
        ("/usr/local/libexec/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/lib/cni", "/opt/cni/bin"),
    ),
    "nerdctl": (
        ("/etc/cni/net.d", "~/.config/cni/net.d"),
        ("~/.local/libexec/cni", "~/opt/cni/bin", "/usr/local/libexec/cni", "/usr/libexec/cni", "/opt/cni/bin"),
    ),
}
"""For each distribution or runtime, its directories of configurations and of plugins."""


def other_conf_dirs(searched: str) -> str:
    """Return, as text, the known configuration directories that exist on this node, except ``searched``; "" if none."""
    return _existing(0, [searched], "")


def other_plugin_dirs(searched: list[str] | tuple[str, ...], plugin: str = "") -> str:
    """Return, as text, this node's known plugin directories that contain ``plugin``, except ``searched``."""
    return _existing(1, searched, plugin)


def _existing(column: int, searched: list[str] | tuple[str, ...], file: str) -> str:
    owners: dict[str, list[str]] = {}
    for owner, row in DIRECTORIES.items():
        for directory in map(os.path.expanduser, row[column]):
            if directory not in searched and os.path.exists(os.path.join(directory, file)):
                owners.setdefault(directory, []).append(owner)
    return ", ".join(f"{directory} ({', '.join(names)})" for directory, names in owners.items())
