"""Find rules that drop packets to published ports, of neighbour discovery, or between containers and one address."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain as joined
from itertools import islice, pairwise, product
from typing import NamedTuple

from libcni.config.port_mappings import HostPort, ports_in, published_in
from libcni.diagnosis.between import is_of_policy
from libcni.diagnosis.lost_packets import OWN_TABLES, end_of, remedy_of, removal
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.one_rule import (
    NEIGHBOUR,
    dropped_ports,
    is_loss,
    is_translated,
    masquerade_ends,
    named_in_drop,
    named_ports,
    other_end,
    ports_of,
    ports_of_loss,
    text_of,
    traffic_of_loss,
)
from libcni.diagnosis.packets import Forwarding, Packet, Place
from libcni.diagnosis.reading import grouped
from libcni.diagnosis.report import NodeFinding, Observations, Severity
from libcni.diagnosis.rule_facts import iptables_of
from libcni.errors import counted, some
from libcni.kernel.netlink import Link
from libcni.kernel.rule_words import after, target_of
from libcni.kernel.rules import Rule
from libcni.store.attachments import Attachment
from libcni.verbs.port_rules import PortRules

_TRANSLATED = -100
"""The priority at which published ports are translated: chains after it see the container's address."""
_MOST_PORTS = 100
"""The most ports that are followed through a chain."""
_MOST_INSIDE = 20
"""The most ports of containers that are compared with all rules: each costs 0.1 s beside 20,000 rules."""
_UNNAMED = -1
"""Stands for a port that no rule names."""
_MOST_INTERFACES = 2
"""The most interfaces to containers for which packets to an address outside are followed."""
_MOST_NEAR = 5
"""The most rules of a chain that are reported one by one."""
_FAR = {4: "203.0.113.7", 6: "3fff::7"}
_RESOLVER, _LONGEST = "/etc/resolv.conf", 65_536

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def check_outside(node: NodeState) -> Observations:
    """Find rules that drop packets to a published port, or packets between containers and one address outside."""
    own = [cidr for link in (node.host.links.values() if node.host is not None else ()) for cidr in link.addresses]
    forwarding = Forwarding(node.rules, node.inner_bridges, node.queues, own)
    live = [attachment for attachment, _ in node.live if attachment.path not in node.elsewhere]
    users = _users(node, live)
    yield from _lost_ports(node, live, users, forwarding)
    published = list(_published(node, users))
    caught = _caught_inside(node, published, forwarding)
    yield from _of_caught(node, caught)
    yield from _policy(node, published, forwarding)
    yield from _neighbours(node, live, forwarding)
    yield from _refused(node, live, forwarding)
    yield from _limited(node, live, forwarding)
    yield from _refused_ports(node, live, forwarding, caught)
    yield from _redirected(node, live, users, forwarding)


_Users = dict[HostPort, list[Attachment]]


def _users(node: NodeState, live: list[Attachment]) -> _Users:
    """Return the published ports that clients outside of the node can reach, each with its users."""
    users: _Users = {}
    for attachment in live:
        if any(one.get("type") == "portmap" for one in node.documents(attachment)):
            for port in ports_in(attachment.capability_args):
                if not port.address.startswith(("127.", "::1")):
                    users.setdefault(port, []).append(attachment)
    return users


class _Asking(NamedTuple):
    """Packets for published ports, before the kernel translates them: from where they come, and what their loss means.

    Attributes:
        place: a chain that they come to.
        links: the interfaces at whose addresses their senders ask.
        arrives_on: the interface on which they arrive; "": the interface that has the address.
        interface: the interface over which they leave, if this node sends them.
        severity: of the finding.
        meaning: the consequence of their loss.
    """

    place: Place
    links: Sequence[Link]
    arrives_on: str = ""
    interface: str = ""
    severity: Severity = "error"
    meaning: str = "clients outside of this node do not reach these published ports"


