"""Check the rules of containers: masquerade, published ports, firewall, and whether the kernel forwards packets."""

from __future__ import annotations

import bisect
import ipaddress
import math
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain as joined
from itertools import pairwise, product
from typing import Any, NamedTuple

from libcni.config.host_local import is_in_ranges
from libcni.config.port_mappings import PORT_MAPPINGS, ports_in, published_in
from libcni.diagnosis.between import Between
from libcni.diagnosis.mends import Mend, id_of, mend_of
from libcni.diagnosis.needed_programs import FIREWALLD
from libcni.diagnosis.node_state import NodeState, is_default
from libcni.diagnosis.packets import Forwarding, Packet, Place, lost_prefixes, named_in_drop
from libcni.diagnosis.reading import FORWARDING, forwarding_of, is_gateway
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, Severity, finding_about
from libcni.errors import counted, some
from libcni.kernel.life import Subject
from libcni.kernel.link_settings import WITHOUT_IPV6
from libcni.kernel.netlink import DROPS_PACKETS, Link, Network
from libcni.kernel.rule_words import after, read_rule, target_of, target_port_of
from libcni.kernel.rules import (
    MASQUERADE,
    PORTS,
    Rule,
    Table,
    mark_of,
    masquerade_chain,
    masquerade_mark,
    port_rules,
    ports_chain,
    program_of,
)
from libcni.store.attachments import Attachment
from libcni.store.model import LIVING

_GATEWAYS = {"bridge", "ptp"}
_BACKENDS = ("ipMasqBackend", "backend")
"""The keys that choose iptables, nftables or firewalld: of bridge and ptp, and of other plugins."""
DROPPED = "the policy drops the packets of containers to other networks, and no rule accepts them"
ACCEPT = (
    "find out who set the policy (docker and ufw do); then accept the containers' packets there, for example with the "
    "plugin firewall as the last one of the network"
)
_TO_OUTSIDE = {"", "bond", "ipvlan", "macvlan", "team", "veth", "vlan"}
"""The kinds of interfaces that connect a node with other machines; "": a network card."""
_OTHERS, _NODE = "other networks, or be reached from there", "this node, or be reached from it"
_LOST_WITH = (
    ("raw", "PREROUTING", True, f"cannot reach {_OTHERS}, or do so without masquerade and published ports"),
    ("raw", "PREROUTING", False, f"cannot reach {_OTHERS}"),
    ("mangle", "PREROUTING", True, f"cannot reach {_OTHERS}"),
    ("mangle", "PREROUTING", False, f"cannot reach {_OTHERS}"),
    ("mangle", "FORWARD", True, f"cannot reach {_OTHERS}"),
    ("mangle", "FORWARD", False, f"cannot reach {_OTHERS}"),
    ("security", "FORWARD", True, f"cannot reach {_OTHERS}"),
    ("security", "FORWARD", False, f"cannot reach {_OTHERS}"),
    ("mangle", "POSTROUTING", True, f"cannot reach {_OTHERS}"),
    ("mangle", "POSTROUTING", False, f"cannot reach {_OTHERS}"),
    ("filter", "FORWARD", True, f"cannot reach {_OTHERS}"),
    ("filter", "FORWARD", False, f"cannot reach {_OTHERS}"),
    ("filter", "INPUT", True, f"cannot reach {_NODE}"),
    ("filter", "OUTPUT", False, f"cannot reach {_NODE}"),
    ("nat", "POSTROUTING", True, "cannot reach other networks, because their packets keep the container's address"),
)
"""Where packets can be lost: table, chain, whether the container sends them, and the consequence."""
_FAR = {4: "203.0.113.7", 6: "3fff::7"}
_UNMASKED = "cannot reach other networks, because answers to their packets do not come back to this node"
_UNMASKED_NEAR = (
    "are not masqueraded in the network of the default route, which needs routes to them; somebody may want this"
)
_UNMARKED = "cannot reach their own published ports, and this node cannot reach them at 127.0.0.1"
_LOST_WITH_NFT = {
    "ingress": ((True, f"cannot reach {_OTHERS}"),),
    "egress": ((False, f"cannot reach {_OTHERS}"),),
    "prerouting": ((True, f"cannot reach {_OTHERS}"), (False, f"cannot reach {_OTHERS}")),
    "forward": ((True, f"cannot reach {_OTHERS}"), (False, f"cannot reach {_OTHERS}")),
    "postrouting": ((True, f"cannot reach {_OTHERS}"), (False, f"cannot reach {_OTHERS}")),
    "input": ((True, f"cannot reach {_NODE}"),),
    "output": ((False, f"cannot reach {_NODE}"),),
}
"""For each hook of nft: whether the container sends the packets, and the consequence of their loss there."""
_EBTABLES = "/sys/module/ebtable_filter"
"""The kernel's module of ebtables-legacy, whose rules nft does not show."""
_MOST_PORTS = 1_000
"""If a table of nft has more rules than this, the ports of a bridge are not followed one by one."""
_OWN_TABLES = {MASQUERADE, *PORTS}
_OWNERS = {
    "iptables": re.compile(r'name: "(?P<network>[^"]+)" id: "(?P<container>[^"]+)"'),
    "nftables": re.compile(r', net: (?P<network>.+), if: (?P<ifname>.+), id: (?P<container>[^"]+)'),
}


