"""Follow a container's packets through the rules of a node: which rule or policy loses them."""

from __future__ import annotations

import functools
import ipaddress
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain as joined
from typing import NamedTuple

from libcni._dataclass import dataclass, replace
from libcni.diagnosis.one_rule import (
    PORT_MARK,
    Answer,
    Prefix,
    bits_of,
    clears_mark,
    is_altered,
    is_interface,
    is_translated,
    is_untracked,
    mark_of,
    marked_with,
    masquerade_ends,
    matches_first,
    matches_port,
    names_most,
    prefix_of,
    queues_in,
    set_of_own,
    traffic_of,
    verdict_of,
)
from libcni.kernel.rule_words import after, is_goto, options_of, read_rule
from libcni.kernel.rules import DEEPEST, AddressSet, Rule, Table, program_of

_UNDERSTOOD_MODULES = {"comment", "conntrack", "icmp6", "mark", "multiport", "set", "state", "tcp", "udp"}
_ARP = {"arp", "request", "reply"}
_OF_PORTS = {"-p", "--dport", "--dports", "--ctstate", "--state", "--ctstatus", "--dst-type", "--icmpv6-type"}
_LIMITS = {
    f"--{word}"
    for word in (
        "limit", "limit-above", "limit-burst", "hashlimit-upto", "hashlimit-above", "hashlimit-burst",
        "hashlimit-mode", "hashlimit-name", "connlimit-upto", "connlimit-above", "connlimit-mask", "connlimit-saddr",
        "connlimit-daddr", "hashlimit-htable-expire",
    )
}  # fmt: skip
_NAMED_PORTS = {"--dport", "--dports", "--ports"}
_OF_INTERFACES = {"-i", "-o", "--logical-in", "--logical-out"}
_IN_CAPITALS = {"--ctstate", "--dst-type"}
_MARKING = {"raw": -300, "mangle": -150}
"""The tables of iptables whose marks the kernel heeds when it chooses a route, with their priorities."""
_TRACKED = -200
"""The priority at which the kernel recognizes the connection of a packet."""
_PASSED: Rule = ("passed",)
"""The fate of packets that a rule may accept, and of packets whose fate is unknown."""

_Key = tuple[str, str, str, int, tuple[object, ...]]
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Prefixes = list[tuple[Prefix | AddressSet, bool]]


class Packet(NamedTuple):
    """The first packet of a connection between a container and other networks, or the node.

    Attributes:
        address: the container's address.
        interface: the interface of the node to the container.
        is_sent: whether the container sends the packet.
        other: the address of the other end; None: any.
        beyond: the interface of the node to the other end; "": any that leads to another network.
        is_marked: whether to look only for rules that remove portmap's mark, with which packets to published ports
            are masqueraded.
        port: the protocol and the published port of the connection; None: any. The port 0: unknown.
        is_above: whether there are more packets than any limit of a rule allows.
        part: ``most``: a connection of TCP to a port that no rule names, so that a rule which accepts some ports alone
            accepts none of them; ``some``: any protocol and port.
        is_answer: whether it is the answer to the first packet.
        bridge: the bridge on which the packet stays, if its interfaces are ports; "": unknown.
    """

    address: _Address
    interface: str
    is_sent: bool = True
    other: _Address | None = None
    beyond: str = ""
    is_marked: bool = False
    port: tuple[str, int] | None = None
    is_above: bool = False
    part: str = ""
    is_answer: bool = False
    bridge: str = ""


class Place(NamedTuple):
    """A chain: its program, its table and its name."""

    program: str
    table: str
    chain: str

    def __str__(self) -> str:
        table = f", table {self.table}" if self.table != "filter" else ""
        return f"chain {self.chain} of {self.program}{table}"


@dataclass
class _Marked:
    """The bits that may be set in the mark of a packet, those of them apart that only rules of nat set."""

    bits: int = 0
    by_nat: int = 0


@dataclass
class _Mark:
    """The mark of one packet, and the rule that set it; None: it is unknown."""

    value: int | None = 0
    rule: Rule = ()

    def set(self, rule: Rule, *, is_certain: bool) -> None:
        after_rule = marked_with(rule, self.value or 0)
        if after_rule != self.value:
            self.value, self.rule = after_rule if is_certain and self.value is not None else None, rule

    def meets(self, condition: tuple[int, int, bool] | None) -> Answer:
        if condition is None:
            return "yes"
        value, mask, is_negated = condition
        if self.value is None:
            return "maybe"
        return "yes" if (self.value & mask == value) is not is_negated else "no"


