"""Ask the kernel over which interface it would send packets: to, from and inside containers.

Routing rules, tables, types of routes and source filters decide on this. The kernel knows the answer without sending a
packet. The answer is compared with what the plugins have reported and created.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from collections.abc import Collection, Iterable, Iterator
from itertools import chain as joined
from itertools import islice, product
from typing import NamedTuple

from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState, is_default
from libcni.diagnosis.one_rule import text_of, traffic_of_mark
from libcni.diagnosis.packets import Forwarding, Packet
from libcni.diagnosis.reading import FORWARDING, grouped
from libcni.diagnosis.report import NodeFinding, NotChecked, Observations, Severity, finding_about, name_of
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import some
from libcni.kernel.netlink import MAIN_TABLE, IPRoute, Link, Network, RouteAnswer, RouteQuestion, RoutingRule
from libcni.kernel.rules import Rule
from libcni.store.attachments import Attachment

_EXPLAIN_ALL = {
    "address-lost", "bridge-missing", "bridge-renamed", "gateway-missing", "host-end-down", "host-route-missing",
    "interface-down", "interface-missing", "interface-moved", "link-down", "master-missing", "prefix-changed",
    "route-changed", "route-missing", "subnet-route-missing",
}  # fmt: skip
"""Names of findings about interfaces that already explain why packets take a wrong way."""

_OUTSIDE = {
    4: ("1.2.3.4", "45.6.7.8", "103.4.5.6", "151.2.3.4", "185.6.7.8", "203.0.113.7"),
    6: ("2001:db8::7", "2600::7", "2a00::7", "3fff::7"),
}
"""Addresses of other machines, in both halves of all addresses. No packets are sent to them."""
_EVERYWHERE = {4: "0.0.0.0/0", 6: "::/0"}
_LOCAL_TABLE = 255
_TABLES = {_LOCAL_TABLE: "local", MAIN_TABLE: "main", 253: "default"}
_KERNEL, _GOOGLE = 2, 66
_TYPES = {errno.EACCES: "prohibit", errno.EINVAL: "blackhole"}
_MOST_SUBNETS = 1_000
_MOST_MARKED = 20
"""The most protocols and ports for which marks are looked for."""
_WHOLE_MARK = 0xFFFFFFFF
_PLAIN: tuple[set[tuple[int, int]], ...] = (
    {(4, 255), (4, 254), (4, 253), (6, 255), (6, 254)}, {(4, 255), (4, 254), (4, 253)},
)  # fmt: skip
"""The (version of IP, table) of the kernel's own routing rules, also without IPv6."""
_MAY_BE_MEANT = {"in", "between"}
_CANNOT = {
    "to": "the node cannot reach these containers",
    "out": "the containers cannot reach other networks",
    "near": "the containers cannot reach the network of this node's gateway",
    "in": "the containers cannot be reached from other networks",
    "between": "the containers of the two networks do not reach each other",
}


class _Asked(NamedTuple):
    """A question about an attachment.

    Attributes:
        attachment: the attachment, or None.
        kind: a key of ``_CANNOT``.
        question: the packets.
        devices: the names of the interfaces that a right answer may have; () for any.
        marking: the mark of the packets and the rule that sets it, in words.
    """

    attachment: Attachment | None
    kind: str
    question: RouteQuestion
    devices: tuple[str, ...] = ()
    marking: str = ""


def check_ways(node: NodeState, host: Network, explained: Collection[NodeFinding]) -> Observations:
    """Find packets for which the kernel has no route, or a wrong route."""
    if node.look_up is None:
        return
    names = {name for finding in explained if finding.name in _EXPLAIN_ALL for name in finding.containers}
    lost = {name for finding in explained if finding.severity == "error" for name in finding.containers}
    attached = [
        attachment for attachment, _ in node.live
        if attachment.path not in node.elsewhere and id_of(attachment) not in names
    ]  # fmt: skip
    marks = _Marks(node)
    try:
        wrong = list(_wrong(node, host, list(_to_containers(node, host, attached, marks))))
        yield from _findings(host, wrong)
        lost |= {id_of(one.attachment) for one, _ in wrong if one.attachment is not None}
        rest = [attachment for attachment in attached if id_of(attachment) not in lost]
        yield from _findings(host, list(_wrong(node, host, list(_through(node, host, rest, marks)))))
    except OSError as error:
        yield NotChecked("interfaces", "the node's routes to containers", error.strerror or str(error))
    if marks.unknown:
        reason = f"rules set marks under conditions that are not understood: {some(list(map(text_of, marks.unknown)))}"
        yield NotChecked("interfaces", "routes of packets with a mark (ip rule fwmark)", reason)
    for attachment, inside in node.live:
        if id_of(attachment) not in names:
            yield from _inside(node, attachment, inside)


