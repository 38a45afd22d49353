"""Find rules in containers' own network namespaces that drop their packets, or lead them to where nothing listens.

A program in a container with CAP_NET_ADMIN makes such rules: a firewall, a VPN, a service mesh. They are only reported.
Rules that translate packets, as service meshes make them, are in order.
"""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from libcni.diagnosis.mends import id_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import DropsIn
from libcni.diagnosis.report import NodeFinding, NotChecked, Observations, name_of, problem_of
from libcni.diagnosis.stopped_links import command_in
from libcni.errors import counted, some
from libcni.kernel.namespace import NamespaceId
from libcni.kernel.netfilter import Drop, Match
from libcni.store.attachments import Attachment

_SECONDS = 30.0
"""Seconds for reading the filters of all containers: a container can make its own filter slow."""
_INCOMING = {"prerouting", "input", "ingress"}
_OF_IPTABLES = {"filter", "mangle", "raw", "security"}
_PROGRAMS = {"ip": "iptables", "ip6": "ip6tables"}
_FAMILY = {4: "ip", 6: "ip6"}
_MOST_DROPS = 3
_MODULE = "/sys/module/nf_tables"

_Places = dict[tuple[str, NamespaceId], list[Attachment]]


def check_container_rules(node: NodeState) -> Observations:
    """Find containers whose own rules drop their packets."""
    places = _places(node)
    if node.drops_in is not None and places:
        # A request loads the kernel's module, as nft does.
        if "nft" in node.rules or os.path.exists(_MODULE):
            yield from _check(node, node.drops_in, places)
        else:
            yield NotChecked(
                "interfaces", "rules in containers", "the doctor does not read them without the program nft"
            )
    yield from _legacy(node, places)


def _check(node: NodeState, drops_in: DropsIn, places: _Places) -> Observations:
    alike: dict[object, tuple[list[Drop], list[Attachment]]] = {}
    until = time.monotonic() + _SECONDS
    unread = 0
    for (path, identity), attachments in places.items():
        if time.monotonic() > until:
            unread += 1
            continue
        try:
            drops = drops_in(path, identity)
        except OSError as error:
            yield NotChecked("interfaces", f"rules in {name_of(attachments[0])}", problem_of(error))
            continue
        if not drops:
            continue
        addresses = [ipaddress.ip_address(text) for one in attachments for text in node.addresses_of(one)]
        mine = _Own(addresses, {one.ifname for one in attachments})
        if own := [drop for drop in map(mine.rest_of, drops) if drop is not None]:
            # Ten thousand containers may each have other rules.
            for is_redirect in (False, True):
                of_kind = [drop for drop in own if bool(drop.redirect) is is_redirect]
                kinds = frozenset((drop.hook, not drop.conditions) for drop in of_kind), is_redirect
                if of_kind:
                    alike.setdefault(kinds, (of_kind, []))[1].append(attachments[0])
    if unread:
        yield NotChecked(
            "interfaces",
            f"rules in {counted(unread, 'container')}",
            f"reading all of them takes more than {_SECONDS:g} s",
        )
    for own, attachments in alike.values():
        yield _finding(own, attachments)


def _places(node: NodeState) -> _Places:
    """Return the attachments in each namespace of containers."""
    found: _Places = {}
    for attachment, _ in node.live:
        space, identity = node.space_of(attachment), node.namespace_of(attachment)
        if space is not None and identity is not None and attachment.ifname != "lo" and not node.is_host(space):
            found.setdefault((space.path, identity), []).append(attachment)
    return found


def _legacy(node: NodeState, places: _Places) -> Iterator[NotChecked]:
    found = node.legacy_tables(list(places)) if node.legacy_tables is not None else {}
    owners = {path: attachments[0] for (path, _), attachments in places.items()}
    for path, tables in list(found.items())[:1]:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        program = tables[0].rpartition(" ")[2]
        yield NotChecked(
            "interfaces", f"rules in {owners[path].pod or name_of(owners[path])}{more}: {some(tables)}",
            f"to see them: {command_in(path, f'{program}-save')}",
        )  # fmt: skip


