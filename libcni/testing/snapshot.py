"""Snapshots of the network state of the host or of a namespace: links, addresses, routes and rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Any

from libcni.testing.namespaces import NetworkNamespace

_SETTLE = 1.0


@dataclass(frozen=True)
class Snapshot:
    """The network state at one moment, one line for each link, address, route and rule."""

    lines: frozenset[str] = frozenset()

    def difference(self, earlier: Snapshot) -> str:
        """Return the new and the missing lines since ``earlier``; "" if there are none."""
        new, gone = sorted(self.lines - earlier.lines), sorted(earlier.lines - self.lines)
        parts = [f"new: {', '.join(new)}"] if new else []
        return "; ".join([*parts, f"gone: {', '.join(gone)}"] if gone else parts)

    def without_routes(self) -> Snapshot:
        """Return this snapshot without its routes."""
        return Snapshot(frozenset(line for line in self.lines if not line.startswith("route ")))

    def growth(self, earlier: Snapshot) -> str:
        """Return the new lines since ``earlier``; "" if there are none."""
        return ", ".join(sorted(self.lines - earlier.lines))


def namespace_snapshot(namespace: NetworkNamespace | None) -> Snapshot:
    """Return the state of ``namespace``; an empty snapshot for None."""
    return Snapshot() if namespace is None else _snapshot(namespace.name)


def host_snapshot() -> Snapshot:
    """Return the state of this process's own namespace."""
    return _snapshot("")


def settled(namespace: NetworkNamespace | None, expected: Snapshot) -> Snapshot:
    """Return the state of ``namespace`` (None: the host) when it is ``expected``, or after a second.

    The kernel removes some addresses and routes a moment after their link.
    """
    deadline = time.monotonic() + _SETTLE
    while True:
        now = _snapshot(namespace.name if namespace else "")
        if now == expected or time.monotonic() >= deadline:
            return now
        time.sleep(0.05)


def _snapshot(name: str) -> Snapshot:
    lines: set[str] = set()
    for link in _ip(name, "address", "show"):
        lines.add(f"link {link['ifname']} ({'up' if 'UP' in link.get('flags', []) else 'down'})")
        for address in link.get("addr_info", []):
            # The kernel adds and removes link-local addresses in its own time.
            if address.get("scope") != "link":
                lines.add(f"address {address.get('local')}/{address.get('prefixlen')} on {link['ifname']}")
    for family in ("-4", "-6"):
        for route in _ip(name, family, "route", "show", "table", "all"):
            # The kernel makes and removes the routes of addresses itself.
            if route.get("protocol") != "kernel" and route.get("type", "unicast") == "unicast":
                keys = ("dst", "gateway", "dev", "table")
                lines.add("route " + " ".join(str(route[key]) for key in keys if key in route))
        for rule in _ip(name, family, "rule", "show"):
            lines.add("rule " + " ".join(f"{key} {value}" for key, value in sorted(rule.items())))
    # Rules only: counters and empty chains differ without any fault.
    for program in ("iptables-save", "ip6tables-save"):
        lines.update(_firewall(name, program))
    return Snapshot(frozenset(lines))


def _ip(name: str, *arguments: str) -> list[dict[str, Any]]:
    where = ["-netns", name] if name else []
    done = subprocess.run(  # noqa: S603 - no text from outside
        ["ip", "-json", *where, *arguments],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
    )
    shown: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return [entry for entry in shown if entry]


def _firewall(name: str, program: str) -> list[str]:
    if shutil.which(program) is None:
        return []
    where = ["ip", "netns", "exec", name] if name else []
    done = subprocess.run([*where, program], check=False, capture_output=True, text=True)  # noqa: S603 - no text from outside
    return [f"{program} {line}" for line in done.stdout.splitlines() if line.startswith("-A")]
