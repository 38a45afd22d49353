"""Read from the kernel (nf_tables) which packets the filter of a network namespace drops.

The owner of a container's namespace chooses its rules, their number and their names. So nothing here starts a program
in the namespace, and each answer has a deadline and a largest size.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import libcni.kernel.system as system
from libcni.kernel.namespace import NamespaceId, call_in_thread, enter_namespace, open_known, socket_in
from libcni.kernel.netlink_messages import Exchange, attribute, attributes_in, each_attribute, text_in
from libcni.kernel.rules import DEEPEST
from libcni.kernel.sockets import waiting_sockets

_NETLINK_NETFILTER = 12
_NFTABLES = 10 << 8
_NEWCHAIN, _GETCHAIN, _NEWRULE, _GETRULE = (_NFTABLES | number for number in (3, 4, 6, 7))
_HEADER = struct.Struct("=BBH")
_SECONDS = 2.0
_MOST_BYTES = 1 << 20
"""The largest size of the chains and rules of a namespace: about 5,000 rules."""
_MOST_DROPS = 20
_MOST_CHAINS, _MOST_ASKED = 500, 64
_NO_FILTER = {errno.EINVAL, errno.EOPNOTSUPP}
"""The kernel's answer if it has no nf_tables."""
_FAMILIES = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 10: "ip6"}
_HOOKS = {"arp": {0: "input", 1: "output"}, "netdev": {0: "ingress", 1: "egress"}}
_IP_HOOKS = {0: "prerouting", 1: "input", 3: "output", 4: "postrouting", 5: "ingress"}
"""Without forward: the packets that a container forwards are not its own."""
_DROP, _ACCEPT = 0, 1
_POLICY, _VERDICT = 5, 2  # NFTA_CHAIN_POLICY, NFTA_DATA_VERDICT
_VERDICTS = {_DROP: "drop", _ACCEPT: "accept", -3: "jump", -4: "goto", -5: "return"}
_META = {3: "mark", 4: "iif", 5: "oif", 6: "iifname", 7: "oifname", 15: "nfproto", 16: "l4proto"}
_PAYLOADS = {
    (1, 12): "saddr", (1, 16): "daddr", (1, 9): "l4proto",  # of IPv4
    (1, 8): "saddr", (1, 24): "daddr", (1, 6): "l4proto",  # of IPv6
    (2, 0): "sport", (2, 2): "dport",
}  # fmt: skip
"""The fields of the headers of IP, TCP and UDP, by the header and the offset."""
_COUNTING = {"counter", "log", "comment", "last"}
_PROTOCOLS = {1: "icmp", 6: "tcp", 17: "udp", 58: "ipv6-icmp"}
_STATES = {1: "invalid", 2: "established", 4: "related", 8: "new", 64: "untracked"}
_STATE_OF_XT = struct.Struct("=146xHHH")
"""The flags, the negated flags and the states in the data of iptables' match ``conntrack``."""
_ALIAS = 1 << 13  # of iptables' match "state"
_PORTS_OF_XT = struct.Struct("=HHHH")
_ALL_PORTS = (0, 65535)
_FIRST_PORT_OF_XT = (16, 36)
"""The place of the first port in the data of iptables' target ``REDIRECT``, of IPv4 and IPv6."""
_LEGACY = {
    "/proc/thread-self/net/ip_tables_names": "iptables-legacy",
    "/proc/thread-self/net/ip6_tables_names": "ip6tables-legacy",
}


class Match(NamedTuple):
    """A condition of a rule: ``name`` (saddr, dport, state and others), whether it is negated, and the value."""

    name: str
    is_negated: bool = False
    value: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.name, "!=" * self.is_negated, self.value)))


class Drop(NamedTuple):
    """Packets that the filter of a namespace drops.

    Attributes:
        table: the family and the name of the table.
        chain: the name of the base chain.
        hook: the hook of the chain: ``input``, ``output``, ``prerouting``, ``postrouting``, ``ingress``, ``egress``.
        conditions: the conditions of the rule; () for the policy of the chain, and for a rule for all packets.
        redirect: the port to which a rule of the chain redirects the packets, if nothing listens there; 0: it does not.
    """

    table: str
    chain: str
    hook: str
    conditions: tuple[Match, ...] = ()
    redirect: int = 0


