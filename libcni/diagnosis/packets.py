"""Follow a container's packets through the rules of a node: which rule or policy loses them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from libcni.kernel.rules import Rule, Table, program_of
from libcni.verbs.port_rules import DEEPEST, after, options_of

_GO_ON = {"", "AUDIT", "CHECKSUM", "CONNMARK", "CT", "LOG", "MARK", "NFLOG", "SECMARK", "SET", "TCPMSS", "TRACE"}
"""The targets after which the next rule sees the packet."""
_UNDERSTOOD_MODULES = {"comment", "conntrack", "state"}
_PASSED: Rule = ("passed",)
"""The fate of packets that a rule may accept, or whose fate is not known."""

_Answer = Literal["yes", "no", "maybe"]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


class Packet(NamedTuple):
    """The first packet of a connection between a container and other networks, or the node.

    Attributes:
        address: the container's address.
        interface: the interface of the node to the container.
        is_sent: whether the container sends the packet.
    """

    address: _Address
    interface: str
    is_sent: bool = True


class _Step(NamedTuple):
    """A rule for packets of one direction over one interface.

    Attributes:
        rule: the rule.
        verdict: ``lost``, ``passed``, ``return``, or the name of the chain that decides.
        is_certain: whether it sees all of these packets, if the container's address fits.
        prefixes: the networks of the container's address, each with whether it is negated.
    """

    rule: Rule
    verdict: str
    is_certain: bool
    prefixes: tuple[tuple[_Prefix, bool], ...]

    def fits(self, address: _Address) -> bool:
        return all((address in prefix) is not is_negated for prefix, is_negated in self.prefixes)


class _Steps:
    """The steps of a chain in their order, with a quick search by the address of one host.

    The plugin firewall makes two rules for each of 10,000 containers.
    """

    def __init__(self, steps: list[_Step]) -> None:
        self._broad: list[tuple[int, _Step]] = []
        self._of_host: dict[str, list[tuple[int, _Step]]] = {}
        for place, step in enumerate(steps):
            hosts = [prefix for prefix, is_negated in step.prefixes if prefix.num_addresses == 1 and not is_negated]
            found = self._of_host.setdefault(str(hosts[0].network_address), []) if hosts else self._broad
            found.append((place, step))
        self.verdicts = {step.verdict for step in steps if step.is_certain or step.verdict != "lost"}

    def of(self, address: _Address) -> Iterator[_Step]:
        own = self._of_host.get(str(address), [])
        steps = sorted((*self._broad, *own), key=lambda pair: pair[0]) if own else self._broad
        return (step for _, step in steps if step.fits(address))


class Forwarding:
    """The rules that decide on the packets of containers.

    Args:
        rules: the rules by program and table.
        bridges: the bridges of containers: what leaves over them goes to no other network.
    """

    def __init__(self, rules: Mapping[str, Mapping[str, Table]], bridges: Collection[str] = ()) -> None:
        self._rules = rules
        self._bridges = bridges
        self._steps: dict[tuple[str, str, str, str, bool], _Steps] = {}
        self._losing: dict[tuple[str, str, str, str, bool], bool] = {}

    def dropped_by(self, address: str, interface: str) -> str:
        """Return the chain whose policy drops new connections of an address to other networks, or "".

        A rule with a condition that is not understood may accept them, so then nothing is said.

        Args:
            address: the address of a container.
            interface: the interface of the node on which its packets arrive.
        """
        family = "ip6" if ":" in address else "ip"
        packet = Packet(ipaddress.ip_address(address), interface)
        for program, tables in self._rules.items():
            for name, table in tables.items():
                dropping = [chain for chain, policy in table.policies.items() if policy == "DROP"]
                if program == "nft":
                    for chain in dropping if name.split()[0] in {family, "inet"} else ():
                        if not any(map(_may_accept_of_nft, table.chains.get(chain, ()))):
                            return f"chain {chain} of {program}, table {name}"
                    continue
                is_asked = (program.partition("-")[0], name) == (f"{family}tables", "filter") and "FORWARD" in dropping
                if is_asked and self._fate(program, name, "FORWARD", packet) is None:
                    return f"chain FORWARD of {program}"
        return ""

    def lost_by(self, program: str, table: str, chain: str, packet: Packet) -> Rule | None:
        """Return the rule that loses all such packets, or None. Nothing is said of what may be accepted before.

        In the table ``nat`` packets are lost for masquerade if a rule ends the search for it.
        """
        is_same_family = program.startswith(program_of(str(packet.address)))
        if not is_same_family or not self._can_lose(program, table, chain, packet):
            return None
        fate = self._fate(program, table, chain, packet)
        return None if fate is _PASSED else fate

    def _fate(self, program: str, table: str, chain: str, packet: Packet, depth: int = 0) -> Rule | None:
        """Return the rule that loses packets, _PASSED, or None if they come to the end of the chain."""
        is_certain = True
        for step in self._steps_of(program, table, chain, packet, depth).of(packet.address) if depth < DEEPEST else ():
            fate: Rule | None = step.rule
            if step.verdict == "return":
                if step.is_certain:
                    break
                is_certain = False
                continue
            if step.verdict == "passed":
                return _PASSED
            if step.verdict != "lost":
                fate = self._fate(program, table, step.verdict, packet, depth + 1)
                if fate is None and "-g" in step.rule:
                    return _PASSED  # the packets do not come back here
            if fate is _PASSED or (fate is not None and is_certain and step.is_certain):
                return fate
        return None

    def _can_lose(self, program: str, table: str, chain: str, packet: Packet, depth: int = 0) -> bool:
        """Return whether a rule of a chain, or of one that it jumps to, can lose all packets of a container."""
        key = program, table, chain, packet.interface, packet.is_sent
        if key not in self._losing and depth < DEEPEST:
            verdicts = self._steps_of(program, table, chain, packet, depth).verdicts
            self._losing[key] = "lost" in verdicts or any(
                self._can_lose(program, table, verdict, packet, depth + 1)
                for verdict in verdicts - {"passed", "return"}
            )
        return self._losing.get(key, False)

    def _steps_of(self, program: str, table: str, chain: str, packet: Packet, depth: int) -> _Steps:
        key = program, table, chain, packet.interface, packet.is_sent
        if key not in self._steps:
            rules = self._rules.get(program, {}).get(table) or Table()
            # The end of this chain is the end of the search for masquerade; in another chain the search goes on.
            verdict_of = _VERDICTS.get(table, _of_filter)
            steps = (
                self._step(rules, rule, verdict_of(rule, is_first=depth == 0), packet)
                for rule in rules.chains.get(chain, ())
            )
            self._steps[key] = _Steps([step for step in steps if step is not None])
        return self._steps[key]

    def _step(self, table: Table, rule: Rule, verdict: str, packet: Packet) -> _Step | None:
        """Return the step of a rule; None if it sees no such packet, or does nothing with it."""
        target = after(rule, "-j") or after(rule, "-g")
        if target in table.chains:
            verdict = target
        elif not verdict:
            return None
        words = rule[: rule.index("-j")] if "-j" in rule else rule
        prefixes: list[tuple[_Prefix, bool]] = []
        is_certain = True
        for option, value, is_negated in options_of(words):
            prefix = _prefix_of(value) if option == ("-s" if packet.is_sent else "-d") else None
            if prefix is not None:
                prefixes.append((prefix, is_negated))
                continue
            answer = self._matches(option, value, packet)
            if is_negated and answer != "maybe":
                answer = "no" if answer == "yes" else "yes"
            if answer == "no":
                return None
            is_certain = is_certain and answer == "yes"
        return _Step(rule, verdict, is_certain, tuple(prefixes))

    def _matches(self, option: str, value: str, packet: Packet) -> _Answer:  # noqa: PLR0911 - a table of options
        """Return whether such packets meet a condition, except those on the container's address."""
        if option in {"--ctstate", "--state"}:
            return "yes" if "NEW" in value else "no"
        if option in {"-i", "-o"}:
            if (option == "-i") == packet.is_sent:
                return "yes" if _is_interface(value, packet.interface) else "no"
            is_inner = value == packet.interface or any(_is_interface(value, bridge) for bridge in self._bridges)
            return "no" if is_inner else "maybe"
        if option in {"-s", "-d"}:  # of the other end: a single host is no other network
            return "no" if value.endswith(("/32", "/128")) else "maybe"
        if option == "--mark":  # kube-proxy marks connections to its services
            return "no"
        if option == "-p":
            return "yes" if value == "all" else "maybe" if value in {"tcp", "udp"} else "no"
        is_understood = option == "--comment" or (option == "-m" and value in _UNDERSTOOD_MODULES)
        return "yes" if is_understood else "maybe"