# On the node.


def _devices(node: NodeState, host: Network, attachment: Attachment) -> list[Link]:
    """Return the node's interfaces that are up over which it reaches an attachment."""
    links = (host.links.get(name) for name in node.gateway_interfaces(attachment))
    return [link for link in links if link is not None and link.is_up]


def _is_of_vrf(node: NodeState, link: Link) -> bool:
    """Return whether an interface has tables of routes of its own."""
    master = node.host_links_by_index.get(link.master)
    return master is not None and master.kind == "vrf"


def _ends(
    node: NodeState, host: Network, attachments: Iterable[Attachment]
) -> Iterator[tuple[Attachment, str, list[Link]]]:
    """Yield (attachment, address, interfaces) of the addresses that the node reaches by its own tables."""
    for attachment in attachments:
        links = _devices(node, host, attachment)
        if links and not any(_is_of_vrf(node, link) for link in links):
            yield from ((attachment, address, links) for address in node.addresses_of(attachment))


def _of_default_routes(node: NodeState, host: Network, version: int) -> Iterator[str]:
    """Yield the interfaces of the main table's default routes. A VPN makes other routes, to the halves or by a rule."""
    for route in host.routes:
        is_asked = route.table == MAIN_TABLE and route.destination == _EVERYWHERE[version]
        if is_asked and route.ifindex in node.host_links_by_index:
            yield node.host_links_by_index[route.ifindex].name


class _Marks:
    """Finds the marks that rules give to packets before the kernel chooses their route.

    They are looked for only if a routing rule asks for a mark.
    """

    def __init__(self, node: NodeState) -> None:
        host = node.host
        self._is_asked = host is not None and any(rule.mark is not None for rule in host.routing_rules)
        own = [cidr for link in node.host_links_by_index.values() for cidr in link.addresses]
        self._forwarding = Forwarding(node.rules, node.inner_bridges, node.queues, own)
        self.unknown: dict[Rule, None] = {}
        # A rule may mark the packets to some ports alone.
        traffic = dict.fromkeys(map(traffic_of_mark, _rules_of(node) if self._is_asked else ()))
        self._traffic = list(islice((one for one in traffic if one), _MOST_MARKED))

    def of(self, asked: _Asked, packet: Packet, hook: str = "prerouting") -> Iterator[_Asked]:
        """Yield a question once for each mark that its packets get, depending on the port."""
        told: set[int] = set()
        for protocol, number in [("tcp", -1), *self._traffic] if self._is_asked else ():
            mark, rule = self._forwarding.mark(packet._replace(port=(protocol, number)), hook)
            if mark is None:
                self.unknown[rule] = None
            elif mark not in told:
                told.add(mark)
                of_port = f" for {protocol}{f' {number}' * (number >= 0)}" * (number >= 0 or protocol != "tcp")
                words = f"the mark {mark:#x} of the rule {text_of(rule)}{of_port}" if mark else ""
                yield asked._replace(question=asked.question._replace(mark=mark), marking=words)
        if not told:
            yield asked


def _rules_of(node: NodeState) -> Iterator[Rule]:
    """Yield the rules in tables whose marks the kernel heeds when it chooses a route."""
    for program, tables in node.rules.items():
        for name, table in tables.items():
            if program == "nft" or name in {"raw", "mangle"}:
                yield from joined.from_iterable(table.chains.values())


