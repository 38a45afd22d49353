"""Follow a packet through the rules: to which container a port of the host leads, and whether packets are forwarded."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from libcni.config.port_mappings import HostPort
from libcni.kernel.rules import PORTS, Rule, Table

_DEEPEST = 16
"""The number of jumps that are followed: the rules of a broken firewall may jump in a circle."""
_LET_GO = {"RETURN", "ACCEPT"}
_WIDEST = 4096
"""The largest range of ports that is followed."""
_FLAGS = {"--comment", "-m", "--dst-type", "--to-destination", "--random", "--persistent", "--src-type"}


class Translation(NamedTuple):
    """A rule that leads a port of the host elsewhere.

    Attributes:
        port: the port. Its address is "" if the rule holds for all addresses of the host.
        target: the address that the rule leads to; "" if no later rule of its chain sees the packets (RETURN, ACCEPT).
        rule: the rule.
    """

    port: HostPort
    target: str
    rule: Rule


class _Match(NamedTuple):
    """What the packets of a rule, or of a chain of jumps, have in common; None: nothing is required."""

    protocol: str = ""
    ports: frozenset[int] | None = None
    address: str = ""


def options_of(rule: Rule) -> Iterator[tuple[str, str, bool]]:
    """Yield (option, value, whether it is negated) of an iptables rule, without its chain and target."""
    words, index = rule[2:], 0
    while index < len(words):
        is_negated = words[index] == "!"
        index += is_negated
        option, value = words[index], ""
        index += 1
        if index < len(words) and not words[index].startswith("-") and words[index] != "!":
            value = words[index]
            index += 1
        while index < len(words) and not words[index].startswith("-") and words[index] != "!":
            index += 1  # further values of this option
        if option not in {"-j", "-g"}:
            yield option, value, is_negated


def after(rule: Rule, option: str) -> str:
    """Return the word after an option of a rule, or ""."""
    return rule[rule.index(option) + 1] if option in rule else ""


def target_of(rule: Rule) -> str:
    """Return the address in the target of a rule, without its port."""
    return (after(rule, "--to-destination") or after(rule, "to")).rpartition(":")[0].strip("[]")


def translations(rules: Mapping[str, Mapping[str, Table]]) -> Iterator[list[Translation]]:
    """Yield, for each program, the translations of ports of the host in the order in which the kernel tries them.

    Rules with a condition that is not understood are left out: they may not see a packet.
    """
    for program, tables in rules.items():
        if program == "nft":
            for name in PORTS:
                chains = tables.get(name, Table()).chains
                inside = (*chains.get("hostip_hostports", ()), *chains.get("hostports", ()))
                yield [found for rule in inside for found in _of_nft(rule)] if chains.get("prerouting") else []
        else:
            yield list(_of_chain(tables.get("nat", Table()), "PREROUTING", _Match(), 0))


def _of_nft(rule: Rule) -> Iterator[Translation]:
    if "dport" in rule and "to" in rule and after(rule, "dport").isdecimal():
        protocol = rule[rule.index("dport") - 1]
        port = HostPort(int(after(rule, "dport")), protocol, after(rule, "daddr"))
        yield Translation(port, target_of(rule), rule)


def _of_chain(table: Table, chain: str, above: _Match, depth: int) -> Iterator[Translation]:
    let_go: list[Translation] = []
    for rule in table.chains.get(chain, ()) if depth < _DEEPEST else ():
        match, target = _narrowed(above, rule), after(rule, "-j")
        if match is None:
            continue
        if target in table.chains:
            for found in _of_chain(table, target, match, depth + 1):
                yield from (one for one in let_go if one.port.collides(found.port))
                yield found
        elif target in {"DNAT", *_LET_GO} and match.ports is not None:
            ports = [HostPort(number, match.protocol, match.address) for number in sorted(match.ports)]
            translated = [Translation(port, target_of(rule), rule) for port in ports]
            if target == "DNAT":
                yield from translated
            else:  # only of interest before a rule of the same chain for such a port
                let_go += translated


def _narrowed(match: _Match, rule: Rule) -> _Match | None:
    """Return the packets of ``match`` that a rule sees; None if there is none, or if a condition is not understood."""
    for option, value, is_negated in options_of(rule):
        if option == "-i" and is_negated:  # docker: not from its own bridge
            continue
        if option == "-p" and not is_negated:
            match = match._replace(protocol=value)
        elif option in {"--dport", "--dports"} and not is_negated:
            ports = _ports(value)
            match = match._replace(ports=ports if match.ports is None else match.ports & ports)
        elif option == "-d" and not is_negated:
            match = match._replace(address=value.removesuffix("/32").removesuffix("/128"))
        elif option not in _FLAGS or is_negated:
            return None
    return match if match.ports is None or match.ports else None


def _ports(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition(":")
        if low.isdecimal() and (high or low).isdecimal() and int(high or low) - int(low) < _WIDEST:
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


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
        for rule in self._candidates(table, chain, packet) if depth < _DEEPEST else ():
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
