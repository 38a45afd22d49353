"""Find the rules and policies of the node that lose packets of containers."""

from __future__ import annotations

import bisect
import ipaddress
import shlex
from collections.abc import Collection, Iterator
from itertools import pairwise, product

from libcni.config.port_mappings import ports_in
from libcni.diagnosis.between import Between, keeps_apart
from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.one_rule import is_untracked, lost_prefixes, named_in_drop, text_of
from libcni.diagnosis.packets import Forwarding, Packet, Place
from libcni.diagnosis.report import FindingName, NodeFinding, Observations, Severity
from libcni.diagnosis.rule_facts import iptables_of
from libcni.errors import counted, some
from libcni.kernel.rules import (
    MASQUERADE,
    PORTS,
    Rule,
    program_of,
)
from libcni.store.attachments import Attachment

ACCEPT = (
    "find out who set the policy (docker and ufw do); then accept the containers' packets there, for example with the "
    "plugin firewall as the last one of the network; what a command adds is lost when that program starts again"
)
_OTHERS, _NODE = "other networks, or be reached from there", "this node, or be reached from it"
_LOST_ON_WAY, _REACHES_NODE = f"cannot reach {_OTHERS}", f"cannot reach {_NODE}"
_ON_BRIDGE = "do not reach the others on their bridge"
_UNTRACKED = ", or do so without masquerade and published ports"
_NODE_TO_PORTS = "cannot be reached from this node, or not at their published ports"
_LOST_WITH = (
    ("raw", "PREROUTING", True, f"cannot reach {_OTHERS}{_UNTRACKED}"),
    ("raw", "PREROUTING", False, _LOST_ON_WAY),
    ("mangle", "PREROUTING", True, _LOST_ON_WAY),
    ("mangle", "PREROUTING", False, _LOST_ON_WAY),
    ("mangle", "FORWARD", True, _LOST_ON_WAY),
    ("mangle", "FORWARD", False, _LOST_ON_WAY),
    ("security", "FORWARD", True, _LOST_ON_WAY),
    ("security", "FORWARD", False, _LOST_ON_WAY),
    ("mangle", "POSTROUTING", True, _LOST_ON_WAY),
    ("mangle", "POSTROUTING", False, _LOST_ON_WAY),
    ("filter", "FORWARD", True, _LOST_ON_WAY),
    ("filter", "FORWARD", False, _LOST_ON_WAY),
    ("filter", "INPUT", True, _REACHES_NODE),
    ("filter", "OUTPUT", False, _REACHES_NODE),
    ("raw", "OUTPUT", False, _NODE_TO_PORTS),
    ("mangle", "INPUT", True, _REACHES_NODE),
    ("mangle", "OUTPUT", False, _REACHES_NODE),
    ("security", "INPUT", True, _REACHES_NODE),
    ("security", "OUTPUT", False, _REACHES_NODE),
    ("nat", "POSTROUTING", True, "cannot reach other networks, because their packets keep the container's address"),
)
"""Where packets can be lost: table, chain, whether the container sends them, and the consequence."""
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_FAR = {4: "203.0.113.7", 6: "3fff::7"}
_UNMASKED = "cannot reach other networks, because answers to their packets do not come back to this node"
_UNMASKED_NEAR = (
    "are not masqueraded in the network of the default route, which needs routes to them; somebody may want this"
)
_UNMARKED = "cannot reach their own published ports, and this node cannot reach them at 127.0.0.1"
_LOST_WITH_NFT = {
    "ingress": ((True, _LOST_ON_WAY),),
    "egress": ((False, _LOST_ON_WAY),),
    "prerouting": ((True, _LOST_ON_WAY), (False, _LOST_ON_WAY)),
    "forward": ((True, _LOST_ON_WAY), (False, _LOST_ON_WAY)),
    "postrouting": ((True, _LOST_ON_WAY), (False, _LOST_ON_WAY)),
    "input": ((True, _REACHES_NODE),),
    "output": ((False, _REACHES_NODE),),
}
"""For each hook of nft: whether the container sends the packets, and the consequence of their loss there."""
_MOST_PORTS = 1_000
"""If a table of nft has more rules than this, the ports of a bridge are not followed one by one."""
OWN_TABLES = {MASQUERADE, *PORTS}


