"""Follow a packet through the firewall rules, to the address that a port of the host is forwarded to."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from typing import NamedTuple

from libcni.config.port_mappings import HostPort
from libcni.kernel.rule_words import after, options_of, read_rule, target_of
from libcni.kernel.rules import DEEPEST, PORTS, Rule, Table, listings, mark_of, program_of, saved_rules

_LEAD, _NFT_LEAD = {"DNAT", "REDIRECT"}, {"dnat", "redirect"}
_LET_GO = {"RETURN", "ACCEPT"}
_SECONDS = 5.0
"""The longest time for which an ADD waits for iptables-save."""
_WIDEST = 4096
"""The largest range of ports that is followed."""
_FLAGS = {"-m", "--to-destination", "--to-ports", "--random", "--persistent", "--src-type", "nfproto"}
_LISTED_PORTS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"| --dports? ([\d,]+) ')
"""A text of a rule of iptables; or ports without ranges, in the group."""
_TARGET = re.compile(r" -j (\S+)")
# iptables-save prints the rules of a chain one after the other.
_RULES_OF_CHAIN = re.compile(r"^-A (\S+) .*(?:\n-A \1 .*)*", re.MULTILINE)
_OWN_PRIORITY = -100
"""The priority at which portmap's rules translate, in iptables and in nftables."""


class Translation(NamedTuple):
    """A rule that forwards a port of the host, or ends the search for one that does.

    Attributes:
        port: the port. Its address is "" if the rule holds for all addresses of the host.
        target: the address that the rule leads to; "" if the address is the host's own (REDIRECT), or if the rule ends
            the chain without a translation (RETURN, ACCEPT).
        rule: the rule.
        comment: the comment of the rule, or of a rule that jumps to its chain; portmap's names the container.
    """

    port: HostPort
    target: str
    rule: Rule
    comment: str = ""

    @property
    def leads(self) -> bool:
        """Whether the rule changes where the packets go."""
        return after(self.rule, "-j") not in _LET_GO

    def is_of(self, container_id: str) -> bool:
        """Return whether portmap has made the rule for a container."""
        return self.comment == container_id or f'id: "{container_id}"' in self.comment


class _Match(NamedTuple):
    """What the packets of a rule, or of a chain of jumps, have in common; None: nothing is required."""

    protocol: str = ""
    ports: frozenset[int] | None = None
    address: str = ""
    comment: str = ""