class _Step(NamedTuple):
    """A rule for packets of one direction over one interface.

    Attributes:
        rule: the rule.
        verdict: ``lost``, ``passed``, ``return``, ``marks``, or the name of the chain that decides.
        is_certain: whether it sees all of these packets, if the container's address fits.
        prefixes: the networks of the container's address, each with whether it is negated.
        mark: the mark of its packets, with the mask and whether it is negated; None: any.
    """

    rule: Rule
    verdict: str
    is_certain: bool
    prefixes: tuple[tuple[Prefix | AddressSet, bool], ...]
    mark: tuple[int, int, bool] | None = None

    def fits(self, address: _Address) -> bool:
        return all((address in prefix) is not is_negated for prefix, is_negated in self.prefixes)

    def has_mark(self, marked: _Marked) -> Answer:
        """Return whether its condition on the mark is met."""
        value, mask, is_negated = self.mark or (0, 0, False)
        # nat marks connections to services alone, as kube-proxy does: an accept for these is none for the others.
        if (marked.bits | marked.by_nat * is_negated) & mask:
            return "maybe"
        return "yes" if (value == 0) is not is_negated else "no"


class _Steps:
    """The steps of a chain in their order, with a quick search by the address of one host.

    The plugin firewall makes two rules for each of 10,000 containers.
    """

    def __init__(self, steps: list[_Step]) -> None:
        self._broad: list[tuple[int, _Step]] = []
        self._of_host: dict[str, list[tuple[int, _Step]]] = {}
        for place, step in enumerate(steps):
            hosts = [
                str(prefix.network_address) for prefix, is_negated in step.prefixes
                if not isinstance(prefix, AddressSet) and prefix.num_addresses == 1 and not is_negated
            ]  # fmt: skip
            found = self._of_host.setdefault(hosts[0], []) if hosts else self._broad
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
        bridges: the bridges of containers. Packets that leave over them go to no other network.
        queues: the numbers of the queues (NFQUEUE) that a program reads; None: unknown.
        own: the addresses of the node, with prefix length.
    """

    def __init__(
        self,
        rules: Mapping[str, Mapping[str, Table]],
        bridges: Collection[str] = (),
        queues: Collection[int] | None = None,
        own: Iterable[str] = (),
    ) -> None:
        self._rules = rules
        self._bridges = bridges
        self._queues = queues
        self._own = [ipaddress.ip_interface(cidr) for cidr in own]
        self._steps: dict[_Key, _Steps] = {}
        self._losing: dict[_Key, bool] = {}
        self._marks: dict[tuple[str, str], _Marked] = {}

    def dropped_by(self, address: str, interface: str, chain: str = "FORWARD") -> Place | None:
        """Return the chain whose policy drops new connections of an address to other networks, or None.

        Return None if a rule has a condition that is not understood, because this rule may accept the connections.

        Args:
            address: the address of a container.
            interface: the interface of the node on which its packets arrive.
            chain: the chain of iptables, and in small letters the hook of nft: INPUT for connections to the node.
        """
        return self.policy_drops(Packet(ipaddress.ip_address(address), interface), chain)

    def policy_drops(self, packet: Packet, chain: str = "FORWARD", *, of_ports: bool = False) -> Place | None:
        """Return the chain whose policy drops packets like ``packet``, or None; see ``dropped_by``.

        ``of_ports``: whether only the tables for bridges are meant, whose packets have ports as interfaces.
        """
        for program, tables in self._rules.items():
            for name, table in tables.items():
                if name.startswith("bridge ") is not of_ports or name.startswith("netdev "):
                    continue
                hooks = [one for one, hook in table.hooks.items() if hook.name == chain.lower()]
                for one in hooks if program == "nft" else [chain] * (name == "filter"):
                    is_asked = _is_for(program, name, packet) and table.policies.get(one) == "DROP"
                    if is_asked and self._fate(Place(program, name, one), packet) is None:
                        return Place(program, name, one)
        return None

    def accepted(self, place: Place, packet: Packet, depth: int = 0) -> list[str]:
        """Return the protocols and ports of the rules of a chain that may accept packets like ``packet``."""
        found: list[str] = []
        packet = packet._replace(part="some")
        for step, _ in self._seen(place, packet, depth, self._marked_before(place.program, place.table)):
            if step.verdict == "passed":
                found.append(traffic_of(step.rule))
            elif step.verdict not in {"lost", "return"}:
                inner = self.accepted(place._replace(chain=step.verdict), packet, depth + 1)
                found += (f"{traffic_of(step.rule)} {one}".strip() for one in inner)
        return list(dict.fromkeys(found if depth else filter(None, found)))

    def lost_by(self, program: str, table: str, chain: str, packet: Packet) -> Rule | None:
        """Return the rule that drops all packets like ``packet``; None also if another rule may accept them before.

        In the table ``nat``, "lost" means that a rule ends the search, so that the packets are not masqueraded.
        """
        if not _is_for(program, table, packet) or not self._can_lose(program, table, chain, packet):
            return None
        fate = self._fate(Place(program, table, chain), packet)
        return None if fate is _PASSED else fate

    def _fate(self, place: Place, packet: Packet, depth: int = 0, marked: _Marked | None = None) -> Rule | None:
        """Return the rule that loses packets, _PASSED, or None if they come to the end of the chain."""
        is_certain = True
        if marked is None:
            marked = self._marked_before(place.program, place.table)
            marked.bits |= PORT_MARK if packet.is_marked else 0
        for step, sees_all in self._seen(place, packet, depth, marked):
            fate: Rule | None = step.rule
            if step.verdict == "return":
                if sees_all:
                    break
                is_certain = False
                continue
            if step.verdict == "passed":
                return _PASSED
            if step.verdict != "lost":
                fate = self._fate(place._replace(chain=step.verdict), packet, depth + 1, marked)
                if fate is None and is_goto(step.rule):
                    return _PASSED  # the packets do not come back here
            if fate is _PASSED or (fate is not None and is_certain and sees_all):
                return fate
        return None

    def _seen(self, place: Place, packet: Packet, depth: int, marked: _Marked) -> Iterator[tuple[_Step, bool]]:
        """Yield the steps that see packets, each with whether it sees all of them. Renew ``marked``."""
        for step in self._steps_of(*place, packet, depth).of(packet.address) if depth < DEEPEST else ():
            has_mark = step.has_mark(marked)
            if step.verdict == "marks" and has_mark != "no":
                marked.bits |= bits_of(step.rule)
            elif has_mark != "no":
                yield step, step.is_certain and has_mark == "yes"

    def _marked_before(self, program: str, table: str) -> _Marked:
        """Return the bits that rules may set in the mark of a packet before it comes to a hook of a table."""
        if (program, table) not in self._marks:
            marked = self._marks[program, table] = _Marked()
            for other, tables in self._rules.items():
                for name, one in tables.items() if "nft" in {program, other} or program[:3] == other[:3] else ():
                    # A packet comes to one of the hooks of filter only.
                    is_own = (other, name) == (program, table) and program != "nft" and table not in {"nat", "mangle"}
                    rules = () if is_own else joined.from_iterable(one.chains.values())
                    bits = functools.reduce(operator.or_, map(bits_of, rules), 0)
                    if name == "nat" or (one.hooks and {hook.kind for hook in one.hooks.values()} == {"nat"}):
                        marked.by_nat |= bits
                    else:
                        marked.bits |= bits
        return replace(self._marks[program, table])

    def mark(self, packet: Packet, hook: str) -> tuple[int | None, Rule]:
        """Return the mark of a packet at the end of a hook, and the rule that sets it: (0, ()) if none does.

        The mark is None if it is unknown: the rule may set it.

        Args:
            packet: the packet.
            hook: the hook in small letters, before the kernel chooses the route: ``prerouting`` or ``output``.
        """
        places: list[tuple[int, Place]] = []
        for program, tables in self._rules.items():
            for name, table in tables.items() if program == "nft" else ():
                hooks = [(one, at) for one, at in table.hooks.items() if at.name == hook and at.kind != "nat"]
                places += [(at.priority, Place(program, name, one)) for one, at in hooks if name[:6] != "bridge"]
            if program != "nft":
                places += [(at, Place(program, name, hook.upper())) for name, at in _MARKING.items() if name in tables]
        marked = _Mark()
        for _, place in sorted(places):
            if _is_for(place.program, place.table, packet):
                self._mark(place, packet, marked, 0, is_entered=True)
        return marked.value, marked.rule

    def _mark(self, place: Place, packet: Packet, marked: _Mark, depth: int, *, is_entered: bool) -> Answer:
        """Follow a packet through a chain, and renew its mark. Return whether it comes to the end of the chain."""
        is_certain = True
        for step in self._steps_of(*place, packet, depth).of(packet.address) if depth < DEEPEST else ():
            answer = marked.meets(step.mark) if step.is_certain or step.mark is not None else "maybe"
            is_sure = is_certain and step.is_certain and answer == "yes"
            if answer == "no":
                continue
            if bits_of(step.rule):  # nft can set a mark and decide in one rule
                marked.set(step.rule, is_certain=is_entered and is_sure)
            if step.verdict == "marks":
                continue
            end: Answer = "yes" if step.verdict == "return" else "no"
            if step.verdict not in {"lost", "passed", "return"}:
                inner = place._replace(chain=step.verdict)
                end = self._mark(inner, packet, marked, depth + 1, is_entered=is_entered and is_sure)
                if end == "yes" and not is_goto(step.rule):
                    continue
            if is_sure:
                return end
            is_certain = False
        return "yes" if is_certain else "maybe"

    def _can_lose(self, program: str, table: str, chain: str, packet: Packet, depth: int = 0) -> bool:
        """Return whether a rule of a chain, or of one that it jumps to, can lose all packets of a container."""
        key = program, table, chain, packet.address.version, packet[1:]
        if key not in self._losing and depth < DEEPEST:
            verdicts = self._steps_of(program, table, chain, packet, depth).verdicts
            self._losing[key] = "lost" in verdicts or any(
                self._can_lose(program, table, verdict, packet, depth + 1)
                for verdict in verdicts - {"marks", "passed", "return"}
            )
        return self._losing.get(key, False)

    def _steps_of(self, program: str, table: str, chain: str, packet: Packet, depth: int) -> _Steps:
        key = program, table, chain, packet.address.version, packet[1:]
        if key not in self._steps:
            rules = self._rules.get(program, {}).get(table) or Table()
            steps = (
                self._step(rules, rule, self._verdict(table, chain, rule, packet, is_first=depth == 0), packet)
                for rule in rules.chains.get(chain, ())
            )
            self._steps[key] = _Steps([step for step in steps if step is not None])
        return self._steps[key]

    def _verdict(self, table: str, chain: str, rule: Rule, packet: Packet, *, is_first: bool) -> str:
        """Return what a rule of iptables does with packets: see ``_Step``; "" if the next rule sees them."""
        target = after(rule, "-j") or after(rule, "-g")
        if packet.is_marked:
            value, _, mask = (after(rule, "--set-xmark") or after(rule, "--set-mark")).partition("/")
            cleared = target == "MARK" and clears_mark(value, mask or "0xffffffff")
            return "lost" if cleared else verdict_of(rule).replace("lost", "passed")
        if target == "NFQUEUE":
            queues = queues_in(after(rule, "--queue-balance") or after(rule, "--queue-num") or "0")
            return self._of_queue(queues, is_bypassed="--queue-bypass" in rule)
        if table == "nat" and packet.port is not None:  # the rule that decides where a published port leads
            is_end = target in {"DNAT", "REDIRECT"} or masquerade_ends(rule, is_first=is_first)
            return "lost" if is_end else verdict_of(rule)
        is_lost = masquerade_ends(rule, is_first=is_first) if table == "nat" else is_altered(rule, table, chain)
        if is_lost or (target == "SNAT" and self._is_foreign(after(rule, "--to-source"))):
            return "lost"
        return verdict_of(rule)

    def may_see(self, rule: Rule, packet: Packet) -> bool:
        """Return whether a packet may match a rule of iptables."""
        step = self._step(Table(), rule, verdict_of(rule), packet)
        return step is not None and step.fits(packet.address)

    def drops_all(self, place: Place, rule: Rule, packet: Packet) -> bool:
        """Return whether a rule drops every packet like ``packet`` that reaches it. Its chain is not searched."""
        table = self._rules.get(place.program, {}).get(place.table) or Table()
        step = self._step(table, rule, verdict_of(rule), packet)
        return step is not None and step.is_certain and step.verdict == "lost" and step.fits(packet.address)

    def _of_queue(self, numbers: list[int], *, is_bypassed: bool) -> str:
        is_unread = self._queues is not None and bool(numbers) and set(numbers).isdisjoint(self._queues)
        return "lost" if is_unread and not is_bypassed else "passed"

    def _is_foreign(self, target: str) -> bool:
        """Return whether an address is in a network of the node's, but not the node's: answers to it are lost."""
        text = target.partition("-")[0]
        text = text.partition("]")[0].strip("[") if "[" in text else text.partition(":")[0] if "." in text else text
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        near = [one for one in self._own if address in one.network and one.network.num_addresses > 1]
        return bool(near) and all(one.ip != address for one in self._own)

    def _step(self, table: Table, rule: Rule, verdict: str, packet: Packet) -> _Step | None:  # noqa: C901 - of options
        """Return the step of a rule; None if it sees no such packet, or does nothing with it."""
        if rule[0] == "add":
            return self._step_of_nft(table, rule, packet)
        target = after(rule, "-j") or after(rule, "-g")
        if target in table.chains:
            verdict = target
        elif not verdict:
            return None
        words = rule[: rule.index("-j")] if "-j" in rule else rule
        packet = _asked_of(table, verdict, packet)
        prefixes: _Prefixes = []
        is_certain, mark = True, None
        for option, value, is_negated in options_of(words):
            if option == "--mark" and "connmark" not in words:
                mark = mark_of(value, is_negated=is_negated)
                is_certain = is_certain and mark is not None
                continue
            prefix = prefix_of(value) if option == ("-s" if packet.is_sent else "-d") else None
            of_own = prefix if option != "--match-set" else set_of_own(table, words, value, is_sent=packet.is_sent)
            if of_own is not None:
                prefixes.append((of_own, is_negated))
                continue
            answer = self._matches(option, value, packet)
            far = set_of_own(table, words, value, is_sent=not packet.is_sent) if option == "--match-set" else None
            if far is not None and packet.other is not None:
                answer = "yes" if packet.other in far else "no"
            if option == "--tcp-flags":
                answer = "maybe" if packet.is_answer else matches_first(f"{value} {after(words, value)}")
            if is_negated and answer != "maybe":
                answer = "no" if answer == "yes" else "yes"
            if answer == "no":
                return None
            is_certain = is_certain and answer == "yes"
        return _Step(rule, verdict, is_certain, tuple(prefixes), mark)

    def _step_of_nft(self, table: Table, rule: Rule, packet: Packet) -> _Step | None:
        conditions, verdict = read_rule(rule)
        verdict = self._verdict_of_nft(table, rule, packet, verdict)
        packet = _asked_of(table, verdict, packet)
        prefixes: _Prefixes = []
        is_certain, mark = True, None
        for option, values, is_negated in conditions if verdict else ():
            if option == "--mark":
                mark = mark_of(values[0], is_negated=is_negated) if len(values) == 1 else None
                is_certain = is_certain and mark is not None
                continue
            is_own = len(values) == 1 and option == ("-s" if packet.is_sent else "-d")
            if is_own and (named := table.sets.get(values[0].removeprefix("@"))) is not None:
                prefixes.append((named, is_negated))
                continue
            own = prefix_of(values[0]) if is_own else None
            if own is not None and own.version == packet.address.version:
                prefixes.append((own, is_negated))
                continue
            far = table.sets.get(values[0].removeprefix("@")) if len(values) == 1 and option in {"-s", "-d"} else None
            # A rule that accepts ARP accepts no packet of IP, but one that drops it cuts off as well.
            seen = [one for one in values if option != "nfproto" or verdict != "passed" or one not in _ARP] or ["no"]
            answers = {self._matches_of_nft(option, value, packet) for value in (seen if values else ("",))}
            if far is not None and packet.other is not None:
                answers = {"yes" if packet.other in far else "no"}
            answer: Answer = "yes" if "yes" in answers else "no" if answers == {"no"} else "maybe"
            if is_negated and answer != "maybe":
                answer = "no" if answer == "yes" or own is not None else "yes"  # of the other version of IP
            if answer == "no":
                return None
            is_certain = is_certain and answer == "yes"
        return _Step(rule, verdict, is_certain, tuple(prefixes), mark) if verdict else None

    def _verdict_of_nft(self, table: Table, rule: Rule, packet: Packet, verdict: str) -> str:
        if packet.is_marked:
            is_cleared = clears_mark(after(rule, "set")) and "mark" in rule
            verdict = "lost" if is_cleared else verdict.replace("lost", "passed")
        elif "queue" in rule:
            verdict = self._of_queue(queues_in(after(rule, "to") or after(rule, "num")), is_bypassed="bypass" in rule)
        elif (packet.port is not None and is_translated(rule)) or (
            is_untracked(rule) and any(hook.priority < _TRACKED for hook in table.hooks.values())
        ):
            verdict = "lost"
        return verdict or ("marks" if bits_of(rule) else "")

    def _matches_of_nft(self, option: str, value: str, packet: Packet) -> Answer:  # noqa: PLR0911 - a table of options
        if option == "nfproto":
            # Whose questions for hardware addresses are lost, or their answers, is cut off, too.
            of_this = {"ipv4", "ip", "arp", "request", "reply"} if "." in str(packet.address) else {"ipv6", "ip6"}
            return "yes" if value in of_this else "no"
        if option == "--ctstatus":
            is_no = packet.is_sent and value == "dnat"
            return "no" if is_no else "yes" if packet.port is not None and value == "dnat" else "maybe"
        if option in {"-s", "-d"}:
            prefix = prefix_of(value)
            if prefix is not None and prefix.version != packet.address.version:
                return "no"
            if prefix is not None and packet.other is not None:
                return "yes" if packet.other in prefix else "no"
            return "maybe" if prefix is None or prefix.num_addresses > 1 else "no"
        if option == "--tcp-flags":
            return "maybe" if packet.is_answer else matches_first(value)
        return self._matches(option, value.upper() if option in _IN_CAPITALS else value, packet) if option else "maybe"

    def _matches(self, option: str, value: str, packet: Packet) -> Answer:  # noqa: C901, PLR0911 - a table of options
        """Return whether such packets meet a condition, except those on the container's address."""
        if packet.is_above and (option in _LIMITS or value in {"limit", "hashlimit", "connlimit"}):
            return "no" if option in {"--limit", "--hashlimit-upto", "--connlimit-upto"} else "yes"
        if option == "--dst-type" and packet.other is not None:
            is_own = any(one.ip == packet.other for one in self._own)
            return "yes" if value == ("LOCAL" if is_own else "UNICAST") else "no"
        if packet.part and (option == "-p" or option in _NAMED_PORTS):
            is_met = names_most(value) if option in _NAMED_PORTS else value in {"all", "tcp"}
            return "maybe" if packet.part == "some" else "yes" if is_met else "no"
        if packet.port is not None and option in _OF_PORTS:
            return matches_port(option, value, *packet.port)
        if option in {"--ctstate", "--state"}:
            return "yes" if ("ESTABLISHED" if packet.is_answer else "NEW") in value else "no"
        if option in _OF_INTERFACES:
            return self._matches_interface(option, value, packet)
        if packet.other is not None and option in {"-s", "-d"}:
            prefix = prefix_of(value)
            return "yes" if prefix is not None and packet.other in prefix else "no"
        if option in {"-s", "-d"}:  # of the other end: a single host is no other network
            return "no" if value.endswith(("/32", "/128")) else "maybe"
        if option == "--mark":  # of the connection
            return "no"
        if option == "-p":
            # Whose connections of TCP are lost has lost nearly everything.
            return "yes" if value in {"all", "tcp"} else "maybe" if value == "udp" else "no"
        is_understood = option == "--comment" or (
            option == "-m" and (value in _UNDERSTOOD_MODULES or (value == "addrtype" and (packet.other or packet.port)))
        )
        return "yes" if is_understood else "maybe"

    def _matches_interface(self, option: str, value: str, packet: Packet) -> Answer:
        if option in {"--logical-in", "--logical-out"}:  # of ebtables
            return "maybe" if not packet.bridge else "yes" if is_interface(value, packet.bridge) else "no"
        if (option == "-i") == packet.is_sent:
            return "yes" if is_interface(value, packet.interface) else "no"
        if packet.beyond:
            return "yes" if is_interface(value, packet.beyond) else "no"
        is_inner = value == packet.interface or any(is_interface(value, bridge) for bridge in self._bridges)
        return "no" if is_inner else "maybe"


def _asked_of(table: Table, verdict: str, packet: Packet) -> Packet:
    """Return the packet with which the conditions of a rule are compared."""
    # A mark tells later rules of what was accepted, as those of network policies: nobody knows here for which ports.
    is_mark = verdict == "marks" or any(map(bits_of, table.chains.get(verdict, ()) if packet.part else ()))
    return packet._replace(part="") if packet.part == "most" and is_mark else packet


def _is_for(program: str, table: str, packet: Packet) -> bool:
    """Return whether a table is for the version of IP of a packet."""
    if program != "nft":
        return program.startswith(program_of(str(packet.address)))
    version = "ip6" if ":" in str(packet.address) else "ip"
    # Whose questions for hardware addresses are lost is cut off, too.
    own = {"ip6"} if version == "ip6" else {"ip", "arp"}
    return table.partition(" ")[0] in {*own, "inet", "bridge", "netdev"}