class Fact(NamedTuple):
    """An effect of a plugin's rules on an address of a container.

    Attributes:
        kind: ``masquerade``, ``port 8080/tcp`` or ``firewall``.
        mark: the mark of the rule's owner: a chain of iptables, or the comment of nftables or its beginning; "" for
            rules of the plugin firewall.
        address: the address of the container.
        port: the port of the container that a published port leads to, or "".
    """

    kind: str
    mark: str
    address: str
    port: str = ""


Owner = tuple[str, str, str]
"""A container ID, a network and an interface; "" if the rule does not name it."""
Facts = dict[str, dict[Fact, Owner | None]]
"""The facts of each backend, ``iptables`` and ``nftables``, each with the owner that its comment names."""


def check_rules(node: NodeState) -> Observations:
    """Find containers whose rules were deleted, rules whose container no longer exists, and forwarding that is off."""
    live = [attachment for attachment, _ in node.live if attachment.path not in node.elsewhere]
    if node.elsewhere:
        reason = "this program is in another network namespace than the bridges of these attachments"
        yield NotChecked("rules", f"rules of {counted(len(node.elsewhere), 'attachment')}", reason)
    facts = facts_of(node)
    count = 0
    unread: dict[NotChecked, None] = {}
    for attachment in live:
        missing: dict[str, str] = {}
        for wanted, backend in _wanted(node, attachment):
            count += 1
            answer = _look(node, facts, wanted, backend)
            if isinstance(answer, str):
                unread[NotChecked("rules", f"network {attachment.network}", answer)] = None
            elif not answer:
                missing[wanted["iptables"].kind] = backend
        if missing:
            meaning = "something removed them, such as a reload of the firewall; without them the container is cut off"
            yield finding_about(
                "rules", "error", attachment, "rules-missing", f"missing rules: {', '.join(missing)}", meaning,
                *_mends(node, attachment, missing),
            )  # fmt: skip
    yield from unread
    yield from _not_followed(node, live)
    if count:
        yield Checked("rules", f"rules of {counted(len(live), 'ready attachment')}")
    yield from _forwarding(node, live)
    yield from _default_route(node, live)
    yield from _dropped(node, live)
    yield from _left_over(node, facts)


def _is_unmasked(node: NodeState, attachment: Attachment) -> bool:
    """Return whether the node forwards an attachment's packets, and its plugins do not masquerade them."""
    documents = [document for document in node.documents(attachment) if document.get("type") in _GATEWAYS]
    is_forwarded = any(document.get("type") == "ptp" or is_gateway(document) for document in documents)
    return is_forwarded and not any(document.get("ipMasq") is True for document in documents)


def _not_followed(node: NodeState, live: list[Attachment]) -> Iterator[NotChecked]:
    """Name the rules of other programs that may decide on the containers' packets."""
    tables = [
        f"{name} ({counted(number, 'rule')} not understood)" if (number := _not_understood(table)) else name
        for name, table in node.rules.get("nft", {}).items()
        if name not in _OWN_TABLES and (not table.chains or _may_drop(table))
    ]  # fmt: skip
    if tables and live:
        reason = "other programs filter packets there; the doctor reads conditions on interfaces and addresses only"
        yield NotChecked("rules", f"tables of nft: {some(tables)}", reason)
    if live and os.path.exists(_EBTABLES):
        yield NotChecked("rules", "rules of ebtables-legacy", "the doctor does not read them: ebtables-legacy -L")
    for name, table in node.rules.get("nft", {}).items() if live else ():
        if table.unknown:
            yield NotChecked("rules", f"a part of the table {name} of nft", f"not understood: {some(table.unknown)}")
    unread = {
        (program, name): why for program in (iptables_of(node) if live else ())
        for table in node.rules[program].values() for name, why in table.unread.items()
    }  # fmt: skip
    for (program, name), why in unread.items():
        yield NotChecked("rules", f"the set {name} of ipset in rules of {program}", why)
    unmasked = {attachment.network: None for attachment in live if _is_unmasked(node, attachment)}
    if unmasked:
        reason = "the network's plugins create no such rules; another program may, such as flannel's daemon"
        yield NotChecked("rules", f"masquerade of {some(list(unmasked))}", reason)
    for program in (name for name in node.unread if name.endswith(("-legacy", "-nft"))):
        yield NotChecked("rules", program, node.unread[program])