class PortRules:
    """The rules that forward ports of the host, with a quick search by a port.

    Args:
        rules: the rules by program and table.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Table]]) -> None:
        self._programs: list[dict[tuple[int, str], list[Translation]]] = []
        for ordered in translations(rules):
            found: dict[tuple[int, str], list[Translation]] = {}
            for one in ordered:
                found.setdefault((one.port.number, one.port.protocol), []).append(one)
            self._programs.append(found)

    def of(self, port: HostPort, families: Collection[bool] = (False, True)) -> Iterator[list[Translation]]:
        """Yield the rules for a port, of each program in the kernel's order. Which program comes first is unknown.

        ``families``: the IP versions of the targets, False for IPv4 and True for IPv6.
        """
        for found in self._programs:
            ordered = [
                one
                for one in found.get((port.number, port.protocol), ())
                if one.port.address in {"", port.address} and (not one.target or (":" in one.target) in families)
            ]
            if ordered:
                yield ordered


def port_rules_now(ports: Collection[HostPort]) -> PortRules:
    """Read the rules that may forward these ports: of iptables, or of nftables on a node without iptables.

    An ADD waits for this, so only the doctor reads the other variant of iptables. Rules that cannot be read are left
    out.
    """
    numbers = {f"{port.number:g}" for port in ports}
    found: dict[str, dict[str, Table]] = {}
    for program in dict.fromkeys(program_of(port.address) for port in ports):
        with suppress(OSError):
            try:
                nat = [one for one in listings(program, seconds=_SECONDS) if one.name == "nat"]
                found[program] = {one.name: one.read(_lines_for(numbers, one.text)) for one in nat}
            except FileNotFoundError:
                words = (" jump ", *(f" dport {number} " for number in numbers))
                found["nft"] = saved_rules("nft", seconds=_SECONDS, about=words)
    return PortRules(found)


def _lines_for(numbers: set[str], text: str) -> Iterator[str]:
    """Yield the rules of a table of iptables that packets for these ports may reach from PREROUTING on."""
    chains: dict[str, str] = {}
    for found in _RULES_OF_CHAIN.finditer(text):
        chains[found[1]] = f"{chains[found[1]]}\n{found[0]}" if found[1] in chains else found[0]
    waiting = ["PREROUTING"]
    while waiting:
        for line in chains.pop(waiting.pop(), "").split("\n"):
            listed = filter(None, _LISTED_PORTS.findall(line))
            if line and all(not numbers.isdisjoint(one.split(",")) for one in listed):
                yield line
                waiting += _TARGET.findall(line)


def translations(rules: Mapping[str, Mapping[str, Table]]) -> Iterator[list[Translation]]:
    """Yield, for each program, the translations of ports of the host in the order in which the kernel tries them.

    Rules with an unknown condition are left out: they may match no packet.
    """
    for program, tables in rules.items():
        if program == "nft":
            for name in PORTS:
                chains = tables.get(name, Table()).chains
                inside = (*chains.get("hostip_hostports", ()), *chains.get("hostports", ()))
                yield [found for rule in inside for found in _of_nft(rule)] if chains.get("prerouting") else []
            for table in (table for name, table in tables.items() if name not in PORTS):
                for chain, hook in table.hooks.items():
                    if (hook.kind, hook.name) == ("nat", "prerouting") and hook.priority < _OWN_PRIORITY:
                        yield list(_of_foreign(table, chain, _Match(), 0))
        else:
            yield list(_of_chain(tables.get("nat", Table()), "PREROUTING", _Match(), 0))


def _of_nft(rule: Rule) -> Iterator[Translation]:
    if "dport" in rule and "to" in rule and after(rule, "dport").isdecimal():
        protocol = rule[rule.index("dport") - 1]
        port = HostPort(int(after(rule, "dport")), protocol, after(rule, "daddr"))
        yield Translation(port, target_of(rule), rule, mark_of(rule))


def _of_foreign(table: Table, chain: str, above: _Match, depth: int) -> Iterator[Translation]:
    """Yield the translations of a chain of nft that another program made."""
    for rule in table.chains.get(chain, ()) if depth < DEEPEST else ():
        conditions, target = read_rule(rule)
        match = _narrowed(above, ((option, ",".join(values), negated) for option, values, negated in conditions))
        if match is None:
            continue
        if target in table.chains:
            yield from _of_foreign(table, target, match, depth + 1)
        elif not _NFT_LEAD.isdisjoint(rule[5:]) and match.ports is not None:
            for protocol, number in product(match.protocol.split(","), sorted(match.ports)):
                yield Translation(HostPort(number, protocol, match.address), target_of(rule), rule, mark_of(rule))


def _of_chain(table: Table, chain: str, above: _Match, depth: int) -> Iterator[Translation]:
    if depth >= DEEPEST:
        return
    let_go: list[Translation] = []
    for rule in table.chains.get(chain, ()):
        match, target = _narrowed(above, options_of(rule)), after(rule, "-j")
        if match is None:
            continue
        if target in table.chains:
            for found in _of_chain(table, target, match, depth + 1):
                yield from (one for one in let_go if one.port.collides(found.port))
                yield found
        elif target in {*_LEAD, *_LET_GO} and match.ports is not None:
            ports = [HostPort(number, match.protocol, match.address) for number in sorted(match.ports)]
            translated = [Translation(port, target_of(rule), rule, match.comment) for port in ports]
            if target in _LEAD:
                yield from translated
            else:  # only of interest before a rule of the same chain for such a port
                let_go += translated


def _narrowed(above: _Match, conditions: Iterable[tuple[str, str, bool]]) -> _Match | None:
    """Return the packets of ``above`` that a rule sees; None if there is none, or if a condition is not understood.

    ``conditions``: those of the rule, as ``options_of`` yields them. Of nft, a set of values has commas.
    """
    seen = above
    for option, value, is_negated in conditions:
        if is_negated:
            if option == "-i":  # docker: not from its own bridge
                continue
            return None
        match option:
            case "-p":
                seen = seen._replace(protocol=value)
            case "--dport" | "--dports":
                ports = _ports(value)
                seen = seen._replace(ports=ports if seen.ports is None else seen.ports & ports)
            case "-d":
                seen = seen._replace(address=value.removesuffix("/32").removesuffix("/128"))
            case "--comment":
                seen = seen._replace(comment=value)
            case _ if option not in _FLAGS and (option, value.upper()) != ("--dst-type", "LOCAL"):
                return None
    return seen if seen.ports is None or seen.ports else None


def _ports(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.replace("-", ":").partition(":")
        if low.isdecimal() and (high or low).isdecimal() and int(high or low) - int(low) < _WIDEST:
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)
