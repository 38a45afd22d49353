"""Check the rules of containers: masquerade, published ports, firewall, and whether the kernel forwards packets."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

from libcni._iptables import Rule, masquerade_chain, ports_chain, program_of
from libcni.config.host_local import plugin_documents
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.reading import FORWARDING, Reading, addresses_of, id_of, reload_in_place
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted
from libcni.store.attachments import Attachment

_GATEWAYS = {"bridge", "ptp"}
_BACKENDS = ("ipMasqBackend", "backend")
"""The keys that choose between iptables, nftables and firewalld: of bridge and ptp, and of portmap and firewall."""
_FIREWALLD = "/run/firewalld.pid"
_OWNER = re.compile(r'name: "(?P<network>[^"]+)" id: "(?P<container>[^"]+)"')
_SHOWN = 5


def check_rules(node: Reading) -> Observations:
    """Find containers whose rules were deleted, rules whose container no longer exists, and forwarding that is off."""
    live = [one for one, _ in node.live]
    damaged: list[Attachment] = []
    seen: list[str] = []
    count = 0
    unread: dict[NotChecked, None] = {}
    for one in live:
        missing: list[str] = []
        for what, is_there in _wanted(node, one):
            count += 1
            if isinstance(is_there, NotChecked):
                unread[is_there] = None
            elif not is_there:
                missing.append(what)
        if missing:
            damaged.append(one)
            seen.append(f"{id_of(one)}: {', '.join(dict.fromkeys(missing))}")
    yield from unread
    if count:
        yield Checked("rules", f"rules of {counted(len(live), 'ready attachment')}")
    if damaged:
        more = f"; and {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""
        yield NodeFinding(
            "rules", "error", f"rules of {counted(len(damaged), 'attachment')}",
            f"missing: {'; '.join(seen[:_SHOWN])}{more}",
            "somebody removed them, for example a firewall's reload; the containers are cut off by what is missing",
            *reload_in_place(node, damaged), containers=tuple(map(id_of, damaged)),
        )  # fmt: skip
    yield from _forwarding(node, live)
    yield from _left_over(node)


def _wanted(node: Reading, one: Attachment) -> Iterator[tuple[str, bool | NotChecked]]:
    """Yield the rules that the plugins made for an attachment, and whether they are there."""
    addresses = addresses_of(one)
    for document in plugin_documents(node.recorded(one)):
        kind = document.get("type")
        look = partial(_is_there, node, one.network, document)
        if kind in _GATEWAYS and document.get("ipMasq") is True:
            chain = masquerade_chain(one.network, one.container_id)
            for address in addresses:
                yield "masquerade", look(address, "nat", [
                    ("POSTROUTING", chain, ("-s", _host(address))), (chain, "MASQUERADE", ()),
                ])  # fmt: skip
        elif kind == "portmap":
            chain = ports_chain(one.network, one.container_id)
            for address, protocol, port in _published(one, document, addresses):
                yield f"port {port}/{protocol}", look(address, "nat", [
                    ("PREROUTING", "CNI-HOSTPORT-DNAT", ()),
                    ("CNI-HOSTPORT-DNAT", chain, ("-p", protocol)),
                    (chain, "DNAT", ("--dport", port)),
                ])  # fmt: skip
        elif kind == "firewall":
            for address in addresses:
                yield "firewall", look(address, "filter", [
                    ("FORWARD", "CNI-FORWARD", ()),
                    ("CNI-FORWARD", _host(address), ("-s", _host(address))),
                    ("CNI-FORWARD", _host(address), ("-d", _host(address))),
                ])  # fmt: skip


def _published(one: Attachment, document: Mapping[str, Any], addresses: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield (address, protocol, port on the host) of the ports that portmap publishes."""
    mappings, declared = one.capability_args.get("portMappings"), document.get("capabilities")
    if not isinstance(mappings, list) or not isinstance(declared, dict) or declared.get("portMappings") is not True:
        return
    # portmap publishes the first address of each family.
    for address in {program_of(address): address for address in reversed(addresses)}.values():
        for mapping in mappings:
            host_ip = str(mapping.get("hostIP") or "") if isinstance(mapping, dict) else ""
            if isinstance(mapping, dict) and (not host_ip or program_of(host_ip) == program_of(address)):
                yield address, str(mapping.get("protocol") or "tcp").lower(), str(mapping.get("hostPort"))


def _is_there(  # noqa: PLR0913, PLR0917 - what to look for, and where
    node: Reading,
    network: str,
    document: Mapping[str, Any],
    address: str,
    table: str,
    wanted: list[tuple[str, str, tuple[str, ...]]],
) -> bool | NotChecked:
    """Return whether there is a rule for each (chain, target or address, words)."""
    program, about = program_of(address), f"rules of plugin {document.get('type')}, network {network}"
    # Rules of iptables are not the plugin's then.
    backend = next((str(document[key]) for key in _BACKENDS if document.get(key)), "iptables")
    if backend == "iptables" and table == "filter" and os.path.exists(_FIREWALLD):
        backend = "firewalld"
    if backend != "iptables":
        return NotChecked("rules", about, f"they are in {backend}; the doctor reads those of iptables only")
    if program not in node.rules:
        why = node.unread.get(f"the rules of {program}", "they were not read")
        return NotChecked("rules", f"the rules of {program}", f"{why}; a plugin may have made them in nftables")
    found = node.table(program, table)
    return all(
        any(" ".join(words) in " ".join(rule) for rule in found.find(chain, word)) for chain, word, words in wanted
    )