_Place = tuple[str, str, str]
"""The family, the table and the chain."""
_Conditions = tuple[Match, ...]


class _Chain(NamedTuple):
    place: _Place
    hook: str
    drops: bool
    is_nat: bool


class _Rule(NamedTuple):
    place: _Place
    conditions: _Conditions
    verdict: str
    target: str = ""
    redirect: int = 0


def drops_in(path: str, identity: NamespaceId) -> list[Drop]:
    """Return the packets that the filter of the namespace at a path drops, twenty at most. Raises OSError.

    Rules of iptables are among them, except those of its legacy variant.
    """
    with system.Closing(open_known(path, identity)) as namespace:
        return list(islice(_dropped_in(namespace), _MOST_DROPS))


def _dropped_in(namespace: int) -> Iterator[Drop]:
    number = socket_in(namespace, socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    if number < 0:
        raise OSError(errno.EPROTONOSUPPORT, "the kernel has no nf_tables")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER, number) as connection:
        kernel = Exchange(connection, seconds=_SECONDS, most_bytes=_MOST_BYTES)
        try:
            chains = kernel.dump(_GETCHAIN, _NEWCHAIN, _HEADER.pack(socket.AF_UNSPEC, 0, 0), _chain)
        except OSError as error:
            if error.errno in _NO_FILTER:
                return
            raise
        asked = chains[:_MOST_ASKED]
        rules: dict[_Place, list[_Rule]] = {}
        filtering = dict.fromkeys(chain.place[:2] for chain in asked if not chain.is_nat)
        for family, table in filtering:
            _read_rules(kernel, family, table, rules)
        # A container that is a node of Kubernetes itself has very many.
        with suppress(OSError):
            for family, table in dict.fromkeys(chain.place[:2] for chain in asked if chain.place[:2] not in filtering):
                _read_rules(kernel, family, table, rules)
    found: dict[Drop, None] = {}
    for chain in asked:
        family, table, name = chain.place
        for conditions in _dropped(chain, rules) if not chain.is_nat else ():
            found[Drop(f"{family} {table}", name, chain.hook, conditions)] = None
    yield from found
    redirecting = [rule for place in rules for rule in rules[place] if rule.redirect]
    heard = _ports_heard(namespace, {rule.redirect for rule in redirecting})
    for rule in redirecting:
        family, table, name = rule.place
        if rule.redirect not in heard:
            yield Drop(f"{family} {table}", name, "prerouting", rule.conditions, rule.redirect)


def _read_rules(kernel: Exchange, family: str, table: str, rules: dict[_Place, list[_Rule]]) -> None:
    number = next(one for one, name in _FAMILIES.items() if name == family)
    body = _HEADER.pack(number, 0, 0) + attribute(1, table.encode(errors="surrogateescape") + b"\0")
    for rule in kernel.dump(_GETRULE, _NEWRULE, body, _rule):
        rules.setdefault(rule.place, []).append(rule)


def _ports_heard(namespace: int, numbers: Collection[int]) -> set[int]:
    """Return those of the ports where a program in a namespace listens, of any protocol; all if this is unknown."""
    found: set[int] = set()
    for protocol in ("tcp", "udp") if numbers else ():
        try:
            found |= {one.number for one in waiting_sockets(protocol, numbers, namespace)}
        except OSError:
            return {*numbers}
    return found


def _dropped(chain: _Chain, rules: Mapping[_Place, list[_Rule]]) -> Iterator[_Conditions]:
    """Yield the conditions of the packets that a chain drops, up to a rule that decides on all others."""
    visited: set[_Place] = set()
    is_open = True

    def follow(place: _Place, above: _Conditions, depth: int) -> Iterator[_Conditions]:
        nonlocal is_open
        if depth >= DEEPEST or place in visited or len(visited) >= _MOST_CHAINS:
            return
        visited.add(place)
        for rule in rules.get(place, ()):
            conditions = (*above, *rule.conditions)
            if rule.verdict == "drop":
                yield conditions
            elif rule.target:
                yield from follow((*place[:2], rule.target), conditions, depth + 1)
            if not is_open:
                return
            if rule.verdict in {"drop", "accept"} and not conditions:
                is_open = False
            if not rule.conditions and rule.verdict in {"drop", "accept", "return", "goto"}:
                return

    yield from follow(chain.place, (), 0)
    if is_open and chain.drops:
        yield ()


