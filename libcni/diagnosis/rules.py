"""Check the rules of containers: masquerade, published ports and firewall, and what other programs add to them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from libcni.config.port_mappings import PORT_MAPPINGS, published_in
from libcni.diagnosis.lost_packets import OWN_TABLES, check_lost_packets
from libcni.diagnosis.mends import Mend, mend_of
from libcni.diagnosis.needed_programs import FIREWALLD
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.reading import WITH_GATEWAY, is_gateway
from libcni.diagnosis.reload_mend import reloads
from libcni.diagnosis.report import Checked, NotChecked, Observations, finding_about
from libcni.diagnosis.rule_facts import Fact, Facts, facts_of, iptables_of
from libcni.diagnosis.rules_left import check_left_over
from libcni.diagnosis.way_out import check_default_route, check_forwarding
from libcni.errors import counted, some
from libcni.kernel.rule_words import read_rule
from libcni.kernel.rules import (
    Table,
    masquerade_chain,
    masquerade_mark,
    ports_chain,
    program_of,
)
from libcni.store.attachments import Attachment

_BACKENDS = ("ipMasqBackend", "backend")
"""The keys that choose iptables, nftables or firewalld: of bridge and ptp, and of other plugins."""
_EBTABLES = "/sys/module/ebtable_filter"
"""The kernel's module of ebtables-legacy, whose rules nft does not show."""


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
    yield from check_forwarding(node, live)
    yield from check_default_route(node, live)
    yield from check_lost_packets(node, live)
    yield from check_left_over(node, facts)


def _is_unmasked(node: NodeState, attachment: Attachment) -> bool:
    """Return whether the node forwards an attachment's packets, and its plugins do not masquerade them."""
    documents = [document for document in node.documents(attachment) if document.get("type") in WITH_GATEWAY]
    is_forwarded = any(document.get("type") == "ptp" or is_gateway(document) for document in documents)
    return is_forwarded and not any(document.get("ipMasq") is True for document in documents)


def _not_followed(node: NodeState, live: list[Attachment]) -> Iterator[NotChecked]:
    """Name the rules of other programs that may decide on the containers' packets."""
    tables = [
        f"{name} ({counted(number, 'rule')} not understood)" if (number := _not_understood(table)) else name
        for name, table in node.rules.get("nft", {}).items()
        if name not in OWN_TABLES and (not table.chains or _may_drop(table))
    ]  # fmt: skip
    if tables and live:
        reason = "other programs filter packets there; the doctor does not follow all of their conditions"
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


def _wanted(node: NodeState, attachment: Attachment) -> Iterator[tuple[dict[str, Fact], str]]:
    """Yield the rules that an attachment's plugins should have created.

    Yields each rule in the form of each backend, and the backend that the configuration names, or "" if it names none.
    """
    network, container = attachment.network, attachment.container_id
    addresses = node.addresses_of(attachment)
    for document in node.documents(attachment):
        kind = document.get("type")
        backend = next((str(document[key]) for key in _BACKENDS if document.get(key)), "")
        if kind in WITH_GATEWAY and document.get("ipMasq") is True:
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


def _not_understood(table: Table) -> int:
    """Return the number of rules that drop packets under a condition that is not understood, such as ebtables'."""
    found = (read_rule(rule) for rules in table.chains.values() for rule in rules)
    return sum(verdict == "lost" and not all(one.option for one in conditions) for conditions, verdict in found)


def _may_drop(table: Table) -> bool:
    return any({"drop", "reject", "vmap", "queue"} & set(rule) for rules in table.chains.values() for rule in rules)
