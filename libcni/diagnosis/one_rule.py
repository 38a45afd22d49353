"""What a single rule of iptables or nft does with packets, and which packets it names."""

from __future__ import annotations

import functools
import ipaddress
import operator
import re
from collections.abc import Iterable
from itertools import chain as joined
from typing import Literal

from libcni.kernel.rule_words import Condition, after, options_of, read_rule
from libcni.kernel.rules import AddressSet, Rule, Table

_GO_ON = {
    "", "AUDIT", "CHECKSUM", "CLASSIFY", "CONNMARK", "CONNSECMARK", "CT", "DSCP", "ECN", "HL", "HMARK", "IDLETIMER",
    "LED", "LOG", "MARK", "NFLOG", "RATEEST", "SECMARK", "SET", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TRACE", "TTL",
}  # fmt: skip
"""The targets after which the next rule sees the packet."""
_ALL_BITS = 0xFFFFFFFF
_OPERATORS = {
    "&": operator.and_, "and": operator.and_, "|": operator.or_, "or": operator.or_, "^": operator.xor,
    "xor": operator.xor,
}  # fmt: skip
_MOST_PORTS = 0x8000
"""A condition that names more ports than this, such as ``1:65535``, hardly limits what a rule accepts."""
_MAY_NAME_PORTS = {"--dport", "--dports", "dport"}
PORT_MARK = 0x2000
"""The mark of the packets from the node itself or from the container that portmap masquerades."""
NEIGHBOUR = ("ipv6-icmp", 0)
"""Stands for the packets of IPv6's neighbour discovery, which belong to no connection and have no port."""

_NEIGHBOUR_TYPES = {"135", "136", "nd-neighbor-solicit", "nd-neighbor-advert"}

Answer = Literal["yes", "no", "maybe"]
Prefix = ipaddress.IPv4Network | ipaddress.IPv6Network


def text_of(rule: Rule) -> str:
    """Return a rule in the words of its program."""
    return " ".join(rule[5:] if rule[0] == "add" else rule)


def verdict_of(rule: Rule) -> str:
    """Return what a rule of iptables in a table that filters does with packets; "" if the next rule sees them."""
    target = after(rule, "-j") or after(rule, "-g")
    if target in {"DROP", "REJECT"}:
        return "lost"
    if target in _GO_ON:
        return "marks" if bits_of(rule) else ""
    return "return" if target == "RETURN" else "passed"


def masquerade_ends(rule: Rule, *, is_first: bool) -> bool:
    """Return whether a rule of the table nat ends the search for masquerade: at the end of other chains it goes on."""
    target = after(rule, "-j") or after(rule, "-g")
    return target == "ACCEPT" or (target == "RETURN" and is_first)


def is_untracked(rule: Rule) -> bool:
    """Return whether the node recognizes no connection of the packets after a rule of iptables or nft."""
    # With a zone for one side alone the answers belong to no connection.
    is_zone = any(word.startswith("--zone") for word in rule) and not {"-i", "-s", "-d"}.isdisjoint(rule)
    return not {"NOTRACK", "--notrack", "notrack"}.isdisjoint(rule) or is_zone


def is_translated(rule: Rule) -> bool:
    """Return whether a rule of nft leads packets to another address or port."""
    before = dict(zip(rule[1:], rule, strict=False))  # "ct status dnat" and "icmp type redirect" are conditions
    return before.get("dnat", "status") != "status" or before.get("redirect", "type") != "type"


def is_altered(rule: Rule, table: str, chain: str) -> bool:
    """Return whether a rule changes packets so that they are lost later."""
    if table == "raw":
        return is_untracked(rule)
    # The node takes one of the hops away.
    return chain == "PREROUTING" and "1" in {after(rule, "--ttl-set"), after(rule, "--hl-set")}


def clears_mark(value: str, mask: str = "0xffffffff") -> bool:
    """Return whether a rule that sets a mark takes portmap's away."""
    try:
        return bool(int(mask, 0) & PORT_MARK) and not int(value, 0) & PORT_MARK
    except ValueError:
        return False


def set_of_own(table: Table, words: Rule, name: str, *, is_sent: bool) -> AddressSet | None:
    """Return a set of ipset whose addresses a rule compares with the container's, or None."""
    return table.sets.get(name) if after(words, name) == ("src" if is_sent else "dst") else None


