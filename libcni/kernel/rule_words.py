"""Read the words of a rule of iptables or nft: its conditions, and what it does.

The conditions of nft are read into the options of iptables, so that both follow the same tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from libcni.kernel.rules import Rule

_OPTIONS = {
    ("iifname",): "-i",
    ("iif",): "-i",
    ("oifname",): "-o",
    ("oif",): "-o",
    ("ip", "saddr"): "-s",
    ("ip6", "saddr"): "-s",
    ("ip", "daddr"): "-d",
    ("ip6", "daddr"): "-d",
    ("meta", "mark"): "--mark",
    ("meta", "ibrname"): "--logical-in",
    ("meta", "obrname"): "--logical-out",
    ("ct", "state"): "--ctstate",
    ("ct", "status"): "--ctstatus",
    ("meta", "nfproto"): "nfproto",
    ("ether", "type"): "nfproto",
    ("tcp", "dport"): "--dport",
    ("udp", "dport"): "--dport",
    ("sctp", "dport"): "--dport",
    ("th", "dport"): "--dport",
    ("meta", "l4proto"): "-p",
    ("ip", "protocol"): "-p",
    ("icmp", "type"): "-p",
    ("icmpv6", "type"): "-p",
    ("saddr", "ip"): "-s",  # arp saddr ip ADDRESS
    ("daddr", "ip"): "-d",
    ("daddr", "type"): "--dst-type",  # fib daddr type local
    ("arp", "operation"): "nfproto",
}
_VERDICTS = {
    "accept": "passed", "drop": "lost", "reject": "lost", "return": "return", "queue": "passed",
    "dnat": "", "redirect": "", "snat": "", "masquerade": "",
}  # fmt: skip
_WITH_VALUE = {"packets", "bytes", "prefix", "level", "flags", "group"}
"""The words of ``counter`` and ``log`` that are followed by a value."""
_OPERATORS = {"&", "|", "^", "and", "or", "xor"}
_ALL_FLAGS = "FIN,SYN,RST,PSH,ACK,URG"
_NO_CONDITIONS = {
    "notrack",
    "counter",
    "log",
    "continue",
    "ip",
    "ip6",
    "ct",
    "meta",
    "ether",
    "arp",
    "saddr",
    "daddr",
    "icmp",
    "icmpv6",
    "th",
    "fib",
}


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
    """Return the address in the target of a rule, without its port; "" for an address of this host."""
    target = after(rule, "--to-destination") or after(rule, "to")
    if target.startswith("["):
        return target[1:].partition("]")[0]
    return target.partition(":")[0] if target.count(":") == 1 else target  # an address of IPv6 alone has more


def target_port_of(rule: Rule) -> str:
    """Return the port in the target of a rule, or ""."""
    target = after(rule, "--to-destination") or after(rule, "to")
    if target.startswith("["):
        return target.partition("]:")[2]
    return target.partition(":")[2] if target.count(":") == 1 else ""


class Condition(NamedTuple):
    """A condition of a rule.

    Attributes:
        option: the option of iptables, or ``nfproto``; "" if the condition is not understood.
        values: the values, one of which a packet must have.
        is_negated: whether a packet must have none of them.
    """

    option: str
    values: tuple[str, ...] = ()
    is_negated: bool = False


def read_rule(rule: Rule) -> tuple[list[Condition], str]:  # noqa: C901, PLR0912 - a table of words
    """Return (conditions, verdict) of a rule: ``lost``, ``passed``, ``return``, the next chain's name, or ""."""
    conditions: list[Condition] = []
    verdict = ""
    words = iter(_words(rule))
    before = ""
    while word := next(words, ""):
        if word in _WITH_VALUE and before != "tcp":  # whose flags are a condition
            next(words, "")
        elif word in {"jump", "goto"}:
            verdict = next(words, "")
        elif word in _VERDICTS:
            verdict = _VERDICTS[word]
            break  # behind it there are only its own words
        elif option := _OPTIONS.get((word,)) or _OPTIONS.get((before, word)):
            value = next(words, "")
            if option == "--mark" and value == "set":
                words = _behind_value(words)  # what it sets is no condition
                before = ""
                continue
            mask = f"/{next(words, '')}" if option == "--mark" and value in {"&", "and"} else ""
            value = next(words, "") if mask else value
            is_negated = value == "!="
            value = next(words, "") if value in {"!=", "=="} else value
            values = next(words, "") if value == "vmap" else value
            named = tuple(part.strip('"').replace("*", "+") for part in values.strip("{}").replace(",", " ").split())
            named = tuple(part + mask for part in named) if option == "--mark" else named
            conditions.append(Condition(option, tuple(named), is_negated) if value != "vmap" else Condition(""))
            # Of the states of connections only "new" is asked for.
            if value == "vmap" and (option != "--ctstate" or "new" in named):
                verdict = _of_map(values)
            before = ""  # "ip saddr A ip daddr B" has no "saddr ip", which is of arp
            continue
        elif (before, word) == ("tcp", "flags"):
            conditions.append(_flags(words))
        elif word == "/" and conditions and conditions[-1].option == "--tcp-flags":
            flags = conditions[-1].values[0].partition(" ")[2]
            conditions[-1] = conditions[-1]._replace(values=(f"{next(words, '').upper()} {flags}",))
        elif word == "limit":
            conditions.append(_limit(words))
        elif word == "burst":
            next(words, ""), next(words, "")  # its number and unit
        elif word in {"tcp", "udp", "sctp"}:
            conditions.append(Condition("-p", (word,)))
        elif word == "vmap":
            verdict = _of_map(next(words, ""))
            conditions.append(Condition(""))
        elif word not in _NO_CONDITIONS:
            conditions.append(Condition(""))
        before = word
    return conditions, verdict


