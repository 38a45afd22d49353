"""Check the rules of containers: masquerade, published ports, firewall, and whether the kernel forwards packets."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from libcni._iptables import Rule, masquerade_chain, ports_chain, program_of
from libcni.config.host_local import plugin_documents
from libcni.diagnosis.reading import Reading, addresses_of, id_of, reload_command
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted
from libcni.store.attachments import Attachment

_GATEWAYS = {"bridge", "ptp"}
_FIREWALLD = "/run/firewalld.pid"
_FORWARD = {4: "/proc/sys/net/ipv4/ip_forward", 6: "/proc/sys/net/ipv6/conf/all/forwarding"}
_OWNER = re.compile(r'name: "(?P<network>[^"]+)" id: "(?P<container>[^"]+)"')
_HASHED = re.compile(r"CNI-(DN-)?[0-9a-f]{20,24}")
_SHOWN = 5


def check_rules(node: Reading) -> Observations:
    """Find containers whose rules have gone, rules whose container has gone, and forwarding that is off."""
    live = [one for one, _ in node.live()]
    damaged: list[Attachment] = []
    seen: list[str] = []
    count = 0
    unread: dict[str, None] = {}
    for one in live:
        missing: list[str] = []
        for what, program, is_there in _wanted(node, one):
            count += 1
            if is_there is None:
                unread[program] = None
            elif not is_there:
                missing.append(what)
        if missing:
            damaged.append(one)
            seen.append(f"{id_of(one)}: {', '.join(dict.fromkeys(missing))}")
    for program in unread:
        about = f"the rules of {program}"
        yield NotChecked("rules", about, node.unread.get(about, "the plugins may use nftables, or firewalld"))
    if count:
        yield Checked("rules", f"rules of {counted(len(live), 'ready attachment')}")
    if damaged:
        more = f"; and {len(seen) - _SHOWN} more" if len(seen) > _SHOWN else ""
        yield NodeFinding(
            "rules", "error", f"rules of {counted(len(damaged), 'attachment')}",
            f"missing: {'; '.join(seen[:_SHOWN])}{more}",
            "somebody removed them, for example a firewall's reload; the containers are cut off by what is missing",
            "attach them again in place; their addresses stay:", (reload_command(*damaged),),
            containers=tuple(map(id_of, damaged)),
        )  # fmt: skip
    yield from _forwarding(node, live)
    yield from _left_over(node)


def _wanted(node: Reading, one: Attachment) -> Iterator[tuple[str, str, bool | None]]:
    """Yield the rules that the plugins made for an attachment, with their program; None: nobody knows."""
    net = node.recorded(one)
    addresses = addresses_of(one)
    for document in plugin_documents(net):
        kind = document.get("type")
        if kind in _GATEWAYS and document.get("ipMasq") is True:
            chain = masquerade_chain(one.network, one.container_id)
            for address in addresses:
                yield "masquerade", *_is_there(node, document, "ipMasqBackend", address, "nat", [
                    ("POSTROUTING", ("-s", _host(address)), chain), (chain, (), "MASQUERADE"),
                ])  # fmt: skip
        elif kind == "portmap":
            yield from _wanted_ports(node, one, document, addresses)
        elif kind == "firewall":
            for address in addresses:
                yield "firewall", *_is_there(node, document, "backend", address, "filter", [
                    ("FORWARD", (), "CNI-FORWARD"),
                    ("CNI-FORWARD", ("-s", _host(address)), "ACCEPT"),
                    ("CNI-FORWARD", ("-d", _host(address)), "ACCEPT"),
                ])  # fmt: skip


def _wanted_ports(
    node: Reading, one: Attachment, document: Mapping[str, Any], addresses: list[str]
) -> Iterator[tuple[str, str, bool | None]]:
    mappings = one.capability_args.get("portMappings")
    if not isinstance(mappings, list) or document.get("capabilities", {}).get("portMappings") is not True:
        return
    chain = ports_chain(one.network, one.container_id)
    # portmap publishes the first address of each family.
    for address in {program_of(address): address for address in reversed(addresses)}.values():
        for mapping in mappings:
            host_ip = str(mapping.get("hostIP") or "") if isinstance(mapping, dict) else ""
            if not isinstance(mapping, dict) or (host_ip and program_of(host_ip) != program_of(address)):
                continue
            port, protocol = str(mapping.get("hostPort")), str(mapping.get("protocol") or "tcp").lower()
            yield f"port {port}/{protocol}", *_is_there(node, document, "backend", address, "nat", [
                ("PREROUTING", (), "CNI-HOSTPORT-DNAT"),
                ("CNI-HOSTPORT-DNAT", ("-p", protocol), chain),
                (chain, ("--dport", port), "DNAT"),
            ])  # fmt: skip


def _is_there(  # noqa: PLR0913, PLR0917 - what to look for, and where
    node: Reading,
    document: Mapping[str, Any],
    backend: str,
    address: str,
    table: str,
    wanted: list[tuple[str, tuple[str, ...], str]],
) -> tuple[str, bool | None]:
    """Return the program, and whether it has a rule for each (chain, words, target)."""
    program = program_of(address)
    rules = node.table(program, table)
    # firewalld and nftables keep the rules elsewhere, and whatever is in iptables is not the plugin's.
    if rules is None or document.get(backend, "iptables") != "iptables":
        return program, None
    if table == "filter" and os.path.exists(_FIREWALLD):
        return program, None
    return program, all(any(_matches(rule, *one) for rule in rules) for one in wanted)


def _matches(rule: Rule, chain: str, words: tuple[str, ...], target: str) -> bool:
    text = " ".join(rule)
    return rule[:2] == ("-A", chain) and f"-j {target}" in text and " ".join(words) in text


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
                commands=(f"echo 1 > {_FORWARD[version]}",), containers=tuple(map(id_of, attachments)),
            )  # fmt: skip


def removal_commands(
    node: Reading, network: str, container_id: str, addresses: list[str], *, is_recorded: bool = False
) -> list[str]:
    """Return the commands that remove the rules that Go's plugins made for addresses of a container.

    All interfaces of a container on a network have one chain for masquerade and one for ports. Rules of the others
    stay. ``is_recorded``: not those of portmap and firewall, which their DEL removes if there is a record.
    """
    masquerade, published = masquerade_chain(network, container_id), ports_chain(network, container_id)
    of_others = {
        address
        for one in node.attachments
        if (one.network, one.container_id) == (network, container_id)
        for address in addresses_of(one)
    } - set(addresses)
    commands = []
    for program in sorted({program_of(address) for address in addresses}):
        rules = node.table(program, "nat") or []
        hosts = {_host(address) for address in addresses}
        jumps = [rule for rule in rules if rule[0] == "-A" and rule[-1] == masquerade and hosts & set(rule)]
        chains = [masquerade] if ("-N", masquerade) in rules and not _leads_to(rules, masquerade, jumps) else []
        if not is_recorded and not of_others and ("-N", published) in rules:
            jumps += [rule for rule in rules if rule[0] == "-A" and rule[-1] == published]
            chains.append(published)
        commands += [shlex.join([program, "-t", "nat", "-D", *rule[1:]]) for rule in jumps]
        commands += [f"{program} -t nat {flag} {chain}" for chain in chains for flag in ("-F", "-X")]
        if not is_recorded:
            # These have no container's name: another container may have the address by now.
            hosts -= {_host(address) for one in node.attachments for address in addresses_of(one)}
            allowed = [one for one in node.table(program, "filter") or [] if one[:2] == ("-A", "CNI-FORWARD")]
            commands += [shlex.join([program, "-D", *one[1:]]) for one in allowed if hosts & set(one)]
    return commands


def _leads_to(rules: list[Rule], chain: str, without: list[Rule]) -> bool:
    return any(rule[0] == "-A" and rule[-1] == chain and rule not in without for rule in rules)


def _left_over(node: Reading) -> Observations:
    """Find rules of containers that have neither a record nor a reservation, and whose addresses nobody has."""
    found: dict[tuple[str, str], set[str]] = {}
    for program in node.rules:
        rules = node.table(program, "nat") or []
        for rule in rules:
            match = next(filter(None, map(_OWNER.search, rule)), None)
            if match is None or rule[0] != "-A" or not _HASHED.fullmatch(rule[-1]):
                continue
            owner = match["network"], match["container"]
            if rule[-1] in {masquerade_chain(*owner), ports_chain(*owner)}:
                inside = [one for one in rules if one[:2] == ("-A", rule[-1])]
                found.setdefault(owner, set()).update(_addresses([rule, *inside], program))
    for (network, container_id), addresses in found.items():
        is_reserved = any(
            (name, one.container_id) == (network, container_id)
            for (name, _), reservations in node.reservations.items()
            for one in reservations
        )
        if node.record_error or is_reserved or node.is_known(network, container_id) or not addresses:
            continue
        owned = {address for one in node.attachments if one.network == network for address in addresses_of(one)}
        # Another runtime's container may have them.
        used = [address for address in addresses - owned if node.holders(address)]
        if used or node.unknown_namespace:
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