def check_lost_packets(node: NodeState, live: list[Attachment]) -> Observations:
    """Find the rules and policies that drop packets of containers."""
    own = [cidr for link in (node.host.links.values() if node.host is not None else ()) for cidr in link.addresses]
    forwarding = Forwarding(node.rules, node.inner_bridges, node.queues, own)
    yield from _lost(node, live, forwarding)
    everywhere: dict[tuple[str, Place, str], dict[str, set[str]]] = {}
    for attachment, chain in product(live, ("FORWARD", "INPUT", "POSTROUTING", "PREROUTING")):
        for address in node.addresses_of(attachment):
            for interface in node.gateway_interfaces(attachment):
                packet = Packet(ipaddress.ip_address(address), interface)
                if policy := _policy_of(forwarding, packet, chain):
                    ends = everywhere.setdefault((chain, *policy), {})
                    ends.setdefault(end_of(node, attachment, interface, address), set()).add(id_of(attachment))
    yield from _policies_of_bridges(node, live, forwarding)
    for (chain, place, parts), users in everywhere.items():
        names = tuple(sorted(set().union(*users.values())))
        # A plugin is only run for the next containers.
        now = [_accepted(place, interface, is_input=chain == "INPUT") for interface in users]
        if chain == "INPUT":
            passing = f"only {parts} of the containers pass" if parts else "no rule accepts them"
            seen = f"the policy drops the packets of containers to this node, and {passing}"
            rest = ", by other protocols and ports" * bool(parts)
            meaning = f"{counted(len(names), 'container')} {_REACHES_NODE}{rest}; somebody may want this"
            yield NodeFinding(
                "rules", "note", "policy-drops", str(place), seen, meaning,
                f"if nobody wants this: {'; '.join(now)}", (), names,
            )  # fmt: skip
            continue
        if parts:
            meaning = f"{counted(len(names), 'container')} cannot reach other networks by other protocols and ports"
            yield NodeFinding(
                "rules", "warning", "policy-drops", str(place),
                _dropped(parts),
                f"{meaning}; somebody may want this", f"if nobody wants this: {'; '.join(now)}", (), names,
            )  # fmt: skip
            continue
        meaning = f"{counted(len(names), 'container')} cannot reach other networks"
        meaning += "; nor each other, nor be reached at published ports, if net.bridge.bridge-nf-call-iptables is 1"
        remedy = ACCEPT + f"; for the running containers: {'; '.join(now)}"
        yield NodeFinding("rules", "error", "policy-drops", str(place), _dropped(""), meaning, remedy, (), names)


def _policy_of(
    forwarding: Forwarding, packet: Packet, chain: str, *, of_ports: bool = False
) -> tuple[Place, str] | None:
    """Return the chain whose policy drops a container's packets, and which of them pass: "" for none."""
    place = forwarding.policy_drops(packet._replace(part="most"), chain, of_ports=of_ports)
    if place is None:
        return None
    if of_all := forwarding.policy_drops(packet, chain, of_ports=of_ports):
        return of_all, ""
    return place, some(forwarding.accepted(place, packet)) or "some"


def lost_on_way_out(node: NodeState, address: str, interface: str) -> Iterator[tuple[Place, FindingName, str]]:
    """Yield each chain at which packets of an address to other networks would end, with what is found there."""
    forwarding, packet = Forwarding(node.rules, node.inner_bridges), Packet(ipaddress.ip_address(address), interface)
    if policy := _policy_of(forwarding, packet, "FORWARD"):
        yield policy[0], "policy-drops", _dropped(policy[1])
    losses = _Losses(forwarding)
    for place, is_sent, what, devices in (*_ways_of_iptables(node, address, is_masked=False), *_ways_of_nft(node)):
        if is_sent and devices is None and what != _REACHES_NODE:
            losses.look(place, packet, what, "", interface)
    for (place, rule), loss in losses.found.items():
        yield place, "dropped", _ends_at(rule, loss)


def _dropped(parts: str) -> str:
    seen = "the policy drops the packets of containers to other networks"
    return f"{seen}: only {parts} of the containers pass" if parts else f"{seen}, and no rule accepts them"


def _ends_at(rule: Rule, loss: _Loss) -> str:
    passing = f"only {some(list(loss.passing)) or 'some'} of the containers pass; all else ends at the rule"
    return f"{_seen(rule, loss.what) if loss.is_whole else passing} {text_of(rule)}"