def gateway_from(node: NodeState, attachment: Attachment, address: str) -> str | None:
    """Return the gateway to which the kernel sends a container's packets to other networks; "" for an interface alone.

    None: the kernel cannot be asked, or has no route.
    """
    links = _devices(node, node.host, attachment) if node.host is not None else []
    outside = next(outside_of(node.host, _version(address)), "") if node.host is not None else ""
    if node.look_up is None or not (links and outside):
        return None
    question = RouteQuestion(outside, address, links[0].index)
    packet = Packet(ipaddress.ip_address(address), links[0].name, other=ipaddress.ip_address(outside))
    asked = next(_Marks(node).of(_Asked(attachment, "out", question), packet))
    [answer] = node.look_up(None, [asked.question])
    return None if answer.error or answer.kind else answer.gateway


def _to_containers(node: NodeState, host: Network, attachments: list[Attachment], marks: _Marks) -> Iterator[_Asked]:
    """Yield the questions for the ways from the node, and for routes within a network's subnet."""
    devices: dict[str, tuple[str, ...]] = {}
    for attachment, address, links in _ends(node, host, attachments):
        names = devices[address] = tuple(link.name for link in links)
        packet = Packet(ipaddress.ip_address(address), names[0], is_sent=False)
        yield from marks.of(_Asked(attachment, "to", RouteQuestion(address), names), packet, "output")
    subnets = {
        ipaddress.ip_interface(cidr).network: tuple(link.name for link in _devices(node, host, attachment))
        for attachment in attachments
        for cidr in node.summary_of(attachment).gateways
        if any(link.has_address(cidr) and link.kind != "veth" for link in _devices(node, host, attachment))
    }  # fmt: skip
    # The next containers' addresses.
    for route in host.routes if len(subnets) < _MOST_SUBNETS else ():
        network = ipaddress.ip_network(route.destination)
        for subnet, names in subnets.items():
            if network.version == subnet.version and network != subnet and network.subnet_of(subnet):  # type: ignore[arg-type]  # the same family
                target = str(network.network_address)
                if target not in devices:
                    yield _Asked(None, "to", RouteQuestion(target), names)


def _through(node: NodeState, host: Network, attachments: list[Attachment], marks: _Marks) -> Iterator[_Asked]:
    """Yield the questions for the ways through the node: out, in, and from each network to the next one."""
    names = {link.index: link.name for link in host.links.values()}
    for asked in _without_marks(node, host, attachments):
        source, target = ipaddress.ip_address(asked.question.source), ipaddress.ip_address(asked.question.target)
        arrives_on = names[asked.question.arrives_on]
        if asked.kind == "in":
            packet = Packet(target, asked.devices[0], is_sent=False, other=source, beyond=arrives_on)
        else:
            packet = Packet(source, arrives_on, other=target)
        yield from marks.of(asked, packet)


def _without_marks(node: NodeState, host: Network, attachments: list[Attachment]) -> Iterator[_Asked]:
    off = {path for path, is_on in node.forwards.items() if not is_on}
    ends = [
        (attachment, address, links[0]) for attachment, address, links in _ends(node, host, attachments)
        if FORWARDING[_version(address)] not in off and "forwarding 0" not in links[0].settings
    ]  # fmt: skip
    for version in (4, 6):
        alike = [end for end in ends if _version(end[1]) == version]
        outside = next(outside_of(host, version), "")
        uplink, hop = node.way_out(version)
        near = tuple(one.name for one in node.uplinks if hop and _is_on_link(one, hop))
        default = tuple(dict.fromkeys(_of_default_routes(node, host, version)))
        for attachment, address, link in alike if outside and uplink is not None else ():
            yield _Asked(attachment, "out", RouteQuestion(outside, address, link.index), default)
            if uplink is not None and hop and not hop.startswith("fe80:"):
                yield _Asked(attachment, "near", RouteQuestion(hop, address, link.index), (*near, uplink.name))
                if "forwarding 0" not in uplink.settings:  # the check of forwarding says so
                    yield _Asked(attachment, "in", RouteQuestion(address, hop, uplink.index), (link.name,))
        networks = list(grouped((end[0].network, end) for end in alike).values())
        # Published ports are reached over each of them.
        for other, ends_of_network in product([one for one in node.uplinks if one is not uplink], networks):
            if outside and "forwarding 0" not in other.settings:
                attachment, address, link = ends_of_network[0]
                yield _Asked(attachment, "in", RouteQuestion(address, outside, other.index), (link.name,))
        for sources, targets in zip(networks, [*networks[1:], *networks[:1]], strict=True):
            _, target, device = targets[0]
            for attachment, address, link in sources:
                if link.index != device.index:
                    question = RouteQuestion(target, address, link.index)
                    yield _Asked(attachment, "between", question, (device.name,))