def _lost_ports(node: NodeState, live: list[Attachment], users: _Users, forwarding: Forwarding) -> Observations:
    """Find the rules that drop packets for published ports, or lead them elsewhere, whoever asks for the ports."""
    known = PortRules(node.rules)
    told: set[tuple[Place, Rule]] = set()
    parts: dict[Place, list[range]] = {}
    for asking in _askings(node, live) if users else ():
        place = asking.place
        if place not in parts:
            parts[place] = _asked_ports(node, place)
        asked = {one: users[one] for one in users if any(one.number in part for part in parts[place])}
        for rule, ports in _caught_by(node, asked, forwarding, known, asking).items():
            if (place._replace(chain=""), rule) in told:
                continue
            told.add((place._replace(chain=""), rule))
            is_note, is_unsure = asking.severity == "note", _may_be_later(node, place)
            yield NodeFinding(
                "rules", "warning" if is_unsure and not is_note else asking.severity, "port-caught", str(place),
                f"packets for {some([f'port {port}' for port in ports])} {'may ' * is_unsure}end at the rule "
                f"{text_of(rule)}",
                f"{asking.meaning}{', if the kernel asks this table first' * is_unsure}",
                f"if nobody wants this: {removal(node, place, rule)}" if is_note else remedy_of(node, place, rule), (),
                tuple(dict.fromkeys(id_of(attachment) for port in ports for attachment in users[port])),
            )  # fmt: skip


def _may_be_later(node: NodeState, place: Place) -> bool:
    """Return whether another table may translate packets before a chain: of one priority the newest comes first."""
    hook = node.table(place.program, place.table).hooks.get(place.chain)
    return hook is not None and hook.kind == "nat" and hook.priority == _TRANSLATED


def _askings(node: NodeState, live: list[Attachment]) -> Iterator[_Asking]:
    for link in node.uplinks:
        yield from (_Asking(place, [link]) for place in _before_translation(node, link))
    places = [place for place in _nat_chains(node, "prerouting") if node.uplinks]
    inner = dict.fromkeys(name for attachment in live for name in node.gateway_interfaces(attachment))
    for place, interface in product(places, list(inner)[:_MOST_INTERFACES]):
        meaning = f"the containers of {interface} do not reach these published ports at the addresses of this node"
        yield _Asking(place, node.uplinks, interface, "", "note", f"{meaning}; somebody may want this")
    for place in _nat_chains(node, "output"):
        yield _Asking(
            place, node.uplinks, "", "lo", "warning", "this node does not reach these published ports at its addresses"
        )


def _caught_by(
    node: NodeState, users: _Users, forwarding: Forwarding, known: PortRules, asking: _Asking
) -> dict[Rule, dict[HostPort, None]]:
    """Return the rules at which packets for published ports end, each with the ports."""
    lost: dict[Rule, dict[HostPort, None]] = {}
    for port, link in product(list(users)[:_MOST_PORTS], asking.links):
        for address in _asked(link, port):
            beyond = asking.arrives_on or link.name
            packet = Packet(
                address, asking.interface or beyond, is_sent=False, beyond="" if asking.interface else beyond,
                port=(port.protocol, int(port.number)),
            )  # fmt: skip
            rule = forwarding.lost_by(*asking.place, packet)
            targets = [one for user in users[port] for one in node.addresses_of(user)]
            # Those for packets of all interfaces are found with the ports.
            is_known = rule in [one.rule for found in known.of(port) for one in found[:1]]
            if rule is not None and target_of(rule) not in targets and not is_known:
                lost.setdefault(rule, {})[port] = None
    return lost


def _asked_ports(node: NodeState, place: Place) -> list[range]:
    """Return the ports for which a chain is asked: a node has up to 10,000, and as many rules for them."""
    table = node.table(place.program, place.table)
    hook = table.hooks.get(place.chain)
    if place.table != "nat" and (hook is None or hook.kind != "nat"):
        return dropped_ports(table)
    # kube-proxy's last chains name no port: a rule before them does.
    foreign = [
        rule for rule in joined.from_iterable(table.chains.values())
        if _leads_away(node, rule, is_first=_chain_of(rule) == place.chain)
    ]  # fmt: skip
    is_for_all = any(not named_ports(rule) and _chain_of(rule) == place.chain for rule in foreign)
    is_for_all = is_for_all or any("ACCEPT" in rule and not named_ports(rule) for rule in foreign)
    return [range(65_536)] if is_for_all else [part for rule in foreign for part in named_ports(rule)]