def _policies_of_bridges(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> Iterator[NodeFinding]:
    """Find the policies that drop packets between a bridge's ports, or from a port to the node."""
    dropped: dict[tuple[str, Place, str], dict[str, None]] = {}
    has_tables = any(name.startswith("bridge ") for name in node.rules.get("nft", {}))
    frames = _Frames(node, live if has_tables else [])
    for attachment, chain in product(live if has_tables else (), ("FORWARD", "INPUT")):
        ports = [link.name for link in node.host_ends(attachment) if link.master]
        for address, port in product(node.addresses_of(attachment), ports):
            packet = Packet(ipaddress.ip_address(address), port)
            packet = frames.between(attachment, packet) if chain == "FORWARD" else packet
            if policy := _policy_of(forwarding, packet, chain, of_ports=True):
                dropped.setdefault((chain, *policy), {})[id_of(attachment)] = None
    for (chain, place, parts), names in dropped.items():
        lost = _ON_BRIDGE if chain == "FORWARD" else _REACHES_NODE
        passing = f"only {parts} of the containers pass" if parts else "no rule accepts them"
        yield NodeFinding(
            "rules", "warning" if parts else "error", "policy-drops", str(place),
            f"the policy drops packets from ports of bridges, and {passing}",
            f"{counted(len(names), 'container')} {lost}{', by other protocols and ports' * bool(parts)}",
            "find out who made the table (libvirt and ebtables do), or accept the packets: "
            f"nft insert rule {place.table} {place.chain} ether type {{ arp, ip, ip6 }} accept", (), tuple(names),
        )  # fmt: skip


def end_of(node: NodeState, attachment: Attachment, interface: str, address: str) -> str:
    """Return the interface's name, or the container's network, by which a rule can accept a container's packets.

    The network is for plugins such as ptp: each container has an interface of its own on the host, with a new name.
    """
    if interface in node.summary_of(attachment).veths:
        for _, cidr in node.summary_of(attachment).placed:
            if cidr.partition("/")[0] == address:
                return str(ipaddress.ip_interface(cidr).network)
    return interface


def _accepted(place: Place, end: str, *, is_input: bool = False) -> str:
    """Return the commands that accept packets from an interface or network, the answers, and those to published ports.

    ``end``: the name of the interface, or the network.
    """
    program, table, chain = place
    start, sender, receiver = f"{program} -I {chain}", "-i", "-o"
    accept, answers = "-j ACCEPT", ["-m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT"]
    if program == "nft":
        start, sender, receiver = f"nft insert rule {table} {chain}", "iifname", "oifname"
        accept, answers = "accept", ["ct state established,related accept", "ct status dnat accept"]
    if "/" in end:
        family = "ip6" if ":" in end else "ip"
        sender, receiver = (f"{family} saddr", f"{family} daddr") if program == "nft" else ("-s", "-d")
    words = [f"{sender} {{}} {accept}", *([] if is_input else (f"{receiver} {{}} {answer}" for answer in answers))]
    return "; ".join(f"{start} {word.format(shlex.quote(end))}" for word in words)


_Way = tuple[Place, bool, str, tuple[str, ...] | None]
"""A chain, whether the container sends the packets, the consequence of a loss, and the interfaces whose packets come to
the chain. The interfaces are None if the node forwards over them, and () for all ports of bridges."""


def _ways_of_iptables(node: NodeState, address: str, *, is_masked: bool) -> list[_Way]:
    """Return the chains of iptables that see packets of an address."""
    programs = iptables_of(node, program_of(address))
    return [
        (Place(program, table, chain), is_sent, what, None)
        for table, chain, is_sent, what in _LOST_WITH if is_masked or table != "nat" for program in programs
    ]  # fmt: skip


def _ways_of_nft(node: NodeState) -> Iterator[_Way]:
    """Yield the chains of nft that filter packets."""
    for name, table in node.rules.get("nft", {}).items():
        of_ports = name.startswith(("bridge ", "netdev "))
        if of_ports and sum(map(len, table.chains.values())) > _MOST_PORTS:
            continue
        for chain, hook in table.hooks.items():
            devices = hook.devices if hook.name in {"ingress", "egress"} else () if of_ports else None
            for is_sent, what in _LOST_WITH_NFT.get(hook.name, ()) if hook.kind == "filter" else ():
                is_between = devices == () and what == _LOST_ON_WAY
                yield Place("nft", name, chain), is_sent, _ON_BRIDGE if is_between else what, devices


class _Loss:
    """Packets of containers that end at a rule of a chain.

    Attributes:
        containers: the attachments.
        ends: their interfaces or networks.
        what: the consequence.
        is_whole: whether all packets of one of them end there, or all answers to its packets.
        passing: the protocols and ports of the packets that pass.
    """

    def __init__(self, what: str) -> None:
        self.containers: dict[str, None] = {}
        self.ends: dict[str, None] = {}
        self.what = what
        self.is_whole = False
        self.passing: dict[str, None] = {}


class _Losses:
    """The rules that lose packets of containers: those found so far."""

    def __init__(self, forwarding: Forwarding) -> None:
        self._forwarding = forwarding
        self.found: dict[tuple[Place, Rule], _Loss] = {}

    def look(self, place: Place, packet: Packet, what: str, name: str, end: str) -> None:
        """Add the rule of a chain at which a container's packets end: all of them, or all but those to some ports.

        Args:
            place: the chain.
            packet: the packets.
            what: the consequence of their loss.
            name: the attachment.
            end: its interface or network.
        """
        lost_by = self._forwarding.lost_by
        most = packet._replace(part="most") if place.table != "nat" and not packet.is_marked else packet
        rule = lost_by(*place, most)
        if rule is None or named_in_drop(rule) & {packet.beyond, str(packet.other)}:  # between two of them alone
            return
        # A firewall that lets the answers in keeps nothing from the container but new connections from outside.
        if what == _LOST_ON_WAY and not packet.is_sent and not lost_by(*place, most._replace(is_answer=True)):
            return
        loss = self.found.setdefault((place, rule), _Loss(what))
        loss.containers[name] = loss.ends[end] = None
        if most is packet or lost_by(*place, packet):
            loss.is_whole = True
        else:
            loss.passing |= dict.fromkeys(self._forwarding.accepted(place, packet))


def _losses(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> dict[tuple[Place, Rule], _Loss]:
    losses = _Losses(forwarding)
    of_nft = list(_ways_of_nft(node))
    frames = _Frames(node, live if any(devices == () for *_, devices in of_nft) else [])
    for attachment in live:
        is_masked = any(one.get("ipMasq") is True for one in node.documents(attachment))
        # With net.bridge.bridge-nf-call-iptables, packets that stay on a bridge see these rules too.
        gateways = node.gateway_interfaces(attachment)
        ports = [link.name for link in node.host_ends(attachment)]
        for address in node.addresses_of(attachment):
            parsed = ipaddress.ip_address(address)
            for place, is_sent, what, devices in (*_ways_of_iptables(node, address, is_masked=is_masked), *of_nft):
                there = (gateways or [""]) if devices is None else [*gateways, *ports] if devices else ports
                for interface in there if not devices else dict.fromkeys(one for one in there if one in devices):
                    packet = Packet(parsed, interface, is_sent)
                    if devices == () and what != _REACHES_NODE:
                        packet = frames.between(attachment, packet)
                    end = end_of(node, attachment, interface, address)
                    losses.look(place, packet, what, id_of(attachment), end)
            for place, packet, what in _special(node, attachment, parsed, gateways):
                losses.look(place, packet, what, id_of(attachment), packet.interface)
    return losses.found


class _Frames:
    """Finds for a container's packets the next container on the same bridge, to which they go or from which they come.

    A bridge sends the packets from port to port. Rules of bridges have conditions on both ends.
    """

    def __init__(self, node: NodeState, live: list[Attachment]) -> None:
        self._bridges = {link.index: link.name for link in node.host_links_by_index.values()}
        self._places: dict[str, tuple[int, int]] = {}
        self._on_bridge: dict[tuple[int, int], list[tuple[str, _Address]]] = {}
        for attachment in live:
            for link in (one for one in node.host_ends(attachment) if one.master):
                for address in map(ipaddress.ip_address, node.addresses_of(attachment)):
                    on_bridge = self._on_bridge.setdefault((link.master, address.version), [])
                    if not keeps_apart(node.documents(attachment)):
                        self._places[f"{id_of(attachment)} {address}"] = link.master, len(on_bridge)
                        on_bridge.append((link.name, address))

    def between(self, attachment: Attachment, packet: Packet) -> Packet:
        """Return a packet of a container with its other end, if another container is on the bridge."""
        master, place = self._places.get(f"{id_of(attachment)} {packet.address}", (0, 0))
        alike = self._on_bridge.get((master, packet.address.version), [])
        bridge = self._bridges.get(master, "")
        for port, address in (*alike[place + 1 : place + 2], *alike[:1]):
            if port != packet.interface:
                return packet._replace(other=address, beyond=port, bridge=bridge)
        return packet._replace(bridge=bridge)


def _special(
    node: NodeState, attachment: Attachment, address: _Address, gateways: list[str]
) -> Iterator[tuple[Place, Packet, str]]:
    """Yield the packets whose fate depends on more than the container: those to outside, and those with a mark."""
    uplink, hop = node.way_out(address.version)
    documents = node.documents(attachment)
    programs = iptables_of(node, program_of(str(address)))
    far = ipaddress.ip_address(_FAR[address.version])
    for program, interface in product(programs, gateways):
        if uplink is not None and any(one.get("ipMasq") is True for one in documents):
            packet = Packet(address, interface, other=far, beyond=uplink.name)
            yield Place(program, "nat", "POSTROUTING"), packet, _UNMASKED
            if hop:
                packet = packet._replace(other=ipaddress.ip_address(hop))
                yield Place(program, "nat", "POSTROUTING"), packet, _UNMASKED_NEAR
        is_marked = any(one.get("type") == "portmap" and one.get("snat") is not False for one in documents)
        if is_marked and list(ports_in(attachment.capability_args)):
            for chain, is_sent in (("FORWARD", True), ("FORWARD", False), ("POSTROUTING", False)):
                yield Place(program, "mangle", chain), Packet(address, interface, is_sent, is_marked=True), _UNMARKED


def _lost(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> Observations:
    """Find the rules that lose all packets of a container, or some of them."""
    losses = _losses(node, live, forwarding)
    severity: Severity
    for (place, rule), loss in losses.items():
        cut_off, what = tuple(loss.containers), loss.what
        meaning = f"{counted(len(cut_off), 'container')} {what}"
        commands = _before_last(node, place, rule, loss.ends)
        if not loss.is_whole:
            command = commands or removal(node, place, rule)
            yield NodeFinding(
                "rules", "note" if what == _REACHES_NODE else "warning", "dropped", str(place),
                _ends_at(rule, loss), f"{meaning}, by other protocols and ports; somebody may want this",
                f"if nobody wants this: {command}", (), cut_off,
            )  # fmt: skip
            continue
        remedy = remedy_of(node, place, rule)
        if commands and place.program == "nft":
            remedy = f"accept their packets before that rule: {commands}"
        if elements := _banned(node, live, place, rule, cut_off):
            remedy = f"find out who banned them, and take them off the set: {'; '.join(elements)}"
        severity = "note" if what == _UNMASKED_NEAR else "error"
        yield NodeFinding(
            "rules", severity, "dropped", str(place), _ends_at(rule, loss),
            f"{meaning}{_UNTRACKED * ('notrack' in rule)}", remedy, (), cut_off,
        )  # fmt: skip
    users: dict[str, dict[str, None]] = {}
    for attachment in live:
        ports = [link.name for link in node.host_ends(attachment)]
        for name in (*node.gateway_interfaces(attachment), *ports, *node.addresses_of(attachment)):
            users.setdefault(name, {})[id_of(attachment)] = None
    parsed = [(ipaddress.ip_address(text), attachment) for attachment in live for text in node.addresses_of(attachment)]
    numbered: _Numbered = {
        version: sorted(
            ((int(address), attachment) for address, attachment in parsed if address.version == version),
            key=lambda pair: pair[0],
        )
        for version in (4, 6)
    }
    lost = {rule for _, rule in losses}
    between = Between(node, forwarding, live)
    for place, rule in _rules_of_filters(node) if users else ():
        names = dict.fromkeys(one for name in sorted(named_in_drop(rule)) for one in users.get(name, ()))
        names |= dict.fromkeys(_named_by_network(node, numbered, forwarding, rule) if rule not in lost else ())
        if names and rule not in lost:
            severity, meaning, remedy = "note", "somebody may want this", "if nobody wants this"
            if pair := between.cut_off_by(place, rule, names):
                severity = "warning"
                meaning = f"containers of the network {pair[0].network} do not reach each other, such as "
                meaning += f"{id_of(pair[0])} and {id_of(pair[1])}, though its configuration does not keep them apart"
            yield NodeFinding(
                "rules", severity, "dropped-in-part", str(place),
                f"a rule drops some packets of {some(list(names))}: {text_of(rule)}", meaning,
                f"{remedy}: {removal(node, place, rule)}", (), tuple(names),
            )  # fmt: skip


def _before_last(node: NodeState, place: Place, rule: Rule, ends: Collection[str]) -> str:
    """Return the commands that accept packets before a rule that is a firewall's last word; "" if it is none."""
    asked = node.table(place.program, place.table).hooks.get(place.chain)
    hook = asked.name if asked is not None else place.chain.lower() if place.table == "filter" else ""
    if hook not in {"forward", "input"} or place.table.startswith("bridge ") or named_in_drop(rule):
        return ""
    at = place._replace(chain=rule[4]) if place.program == "nft" else place
    return "; ".join(_accepted(at, one, is_input=hook == "input") for one in ends)


def _seen(rule: Rule, what: str) -> str:
    if is_untracked(rule):
        return "the node does not recognize the connections of the packets after the rule"
    is_mark = what == _UNMARKED
    return (
        "portmap's mark of the packets is removed by the rule" if is_mark else "the container's packets end at the rule"
    )


def _banned(
    node: NodeState, live: list[Attachment], place: Place, rule: Rule, containers: Collection[str]
) -> list[str]:
    """Return the commands that take the addresses of containers off the sets of a rule."""
    sets = node.table(place.program, place.table).sets
    named = [word.removeprefix("@") for option, word in pairwise(rule) if word[0] == "@" or option == "--match-set"]
    return [
        f"ipset del {name} {address}"
        if rule[0] != "add"
        else f"nft delete element {place.table} {name} '{{ {address} }}'"
        for name in dict.fromkeys(named) if name in sets
        for attachment in live if id_of(attachment) in containers
        for address in node.addresses_of(attachment) if address in sets[name].hosts
    ]  # fmt: skip


_Numbered = dict[int, list[tuple[int, Attachment]]]
"""The attachments by the numbers of their addresses, in order, for each version of IP."""


def _named_by_network(node: NodeState, numbered: _Numbered, forwarding: Forwarding, rule: Rule) -> Iterator[str]:
    """Yield the attachments with an address in a network of a rule of iptables that drops some of their packets."""
    for is_sent, network in lost_prefixes(rule):
        found = numbered[network.version]
        start = bisect.bisect_left(found, int(network.network_address), key=lambda pair: pair[0])
        for number, attachment in found[start:]:
            if number > int(network.broadcast_address):
                break
            address = network[number - int(network.network_address)]
            packets = (Packet(address, one, is_sent) for one in node.gateway_interfaces(attachment))
            if any(forwarding.may_see(rule, packet) for packet in packets):
                yield id_of(attachment)


def _rules_of_filters(node: NodeState) -> Iterator[tuple[Place, Rule]]:
    """Yield the rules that filter packets, except those with which the plugin firewall isolates networks."""
    for program, tables in node.rules.items():
        for name, table in tables.items() if program == "nft" else [("filter", node.table(program, "filter"))]:
            for chain, rules in table.chains.items() if name not in OWN_TABLES else ():
                is_own = chain.startswith("CNI-") and chain != "CNI-ADMIN"  # CNI-ADMIN has the administrator's rules
                yield from ((Place(program, name, chain), rule) for rule in rules if not is_own)


def removal(node: NodeState, place: Place, rule: Rule) -> str:
    """Return the command that removes a rule."""
    program, table, _ = place
    if program == "nft":
        return f"nft delete rule {table} {rule[4]} handle {node.table(program, table).handles.get(rule, 'HANDLE')}"
    return shlex.join([program, *(["-t", table] if table != "filter" else []), "-D", *rule[1:]])


def remedy_of(node: NodeState, place: Place, rule: Rule) -> str:
    """Return what to do about a rule that somebody has added."""
    return f"find out who added the rule, and remove it: {removal(node, place, rule)}"
