"""Find rules of containers that no longer exist, and the rules to remove."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain as joined

from libcni.config.host_local import is_in_ranges
from libcni.diagnosis.mends import Mend
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import NodeFinding, NotChecked, Observations
from libcni.diagnosis.rule_facts import Facts, Owner, host_after, iptables_of, owner_in
from libcni.errors import some
from libcni.kernel.life import Subject
from libcni.kernel.rule_words import after, target_of
from libcni.kernel.rules import (
    MASQUERADE,
    Rule,
    masquerade_chain,
    masquerade_mark,
    port_rules,
    ports_chain,
    program_of,
)
from libcni.store.model import LIVING


def _host(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


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


def check_left_over(node: NodeState, facts: Facts) -> Observations:
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
            if (source := host_after(rule, "-s")) and (owner := owner_in("iptables", rule)) is not None:
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