def _of_filter(rule: Rule, *, is_first: bool) -> str:  # noqa: ARG001 - as of the other tables
    target = after(rule, "-j") or after(rule, "-g")
    if target in {"DROP", "REJECT"}:
        return "lost"
    return "return" if target == "RETURN" else "" if target in _GO_ON else "passed"


def _of_raw(rule: Rule, *, is_first: bool) -> str:
    return "lost" if "NOTRACK" in rule or "--notrack" in rule else _of_filter(rule, is_first=is_first)


def _of_nat(rule: Rule, *, is_first: bool) -> str:
    target = after(rule, "-j") or after(rule, "-g")
    if target == "ACCEPT" or (target == "RETURN" and is_first):
        return "lost"
    return _of_filter(rule, is_first=is_first)


_VERDICTS: Mapping[str, Callable[..., str]] = {"nat": _of_nat, "raw": _of_raw}


def _may_accept_of_nft(rule: Rule) -> bool:
    is_of_replies = "state" in rule and "new" not in after(rule, "state")
    return not is_of_replies and not {"accept", "jump", "goto"}.isdisjoint(rule)


def _prefix_of(value: str) -> _Prefix | None:
    """Return the network in a rule; None for a mask with holes, which only iptables understands."""
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        return None


def _is_interface(value: str, name: str) -> bool:
    return name.startswith(value[:-1]) if value.endswith("+") else value == name