def _chain_of(rule: Rule) -> str:
    return rule[4] if rule[0] == "add" else rule[1]


def _leads_away(node: NodeState, rule: Rule, *, is_first: bool) -> bool:
    """Return whether a rule of nat may keep packets from the rules of a plugin."""
    if rule[0] == "add":
        return is_translated(rule) and target_of(rule) not in node.recorded_addresses
    target = after(rule, "-j")
    if target in {"ACCEPT", "RETURN"}:
        return masquerade_ends(rule, is_first=is_first) and not rule[1].startswith("CNI-")
    return target == "REDIRECT" or (target == "DNAT" and target_of(rule) not in node.recorded_addresses)


_Published = list[tuple[Attachment, HostPort, Packet]]
"""The packets that come for published ports, after the kernel has translated the port to that of the container."""


def _published(node: NodeState, users: _Users) -> Iterator[tuple[Attachment, HostPort, Packet]]:
    named, followed = _named_ports(node, users)
    for attachment in {one.path: one for found in users.values() for one in found}.values():
        # Ports that no rule names are alike.
        ports = {
            (port.protocol, number if number in followed else 0 if number in named else _UNNAMED): port
            for port, inside in published_in(attachment.capability_args) if port in users
            for number in [int(inside) if inside.isdecimal() else 0]
        }  # fmt: skip
        for address, interface in product(node.addresses_of(attachment), node.gateway_interfaces(attachment)):
            parsed = ipaddress.ip_address(address)
            if uplink := node.way_out(parsed.version)[0]:
                for asked, port in sorted(ports.items()):
                    packet = Packet(parsed, interface, is_sent=False, beyond=uplink.name, port=asked)
                    yield attachment, port, packet


_Caught = dict[tuple[Place, Rule], tuple[dict[HostPort, None], dict[str, None]]]


def _caught_inside(node: NodeState, published: _Published, forwarding: Forwarding) -> _Caught:
    """Return the rules that drop what comes for published ports, and name the container's port."""
    caught: _Caught = {}
    closed: dict[tuple[str, str], list[range]] = {}
    for place, rule in _rules(node) if published else ():
        if not is_of_policy(place, rule) and (parts := ports_of_loss(rule)):
            closed.setdefault(place[:2], []).extend(parts)
    for (program, table), parts in closed.items():
        hooks = [hook for hook in _hooks(node, Place(program, table, "")) if _is_of_forwarded(node, hook)]
        asked = [one for one in published if one[2].port and any(one[2].port[1] in part for part in parts)]
        for (attachment, port, packet), place in product(asked, hooks):
            lost = forwarding.lost_by(*place, packet)
            if lost is not None and ports_of_loss(lost) and not is_of_policy(place, lost):
                ports, names = caught.setdefault((place, lost), ({}, {}))
                ports[port] = names[id_of(attachment)] = None
    return caught


def _of_caught(node: NodeState, caught: _Caught) -> Observations:
    for (place, rule), (ports, names) in caught.items():
        yield NodeFinding(
            "rules", "error", "port-caught", str(place),
            f"packets for {some([f'port {port}' for port in ports])}, which lead to the container's port, end at the "
            f"rule {text_of(rule)}",
            "clients outside of this node do not reach these published ports",
            remedy_of(node, place, rule), (), tuple(names),
        )  # fmt: skip