def matches_port(option: str, value: str, protocol: str, number: int) -> Answer:
    """Return whether the first packet for a published port meets a condition, or one of neighbour discovery."""
    is_neighbour = (protocol, number) == NEIGHBOUR
    if option in {"--ctstate", "--state", "--ctstatus"}:
        is_met = "UNTRACKED" in value if is_neighbour else "NEW" in value or "DNAT" in value
        return "yes" if is_met else "no"
    if option in {"-p", "--dst-type"}:  # the type before the translation
        of_protocol = {"all", protocol, *_NEIGHBOUR_TYPES} if is_neighbour else {"all", protocol}
        return "yes" if value in (of_protocol if option == "-p" else {"LOCAL"}) else "no"
    if option == "--icmpv6-type":
        return "yes" if value in _NEIGHBOUR_TYPES else "no"
    ports = ports_of(value)
    if not ports or not number:  # a set of ports, or any port
        return "maybe"
    return "yes" if any(number in part for part in ports) else "no"


def matches_first(value: str) -> Answer:
    """Return whether the first packet of a connection of TCP has the flags of ``MASK FLAGS``."""
    mask, _, flags = value.partition(" ")
    return "yes" if {"SYN"} & set(mask.split(",")) == set(flags.split(",")) - {"NONE"} else "no"


def mark_of(text: str, *, is_negated: bool) -> tuple[int, int, bool] | None:
    """Return a mark as ``_Step`` has it; None if it is not understood."""
    value, _, mask = text.partition("/")
    try:
        return int(value, 0), int(mask or "0xffffffff", 0), is_negated
    except ValueError:
        return None


def bits_of(rule: Rule) -> int:
    """Return the bits that a rule may set in the mark of a packet."""
    if rule[0] == "add":
        text = " ".join(rule[5:]).partition("meta mark set ")[2]
        text = re.sub(r"(?:and|&) (?:0x)?[0-9a-f]+", "", text.partition(" comment ")[0]).replace("meta mark", "")
        if not text or re.search("map|ct |hash|numgen", text):
            return _ALL_BITS if text else 0
        return functools.reduce(operator.or_, (int(one, 0) for one in re.findall(r"\b0x[0-9a-f]+\b", text)), 0)
    if "CONNMARK" in rule:
        return _ALL_BITS if "--restore-mark" in rule else 0
    mark = mark_of(after(rule, "--set-xmark") or after(rule, "--set-mark") or "0", is_negated=False)
    return (_ALL_BITS if mark is None else mark[0]) if "MARK" in rule else 0


def marked_with(rule: Rule, mark: int) -> int | None:
    """Return the mark of a packet after a rule that sets it; ``mark``: the mark before. None: unknown."""
    if rule[0] == "add":
        return _marked_with_nft(" ".join(rule[5:]).partition("meta mark set ")[2].partition(" comment ")[0], mark)
    if "MARK" not in rule:
        return None  # a mark of the connection
    set_mark = mark_of(after(rule, "--set-xmark") or after(rule, "--set-mark"), is_negated=False)
    if set_mark is None:
        return None
    value, mask, _ = set_mark
    rest = mark & ~mask
    return rest ^ value if "--set-xmark" in rule else rest | value


def _marked_with_nft(text: str, mark: int) -> int | None:
    """Return the mark of ``0x1`` or ``meta mark & 0xff | 0x1``; None: unknown."""
    rest = text.replace("(", " ").replace(")", " ").replace("meta mark", str(mark)).split()
    found: int | None = None
    operation = operator.or_
    for place, word in enumerate(rest):
        if place % 2 and word not in _OPERATORS:
            break  # the next statement
        if place % 2:
            operation = _OPERATORS[word]
            continue
        try:
            found = operation(found or 0, int(word, 0))
        except ValueError:
            return None
    return found


def queues_in(text: str) -> list[int]:
    """Return the numbers of queues in a rule, such as ``0:3`` or ``0-3``."""
    low, _, high = text.replace("-", ":").partition(":")
    if not low.isdecimal() or not (high or low).isdecimal():
        return []
    return list(range(int(low), min(int(high or low), int(low) + 255) + 1))


def ports_of(value: str) -> list[range]:
    """Return the ports in a condition, such as ``80``, ``8000:8010`` or ``80,443``."""
    parts = (part.replace("-", ":").partition(":") for part in value.split(","))
    return [
        range(int(low), int(high or low) + 1) for low, _, high in parts if low.isdecimal() and (high or low).isdecimal()
    ]


def names_most(value: str) -> bool:
    """Return whether a condition names most of the ports."""
    return sum(map(len, ports_of(value))) > _MOST_PORTS


def traffic_of(rule: Rule) -> str:
    """Return the protocols and ports that a rule names, such as ``tcp 443,10250``; "" if it names none."""
    named = [one for one in _conditions_of(rule) if one.option in {"-p", "--dport", "--dports", "--ports"}]
    texts = (f"{'not ' * one.is_negated}{','.join(one.values)}" for one in named)
    return " ".join(dict.fromkeys(texts))


def _conditions_of(rule: Rule) -> list[Condition]:
    if rule[0] == "add":
        return read_rule(rule)[0]
    return [Condition(option, (value,), is_negated) for option, value, is_negated in options_of(rule)]


