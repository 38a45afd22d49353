"""Snapshots of the network state of the host or of a namespace: links, addresses, routes and rules."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from ipaddress import ip_network
from typing import Any, TypeAlias

from libcni.testing.namespaces import NetworkNamespace

_SETTLE = 1.0
_WHOLE = {"-4": "0.0.0.0/0", "-6": "::/0"}
_IPTABLES = (
    ("ip", "iptables-save", "/proc/thread-self/net/ip_tables_names"),
    ("ip6", "ip6tables-save", "/proc/thread-self/net/ip6_tables_names"),
)
"""For each program: the nftables family of its tables, and the file that names its tables in the older interface."""

Snapshot: TypeAlias = frozenset[str]
"""The network state at one moment: a line for each link, address, route and rule."""


def difference(current: Snapshot, earlier: Snapshot) -> str:
    """Return the new and the missing lines since ``earlier``; "" if there are none."""
    changes = {"new": sorted(current - earlier), "gone": sorted(earlier - current)}
    return "; ".join(f"{what}: {', '.join(lines)}" for what, lines in changes.items() if lines)


def link_names(namespace: NetworkNamespace | None) -> set[str]:
    """Return the names of the interfaces in ``namespace``; None: on the host."""
    return {*links_of(namespace)}


def links_of(namespace: NetworkNamespace | None) -> dict[str, dict[str, Any]]:
    """Return iproute2's description of each interface by its name; ``addresses`` has its addresses as text."""
    with namespace.entered() if namespace else nullcontext():
        (shown,) = _ip("address show")
    for link in shown:
        link["addresses"] = [f"{ip.get('local')}/{ip.get('prefixlen')}" for ip in link.get("addr_info", [])]
    return {link["ifname"]: link for link in shown}


def route_destinations(namespace: NetworkNamespace) -> set[str]:
    """Return the destinations of the routes in ``namespace``, with their prefix lengths."""
    with namespace.entered():
        shown = {whole: _ip("route show table all", family=(option,))[0] for option, whole in _WHOLE.items()}
    return {
        str(ip_network(whole if route["dst"] == "default" else route["dst"]))
        for whole, routes in shown.items()
        for route in routes
    }


def settled(problem: Callable[[], str]) -> str:
    """Call ``problem`` until it returns "", but at most for a second; return its last value.

    The kernel removes some addresses and routes a moment after their link.
    """
    deadline = time.monotonic() + _SETTLE
    while (text := problem()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return text


def snapshot(namespace: NetworkNamespace | None) -> Snapshot:
    """Return the state of ``namespace``; None: of this process's own, which is the host."""
    counts: Counter[str] = Counter()
    lines = set()
    with namespace.entered() if namespace else nullcontext():
        for line in _lines():
            counts[line] += 1
            # A rule that each attachment appends once more must show.
            lines.add(line if counts[line] == 1 else f"{line} (number {counts[line]})")
    return frozenset(lines)


def _lines() -> Iterator[str]:
    links, routes, rules = _ip("address show", "route show table all", "rule show")
    for link in links:
        yield f"link {link['ifname']} ({'up' if 'UP' in link.get('flags', []) else 'down'})"
        for address in link.get("addr_info", []):
            # The kernel adds and removes link-local addresses in its own time.
            if address.get("scope") != "link":
                yield f"address {address.get('local')}/{address.get('prefixlen')} on {link['ifname']}"
    for route in routes:
        # The kernel makes and removes the routes of addresses itself.
        if route.get("protocol") != "kernel" and route.get("type", "unicast") == "unicast":
            keys = ("dst", "gateway", "dev", "table")
            yield "route " + " ".join(str(route[key]) for key in keys if key in route)
    for rule in (*rules, *_ip("rule show", family=("-6",))[0]):
        yield "rule " + " ".join(f"{key} {value}" for key, value in sorted(rule.items()))
    yield from _packet_rules()


def _packet_rules() -> Iterator[str]:
    """Yield rules, user-defined chains and elements of sets, without counters, which differ without any fault."""
    has_nft = shutil.which("nft")
    ruleset = json.loads(_output("nft", "-js", "list", "ruleset") or "{}") if has_nft else {}
    parts = [(kind, part) for entry in ruleset.get("nftables", []) for kind, part in entry.items()]
    families = {part.get("family") for _, part in parts}
    saved = set()
    for family, program, old_tables in _IPTABLES:
        # Each program takes 4 ms of the processor, and in most snapshots there is nothing to print.
        if shutil.which(program) and (not has_nft or family in families or _read(old_tables)):
            text = _output(program)
            saved |= {(family, line[1:]) for line in text.splitlines() if line.startswith("*")}
            yield from _saved_rules(program, text)
    for kind, part in parts:
        if (part.get("family"), part.get("table")) in saved or "table" not in part:
            continue
        where = f"nft {part['family']} {part['table']} {part.get('chain') or part.get('name')}"
        if kind == "rule":
            yield f"{where} {json.dumps(part['expr'])}"
        elif kind == "chain" and "hook" not in part:
            yield where
        yield from (f"{where} {json.dumps(element)}" for element in part.get("elem", ()))


def _saved_rules(program: str, text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("-A"):
            yield f"{program} {line}"
        elif line.startswith(":") and line.split()[1] == "-":
            yield f"{program} chain {line.split()[0][1:]}"


def _read(path: str) -> str:
    with suppress(OSError), open(path, encoding="ascii") as file:
        return file.read()
    return ""


def _ip(*commands: str, family: Sequence[str] = ()) -> list[list[dict[str, Any]]]:
    """Return the objects that each command of iproute2 shows; one process runs all of them."""
    printed = _output("ip", *family, "-json", "-batch", "-", stdin="\n".join(commands))
    shown: list[list[dict[str, Any]]] = [json.loads(line) for line in printed.splitlines()]
    # A kernel without IPv6 answers nothing.
    return [[entry for entry in entries if entry] for entries in (*shown, *([] for _ in commands))][: len(commands)]


def _output(*command: str, stdin: str = "") -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True, input=stdin).stdout  # noqa: S603 - as above