def _is_on_link(link: Link, address: str) -> bool:
    networks = (ipaddress.ip_interface(cidr).network for cidr in link.addresses)
    return any(ipaddress.ip_address(address) in network for network in networks)


def _version(address: str) -> int:
    return 6 if ":" in address else 4


def outside_of(network: Network, version: int) -> Iterator[str]:
    """Yield addresses elsewhere to which only a default route leads."""
    narrow = [
        ipaddress.ip_network(route.destination) for route in network.routes
        if _version(route.destination) == version and not is_default(route.destination)
    ]  # fmt: skip
    for address in _OUTSIDE[version]:
        if not any(ipaddress.ip_address(address) in one for one in narrow):
            yield address


class Routes:
    """The routes of a namespace, indexed: a node can have one for each of 10,000 containers."""

    def __init__(self, network: Network) -> None:
        self._routes: dict[tuple[int, int, int], dict[int, IPRoute]] = {}
        for route in network.routes:
            address, _, length = route.destination.partition("/")
            found = self._routes.setdefault((route.table, _version(address), int(length)), {})
            prefix = _prefix(address, int(length))
            # Of routes with one metric the kernel uses the first one.
            if prefix not in found or route.metric < found[prefix].metric:
                found[prefix] = route
        self._longest_first = sorted(self._routes, key=lambda key: -key[2])

    def to(self, address: str, table: int = MAIN_TABLE) -> IPRoute | None:
        """Return the route of a table that packets to an address take, or None."""
        asked = (key for key in self._longest_first if key[:2] == (table, _version(address)))
        found = (self._routes[key].get(_prefix(address, key[2])) for key in asked)
        return next((route for route in found if route is not None), None)

    def next_hop(self, address: str) -> str:
        """Return the gateway to an address; the address itself if no gateway is needed."""
        route = self.to(address)
        return route.gateway if route is not None and route.gateway else address


def _prefix(address: str, length: int) -> int:
    parsed = ipaddress.ip_address(address)
    return int(parsed) >> (parsed.max_prefixlen - length)


_Wrong = tuple[_Asked, RouteAnswer]


def _wrong(node: NodeState, host: Network, asked: list[_Asked]) -> Iterator[_Wrong]:
    """Yield the answers that are wrong."""
    assert node.look_up is not None
    names = {link.index: link.name for link in host.links.values()}
    for one, answer in zip(asked, node.look_up(None, [each.question for each in asked]), strict=True):
        is_right = not one.devices or names.get(answer.ifindex, "") in one.devices or not answer.ifindex
        if not answer.error and not answer.kind and is_right:
            continue
        if answer.kind == "local" and answer.protocol == _KERNEL and answer.destination.endswith(("/32", "/128")):
            continue  # an address of the node itself: it is a doubled one
        if one.question.source and any(link.has_address(one.question.source) for link in host.links.values()):
            continue  # also a doubled one: from itself the kernel takes no packets
        # Where there never was a route, another finding says so, or it is meant.
        is_nowhere = answer.error == errno.ENETUNREACH or is_default(answer.destination or "")
        devices = one.devices if one.kind != "out" else tuple(names.values())
        if is_nowhere and not _has_route(host, one.question.target, [host.links[name].index for name in devices]):
            continue
        yield one, answer


def _has_route(network: Network, target: str, devices: Collection[int]) -> bool:
    address = ipaddress.ip_address(target)
    return any(
        route.ifindex in devices and route.table == MAIN_TABLE and address in ipaddress.ip_network(route.destination)
        for route in network.routes if _version(route.destination) == address.version
    )  # fmt: skip


_RULE = "find out who created this rule, then run"