def _host(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def _forwarding(node: Reading, live: list[Attachment]) -> Observations:
    needed: dict[int, list[Attachment]] = {}
    for one in live:
        documents = plugin_documents(node.recorded(one))
        if any(
            doc.get("type") == "ptp"
            or (doc.get("type") == "bridge" and (doc.get("isGateway") is True or doc.get("isDefaultGateway") is True))
            for doc in documents
        ):
            for version in {6 if ":" in address else 4 for address in addresses_of(one)}:
                needed.setdefault(version, []).append(one)
    for version, attachments in sorted(needed.items()):
        if node.forwards.get(version) is False:
            yield NodeFinding(
                "rules", "error", f"IPv{version} forwarding", "the kernel does not forward packets",
                f"{counted(len(attachments), 'container')} cannot reach other networks, nor be reached from there",
                commands=(f"echo 1 > {FORWARDING[version]}",), containers=tuple(map(id_of, attachments)),
            )  # fmt: skip


def removal_commands(
    node: Reading, network: str, container_id: str, addresses: list[str], *, is_recorded: bool = False
) -> list[str]:
    """Return the commands that remove the rules that Go's plugins made for addresses of a container.

    All interfaces of a container on a network have one chain for masquerade and one for ports. Rules of the others
    stay. ``is_recorded``: not those of portmap and firewall, which their DEL removes if there is a record.
    """
    masquerade, published = masquerade_chain(network, container_id), ports_chain(network, container_id)
    recorded = {address for one in node.interfaces_of(network, container_id) for address in addresses_of(one)}
    commands = []
    for program in sorted({program_of(address) for address in addresses}):
        nat = node.table(program, "nat")
        hosts = {_host(address) for address in addresses}
        jumps = [rule for rule in nat.leading_to(masquerade) if hosts & set(rule)]
        chains = [masquerade] if masquerade in nat.chains and len(jumps) == len(nat.leading_to(masquerade)) else []
        if not is_recorded and not recorded - set(addresses) and published in nat.chains:
            jumps += nat.leading_to(published)
            chains.append(published)
        commands += [shlex.join([program, "-t", "nat", "-D", *rule[1:]]) for rule in jumps]
        commands += [f"{program} -t nat {flag} {chain}" for chain in chains for flag in ("-F", "-X")]
        if not is_recorded:
            # These have no container's name: another container may have the address by now.
            hosts -= {_host(address) for address in node.recorded_addresses}
            allowed = [
                rule for host in sorted(hosts) for rule in node.table(program, "filter").find("CNI-FORWARD", host)
            ]
            commands += [shlex.join([program, "-D", *rule[1:]]) for rule in allowed]
    return commands


def chain_for_del(node: Reading, net: NetworkConfigList, container_id: str, address: str) -> str:
    """Return the command that makes the container's missing chain for masquerading, or "".

    After a flush of the tables the DEL of bridge and ptp fails without this chain.
    """
    program, chain = program_of(address), masquerade_chain(net.name, container_id)
    masquerades = any(one.get("type") in _GATEWAYS and one.get("ipMasq") is True for one in plugin_documents(net))
    is_missing = program in node.rules and chain not in node.table(program, "nat").chains
    return f"{program} -t nat -N {chain}" if masquerades and is_missing else ""


def _left_over(node: Reading) -> Observations:
    """Find rules of containers that have neither a record nor a reservation, and whose addresses nobody has."""
    found: dict[tuple[str, str], set[str]] = {}
    for program in node.rules:
        nat = node.table(program, "nat")
        for rule in (*nat.chains.get("POSTROUTING", ()), *nat.chains.get("CNI-HOSTPORT-DNAT", ())):
            match = next(filter(None, map(_OWNER.search, rule)), None)
            if match is not None:
                owner = match["network"], match["container"]
                if rule[-1] in {masquerade_chain(*owner), ports_chain(*owner)}:
                    inside = nat.chains.get(rule[-1], ())
                    found.setdefault(owner, set()).update(_addresses([rule, *inside], program))
    for (network, container_id), addresses in found.items():
        is_known = node.is_known(network, container_id) or bool(node.reserved_for(network, container_id))
        if node.record_error or node.unknown_namespace or is_known or not addresses:
            continue
        # Another runtime's container may have them.
        if any(node.holders(address) for address in addresses - node.recorded_addresses.keys()):
            continue
        yield NodeFinding(
            "rules", "warning", f"rules of container {container_id}, {network}",
            f"iptables has rules for {', '.join(sorted(addresses))}, and the container has no record",
            "a later container with that address gets its masquerade and its published ports",
            commands=tuple(removal_commands(node, network, container_id, sorted(addresses))),
        )  # fmt: skip


def _addresses(rules: list[Rule], program: str) -> Iterator[str]:
    """Yield the addresses of a container in its rules: as the source of the jump, and as the target of a port."""
    size = "/128" if program == "ip6tables" else "/32"
    for rule in rules:
        for option, word in pairwise(rule):
            if option == "-s" and word.endswith(size) and rule[1] == "POSTROUTING":
                yield word.removesuffix(size)
            elif option == "--to-destination":
                yield word.rpartition(":")[0].strip("[]")