def _policy(node: NodeState, published: _Published, forwarding: Forwarding) -> Observations:
    """Find what drops packets for published ports at the end of a chain, where the containers' own are accepted."""
    closing = {
        place[:2]: None for place, rule in _rules(node) if published
        if is_loss(rule) and not ports_of_loss(rule) and not is_of_policy(place, rule)
    }  # fmt: skip
    places = [hook for table in closing for hook in _hooks(node, Place(*table, "")) if _is_of_forwarded(node, hook)]
    dropped: dict[tuple[Place, Rule], tuple[dict[str, None], dict[str, None]]] = {}
    for attachment, _, packet in published:
        address, interface = str(packet.address), packet.interface
        ends: list[tuple[Place, Rule]] = []
        if (place := forwarding.policy_drops(packet)) and not forwarding.dropped_by(address, interface):
            ends.append((place, ()))
        for hook in places:
            # All ports that no rule names are alike, and most of them are open.
            unnamed = packet._replace(port=((packet.port or ("tcp", 0))[0], _UNNAMED))
            rule = forwarding.lost_by(*hook, packet) if forwarding.lost_by(*hook, unnamed) else None
            sent = Packet(packet.address, interface)
            if rule is not None and not ports_of_loss(rule) and not forwarding.lost_by(*hook, sent):
                ends.append((hook, rule))
        for end in ends:
            names, found = dropped.setdefault(end, ({}, {}))
            names[id_of(attachment)] = found[end_of(node, attachment, interface, address)] = None
    for (place, rule), (names, found) in dropped.items():
        if rule and named_in_drop(rule):  # it is no last word
            continue
        where = f"end at the rule {text_of(rule)}" if rule else ""
        at = place._replace(chain=rule[4]) if rule and place.program == "nft" else place
        yield NodeFinding(
            "rules", "error", "port-caught", str(place),
            f"packets for published ports {where}" if rule else
            "the policy drops packets for published ports, and no rule accepts them",
            f"clients outside of this node do not reach the published ports of {counted(len(names), 'container')}",
            f"accept these packets: {'; '.join(_accepting(at, end) for end in found)}", (), tuple(names),
        )  # fmt: skip


def _named_ports(node: NodeState, users: _Users) -> tuple[set[int], set[int]]:
    """Return the ports of containers that conditions of rules name, and those of them that are followed."""
    named = bytearray(65_536)
    for program, tables in node.rules.items():
        for name, table in tables.items() if users else ():
            is_asked = name not in OWN_TABLES if program == "nft" else name in {"filter", "mangle"}
            for rule in joined.from_iterable(table.chains.values()) if is_asked else ():
                for part in named_ports(rule):
                    named[part.start : part.stop] = b"\1" * len(part)
    inside = {
        int(number) for found in users.values() for attachment in found
        for _, number in published_in(attachment.capability_args) if number.isdecimal()
    }  # fmt: skip
    found = {0, *(number for number in inside if number < len(named) and named[number])}
    return found, set(islice(sorted(found), _MOST_INSIDE))


def _accepting(place: Place, end: str) -> str:
    if place.program == "nft":
        to = f"{'ip6' if ':' in end else 'ip'} daddr {end}" if "/" in end else f"oifname {end}"
        return f"nft insert rule {place.table} {place.chain} {to} ct status dnat accept"
    to = f"{'-d' if '/' in end else '-o'} {end}"
    return f"{place.program} -I {place.chain} {to} -m conntrack --ctstate DNAT -j ACCEPT"