def _behind_value(words: Iterator[str]) -> Iterator[str]:
    """Return the words behind a value, such as ``0x1`` or ``meta mark & 0xff | 0x1``."""
    word = "|"
    while word in _OPERATORS:
        word = next(words, "")
        if word in {"meta", "ct"}:
            next(words, "")
        word = next(words, "")
    return chain([word], words)


def _limit(words: Iterator[str]) -> Condition:
    """Read ``rate [over] 5/second``."""
    if next(words, "") != "rate":
        return Condition("")  # one with a name
    is_over = next(words, "") == "over"
    if is_over:
        next(words, "")
    return Condition("--limit-above" if is_over else "--limit", ("",))


def _flags(words: Iterator[str]) -> Condition:
    """Read the flags of TCP; a mask behind ``/`` follows. The value is a mask and the flags, as of iptables."""
    flags = next(words, "")
    is_negated, is_equal = flags == "!=", flags == "=="
    flags = (next(words, "") if is_negated or is_equal else flags).upper()
    if not flags.replace(",", "").isalpha():
        return Condition("")
    mask = _ALL_FLAGS if is_equal else "SYN" if "SYN" in flags.split(",") else flags
    return Condition("--tcp-flags", (f"{mask} {flags}",), is_negated)


def _of_map(values: str) -> str:
    """Return the verdict of a map whose value is not known."""
    return "lost" if {"accept", "jump", "goto"}.isdisjoint(values.split()) and values.startswith("{") else "passed"


def _words(rule: Rule) -> Iterator[str]:
    """Yield the words of a rule behind the names of its table and chain; a set and a text are one word each."""
    whole: list[str] = []
    for word in rule[5 : -2 if rule[-2] == "comment" else None]:
        whole.append(word)
        text = " ".join(whole)
        if not (text.startswith("{") and not text.endswith("}")) and (text[0] != '"' or text[-1] == '"' != text):
            yield text
            whole = []


def is_goto(rule: Rule) -> bool:
    """Return whether the rule is a goto: packets that it sends to another chain never come back."""
    return "-g" in rule or "goto" in rule
