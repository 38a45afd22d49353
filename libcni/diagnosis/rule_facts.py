"""Read what the rules of iptables and nftables do for containers: masquerade, published ports and firewall."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain as joined
from typing import NamedTuple

from libcni.diagnosis.node_state import NodeState
from libcni.kernel.rule_words import after, target_of, target_port_of
from libcni.kernel.rules import (
    MASQUERADE,
    PORTS,
    Rule,
    Table,
    mark_of,
    masquerade_chain,
    ports_chain,
)

_OWNERS = {
    "iptables": re.compile(r'name: "(?P<network>[^"]+)" id: "(?P<container>[^"]+)"'),
    "nftables": re.compile(r', net: (?P<network>.+), if: (?P<ifname>.+), id: (?P<container>[^"]+)'),
}


class Fact(NamedTuple):
    """An effect of a plugin's rules on an address of a container.

    Attributes:
        kind: ``masquerade``, ``port 8080/tcp`` or ``firewall``.
        mark: the mark of the rule's owner: a chain of iptables, or the comment of nftables or its beginning; "" for
            rules of the plugin firewall.
        address: the address of the container.
        port: the port of the container that a published port leads to, or "".
    """

    kind: str
    mark: str
    address: str
    port: str = ""


Owner = tuple[str, str, str]
"""A container ID, a network and an interface; "" if the rule does not name it."""
Facts = dict[str, dict[Fact, Owner | None]]
"""The facts of each backend, ``iptables`` and ``nftables``, each with the owner that its comment names."""


def facts_of(node: NodeState) -> Facts:
    """Return the effects of the node's rules on containers, by backend (``iptables``, ``nftables``)."""
    return {
        "iptables": dict(joined.from_iterable(_of_iptables(node, program) for program in iptables_of(node))),
        "nftables": dict(_of_nftables(node.rules.get("nft", {}))),
    }


def iptables_of(node: NodeState, family: str = "") -> list[str]:
    """Return the variants of iptables and ip6tables whose rules were read; ``family``: only those of one of the two."""
    return [name for name in node.rules if name != "nft" and family in {"", name.partition("-")[0]}]


def _of_iptables(node: NodeState, program: str) -> Iterator[tuple[Fact, Owner | None]]:
    """Yield the facts of the rules of iptables, except of chains to which no jump leads."""
    nat, allowed = node.table(program, "nat"), node.table(program, "filter")
    for rule in nat.chains.get("POSTROUTING", ()):
        inside = nat.chains.get(rule[-1], ())
        if (source := host_after(rule, "-s")) and _masquerades(inside):
            yield Fact("masquerade", rule[-1], source), owner_in("iptables", rule)
    is_asked = all(nat.find(chain, "CNI-HOSTPORT-DNAT") for chain in ("PREROUTING", "OUTPUT"))
    for rule in nat.chains.get("CNI-HOSTPORT-DNAT", ()) if is_asked else ():
        inside = nat.chains.get(rule[-1], ())
        # For connections from the node and from the container itself.
        is_marked = any(after(entry, "-j") == "CNI-HOSTPORT-SETMARK" for entry in inside)
        for entry in _deciding(inside) if not is_marked or _marks_ports(nat) else ():
            if after(entry, "-p") == after(rule, "-p"):
                kind = f"port {after(entry, '--dport')}/{after(entry, '-p')}"
                yield Fact(kind, rule[-1], target_of(entry), target_port_of(entry)), owner_in("iptables", rule)
    if allowed.find("FORWARD", "CNI-FORWARD"):
        forward = allowed.chains.get("CNI-FORWARD", ())
        sources, targets = ({host_after(rule, option) for rule in forward} for option in ("-s", "-d"))
        yield from ((Fact("firewall", "", address), None) for address in sources & targets if address)


def _deciding(chain: Sequence[Rule]) -> Iterator[Rule]:
    """Yield the rules of a container's chain of ports that translate: for each port the first one that ends there."""
    decided: set[tuple[str, ...]] = set()
    for rule in chain:
        target, of_all = after(rule, "-j"), "--dport" not in rule and "--dports" not in rule
        port = after(rule, "-p"), after(rule, "--dport"), after(rule, "-d")
        if target not in {"ACCEPT", "DNAT", "DROP", "REDIRECT", "RETURN"} or "-s" in rule or port in decided:
            continue
        if "--to-destination" in rule:
            yield rule
        if of_all:
            return
        decided.add(port)


def _marks_ports(nat: Table) -> bool:
    """Return whether portmap's rules for all containers mark packets, and masquerade the marked ones."""
    marks = any("MARK" in rule for rule in nat.chains.get("CNI-HOSTPORT-SETMARK", ()))
    masquerades = any("MASQUERADE" in rule for rule in nat.chains.get("CNI-HOSTPORT-MASQ", ()))
    return marks and masquerades and bool(nat.find("POSTROUTING", "CNI-HOSTPORT-MASQ"))


def _masquerades(chain: Sequence[Rule]) -> bool:
    """Return whether a chain masquerades packets to other networks: before a rule ends it for all of them."""
    for rule in chain:
        if "MASQUERADE" in rule:
            return True
        is_of_all = not {"-s", "-d", "-p", "-i", "-o"} & set(rule)
        if is_of_all and after(rule, "-j") in {"ACCEPT", "DROP", "RETURN"}:
            return False
    return False


def _of_nftables(tables: Mapping[str, Table]) -> Iterator[tuple[Fact, Owner | None]]:
    """Yield the facts of the rules of nftables, except of chains to which no jump leads."""
    chains = tables.get(MASQUERADE, Table()).chains
    if any("masq_checks" in rule for rule in chains.get("postrouting", ())):
        for rule in chains.get("masq_checks", ()):
            yield Fact("masquerade", mark_of(rule), after(rule, "saddr")), owner_in("nftables", rule)
    for name in PORTS:
        chains = tables.get(name, Table()).chains
        if chains.get("prerouting"):
            hostports = (*chains.get("hostports", ()), *chains.get("hostip_hostports", ()))
            for rule in (
                hostport for hostport in hostports if "dport" in hostport
            ):  # somebody may have added a rule of another form
                kind = f"port {after(rule, 'dport')}/{rule[rule.index('dport') - 1]}"
                yield Fact(kind, mark_of(rule), target_of(rule), target_port_of(rule)), (mark_of(rule), "", "")


def owner_in(backend: str, rule: Rule) -> Owner | None:
    """Return the owner that a rule's comment names; None if the iptables chain does not belong to that container."""
    match = next(filter(None, map(_OWNERS[backend].search, rule)), None)
    if match is None:
        return None
    network, container = match["network"], match["container"]
    if backend == "nftables":  # the plugin cuts a long comment; the mark has the whole ID
        return container, network, match["ifname"]
    chains = {masquerade_chain(network, container), ports_chain(network, container)}
    return (container, network, "") if rule[-1] in chains else None


def host_after(rule: Rule, option: str) -> str:
    """Return the address after an option, or "" if it is not the address of a single host."""
    address, _, length = after(rule, option).partition("/")
    return address if length in {"32", "128"} else ""