def _chain(body: bytes) -> _Chain | None:
    """Return a chain that the kernel asks and that may drop a container's own packets, or None."""
    family = _FAMILIES.get(body[0])
    attributes = attributes_in(body[_HEADER.size :])
    hook = attributes_in(attributes.get(4, b""))
    if family is None or 1 not in hook:
        return None
    name = _HOOKS.get(family, _IP_HOOKS).get(_integer(hook[1]))
    place = family, text_in(attributes.get(1, b"")), text_in(attributes.get(3, b""))
    drops, is_nat = _integer(attributes.get(_POLICY, b"\0\0\0\1")) == _DROP, text_in(attributes.get(7, b"")) == "nat"
    return _Chain(place, name, drops, is_nat) if name else None


def _rule(body: bytes) -> _Rule:
    attributes = attributes_in(body[_HEADER.size :])
    place = _FAMILIES.get(body[0], ""), text_in(attributes.get(1, b"")), text_in(attributes.get(2, b""))
    conditions: list[Match] = []
    loaded: dict[int, tuple[str, bytes]] = {}
    verdict = target = ""
    for _, element in each_attribute(attributes.get(4, b"")):
        parts = attributes_in(element)
        name, data = text_in(parts.get(1, b"")), attributes_in(parts.get(2, b""))
        if name == "immediate" and _VERDICT in (value := attributes_in(data.get(2, b""))):
            decided = attributes_in(value[_VERDICT])
            verdict = _VERDICTS.get(_integer(decided.get(1, b"")), "")
            target = text_in(decided.get(2, b""))
        elif name == "reject":
            verdict = "drop"
        elif name == "target":
            verdict = "drop" if text_in(data.get(1, b"")) in {"REJECT", "DROP"} else ""
        elif name == "match":
            conditions += _of_match(text_in(data.get(1, b"")), data.get(3, b""))
        elif name == "cmp":
            what, mask = loaded.get(_integer(data.get(1, b"")), ("", b""))
            value_of = attributes_in(data.get(3, b"")).get(1, b"")
            conditions += _compared(what, _integer(data.get(2, b"")), value_of, mask)
        elif name == "bitwise":
            what, _ = loaded.get(_integer(data.get(1, b"")), ("", b""))
            loaded[_integer(data.get(2, b""))] = what, attributes_in(data.get(4, b"")).get(1, b"")
        elif what := _loaded(name, data):
            loaded[_integer(data.get(1, b""))] = what, b""
        elif name not in _COUNTING:
            conditions.append(Match(name))
    return _Rule(place, tuple(conditions), verdict, target, _redirect(place[0], attributes.get(4, b"")))


def _redirect(family: str, elements: bytes) -> int:
    """Return the port to which a rule redirects packets, or 0."""
    values: dict[int, int] = {}
    for _, element in each_attribute(elements):
        parts = attributes_in(element)
        name, data = text_in(parts.get(1, b"")), attributes_in(parts.get(2, b""))
        if name == "immediate":
            values[_integer(data.get(1, b""))] = int.from_bytes(attributes_in(data.get(2, b"")).get(1, b"")[:2], "big")
        elif name == "redir":
            return values.get(_integer(data.get(1, b"")), 0)
        elif name == "target" and text_in(data.get(1, b"")) == "REDIRECT":
            first = _FIRST_PORT_OF_XT[family == "ip6"]
            return int.from_bytes(data.get(3, b"")[first : first + 2], "big")
    return 0