class _Cause(NamedTuple):
    """What decides on packets, the command that changes that, and what to find out before."""

    subject: str
    seen: str
    command: str
    before: str = "find out who created this route, then run"


def _findings(host: Network, wrong: list[_Wrong]) -> Iterator[NodeFinding]:
    """Yield a finding for each cause."""
    causes = grouped(((_cause(host, one, answer), one.marking), (one, answer)) for one, answer in wrong)
    for (cause, marking), alike in causes.items():
        kinds = [kind for kind in _CANNOT if kind in {one.kind for one, _ in alike}]
        containers = tuple(dict.fromkeys(id_of(one.attachment) for one, _ in alike if one.attachment is not None))
        devices = dict.fromkeys(name for one, _ in alike for name in one.devices if "leads over" in cause.seen)
        seen = f"{cause.seen}, not over {some(list(devices))}" if devices else cause.seen
        cannot = [_CANNOT[kind] for kind in kinds]
        if kinds[0] == "out" and devices:
            yield _other_way_out(host, cause._replace(seen=seen), alike[0], containers, cannot[1:])
            continue
        # A VPN may be meant to have all packets of containers.
        is_meant = kinds[0] in _MAY_BE_MEANT or (kinds[0] == "near" and "leads over" in cause.seen)
        severity: Severity = "note" if is_meant else "warning" if kinds[0] == "near" else "error"
        yield NodeFinding(
            "interfaces", severity, "route-stolen", cause.subject, f"because of {marking}, {seen}" if marking else seen,
            f"{cannot[0]}{'; somebody may want this' * is_meant}",
            f"{'if nobody wants this' if is_meant else cause.before}: {cause.command}", (), containers,
        )  # fmt: skip


def _other_way_out(
    host: Network, cause: _Cause, wrong: _Wrong, containers: tuple[str, ...], cannot: list[str]
) -> NodeFinding:
    """Return the finding about packets to other networks that do not take the default route.

    ``cannot``: what the containers cannot do, too.
    """
    one, answer = wrong
    link = next((link for link in host.links.values() if link.index == answer.ifindex), None)
    device = next((link.name for link in _arriving(host, one.question)), "lo")
    rule = next((rule for rule in host.routing_rules if _leads(rule, one.question, device, answer.table)), None)
    causes = [f"the routing rule {rule.priority}"] if rule is not None else []
    causes += [one.marking] if one.marking else []
    because = f"because of {' and '.join(causes)}, " if causes else ""
    is_dead = link is not None and not link.has_carrier
    meaning = "the packets of containers to other networks take this way; a VPN may want this"
    if is_dead:
        meaning = "the containers cannot reach other networks: the interface is up, but nothing is connected to it"
    meaning = "; ".join([meaning, *cannot])
    return NodeFinding(
        "interfaces", "warning" if is_dead else "note", "other-way-out", cause.subject, f"{because}{cause.seen}",
        meaning, f"{'if the VPN or tunnel has ended' if is_dead else 'if nobody wants this'}: {cause.command}", (),
        containers,
    )  # fmt: skip


def _leads(rule: RoutingRule, question: RouteQuestion, device: str, table: int) -> bool:
    """Return whether a rule probably leads packets to a table: ports and users are not known here."""
    return table not in _TABLES and rule.table == table and _takes(rule, question, device)


def _takes(rule: RoutingRule, question: RouteQuestion, device: str) -> bool:
    """Return whether a routing rule is for packets that arrive on an interface."""
    value, mask = rule.mark or (0, 0)
    is_met = (
        rule.interface in {"", device} and question.mark & mask == value
        and _is_in(rule.source, question.source) and _is_in(rule.destination, question.target)
    )  # fmt: skip
    return rule.version == _version(question.target) and is_met is not rule.is_negated


def _cause(network: Network, one: _Asked, answer: RouteAnswer, netns: str = "") -> _Cause:
    of = _of_error if answer.error else _of_route
    cause = of(network, one.question, answer)
    commands = (command_in(netns, command) for command in cause.command.split("; "))
    return cause._replace(command="; ".join(commands))