def dropped_ports(table: Table) -> list[range]:
    """Return the ports that conditions of a table name; [] if no rule of the table drops packets."""
    found: list[range] = []
    is_losing = False
    for rule in joined.from_iterable(table.chains.values()):
        if rule[0] == "add":
            conditions, verdict = read_rule(rule)
            values = [value for one in conditions if one.option == "--dport" for value in one.values]
        else:
            verdict, values = verdict_of(rule), [after(rule, "--dport"), after(rule, "--dports")]
        is_losing = is_losing or verdict == "lost"
        found += [part for value in values if value for part in ports_of(value)]
    return found if is_losing else []


def ports_of_loss(rule: Rule) -> list[range]:
    """Return the ports in the conditions of a rule that loses packets of new connections; [] if it names none."""
    return _ports_in(one for one in _of_loss(rule) if not one.is_negated)


def traffic_of_loss(rule: Rule) -> tuple[str, int] | None:
    """Return the protocol and the first port of a rule that loses such new connections, or None.

    The port is -1 if the rule names none. A rule that loses all connections of TCP loses nearly everything: None.
    """
    return traffic_in(_of_loss(rule))


def traffic_of_mark(rule: Rule) -> tuple[str, int] | None:
    """Return the protocol and the first port of a rule that sets a mark, as ``traffic_of_loss``."""
    return traffic_in(_conditions_of(rule)) if bits_of(rule) else None


def traffic_in(conditions: list[Condition]) -> tuple[str, int] | None:
    """Return the protocol and the first port that conditions name, or None."""
    named = [value for one in conditions if one.option == "-p" and not one.is_negated for value in one.values]
    protocol = next((value for value in named if value in {"tcp", "udp", "sctp"}), "")
    ports = _ports_in(one for one in conditions if not one.is_negated)
    if ports:
        return protocol or "tcp", ports[0].start
    return (protocol, -1) if protocol in {"udp", "sctp"} and "tcp" not in named else None


def named_ports(rule: Rule) -> list[range]:
    """Return the ports in the conditions of any rule."""
    return _ports_in(_conditions_of(rule)) if _MAY_NAME_PORTS & set(rule) else []


def _ports_in(conditions: Iterable[Condition]) -> list[range]:
    named = [one for one in conditions if one.option in {"--dport", "--dports"}]
    return [part for one in named for value in one.values for part in ports_of(value)]


def named_in_drop(rule: Rule) -> frozenset[str]:
    """Return the addresses and interfaces whose new connections a rule drops; none if the rule drops no packets."""
    named = (one.values for one in _of_loss(rule) if one.option in {"-s", "-d", "-i", "-o"} and not one.is_negated)
    return frozenset(value.removesuffix("/32").removesuffix("/128") for values in named for value in values)


def other_end(rule: Rule) -> tuple[bool, Prefix] | None:
    """Return the one network whose new connections a rule drops, as (whether it is the source, network); or None."""
    named = [one for one in _of_loss(rule) if one.option in {"-s", "-d"}]
    if len(named) != 1 or named[0].is_negated or len(named[0].values) != 1:
        return None
    prefix = prefix_of(named[0].values[0])
    return (named[0].option == "-s", prefix) if prefix is not None and prefix.prefixlen else None


def is_loss(rule: Rule) -> bool:
    """Return whether a rule loses packets of new connections."""
    if (read_rule(rule)[1] if rule[0] == "add" else verdict_of(rule)) != "lost":
        return False
    named = [one for one in _conditions_of(rule) if one.option in {"--ctstate", "--state"}]
    states = [value for one in named for value in one.values]
    return not states or "new" in ",".join(states).lower()


def _of_loss(rule: Rule) -> list[Condition]:
    """Return the conditions of a rule that loses packets of new connections; [] of other rules."""
    return _conditions_of(rule) if is_loss(rule) else []


def lost_prefixes(rule: Rule) -> list[tuple[bool, Prefix]]:
    """Return the networks whose new connections a rule drops, each as (whether it is the source, network)."""
    found = [
        (one.option == "-s", prefix_of(value)) for one in _of_loss(rule) for value in one.values
        if one.option in {"-s", "-d"} and not one.is_negated
    ]  # fmt: skip
    # Hosts are in ``named_in_drop``.
    return [(is_sent, one) for is_sent, one in found if one is not None and 0 < one.prefixlen < one.max_prefixlen]


def prefix_of(value: str) -> Prefix | None:
    """Return the network in a rule; None for a mask with holes, which only iptables understands."""
    try:
        return ipaddress.ip_network(value)
    except ValueError:
        return None


def is_interface(value: str, name: str) -> bool:
    """Return whether a name in a rule of iptables is that of an interface."""
    return name.startswith(value[:-1]) if value.endswith("+") else value == name
