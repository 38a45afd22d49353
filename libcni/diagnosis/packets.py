"""Follow a packet through the rules of a node: whether it is forwarded to other networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from libcni.kernel.rules import Rule, Table
from libcni.verbs.port_rules import DEEPEST, after, options_of


class _Packet(NamedTuple):
    """The first packet of a connection to another network: where it comes from, and on which interface it arrives."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    interface: str


class Forwarding:
    """The rules that decide on packets to other networks.

    Args:
        rules: the rules by program and table.
        bridges: the bridges of containers: what leaves over them goes to no other network.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Table]], bridges: Collection[str] = ()) -> None:
        self._rules = rules
        self._bridges = bridges
        self._indexes: dict[tuple[int, str], dict[str, list[Rule]]] = {}

    def dropped_by(self, address: str, interface: str) -> str:
        """Return the chain whose policy drops new connections of an address to other networks, or "".

        A rule with a condition that is not understood may accept them, so then nothing is said.

        Args:
            address: the address of a container.
            interface: the interface of the node on which its packets arrive.
        """
        family = "ip6" if ":" in address else "ip"
        packet = _Packet(ipaddress.ip_address(address), interface)
        for program, tables in self._rules.items():
            for name, table in tables.items():
                is_iptables = program.startswith(f"{family}tables") and name == "filter"
                chains = ["FORWARD"] if is_iptables else list(table.policies) if program == "nft" else []
                for chain in chains if is_iptables or name.split()[0] in {family, "inet"} else ():
                    if table.policies.get(chain) == "DROP" and not self._may_accept(table, chain, packet):
                        return f"chain {chain} of {program}" + ("" if is_iptables else f", table {name}")
        return ""

    def _may_accept(self, table: Table, chain: str, packet: _Packet, depth: int = 0) -> bool:
        """Return whether a rule of a chain may accept a packet."""
        for rule in self._candidates(table, chain, packet) if depth < DEEPEST else ():
            if rule[0] == "add":  # nft
                is_of_replies = "state" in rule and "new" not in after(rule, "state")
                if not is_of_replies and not {"accept", "jump", "goto"}.isdisjoint(rule):
                    return True
                continue
            target = after(rule, "-j") or after(rule, "-g")
            if all(self._may_match(*option, packet) for option in options_of(rule)) and (
                target == "ACCEPT" or (target in table.chains and self._may_accept(table, target, packet, depth + 1))
            ):
                return True
        return False

    def _candidates(self, table: Table, chain: str, packet: _Packet) -> Iterator[Rule]:
        """Yield the rules of a chain, except those for packets from another single host, or to one.

        The plugin firewall makes one of each for each of 10,000 containers.
        """
        index = self._indexes.get((id(table), chain))
        if index is None:
            index = self._indexes[id(table), chain] = {}
            for rule in table.chains.get(chain, ()):
                # A single host is no other network.
                if not (rule[2:3] == ("-d",) and _is_of_host(rule[3])):
                    is_of_host = rule[2:3] == ("-s",) and _is_of_host(rule[3])
                    index.setdefault(rule[3].partition("/")[0] if is_of_host else "", []).append(rule)
        yield from index.get("", ())
        yield from index.get(str(packet.address), ())

    def _may_match(self, option: str, value: str, is_negated: bool, packet: _Packet) -> bool:
        """Return whether a packet to another network may meet a condition of a rule."""
        if option in {"--ctstate", "--state"}:
            matches = "NEW" in value
        elif option == "-s" and (network := _network_of(value)) is not None:
            matches = packet.address in network
        elif option == "-i":
            matches = _is_interface(value, packet.interface)
        elif option == "-o":
            return is_negated or not any(_is_interface(value, bridge) for bridge in self._bridges)
        elif option == "-d":
            return is_negated or not _is_of_host(value)
        elif option == "--mark":  # kube-proxy marks connections to its services
            return is_negated
        elif option == "-p":
            return is_negated or value in {"tcp", "udp", "all"}
        else:
            return True
        return matches is not is_negated


def _network_of(value: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network in a rule; None for a mask with holes, which only iptables understands."""
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        return None


def _is_of_host(value: str) -> bool:
    return value.endswith(("/32", "/128"))


def _is_interface(value: str, name: str) -> bool:
    return name.startswith(value[:-1]) if value.endswith("+") else value == name
