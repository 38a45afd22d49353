"""Snapshots of the network state of the host or of a namespace: links, addresses, routes and rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, TypeAlias

from libcni.testing.namespaces import NetworkNamespace

_SETTLE = 1.0
_OF_IPTABLES = {"filter", "mangle", "nat", "raw", "security"}
"""The nftables tables of iptables, whose rules ``iptables-save`` prints."""

Snapshot: TypeAlias = frozenset[str]
"""The network state at one moment: a line for each link, address, route and rule."""


def difference(current: Snapshot, earlier: Snapshot) -> str:
    """Return the new and the missing lines since ``earlier``; "" if there are none."""
    changes = {"new": sorted(current - earlier), "gone": sorted(earlier - current)}
    return "; ".join(f"{what}: {', '.join(lines)}" for what, lines in changes.items() if lines)


def without_routes(snapshot: Snapshot) -> Snapshot:
    """Return a snapshot without its routes."""
    return frozenset(line for line in snapshot if not line.startswith("route "))


def lines_of_link(snapshot: Snapshot, name: str) -> Snapshot:
    """Return the lines of a snapshot that are about an interface."""
    return frozenset(line for line in snapshot if name in line.split())


def link_names(namespace: NetworkNamespace | None) -> set[str]:
    """Return the names of the interfaces in ``namespace``; None: on the host."""
    return {*links_of(namespace)}


def links_of(namespace: NetworkNamespace | None) -> dict[str, dict[str, Any]]:
    """Return iproute2's description of each interface by its name; ``addresses`` has its addresses as text."""
    with namespace.entered() if namespace else nullcontext():
        shown = _ip("address", "show")
    for link in shown:
        link["addresses"] = [f"{ip.get('local')}/{ip.get('prefixlen')}" for ip in link.get("addr_info", [])]
    return {link["ifname"]: link for link in shown}


def settled(namespace: NetworkNamespace | None, expected: Snapshot) -> Snapshot:
    """Wait until the state of ``namespace`` (None: the host) is ``expected``, but at most a second; return the state.

    The kernel removes some addresses and routes a moment after their link.
    """
    deadline = time.monotonic() + _SETTLE
    while (current := snapshot(namespace)) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return current


def snapshot(namespace: NetworkNamespace | None) -> Snapshot:
    """Return the state of ``namespace``; None: of this process's own, which is the host."""
    with namespace.entered() if namespace else nullcontext():
        return frozenset(_lines())


def _lines() -> Iterator[str]:
    for link in _ip("address", "show"):
        yield f"link {link['ifname']} ({'up' if 'UP' in link.get('flags', []) else 'down'})"
        for address in link.get("addr_info", []):
            # The kernel adds and removes link-local addresses in its own time.
            if address.get("scope") != "link":
                yield f"address {address.get('local')}/{address.get('prefixlen')} on {link['ifname']}"
    for family in ("-4", "-6"):
        for route in _ip(family, "route", "show", "table", "all"):
            # The kernel makes and removes the routes of addresses itself.
            if route.get("protocol") != "kernel" and route.get("type", "unicast") == "unicast":
                keys = ("dst", "gateway", "dev", "table")
                yield "route " + " ".join(str(route[key]) for key in keys if key in route)
        for rule in _ip(family, "rule", "show"):
            yield "rule " + " ".join(f"{key} {value}" for key, value in sorted(rule.items()))
    yield from _packet_rules()


def _packet_rules() -> Iterator[str]:
    # Rules only: counters and empty chains differ without any fault.
    for program in ("iptables-save", "ip6tables-save"):
        if shutil.which(program):
            yield from (f"{program} {line}" for line in _output(program).splitlines() if line.startswith("-A"))
    ruleset = json.loads(_output("nft", "-js", "list", "ruleset") or "{}") if shutil.which("nft") else {}
    for rule in (entry["rule"] for entry in ruleset.get("nftables", []) if "rule" in entry):
        if rule["table"] not in _OF_IPTABLES:
            yield f"nft {rule['family']} {rule['table']} {rule['chain']} {json.dumps(rule['expr'])}"


def _ip(*arguments: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = json.loads(_output("ip", "-json", *arguments) or "[]")
    return [entry for entry in shown if entry]


def _output(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout  # noqa: S603 - as above