def _of_route(network: Network, question: RouteQuestion, answer: RouteAnswer) -> _Cause:
    names = {link.index: link.name for link in network.links.values()}
    device = names.get(answer.ifindex, "")
    table = "local" if answer.kind == "local" else _TABLES.get(answer.table, str(answer.table))
    kind = f"{answer.kind} " if answer.kind else ""
    command = f"{_ip(question)} route del {kind}{answer.destination}{f' dev {device}' * bool(device)}"
    command += f" table {table}" * (table != "main")
    seen = f"the route to {answer.destination} of table {table} leads over {device or 'several interfaces'}"
    if answer.kind:
        seen = (
            f"the {answer.kind} route to {answer.destination} of table {table} catches the packets to these containers"
        )
        if answer.protocol == _GOOGLE:
            seen += "; Google's guest agent makes such routes, unless its configuration has ip_aliases = false"
    return _Cause(f"route to {answer.destination}", seen, command)


def _of_error(network: Network, question: RouteQuestion, answer: RouteAnswer) -> _Cause:
    ip, device = _ip(question), {link.index: link.name for link in network.links.values()}.get(question.arrives_on, "")
    rule, route = _decider(network, question)
    # Linux 6.13 and later say only that they do not take the packets.
    drops = (rule is not None and rule.drops) or (route is not None and route.ifindex < 0)
    is_filtered = not drops and any("rp_filter 1" in link.settings for link in _arriving(network, question))
    if answer.error == errno.EXDEV or is_filtered:
        return _Cause(
            f"interface {device}", f"rp_filter of {device} drops the packets: another interface leads to their source",
            f"sysctl -w net/ipv4/conf/{device}/rp_filter=2", "find out who set rp_filter, then run",
        )  # fmt: skip
    if rule is not None and (rule.drops or (route is not None and route.ifindex < 0 and rule.table not in _TABLES)):
        seen = f"this rule drops the packets{_ends_of(rule) or ' from everywhere'}"
        if route is not None:
            seen = f"this rule leads the packets{_ends_of(rule)} to table {rule.table}, whose route to "
            seen += f"{route.destination} drops them"
        return _Cause(f"routing rule {rule.priority}", seen, _removal(rule), _RULE)
    if route is not None and route.ifindex < 0:
        kind = _TYPES.get(answer.error, "unreachable")
        seen = f"the {kind} route to {route.destination} drops the packets"
        return _Cause(f"route to {route.destination}", seen, f"{ip} route del {kind} {route.destination}")
    tables = {rule.table for rule in network.routing_rules if rule.version == _version(question.target)}
    if MAIN_TABLE not in tables:
        commands = [f"{ip} rule add pref 32766 lookup main"]
        commands += [f"{ip} rule add pref 32767 lookup default"] * (question.target.count(":") == 0)
        return _Cause(
            "routing rules", "no rule leads to the table main: none of its routes is used", "; ".join(commands),
            "find out who removed the rules, then run",
        )  # fmt: skip
    ends = f"{question.target}{f' from {question.source}' * bool(question.source)}{f' iif {device}' * bool(device)}"
    seen = f"the kernel has no route for packets to {ends}: {os.strerror(answer.error)}"
    return _Cause("routing", seen, f"{ip} route get {ends}; {ip} rule", "these commands show the routes and the rules")


def _arriving(network: Network, question: RouteQuestion) -> list[Link]:
    """Return the interface on which the packets arrive, if it is not this namespace that sends them."""
    return [link for link in network.links.values() if link.index == question.arrives_on]


def _ip(question: RouteQuestion) -> str:
    return "ip -6" if ":" in question.target else "ip"


def _removal(rule: RoutingRule) -> str:
    """Return the command that removes a rule, and no other: agents give one priority to many rules."""
    ip = "ip -6" if rule.version == 6 else "ip"  # noqa: PLR2004 - the version of IP
    table = f" lookup {rule.table}" if rule.table else ""
    return f"{ip} rule del priority {rule.priority}{_ends_of(rule, is_command=True)}{table}"