def _mends(node: NodeState, attachment: Attachment, missing: Mapping[str, str]) -> tuple[str, tuple[Mend, ...]]:
    """Return the remedy, or the mend that adds an attachment's missing rules: in place if that is possible."""
    programs = set(map(program_of, node.addresses_of(attachment)))
    needs_nft = "masquerade" in missing and (missing["masquerade"] == "nftables" or not programs <= node.rules.keys())
    # A reload would remove the ports of the container's other interfaces on the network: DEL knows the container alone.
    if not needs_nft and not node.unusable_plugin(attachment):
        return "", (mend_of("add-rules", attachment, *missing),)
    return reloads(node, attachment, interrupts=True)


def facts_of(node: NodeState) -> Facts:
    """Return the effects of the node's rules on containers, by backend."""
    return {
        "iptables": dict(joined.from_iterable(_of_iptables(node, program) for program in iptables_of(node))),
        "nftables": dict(_of_nftables(node.rules.get("nft", {}))),
    }


def iptables_of(node: NodeState, family: str = "") -> list[str]:
    """Return the variants of iptables and ip6tables whose rules were read; ``family``: only those of one of the two."""
    return [name for name in node.rules if name != "nft" and family in {"", name.partition("-")[0]}]


def _of_iptables(node: NodeState, program: str) -> Iterator[tuple[Fact, Owner | None]]:
    """Yield the facts of the rules of iptables, except of chains to which no jump leads."""
    nat, allowed = node.table(program, "nat"), node.table(program, "filter")
    for rule in nat.chains.get("POSTROUTING", ()):
        inside = nat.chains.get(rule[-1], ())
        if (source := _host_after(rule, "-s")) and _masquerades(inside):
            yield Fact("masquerade", rule[-1], source), _owner("iptables", rule)
    is_asked = all(nat.find(chain, "CNI-HOSTPORT-DNAT") for chain in ("PREROUTING", "OUTPUT"))
    for rule in nat.chains.get("CNI-HOSTPORT-DNAT", ()) if is_asked else ():
        inside = nat.chains.get(rule[-1], ())
        # For connections from the node and from the container itself.
        is_marked = any(after(entry, "-j") == "CNI-HOSTPORT-SETMARK" for entry in inside)
        for entry in _deciding(inside) if not is_marked or _marks_ports(nat) else ():
            if after(entry, "-p") == after(rule, "-p"):
                kind = f"port {after(entry, '--dport')}/{after(entry, '-p')}"
                yield Fact(kind, rule[-1], target_of(entry), target_port_of(entry)), _owner("iptables", rule)
    if allowed.find("FORWARD", "CNI-FORWARD"):
        forward = allowed.chains.get("CNI-FORWARD", ())
        sources, targets = ({_host_after(rule, option) for rule in forward} for option in ("-s", "-d"))
        yield from ((Fact("firewall", "", address), None) for address in sources & targets if address)


def _deciding(chain: Sequence[Rule]) -> Iterator[Rule]:
    """Yield the rules of a container's chain of ports that translate: for each port the first one that ends there."""
    decided: set[tuple[str, ...]] = set()
    for rule in chain:
        target, of_all = after(rule, "-j"), "--dport" not in rule and "--dports" not in rule
        port = after(rule, "-p"), after(rule, "--dport"), after(rule, "-d")
        if target not in {"ACCEPT", "DNAT", "DROP", "REDIRECT", "RETURN"} or "-s" in rule or port in decided:
            continue
        if "--to-destination" in rule:
            yield rule
        if of_all:
            return
        decided.add(port)


def _marks_ports(nat: Table) -> bool:
    """Return whether portmap's rules for all containers mark packets, and masquerade the marked ones."""
    marks = any("MARK" in rule for rule in nat.chains.get("CNI-HOSTPORT-SETMARK", ()))
    masquerades = any("MASQUERADE" in rule for rule in nat.chains.get("CNI-HOSTPORT-MASQ", ()))
    return marks and masquerades and bool(nat.find("POSTROUTING", "CNI-HOSTPORT-MASQ"))


def _masquerades(chain: Sequence[Rule]) -> bool:
    """Return whether a chain masquerades packets to other networks: before a rule ends it for all of them."""
    for rule in chain:
        if "MASQUERADE" in rule:
            return True
        is_of_all = not {"-s", "-d", "-p", "-i", "-o"} & set(rule)
        if is_of_all and after(rule, "-j") in {"ACCEPT", "DROP", "RETURN"}:
            return False
    return False


