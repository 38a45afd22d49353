"""Read the rules of nft that filter packets: their conditions in the words of iptables, and what they do."""

from __future__ import annotations

from collections.abc import Iterator
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
    ("ct", "state"): "--ctstate",
    ("ct", "status"): "--ctstatus",
    ("meta", "nfproto"): "nfproto",
    ("ether", "type"): "nfproto",
    ("tcp", "dport"): "--dport",
    ("udp", "dport"): "--dport",
    ("th", "dport"): "--dport",
    ("meta", "l4proto"): "-p",
    ("ip", "protocol"): "-p",
    ("icmp", "type"): "-p",
    ("icmpv6", "type"): "-p",
    ("saddr", "ip"): "-s",  # arp saddr ip ADDRESS
    ("daddr", "ip"): "-d",
    ("arp", "operation"): "nfproto",
}
_VERDICTS = {"accept": "passed", "drop": "lost", "reject": "lost", "return": "return", "queue": "passed"}
_WITH_VALUE = {"packets", "bytes", "prefix", "level", "flags", "group"}
"""The words of ``counter`` and ``log`` that are followed by a value."""
_ALL_FLAGS = "FIN,SYN,RST,PSH,ACK,URG"
_NO_CONDITIONS = {
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
}


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
    """Return a rule's conditions, and its verdict: ``lost``, ``passed``, ``return``, the next chain's name, or ""."""
    conditions: list[Condition] = []
    verdict = ""
    words = iter(_words(rule))
    before = ""
    for word in words:
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
                continue  # what it sets is no condition, nor are the values behind it
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
        elif (before, word) == ("tcp", "flags"):
            conditions.append(_flags(words))
        elif word == "/" and conditions and conditions[-1].option == "--tcp-flags":
            flags = conditions[-1].values[0].partition(" ")[2]
            conditions[-1] = conditions[-1]._replace(values=(f"{next(words, '').upper()} {flags}",))
        elif word == "limit":
            conditions.append(_limit(words))
        elif word == "burst":
            next(words, ""), next(words, "")  # its number and unit
        elif word in {"tcp", "udp"}:
            conditions.append(Condition("-p", (word,)))
        elif word == "vmap":
            verdict = _of_map(next(words, ""))
            conditions.append(Condition(""))
        elif word not in _NO_CONDITIONS:
            conditions.append(Condition(""))
        before = word
    return conditions, verdict


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