def _loaded(name: str, data: Mapping[int, bytes]) -> str:
    """Return what an expression puts into a register; "" if it puts nothing there."""
    if 1 not in data or name not in {"meta", "payload", "ct"}:
        return ""
    if name == "meta":
        return _META.get(_integer(data.get(2, b"")), name)
    if name == "ct":
        return "state" if _integer(data.get(2, b"")) == 0 else name
    return _PAYLOADS.get((_integer(data.get(2, b"")), _integer(data.get(3, b""))), name)


def _compared(what: str, operator: int, value: bytes, mask: bytes) -> list[Match]:
    """Return the condition of a comparison; ``operator``: 0 for equal, 1 for not equal."""
    is_negated, text = operator == 1, ""
    if what in {"iifname", "oifname"}:
        # The name of a group of interfaces ends without the zero.
        text = value.rstrip(b"\0").decode(errors="replace") + "*" * (not value.endswith(b"\0"))
    elif what == "state" and mask:
        # The mask has the machine's own order: "any of these" is "not equal to 0".
        text, is_negated = _states(int.from_bytes(mask, sys.byteorder)), not is_negated
    elif what in {"saddr", "daddr"}:
        text = _prefix(value, mask)
    elif what in {"l4proto", "nfproto"} and value:
        names = _PROTOCOLS if what == "l4proto" else _FAMILIES
        text = names.get(value[-1], str(value[-1]))
    elif what in {"sport", "dport"} and not mask:
        text = str(int.from_bytes(value, "big"))
    if operator > 1 or not text:
        return [Match(what or "another condition")]
    return [Match(what, is_negated, text)]


def _prefix(value: bytes, mask: bytes) -> str:
    """Return the network in a comparison of an address, or of its first bytes; "" if it is none."""
    size = 4 if len(value) <= 4 else 16  # noqa: PLR2004 - of IPv4 and IPv6
    bits = sum(byte.bit_count() for byte in mask) if mask else len(value) * 8
    try:
        return str(ipaddress.ip_network((value.ljust(size, b"\0"), bits)))
    except ValueError:
        return ""


def _states(mask: int) -> str:
    return ",".join(name for bit, name in _STATES.items() if mask & bit)


def _of_match(name: str, info: bytes) -> list[Match]:
    """Return the conditions of a match of iptables, whose data has the form of its kernel module."""
    if name == "comment":
        return []
    if name == "conntrack" and len(info) >= _STATE_OF_XT.size:
        flags, negated, states = _STATE_OF_XT.unpack_from(info)
        if flags & ~_ALIAS == 1:
            return [Match("state", bool(negated & 1), _states(states))]
    if name in {"tcp", "udp"} and len(info) >= _PORTS_OF_XT.size:
        *sources, low, high = _PORTS_OF_XT.unpack_from(info)
        found = [Match("sport")] if tuple(sources) != _ALL_PORTS else []
        ports = str(low) if low == high else f"{low}-{high}"
        return found + ([Match("dport", is_negated=False, value=ports)] if (low, high) != _ALL_PORTS else [])
    return [Match(name)]


def _integer(value: bytes) -> int:
    """Return a number of nf_tables, which are in the order of networks; 0 for none."""
    return struct.unpack_from(">i", value)[0] if value else 0


def legacy_tables(places: Sequence[tuple[str, NamespaceId]]) -> dict[str, list[str]]:
    """Return by path the tables of iptables-legacy in the namespaces at these paths, except ``nat``."""
    if not any(map(os.path.exists, _LEGACY)):  # the kernel has not loaded the variant
        return {}

    def read() -> dict[str, list[str]]:
        # The files show the tables of the namespace of the thread that opens them.
        found: dict[str, list[str]] = {}
        for path, identity in places:
            with suppress(OSError), system.Closing(open_known(path, identity)) as namespace:
                enter_namespace(namespace)
                if names := [f"{name} of {program}" for file, program in _LEGACY.items() for name in _names(file)]:
                    found[path] = names
        return found

    return call_in_thread(read)


def _names(path: str) -> list[str]:
    with suppress(OSError), open(path, encoding="ascii") as file:
        return sorted({*file.read(_MOST_BYTES).split()} - {"nat"})
    return []