def _of_nftables(tables: Mapping[str, Table]) -> Iterator[tuple[Fact, Owner | None]]:
    """Yield the facts of the rules of nftables, except of chains to which no jump leads."""
    chains = tables.get(MASQUERADE, Table()).chains
    if any("masq_checks" in rule for rule in chains.get("postrouting", ())):
        for rule in chains.get("masq_checks", ()):
            yield Fact("masquerade", mark_of(rule), after(rule, "saddr")), _owner("nftables", rule)
    for name in PORTS:
        chains = tables.get(name, Table()).chains
        if chains.get("prerouting"):
            hostports = (*chains.get("hostports", ()), *chains.get("hostip_hostports", ()))
            for rule in (
                hostport for hostport in hostports if "dport" in hostport
            ):  # somebody may have added a rule of another form
                kind = f"port {after(rule, 'dport')}/{rule[rule.index('dport') - 1]}"
                yield Fact(kind, mark_of(rule), target_of(rule), target_port_of(rule)), (mark_of(rule), "", "")


def _owner(backend: str, rule: Rule) -> Owner | None:
    """Return the owner that a rule's comment names; None if the iptables chain does not belong to that container."""
    match = next(filter(None, map(_OWNERS[backend].search, rule)), None)
    if match is None:
        return None
    network, container = match["network"], match["container"]
    if backend == "nftables":  # the plugin cuts a long comment; the mark has the whole ID
        return container, network, match["ifname"]
    chains = {masquerade_chain(network, container), ports_chain(network, container)}
    return (container, network, "") if rule[-1] in chains else None


def _host_after(rule: Rule, option: str) -> str:
    """Return the address after an option, or "" if it is not the address of a single host."""
    address, _, length = after(rule, option).partition("/")
    return address if length in {"32", "128"} else ""


def _wanted(node: NodeState, attachment: Attachment) -> Iterator[tuple[dict[str, Fact], str]]:
    """Yield the rules that an attachment's plugins should have created.

    Yields each rule in the form of each backend, and the backend that the configuration names, or "" if it names none.
    """
    network, container = attachment.network, attachment.container_id
    addresses = node.addresses_of(attachment)
    for document in node.documents(attachment):
        kind = document.get("type")
        backend = next((str(document[key]) for key in _BACKENDS if document.get(key)), "")
        if kind in _GATEWAYS and document.get("ipMasq") is True:
            marks = {
                "iptables": masquerade_chain(network, container),
                "nftables": masquerade_mark(network, container, attachment.ifname),
            }
            done = [("masquerade", address, "") for address in addresses]
        elif kind == "portmap":
            marks = {"iptables": ports_chain(network, container), "nftables": container}
            done = list(_published(attachment, document, addresses))
        elif kind == "firewall":
            marks, done = {"iptables": ""}, [("firewall", address, "") for address in addresses]
            backend = backend or ("firewalld" if os.path.exists(FIREWALLD) else "")
        else:
            continue
        for what, address, port in done:
            yield {name: Fact(what, mark, address, port) for name, mark in marks.items()}, backend