def _ends_of(rule: RoutingRule, *, is_command: bool = False) -> str:
    """Return the conditions of a rule, in words or as a command has them."""
    value, mask = rule.mark or (0, 0)
    mark = (f"{value:#x}/{mask:#x}" if is_command or mask != _WHOLE_MARK else f"{value:#x}") if rule.mark else ""
    ends = (
        ("from", rule.source), ("to", rule.destination), ("iif" if is_command else "over", rule.interface),
        ("fwmark" if is_command else "with the mark", mark),
    )  # fmt: skip
    text = "".join(f" {word} {end}" for word, end in ends if end)
    return f" {'not' if is_command else 'other than those'}{text}" if rule.is_negated else text


def _decider(network: Network, question: RouteQuestion) -> tuple[RoutingRule | None, IPRoute | None]:
    """Return the rule, and the route that it leads to if there is one, which probably cause an error of the kernel.

    The kernel does not name them with its error.
    """
    routes, device = Routes(network), next((link.name for link in _arriving(network, question)), "lo")
    for rule in network.routing_rules:
        is_asked = rule.is_whole and _takes(rule, question, device)
        route = routes.to(question.target, rule.table) if is_asked else None
        if is_asked and (rule.drops or route is not None):
            return rule, route
    return None, None


def _is_in(prefix: str, address: str) -> bool:
    return not prefix or (bool(address) and ipaddress.ip_address(address) in ipaddress.ip_network(prefix))


# In a container.


def _inside(node: NodeState, attachment: Attachment, inside: Network) -> Iterator[NodeFinding | NotChecked]:
    """Find reported routes whose packets leave a container by an interface of somebody else's, or not at all."""
    space, identity = node.space_of(attachment), node.namespace_of(attachment)
    link = inside.links.get(attachment.ifname)
    if space is None or identity is None or node.is_host(space) or link is None or node.look_up is None:
        return
    own = [other.ifname for other in node.recorded_in(space) if other.ifname != "lo"]
    if _is_plain(inside, own):
        return
    asked = [
        _Asked(attachment, "out", RouteQuestion(target, source), tuple(own))
        for destination, _ in node.summary_of(attachment).routes
        for source in [one for one in node.addresses_of(attachment) if _version(one) == _version(destination)][:1]
        if link.has_address(source)
        for target in _targets(inside, destination)
    ]
    try:
        answers = node.look_up((space.path, identity), [one.question for one in asked])
    except OSError as error:
        yield NotChecked("interfaces", f"routes of packets in {name_of(attachment)}", error.strerror or str(error))
        return
    names = {other.index: other.name for other in inside.links.values()}
    wrong = [
        (one, answer) for one, answer in zip(asked, answers, strict=True)
        if answer.error or answer.kind or names.get(answer.ifindex, own[0]) not in own
    ]  # fmt: skip
    causes = list(dict.fromkeys(_cause(inside, one, answer, attachment.netns) for one, answer in wrong))
    if causes:
        is_lost = any(answer.error or answer.kind for _, answer in wrong)
        lost, moved = "packets to other networks are lost", "packets leave the container over another interface"
        meaning = lost if is_lost else moved
        yield finding_about(
            "interfaces", "error" if is_lost else "warning", attachment, "route-changed",
            f"{'; '.join(cause.seen for cause in causes)}{f', not over {some(own)}' * (not is_lost)}", meaning,
            f"{'find out who did this' if is_lost else 'if the container does not want this, such as a VPN'}: "
            f"{'; '.join(cause.command for cause in causes)}",
        )  # fmt: skip


def _is_plain(inside: Network, own: Collection[str]) -> bool:
    """Return whether a namespace has no routes but those over its recorded interfaces, and the kernel's rules alone."""
    indexes = {inside.links[name].index for name in own if name in inside.links}
    is_known = all(route.ifindex in indexes and route.table == MAIN_TABLE for route in inside.routes)
    return is_known and {(rule.version, rule.table) for rule in inside.routing_rules} in _PLAIN


def _targets(inside: Network, destination: str) -> list[str]:
    """Return addresses of a route's network: for the default route one of each half, to which no other route leads."""
    network = ipaddress.ip_network(destination)
    if network.prefixlen == 0:
        outside = list(outside_of(inside, network.version))
        return [*outside[:1], *outside[-1:]]
    return [str(network[min(1, network.num_addresses - 1)])]