class _Own(NamedTuple):
    """The addresses and interfaces of a container."""

    addresses: list[ipaddress.IPv4Address | ipaddress.IPv6Address]
    ifnames: set[str]

    def has(self, condition: Match, *, is_incoming: bool) -> bool | None:
        """Return whether the container's new packets meet a condition; None: some may."""
        name, _, value = condition
        if name == "state" and value:
            return "new" in value.split(",")
        if name == ("iifname" if is_incoming else "oifname"):
            return any(fnmatchcase(ifname, value) for ifname in self.ifnames)
        if name == "nfproto":
            return any(value == _FAMILY[address.version] for address in self.addresses)
        if name in {"saddr", "daddr"} and value:
            network = ipaddress.ip_network(value)
            if (name == "daddr") == is_incoming:
                return any(address in network for address in self.addresses)
            # Who blocks the address of a cloud's metadata service cuts nobody off.
            return None if not (network.is_link_local or network.is_multicast or network.is_loopback) else False
        return True if (name, value) == ("l4proto", "tcp") else None

    def rest_of(self, drop: Drop) -> Drop | None:
        """Return a drop without what all new packets of the container have; None if it sees none of them."""
        family = drop.table.partition(" ")[0].replace("arp", "ip")
        if not any(family not in _FAMILY.values() or family == _FAMILY[one.version] for one in self.addresses):
            return None
        kept: list[Match] = []
        for condition in drop.conditions:
            answer = self.has(condition, is_incoming=drop.hook in _INCOMING)
            if answer is None:
                kept.append(condition)
            elif answer is condition.is_negated:
                return None
        return drop._replace(conditions=tuple(kept))


def _finding(drops: list[Drop], attachments: list[Attachment]) -> NodeFinding:
    if to := [drop for drop in drops if drop.redirect]:
        return _redirected(to, attachments)
    texts = [
        f"{drop.hook} (chain {drop.chain} of the table {drop.table}): "
        + (" and ".join(map(_words, drop.conditions)) or "all packets that no earlier rule accepts")
        for drop in dict.fromkeys(drops)
    ]
    first, others = attachments[0], len(attachments) - 1
    also = f"; {counted(others, 'more container')} {'has' if others == 1 else 'have'} such rules" * bool(others)
    return NodeFinding(
        "rules", "note", "dropped-in-part", name_of(first),
        f"rules in the container's own namespace drop packets at {some(texts, '; ', _MOST_DROPS)}{also}",
        "some packets to or from the container are lost; a program in it may want this, such as a firewall or a VPN",
        f"to see the rules: {command_in(first.netns, _listing(drops[0]))}", (), tuple(map(id_of, attachments)),
    )  # fmt: skip


def _redirected(drops: list[Drop], attachments: list[Attachment]) -> NodeFinding:
    """Return the finding about rules that a service mesh or a proxy has left, or whose program does not run yet."""
    ports = some(list(dict.fromkeys(str(drop.redirect) for drop in drops)))
    chains = some(list(dict.fromkeys(f"chain {drop.chain} of the table {drop.table}" for drop in drops)))
    commands = [command_in(one.netns, "nft list ruleset") for one in attachments[:1]]
    return NodeFinding(
        "rules", "note", "dropped-in-part", some(list(map(name_of, attachments))),
        f"rules in the container's own namespace redirect packets to port {ports}, where nothing listens ({chains})",
        "such connections to or from the container are refused",
        "start the proxy of the container, or restart the pod without it, for a new namespace; to see the rules: "
        f"{commands[0]}", (), tuple(map(id_of, attachments)),
    )  # fmt: skip


def _words(condition: Match) -> str:
    return str(condition) if condition.value else f"a condition on {condition.name}"


def _listing(drop: Drop) -> str:
    """Return the command that lists the chain of a drop, without a name that the container's owner has chosen."""
    family, _, table = drop.table.partition(" ")
    if family in _PROGRAMS and table in _OF_IPTABLES and drop.chain == drop.hook.upper():
        return f"{_PROGRAMS[family]}{f' -t {table}' * (table != 'filter')} -S {drop.chain}"
    return "nft list ruleset"