def _published(
    attachment: Attachment, document: Mapping[str, Any], addresses: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (port on the host, address, port of the container) of the ports that portmap publishes."""
    declared = document.get("capabilities")
    if not isinstance(declared, dict) or declared.get(PORT_MAPPINGS) is not True:
        return
    # portmap publishes the first address of each family.
    for address in {program_of(address): address for address in reversed(addresses)}.values():
        for port, inside in published_in(attachment.capability_args):
            if not port.address or program_of(port.address) == program_of(address):
                yield f"port {port.number}/{port.protocol}", address, inside


def _look(node: NodeState, facts: Facts, wanted: dict[str, Fact], backend: str) -> bool | str:
    """Return whether the rules have a wanted fact, or the reason why that is unknown."""
    if backend and backend not in wanted:
        return f"rules of {backend}: the doctor reads those of iptables and nftables only"
    # Without a configured backend a plugin chooses: iptables, or nftables where that is missing.
    if any(_has(facts[name], fact) for name, fact in wanted.items() if backend in {"", name}):
        return True
    program = "nft" if backend == "nftables" else program_of(wanted["iptables"].address)
    return False if program in node.rules else f"rules of {program}: {node.unread.get(f'the rules of {program}')}"


def _has(found: Mapping[Fact, object], wanted: Fact) -> bool:
    if wanted.port or not wanted.kind.startswith("port "):
        return wanted in found
    return any(fact._replace(port="") == wanted for fact in found)  # the record does not say which one


def _host(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def _forwarding(node: NodeState, live: list[Attachment]) -> Observations:
    """Find packets that the kernel does not forward: those of a version of IP, or those from one interface."""
    off = {path for path, is_on in node.forwards.items() if not is_on}
    if FORWARDING[4] not in off and node.host is not None:  # that setting changes those of each interface
        off |= {forwarding_of(link.name) for link in node.host.links.values() if "forwarding 0" in link.settings}
    outside = {forwarding_of(link.name) for link in node.uplinks}
    users: dict[str, dict[str, None]] = {}
    for attachment in live:
        interfaces = set(map(forwarding_of, node.gateway_interfaces(attachment)))
        paths = {FORWARDING[6 if ":" in address else 4] for address in node.addresses_of(attachment) if interfaces}
        for path in off & (paths | interfaces | outside if FORWARDING[4] in paths else paths):
            users.setdefault(path, {})[id_of(attachment)] = None
    for path, names in sorted(users.items()):
        containers = tuple(names)
        # Somebody may want it so of an interface that no plugin has made.
        remedy = f"sysctl -w {path.removeprefix('/proc/sys/')}=1" if path in outside else ""
        yield NodeFinding(
            "rules", "error", "no-forwarding", path, "the kernel does not forward packets",
            f"{counted(len(containers), 'container')} cannot reach other networks, nor be reached from there", remedy,
            () if remedy else (Mend("forward", path, (), containers),), containers,
        )  # fmt: skip


def _default_route(node: NodeState, live: list[Attachment]) -> Observations:
    """Find a node that masquerades, has interfaces of its own, and no default route."""
    if node.host is None:
        return
    used = {name for attachment in live for name in node.gateway_interfaces(attachment)}
    ends = {link.name for attachment in live for link in node.host_ends(attachment)}
    links = [link for link in node.host.links.values() if link.is_up and link.kind in _TO_OUTSIDE]
    own = [link for link in links if link.name not in {"lo", *used, *ends}]
    ways = [route for route in node.host.routes if route.ifindex != DROPS_PACKETS and is_default(route.destination)]
    for family, is_6 in (("IPv4", False), ("IPv6", True)):
        outside = [
            link.name for link in own if any((":" in text) == is_6 and text[:4] != "fe80" for text in link.addresses)
        ]
        containers = [
            id_of(attachment)
            for attachment in live
            if any(one.get("ipMasq") is True for one in node.documents(attachment) if one.get("type") in _GATEWAYS)
            and any((":" in place) == is_6 and is_default(place) for place, _ in node.summary_of(attachment).routes)
        ]
        # Without IPv6 an interface has no address, and the kernel removes its routes.
        off = [link.name for link in node.uplinks if is_6 and WITHOUT_IPV6 in link.settings]
        if (outside or off) and containers and not any((":" in route.destination) == is_6 for route in ways):
            on_link = {name: _on_link(node.host, node.host.links[name], is_6=is_6) for name in outside}
            device = next(filter(on_link.get, outside), (outside or off)[0])
            near = on_link.get(device, [])
            # The kernel refuses a gateway to which no route leads. A route to one host is the one to the gateway.
            gateway = near[0].removesuffix("/32") if len(near) == 1 and near[0].endswith("/32") else "GATEWAY"
            command = f"ip{' -6' * is_6} route add default via {gateway} dev {device}"
            command += " onlink" if outside and not near and not is_6 else ""
            seen, remedy = f"the node has no default route of {family}", f"if it had one before: {command}"
            if off:  # the route alone would be refused, because the addresses are gone, too
                seen += f"; IPv6 is off on {off[0]}, and with it the addresses of {off[0]} are gone"
                remedy = (
                    f"if it had one before, see /etc/sysctl.d, then let the node's network service configure {off[0]} "
                    f"again, for its addresses and routes, after: sysctl -w net/ipv6/conf/{off[0]}/disable_ipv6=0"
                )
            used_links = {route.ifindex for route in node.host.routes if (":" in route.destination) == is_6}
            is_cut_off = (
                not is_6 and bool(outside) and used_links.isdisjoint(node.host.links[name].index for name in outside)
            )
            if is_cut_off:
                seen += f"; {device} has only {some(node.host.links[device].addresses)}, and no route leads over it"
                remedy = f"give {device} its address with the prefix length of its network, or run: {command}"
            yield NodeFinding(
                "rules", "warning" if is_cut_off else "note", "no-default-route", "this node", seen,
                f"{counted(len(containers), 'container')} can only reach the networks to which this node has a route",
                remedy, (), tuple(containers),
            )  # fmt: skip
        elif is_6 and containers and not outside and not any(":" in route.destination for route in ways):
            reason = "this node has no address and no default route of IPv6, and may never have had them"
            what = f"IPv6 of {counted(len(containers), 'container')} to other networks"
            yield NotChecked("interfaces", what, reason)


def _on_link(host: Network, link: Link, *, is_6: bool) -> list[str]:
    """Return the destinations that an interface reaches without a gateway."""
    own = {text for text in link.addresses if text.endswith("/128")}
    routes = {route.destination for route in host.routes if route.ifindex == link.index and not route.gateway}
    # An address of one host brings no route, or in IPv6 one that leads to the node itself.
    return sorted(text for text in routes - own if (":" in text) == is_6 and text[:4] != "fe80")


def _dropped(node: NodeState, live: list[Attachment]) -> Observations:
    """Find the rules and policies that drop packets of containers."""
    own = [cidr for link in (node.host.links.values() if node.host is not None else ()) for cidr in link.addresses]
    forwarding = Forwarding(node.rules, node.inner_bridges, node.queues, own)
    yield from _lost(node, live, forwarding)
    everywhere: dict[tuple[str, Place], dict[str, set[str]]] = {}
    for attachment, chain in product(live, ("FORWARD", "INPUT", "POSTROUTING", "PREROUTING")):
        for address in node.addresses_of(attachment):
            for interface in node.gateway_interfaces(attachment):
                if place := forwarding.dropped_by(address, interface, chain):
                    ends = everywhere.setdefault((chain, place), {})
                    ends.setdefault(end_of(node, attachment, interface, address), set()).add(id_of(attachment))
    for (chain, place), users in everywhere.items():
        names = tuple(sorted(set().union(*users.values())))
        # A plugin is only run for the next containers.
        now = [_accepted(place, interface, is_input=chain == "INPUT") for interface in users]
        if chain == "INPUT":
            seen = "the policy drops the packets of containers to this node, and no rule accepts them"
            meaning = f"{counted(len(names), 'container')} cannot reach {_NODE}; somebody may want this"
            yield NodeFinding(
                "rules", "note", "policy-drops", str(place), seen, meaning,
                f"if nobody wants this: {'; '.join(now)}", (), names,
            )  # fmt: skip
            continue
        meaning = f"{counted(len(names), 'container')} cannot reach other networks"
        meaning += "; nor each other, nor be reached at published ports, if net.bridge.bridge-nf-call-iptables is 1"
        remedy = ACCEPT + f"; for the running containers: {'; '.join(now)}"
        yield NodeFinding("rules", "error", "policy-drops", str(place), DROPPED, meaning, remedy, (), names)


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


def _not_understood(table: Table) -> int:
    """Return the number of rules that drop packets under a condition that is not understood, such as ebtables'."""
    found = (read_rule(rule) for rules in table.chains.values() for rule in rules)
    return sum(verdict == "lost" and not all(one.option for one in conditions) for conditions, verdict in found)


def _may_drop(table: Table) -> bool:
    return any({"drop", "reject", "vmap", "queue"} & set(rule) for rules in table.chains.values() for rule in rules)


_Way = tuple[Place, bool, str, tuple[str, ...] | None]
"""A chain, whether the container sends the packets, the consequence of a loss, and the interfaces whose packets come to
the chain. The interfaces are None if the node forwards over them, and () for all ports of bridges."""


def _ways_of_nft(node: NodeState) -> Iterator[_Way]:
    """Yield the chains of nft that filter packets."""
    for name, table in node.rules.get("nft", {}).items():
        of_ports = name.startswith(("bridge ", "netdev "))
        if of_ports and sum(map(len, table.chains.values())) > _MOST_PORTS:
            continue
        for chain, hook in table.hooks.items():
            devices = hook.devices if hook.name in {"ingress", "egress"} else () if of_ports else None
            for is_sent, what in _LOST_WITH_NFT.get(hook.name, ()) if hook.kind == "filter" else ():
                yield Place("nft", name, chain), is_sent, what, devices


_Losses = dict[tuple[Place, Rule], tuple[dict[str, None], dict[str, None], str]]
"""The attachments, and their interfaces or networks, whose packets end at a rule of a chain, and the consequence."""


def _losses(node: NodeState, live: list[Attachment], forwarding: Forwarding) -> _Losses:
    losses: _Losses = {}
    of_nft = list(_ways_of_nft(node))
    for attachment in live:
        is_masked = any(one.get("ipMasq") is True for one in node.documents(attachment))
        # With net.bridge.bridge-nf-call-iptables, packets that stay on a bridge see these rules too.
        gateways = node.gateway_interfaces(attachment)
        ports = [link.name for link in node.host_ends(attachment)]
        for address in node.addresses_of(attachment):
            of_iptables: list[_Way] = [
                (Place(program, table, chain), is_sent, what, None)
                for table, chain, is_sent, what in _LOST_WITH
                if is_masked or table != "nat"
                for program in iptables_of(node, program_of(address))
            ]
            parsed = ipaddress.ip_address(address)
            for place, is_sent, what, devices in (*of_iptables, *of_nft):
                there = (gateways or [""]) if devices is None else [*gateways, *ports] if devices else ports
                for interface in there if not devices else dict.fromkeys(one for one in there if one in devices):
                    if rule := forwarding.lost_by(*place, Packet(parsed, interface, is_sent)):
                        containers, ends, _ = losses.setdefault((place, rule), ({}, {}, what))
                        containers[id_of(attachment)] = ends[end_of(node, attachment, interface, address)] = None
            for place, packet, what in _special(node, attachment, parsed, gateways):
                if rule := forwarding.lost_by(*place, packet):
                    containers, ends, _ = losses.setdefault((place, rule), ({}, {}, what))
                    containers[id_of(attachment)] = ends[packet.interface] = None
    return losses


def _special(
    node: NodeState, attachment: Attachment, address: ipaddress.IPv4Address | ipaddress.IPv6Address, gateways: list[str]
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
    for (place, rule), (containers, ends, what) in losses.items():
        remedy = remedy_of(node, place, rule)
        asked = node.table(place.program, place.table).hooks.get(place.chain)
        hook = asked.name if asked is not None else ""
        if hook in {"forward", "input"} and not place.table.startswith("bridge ") and not named_in_drop(rule):
            # A firewall's last word, for all that it does not know.
            at = place._replace(chain=rule[4])
            commands = [_accepted(at, one, is_input=hook == "input") for one in ends]
            remedy = f"accept their packets before that rule: {'; '.join(commands)}"
        if elements := _banned(node, live, place, rule, containers):
            remedy = f"find out who banned them, and take them off the set: {'; '.join(elements)}"
        severity = "note" if what == _UNMASKED_NEAR else "error"
        seen = "the container's packets end at the rule"
        if what == _UNMARKED:
            seen = "portmap's mark of the packets is removed by the rule"
        yield NodeFinding(
            "rules", severity, "dropped", str(place), f"{seen} {text_of(rule)}",
            f"{counted(len(containers), 'container')} {what}", remedy, (), tuple(containers),
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
            for chain, rules in table.chains.items() if name not in _OWN_TABLES else ():
                is_own = chain.startswith("CNI-") and chain != "CNI-ADMIN"  # CNI-ADMIN has the administrator's rules
                yield from ((Place(program, name, chain), rule) for rule in rules if not is_own)


def text_of(rule: Rule) -> str:
    """Return a rule in the words of its program."""
    return " ".join(rule[5:] if rule[0] == "add" else rule)


def removal(node: NodeState, place: Place, rule: Rule) -> str:
    """Return the command that removes a rule."""
    program, table, _ = place
    if program == "nft":
        return f"nft delete rule {table} {rule[4]} handle {node.table(program, table).handles.get(rule, 'HANDLE')}"
    return shlex.join([program, *(["-t", table] if table != "filter" else []), "-D", *rule[1:]])


def remedy_of(node: NodeState, place: Place, rule: Rule) -> str:
    """Return what to do about a rule that somebody has added."""
    return f"find out who added the rule, and remove it: {removal(node, place, rule)}"


def rules_to_remove(
    node: NodeState, network: str, container_id: str, ifname: str, addresses: Sequence[str]
) -> tuple[Mend, ...]:
    """Return the mend that removes a dead container's firewall rules for addresses; () if there are none."""
    # After a reboot another interface of the container may have the address, with a rule in the same chain. It may have
    # no record, if another runtime attached it.
    living = [other for other in node.attached(network, container_id) if other.state in LIVING]
    in_use = {address for other in living for address in node.addresses_of(other)}
    addresses = [address for address in addresses if address not in in_use and not node.strangers(address)]
    containers = (f"{container_id}:{ifname}" if ifname else container_id,)
    mend = Mend("remove-rules", container_id, tuple(addresses), containers, (), network)
    return (mend,) if addresses and any(removals(node, mend)) else ()


def removals(node: NodeState, mend: Mend) -> Iterator[tuple[str, str, Rule]]:
    """Yield (program, table, rule) of the rules to remove. The rule ("-X", CHAIN) removes an unused chain.

    All interfaces of a container on a network share one iptables chain for masquerade and one for ports, and portmap's
    rules in nftables. Rules for other addresses stay: they belong to another interface, or to a container of another
    runtime with the same ID. If there is a record, the rules of portmap and firewall stay, because its DEL removes
    them.
    """
    network, container_id, addresses = mend.network, mend.target, mend.details
    ifname = mend.containers[0].partition(":")[2]
    recorded = {attachment.ifname for attachment in node.attached(network, container_id)}
    is_recorded = bool(recorded) and (ifname in recorded or not ifname)
    families = sorted({program_of(address) for address in addresses})
    for program in [name for family in families for name in iptables_of(node, family)]:
        for table, rule in _iptables_removals(node, program, mend, is_recorded=is_recorded):
            yield program, table, rule
    mark = masquerade_mark(network, container_id, ifname)
    marked = [(MASQUERADE, rule) for rule in node.table("nft", MASQUERADE).find("masq_checks", mark)]
    if not is_recorded and not node.attached("", container_id):
        marked += [(table, rule) for table, _, rule in port_rules(node.rules.get("nft", {}), container_id)]
    yield from (("nft", table, rule) for table, rule in marked if _address_in(rule) in addresses)


def _iptables_removals(node: NodeState, program: str, mend: Mend, *, is_recorded: bool) -> Iterator[tuple[str, Rule]]:
    """Yield (table, rule) of the rules of iptables or ip6tables to remove; see ``removals``."""
    nat, addresses = node.table(program, "nat"), mend.details
    masquerade, published = masquerade_chain(mend.network, mend.target), ports_chain(mend.network, mend.target)
    hosts = {_host(address) for address in addresses}
    jumps = [rule for rule in nat.leading_to(masquerade) if hosts & set(rule)]
    yield from (("nat", rule) for rule in jumps)
    if masquerade in nat.chains and len(jumps) == len(nat.leading_to(masquerade)):
        yield "nat", ("-X", masquerade)
    if is_recorded:
        return
    ports = [rule for rule in nat.chains.get(published, ()) if "--to-destination" in rule]
    stale = [rule for rule in ports if target_of(rule) in addresses]
    if stale and len(stale) == len(ports):
        yield from (("nat", rule) for rule in nat.leading_to(published))
        yield "nat", ("-X", published)
    else:
        yield from (("nat", rule) for rule in stale)
    # These rules do not name their container, and another container may have the address now.
    hosts = {host for host in hosts if host.partition("/")[0] not in node.recorded_addresses}
    allowed = (node.table(program, "filter").find("CNI-FORWARD", host) for host in sorted(hosts))
    yield from (("filter", rule) for rule in joined.from_iterable(allowed))


def _address_in(rule: Rule) -> str:
    """Return the address of the container in a rule of nftables."""
    if target := target_of(rule):
        return target
    # To itself, over a port of the host: from 127.0.0.1, or from its own address.
    return after(rule, "saddr" if "masq_checks" in rule else "daddr")


def _left_over(node: NodeState, facts: Facts) -> Observations:
    """Find rules for addresses that no interface has, and that no record or reservation gives to their container."""
    owners: dict[Owner, dict[str, None]] = {}
    unseen: dict[NotChecked, None] = {}
    for fact, owner in joined(facts["iptables"].items(), facts["nftables"].items()):
        if owner is not None:
            owners.setdefault(owner, {})[fact.address] = None
    # A jump for an earlier address has no effect, but the first DEL of the next container with this ID fails because of
    # it: bridge empties the chain, and then cannot remove the chain.
    for program in iptables_of(node):
        for rule in node.table(program, "nat").chains.get("POSTROUTING", ()):
            if (source := _host_after(rule, "-s")) and (owner := _owner("iptables", rule)) is not None:
                owners.setdefault(owner, {})[source] = None
    for (container_id, network, ifname), addresses in owners.items() if not node.record_error else ():
        # An unknown network belongs to another runtime. portmap's rules in nftables name no network.
        is_ours = network in node.known_networks or (
            not network and all(any(is_in_ranges(net, address) for net in node.networks) for address in addresses)
        )
        recorded = node.attached(network, container_id)
        reserved = {reservation.address for reservation in node.reserved_for(network, container_id)}
        left = (
            addresses.keys()
            - reserved
            - {address for attachment in recorded for address in node.addresses_of(attachment)}
        )
        # An unfinished or unreadable attachment may have any of the addresses. The repair checks again under the
        # container's lock, when no ADD of it can run.
        is_known = node.is_unreadable(network, container_id) or (
            not all(attachment.state in LIVING and node.addresses_of(attachment) for attachment in recorded)
            if recorded
            else bool(reserved)
        )
        # A container of another runtime may have the addresses, even if a recorded container got them a second time.
        if not left or not is_ours or is_known or any(node.strangers(address) for address in left):
            continue
        # No record and no reservation: nobody's ADD runs.
        answer = node.life.of(Subject(addresses=tuple(left), age=math.inf))
        if not recorded and answer.verdict == "unknown":
            unseen[NotChecked("rules", "rules that containers without a record left", answer.reason)] = None
            continue
        if mends := rules_to_remove(node, network, container_id, ifname, sorted(left)):
            record, meaning = (
                ("record has another address", "the rules are of an earlier attachment, and the next DEL fails")
                if recorded
                else ("container has no record", "a later container with that address gets the ports of the old one")
            )
            yield NodeFinding(
                "rules", "warning", "rules-left", f"container {container_id}",
                f"there are rules for {some(sorted(left))}, but the {record}", meaning,
                mends=mends, containers=mends[0].containers,
            )  # fmt: skip
    yield from unseen
