"""Find the programs that the CNI project's plugins run, but that are not in the plugins' PATH."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from libcni.diagnosis.reading import NodeReading
from libcni.errors import CNIError, PluginError
from libcni.kernel.rules import program_of

FIREWALLD = "/run/firewalld.pid"
_NOT_FOUND = re.compile(r'exec: [\\"]*([\w.-]+)[\\"]*: executable file not found')
"""The error text of Go's os/exec, which the plugins print."""
_KNOWS_NFT = "1.1.0"
"""The spec version of plugins that use nftables if iptables is missing (release 1.6.0). Earlier releases fail."""


def missing_programs(
    node: NodeReading, documents: Iterable[Mapping[str, Any]], addresses: Iterable[str], *, has_ports: bool
) -> dict[str, list[str]]:
    """Return the programs that an ADD would not find, each with the plugins that need it.

    Args:
        node: the node.
        documents: the configurations of the plugins.
        addresses: the container's addresses. For IPv6 addresses the plugins run ip6tables.
        has_ports: whether the container publishes ports.
    """
    families = sorted(set(map(program_of, addresses))) or ["iptables"]
    missing: dict[str, list[str]] = {}
    for document in documents:
        kind = str(document.get("type"))
        backend = _backend(document, has_ports=has_ports)
        if backend == "" and not node.program("iptables") and _KNOWS_NFT in node.versions_of(kind):
            backend = "nftables"
        programs = [*(families if backend in {"", "iptables"} else ["nft"] if backend == "nftables" else [])]
        programs += ["nft"] * (kind == "bridge" and document.get("macspoofchk") is True)
        for program in programs:
            if not node.program(program) and kind not in missing.setdefault(program, []):
                missing[program].append(kind)
    return {program: users for program, users in missing.items() if users}


def _backend(document: Mapping[str, Any], *, has_ports: bool) -> str | None:
    """Return the backend of a plugin's rules: "" if the plugin chooses it, None if it makes no rules."""
    kind = document.get("type")
    if kind in {"bridge", "ptp"} and document.get("ipMasq") is True:
        return str(document.get("ipMasqBackend") or "")
    if kind == "portmap" and has_ports:
        return str(document.get("backend") or "")
    if kind == "firewall":
        backend = document.get("backend") or ("firewalld" if os.path.exists(FIREWALLD) else "iptables")
        # The rules of this policy are made with iptables, whatever the backend is.
        return str(backend) if document.get("ingressPolicy") in {None, "", "open"} else "iptables"
    return None


def program_not_found(error: CNIError) -> str:
    """Return the name of the program that a plugin did not find according to its error, or ""."""
    found = _NOT_FOUND.search(f"{error.msg} {error.details} {error.stderr}") if isinstance(error, PluginError) else None
    return found[1] if found is not None else ""