def _neighbours(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> Observations:
    """Find what loses the node's questions for hardware addresses with IPv6, or the containers'."""
    lost: dict[tuple[Place, Rule], dict[str, None]] = {}
    for attachment, (chain, is_sent) in product(live, (("INPUT", True), ("OUTPUT", False))):
        addresses = [ipaddress.ip_address(one) for one in node.addresses_of(attachment) if ":" in one]
        for address, interface in product(addresses, node.gateway_interfaces(attachment) if addresses else ()):
            packet = Packet(address, interface, is_sent, port=NEIGHBOUR)
            if policy := forwarding.policy_drops(packet, chain):
                lost.setdefault((policy, ()), {})[id_of(attachment)] = None
            for place in (Place(program, "filter", chain) for program in iptables_of(node, "ip6tables")):
                if (rule := forwarding.lost_by(*place, packet)) and not forwarding.lost_by(
                    *place, packet._replace(port=None)
                ):
                    lost.setdefault((place, rule), {})[id_of(attachment)] = None
    for (place, rule), names in lost.items():
        program, table, chain = place
        accept = f"{program} -I {chain} -p ipv6-icmp -j ACCEPT"
        if program == "nft":
            accept = f"nft insert rule {table} {chain} meta l4proto ipv6-icmp accept"
        yield NodeFinding(
            "rules", "error", "dropped" if rule else "policy-drops", str(place),
            f"packets of IPv6 neighbour discovery end at the rule {text_of(rule)}" if rule else
            "the policy drops packets of IPv6 neighbour discovery, and no rule accepts them",
            f"this node and {counted(len(names), 'container')} do not learn each other's hardware address for IPv6",
            remedy_of(node, place, rule) if rule else f"accept these packets: {accept}", (), tuple(names),
        )  # fmt: skip


def _nat_chains(node: NodeState, hook_name: str) -> Iterator[Place]:
    """Yield the chains that translate published ports, or come before those that do."""
    yield from (Place(program, "nat", hook_name.upper()) for program in iptables_of(node))
    for name, table in node.rules.get("nft", {}).items() if node.rules else ():
        for chain, hook in table.hooks.items():
            if (hook.kind, hook.name) == ("nat", hook_name) and hook.priority <= _TRANSLATED and name not in OWN_TABLES:
                yield Place("nft", name, chain)


def _before_translation(node: NodeState, link: Link) -> Iterator[Place]:
    """Yield the chains that see packets of an interface before published ports are translated, and that which does."""
    for program in iptables_of(node):
        yield from (Place(program, table, "PREROUTING") for table in ("raw", "mangle"))
    yield from _nat_chains(node, "prerouting")
    for name, table in node.rules.get("nft", {}).items():
        for chain, hook in table.hooks.items():
            is_before = hook.name == "prerouting" and hook.priority < _TRANSLATED
            if hook.kind == "filter" and (is_before or (hook.name == "ingress" and link.name in hook.devices)):
                yield Place("nft", name, chain)


def _asked(link: Link, port: HostPort) -> Iterator[_Address]:
    """Yield the addresses of an interface at which clients ask for a port."""
    for cidr in link.addresses:
        address = ipaddress.ip_interface(cidr).ip
        wanted = port.address if port.address not in {"0.0.0.0", "::"} else ""  # noqa: S104 - nothing is bound
        if not address.is_link_local and wanted in {"", str(address)}:
            yield address


def _ways(node: NodeState, live: list[Attachment]) -> dict[int, dict[str, str]]:
    """Return an address of a container for each interface of the node to containers, by the version of IP."""
    ways: dict[int, dict[str, str]] = {4: {}, 6: {}}
    for attachment in live:
        for address, interface in product(node.addresses_of(attachment), node.gateway_interfaces(attachment)):
            ways[6 if ":" in address else 4].setdefault(interface, address)
    return ways


class _Refusal(NamedTuple):
    """A rule that may drop packets of a network outside: whether the network sends them, and how to undo the rule."""

    rule: Rule
    is_sender: bool
    network: _Network
    command: str


def _refused(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> Observations:
    ways = _ways(node, live)
    chains = grouped(
        ((place, rule[4 if rule[0] == "add" else 1]), one) for place, rule in _rules(node)
        for one in _refusals(node, place, rule) if _is_outside(node, one.network, ways)
    )  # fmt: skip
    for (place, _), found in chains.items():
        near = [one for one in found if _what_is(node, one.network)]
        far = [one for one in found if one not in near]
        for rule, is_sender, network, command in (*near[:_MOST_NEAR], *far[:1]):
            interfaces = [
                interface for interface, address in list(ways[network.version].items())[:_MOST_INTERFACES]
                if any(
                    forwarding.lost_by(*hook, packet) == rule
                    for hook in _hooks(node, place) for packet in _packets(node, address, interface, network, is_sender)
                )
            ]  # fmt: skip
            if not interfaces:
                continue
            what = _what_is(node, network)
            host = str(network).removesuffix("/32").removesuffix("/128")
            more = f"; {counted(len(far) - 1, 'more rule')} of this chain name such addresses" * (
                not what and len(far) > 1
            )
            way = f"from {host} to" if is_sender else f"to {host} from"
            yield NodeFinding(
                "rules", "warning" if what else "note", "dropped-in-part", str(place),
                f"packets {way} the containers of {some(interfaces)} end at the rule {text_of(rule)}{more}",
                f"these containers and {host}{what} do not reach each other; somebody may want this",
                f"if nobody wants this: {command}",
            )  # fmt: skip


def _refusals(node: NodeState, place: Place, rule: Rule) -> Iterator[_Refusal]:
    """Yield the only network that a rule names, and the addresses in its sets that the node itself needs."""
    if end := other_end(rule):
        yield _Refusal(rule, *end, removal(node, place, rule))
    sets = node.table(place.program, place.table).sets
    for option, word in pairwise(rule) if sets else ():
        name, is_nft = word.removeprefix("@"), rule[0] == "add"
        if name in sets and (option in {"saddr", "daddr"} if is_nft else option == "--match-set"):
            is_sender = option == "saddr" if is_nft else after(rule, word) == "src"
            for address in _needed(node):
                if address in sets[name] and (is_sender or option == "daddr" or after(rule, word) == "dst"):
                    command = f"nft delete element {place.table} {name} '{{ {address} }}'"
                    command = command if is_nft else f"ipset del {name} {address}"
                    if str(address) not in sets[name].hosts:  # it is in a network of the set
                        command = removal(node, place, rule)
                    yield _Refusal(rule, is_sender, ipaddress.ip_network(address), command)


def _needed(node: NodeState) -> list[_Address]:
    """Return the addresses outside that the node itself needs: of its gateways and name servers."""
    gateways = [node.way_out(version)[1] for version in (4, 6)]
    return [*map(ipaddress.ip_address, filter(None, gateways)), *_name_servers()]


def _limited(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> Observations:
    """Find the rules that lose connections of all containers of an interface above a limit."""
    ways = _ways(node, live)
    lost: dict[tuple[Place, Rule], dict[str, None]] = {}
    for version, interfaces in ways.items():
        uplink = node.way_out(version)[0]
        for interface, address in list(interfaces.items())[:_MOST_INTERFACES] if uplink is not None else ():
            for hook, is_sent in product(_tables(node), (True, False)):
                packet = Packet(ipaddress.ip_address(address), interface, is_sent, beyond=uplink.name if uplink else "")
                rule = forwarding.lost_by(*hook, packet._replace(is_above=True))
                if rule is not None and not forwarding.lost_by(*hook, packet):
                    lost.setdefault((hook, rule), {})[interface] = None
    for (place, rule), names in lost.items():
        seen = f"above a limit, packets of the containers of {some(list(names))} end at the rule"
        yield _in_part(node, place, [rule], seen, "some of their connections fail when there are many")


def _refused_ports(node: NodeState, live: list[Attachment], forwarding: Forwarding, caught: _Caught) -> Observations:
    """Find the rules that drop what all containers of an interface send to some ports, or get there."""
    ways = _ways(node, live)
    lost: dict[tuple[Place, str], dict[Rule, dict[str, None]]] = {}
    named = ((place, rule, traffic) for place, rule in _rules(node) if (traffic := traffic_of_loss(rule)))
    for place, rule, traffic in islice(named, _MOST_PORTS):
        if is_of_policy(place, rule) or any(rule == one for _, one in caught):
            continue
        for hook, hook_name in _filters(node, place):
            for interface, packet in _packets_of(node, ways, hook_name, traffic):
                # Those that name a container or its interface are found with it, or are about somebody else.
                is_named = named_in_drop(rule) & {interface, str(packet.address)}
                if not is_named and forwarding.lost_by(*hook, packet) == rule:
                    lost.setdefault((hook, hook_name), {}).setdefault(rule, {})[interface] = None
    for (place, hook_name), rules in lost.items():
        groups = [[rule] for rule in rules] if hook_name == "forward" else [list(rules)]
        for group in groups:
            names = some(list(dict.fromkeys(joined.from_iterable(rules[rule] for rule in group))))
            of, meaning = _OF_PORTS[hook_name]
            seen = f"{of.format(names)} end at the rule{'s' * (len(group) > 1)}"
            yield _in_part(node, place, group, seen, meaning)


_OF_PORTS = {
    "forward": ("packets to ports of or from the containers of {}", "their connections to these ports fail"),
    "input": (
        "packets from the containers of {} to ports of this node",
        "these containers do not reach these ports of the node, such as that of a name server",
    ),
    "output": (
        "packets from this node to ports of the containers of {}",
        "this node does not reach these ports of them",
    ),
}
"""For each hook: the packets, and the consequence of the loss of those for some ports."""


def _filters(node: NodeState, place: Place) -> list[tuple[Place, str]]:
    """Return the chains of a rule's table that see packets after their way is known, each with the hook."""
    if place.program != "nft":
        return [(place._replace(chain=one.upper()), one) for one in _OF_PORTS]
    hooks = node.table(place.program, place.table).hooks.items()
    return [(place._replace(chain=one), hook.name) for one, hook in hooks if hook.name in _OF_PORTS]


def _packets_of(
    node: NodeState, ways: dict[int, dict[str, str]], hook_name: str, traffic: tuple[str, int]
) -> Iterator[tuple[str, Packet]]:
    """Yield packets for a port that come to a hook, each with the interface to its container."""
    for version, interfaces in ways.items():
        uplink = node.way_out(version)[0]
        for interface, address in list(interfaces.items())[:_MOST_INTERFACES]:
            packet = Packet(ipaddress.ip_address(address), interface, port=traffic)
            if hook_name == "forward":
                packet = packet._replace(beyond=uplink.name if uplink is not None else "")
            elif gateway := _address_on(node, interface, version):
                packet = packet._replace(other=gateway)
            for is_sent in {"input": [True], "output": [False]}.get(hook_name, [True, False]):
                yield interface, packet._replace(is_sent=is_sent)


def _address_on(node: NodeState, interface: str, version: int) -> _Address | None:
    link = node.host.links.get(interface) if node.host is not None else None
    found = [ipaddress.ip_interface(cidr).ip for cidr in (link.addresses if link is not None else ())]
    return next((one for one in found if one.version == version and not one.is_link_local), None)


def _redirected(node: NodeState, live: list[Attachment], users: _Users, forwarding: Forwarding) -> Observations:
    """Find the rules that lead what containers send to a port of other machines to a port of this node."""
    ways = _ways(node, live)
    found: dict[tuple[Place, Rule], dict[str, None]] = {}
    for program in iptables_of(node):
        for rule in joined.from_iterable(node.table(program, "nat").chains.values()):
            ports = ports_of(after(rule, "--dport") or after(rule, "--dports"))
            place = Place(program, "nat", "PREROUTING")
            if after(rule, "-j") != "REDIRECT" or not ports or is_of_policy(place, rule):
                continue
            if any(one.number in part for one in users for part in ports):  # it is found with the published port
                continue
            version = 6 if program.startswith("ip6") else 4
            port = ("udp" if after(rule, "-p") == "udp" else "tcp"), ports[0].start
            for interface, address in list(ways[version].items())[:_MOST_INTERFACES]:
                far = ipaddress.ip_address(_FAR[version])
                packet = Packet(ipaddress.ip_address(address), interface, other=far, port=port)
                if forwarding.lost_by(*place, packet) == rule:
                    found.setdefault((place, rule), {})[interface] = None
    for (place, rule), names in found.items():
        seen = f"packets from the containers of {some(list(names))} to this port of other machines end at the rule"
        meaning = "they come to a program on this node, a transparent proxy, or fail without it"
        yield _in_part(node, place, [rule], seen, meaning)


def _in_part(node: NodeState, place: Place, rules: list[Rule], seen: str, meaning: str) -> NodeFinding:
    """Return the note about rules that stop some packets of containers, which somebody may want."""
    commands = "; ".join(removal(node, place, rule) for rule in rules)
    return NodeFinding(
        "rules", "note", "dropped-in-part", str(place), f"{seen} {some(list(map(text_of, rules)), '; ')}",
        f"{meaning}; somebody may want this", f"if nobody wants this: {commands}",
    )  # fmt: skip


def _is_of_forwarded(node: NodeState, place: Place) -> bool:
    hook = node.table(place.program, place.table).hooks.get(place.chain)
    return hook.name == "forward" if hook is not None else place.chain == "FORWARD"


def _tables(node: NodeState) -> Iterator[Place]:
    """Yield the chains that the kernel asks for forwarded packets, of tables with a limit."""
    for program, tables in node.rules.items():
        for name, table in tables.items():
            rules = joined.from_iterable(table.chains.values())
            is_asked = program == "nft" or name in {"raw", "mangle", "filter"}
            if is_asked and not all({"limit", "hashlimit", "connlimit"}.isdisjoint(rule) for rule in rules):
                yield from _hooks(node, Place(program, name, ""))


def _rules(node: NodeState) -> Iterator[tuple[Place, Rule]]:
    """Yield the rules that may lose forwarded packets, except the plugins' own."""
    for program, tables in node.rules.items():
        for name, table in tables.items():
            if program == "nft" or name in {"raw", "mangle", "filter"}:
                for chain, rules in table.chains.items():
                    if not chain.startswith("CNI-") or chain == "CNI-ADMIN":
                        yield from ((Place(program, name, chain), rule) for rule in rules)


def _hooks(node: NodeState, place: Place) -> list[Place]:
    """Return the chains of a rule's table that the kernel asks for forwarded packets."""
    if place.program != "nft":
        return [place._replace(chain=one) for one in ("PREROUTING", "FORWARD")]
    hooks = node.table(place.program, place.table).hooks
    return [
        place._replace(chain=one) for one, hook in hooks.items()
        if hook.kind == "filter" and hook.name in {"prerouting", "forward"}
    ]  # fmt: skip


def _packets(node: NodeState, address: str, interface: str, network: _Network, is_sender: bool) -> Iterator[Packet]:
    other, uplink = network.network_address, node.way_out(network.version)[0]
    if uplink is not None:
        yield Packet(ipaddress.ip_address(address), interface, not is_sender, other, uplink.name)


def _is_outside(node: NodeState, network: _Network, ways: dict[int, dict[str, str]]) -> bool:
    inside = [ipaddress.ip_network(address) for address in ways[network.version].values()]
    # docker keeps others from its containers' addresses.
    links = (link for link in node.host_links_by_index.values() if link not in node.uplinks)
    inside += [ipaddress.ip_interface(cidr).network for link in links for cidr in link.addresses]
    is_near = any(one.version == network.version and network.overlaps(one) for one in inside)
    return not (network.is_loopback or network.is_multicast or is_near)


def _what_is(node: NodeState, network: _Network) -> str:
    """Return what a node needs in a network outside; "" if nothing is known of it."""
    _, gateway = node.way_out(network.version)
    if gateway and ipaddress.ip_address(gateway) in network:
        return " (the gateway of this node)"
    if any(address in network for address in _name_servers() if address.version == network.version):
        return " (a name server of this node)"
    near = (ipaddress.ip_interface(cidr) for cidr in joined.from_iterable(link.addresses for link in node.uplinks))
    if any(one.version == network.version and network.overlaps(one.network) for one in near):
        return " (in the node's own network)"
    return ""


def _name_servers() -> list[_Address]:
    found: list[_Address] = []
    with suppress(OSError, UnicodeDecodeError), open(_RESOLVER, encoding="utf-8") as file:
        for line in file.read(_LONGEST).splitlines():
            words = line.split()
            if words[:1] == ["nameserver"] and words[1:]:
                with suppress(ValueError):
                    found.append(ipaddress.ip_address(words[1]))
    return found
