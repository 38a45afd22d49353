"""Check the rules of containers: masquerade, published ports, firewall, and whether the kernel forwards packets."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain as joined
from typing import Any, NamedTuple

from libcni._rules import (
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
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.diagnosis.reading import FORWARDING, Reading, addresses_of, id_of, is_gateway, reload_in_place
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted
from libcni.store.attachments import Attachment

_GATEWAYS = {"bridge", "ptp"}
_BACKENDS = ("ipMasqBackend", "backend")
"""The keys that choose between iptables, nftables and firewalld: of bridge and ptp, and of portmap and firewall."""
_FIREWALLD = "/run/firewalld.pid"
_OWNERS = {
    "iptables": re.compile(r'name: "(?P<network>[^"]+)" id: "(?P<container>[^"]+)"'),
    "nftables": re.compile(r', net: (?P<network>.+), if: (?P<ifname>.+), id: (?P<container>[^"]+)'),
}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHOWN = 5


class Fact(NamedTuple):
    """What the rules of a plugin do for an address of a container.

    Attributes:
        kind: ``masquerade``, ``port 8080/tcp`` or ``firewall``.
        mark: what tells whose it is: a chain of iptables, the comment of nftables, or its beginning; "" for a
            firewall's.
        address: the address of the container.
    """

    kind: str
    mark: str
    address: str


Owner = tuple[str, str, str]
"""A container ID, a network and an interface; "" if the rule does not name it."""
Facts = dict[str, dict[Fact, Owner | None]]
"""The facts of each backend, ``iptables`` and ``nftables``, each with the owner that its comment names."""


def check_rules(node: Reading) -> Observations:
    """Find containers whose rules were deleted, rules whose container no longer exists, and forwarding that is off."""
    live = [one for one, _ in node.live]
    facts = {
        "iptables": dict(joined(_of_iptables(node, "iptables"), _of_iptables(node, "ip6tables"))),
        "nftables": dict(_of_nftables(node.rules.get("nft", {}))),
    }
    damaged: list[Attachment] = []
    seen: list[str] = []
    count = 0
    unread: dict[NotChecked, None] = {}
    for one in live:
        missing: dict[str, None] = {}
        for wanted, backend in _wanted(node, one):
            count += 1
            found = _look(node, facts, wanted, backend)
            if isinstance(found, str):
                unread[NotChecked("rules", f"network {one.network}", found)] = None
            elif not found:
                missing[wanted["iptables"].kind] = None
        if missing:
            damaged.append(one)
            seen.append(f"{id_of(one)}: {', '.join(missing)}")
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
    yield from _left_over(node, facts)


def _of_iptables(node: Reading, program: str) -> Iterator[tuple[Fact, Owner | None]]:
    """Yield what the rules of iptables do; not what is cut off because a chain or the jump to it is missing."""
    nat, allowed = node.table(program, "nat"), node.table(program, "filter")
    for rule in nat.chains.get("POSTROUTING", ()):
        inside = nat.chains.get(rule[-1], ())
        if (source := _host_after(rule, "-s")) and any("MASQUERADE" in one for one in inside):
            yield Fact("masquerade", rule[-1], source), _owner("iptables", rule)
    for rule in nat.chains.get("CNI-HOSTPORT-DNAT", ()) if nat.find("PREROUTING", "CNI-HOSTPORT-DNAT") else ():
        for one in nat.chains.get(rule[-1], ()):
            if (target := _after(one, "--to-destination")) and _after(one, "-p") == _after(rule, "-p"):
                kind = f"port {_after(one, '--dport')}/{_after(one, '-p')}"
                yield Fact(kind, rule[-1], _without_port(target)), _owner("iptables", rule)
    if allowed.find("FORWARD", "CNI-FORWARD"):
        forward = allowed.chains.get("CNI-FORWARD", ())
        sources, targets = ({_host_after(rule, option) for rule in forward} for option in ("-s", "-d"))
        yield from ((Fact("firewall", "", address), None) for address in sources & targets if address)


def _of_nftables(tables: Mapping[str, Table]) -> Iterator[tuple[Fact, Owner | None]]:
    """Yield what the rules of nftables do; not what is cut off because the jump to their chain is missing."""
    chains = tables.get(MASQUERADE, Table()).chains
    if any("masq_checks" in rule for rule in chains.get("postrouting", ())):
        for rule in chains.get("masq_checks", ()):
            yield Fact("masquerade", mark_of(rule), _after(rule, "saddr")), _owner("nftables", rule)
    for name in PORTS:
        chains = tables.get(name, Table()).chains
        if chains.get("prerouting"):
            hostports = (*chains.get("hostports", ()), *chains.get("hostip_hostports", ()))
            for rule in (one for one in hostports if "dport" in one):  # somebody may have added a rule of another form
                kind = f"port {_after(rule, 'dport')}/{rule[rule.index('dport') - 1]}"
                yield Fact(kind, mark_of(rule), _without_port(_after(rule, "to"))), (mark_of(rule), "", "")


def _owner(backend: str, rule: Rule) -> Owner | None:
    """Return whose rule it is, as its comment says; None if the chain of iptables is not that container's."""
    found = next(filter(None, map(_OWNERS[backend].search, rule)), None)
    if found is None:
        return None
    network, container = found["network"], found["container"]
    if backend == "nftables":  # it cuts a long comment; what is removed is found by the mark of the whole ID
        return container, network, found["ifname"]
    chains = {masquerade_chain(network, container), ports_chain(network, container)}
    return (container, network, "") if rule[-1] in chains else None


def _after(rule: Rule, option: str) -> str:
    return rule[rule.index(option) + 1] if option in rule else ""


def _host_after(rule: Rule, option: str) -> str:
    """Return the address after an option, or "" if it is none of a single host."""
    address, _, length = _after(rule, option).partition("/")
    return address if length in {"32", "128"} else ""


def _without_port(target: str) -> str:
    return target.rpartition(":")[0].strip("[]")


def _wanted(node: Reading, one: Attachment) -> Iterator[tuple[dict[str, Fact], str]]:
    """Yield what the plugins' rules do for an attachment, as a fact of each backend, and the configured backend."""
    network, container = one.network, one.container_id
    addresses = addresses_of(one)
    for document in plugin_documents(node.recorded(one)):
        kind = document.get("type")
        backend = next((str(document[key]) for key in _BACKENDS if document.get(key)), "")
        if kind in _GATEWAYS and document.get("ipMasq") is True:
            marks = {
                "iptables": masquerade_chain(network, container),
                "nftables": masquerade_mark(network, container, one.ifname),
            }
            done = [("masquerade", address) for address in addresses]
        elif kind == "portmap":
            marks = {"iptables": ports_chain(network, container), "nftables": container}
            done = list(_published(one, document, addresses))
        elif kind == "firewall":
            marks, done = {"iptables": ""}, [("firewall", address) for address in addresses]
            backend = backend or ("firewalld" if os.path.exists(_FIREWALLD) else "")
        else:
            continue
        for what, address in done:
            yield {name: Fact(what, mark, address) for name, mark in marks.items()}, backend


def _published(one: Attachment, document: Mapping[str, Any], addresses: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (port on the host, address) of the ports that portmap publishes."""
    mappings, declared = one.capability_args.get("portMappings"), document.get("capabilities")
    if not isinstance(mappings, list) or not isinstance(declared, dict) or declared.get("portMappings") is not True:
        return
    # portmap publishes the first address of each family.
    for address in {program_of(address): address for address in reversed(addresses)}.values():
        for mapping in mappings:
            host_ip = str(mapping.get("hostIP") or "") if isinstance(mapping, dict) else ""
            if isinstance(mapping, dict) and (not host_ip or program_of(host_ip) == program_of(address)):
                yield f"port {mapping.get('hostPort')}/{str(mapping.get('protocol') or 'tcp').lower()}", address


def _look(node: Reading, facts: Facts, wanted: dict[str, Fact], backend: str) -> bool | str:
    """Return whether the rules do what is wanted, or why that is unknown."""
    if backend and backend not in wanted:
        return f"rules of {backend}: the doctor reads those of iptables and nftables only"
    # Without a configured backend a plugin chooses: iptables, or nftables where that is missing.
    if any(fact in facts[name] for name, fact in wanted.items() if backend in {"", name}):
        return True
    program = "nft" if backend == "nftables" else program_of(wanted["iptables"].address)
    return False if program in node.rules else f"rules of {program}: {node.unread.get(f'the rules of {program}')}"


def _host(address: str) -> str:
    return f"{address}/{128 if ':' in address else 32}"


def _forwarding(node: Reading, live: list[Attachment]) -> Observations:
    needed: dict[int, list[Attachment]] = {}
    for one in live:
        documents = plugin_documents(node.recorded(one))
        if any(one.get("type") == "ptp" or (one.get("type") == "bridge" and is_gateway(one)) for one in documents):
            for version in {6 if ":" in address else 4 for address in addresses_of(one)}:
                needed.setdefault(version, []).append(one)
    for version, attachments in sorted(needed.items()):
        if node.forwards.get(version) is False:
            yield NodeFinding(
                "rules", "error", f"IPv{version} forwarding", "the kernel does not forward packets",
                f"{counted(len(attachments), 'container')} cannot reach other networks, nor be reached from there",
                commands=(f"echo 1 > {FORWARDING[version]}",), containers=tuple(map(id_of, attachments)),
            )  # fmt: skip


def removal_commands(  # noqa: PLR0913 - an attachment, its addresses and what is known of it
    node: Reading,
    network: str,
    container_id: str,
    ifname: str,
    addresses: list[str],
    *,
    is_recorded: bool = False,
) -> list[str]:
    """Return the commands that remove the rules that Go's plugins made for addresses of a container.

    All interfaces of a container on a network have one chain of iptables for masquerade and one for ports; portmap's
    rules in nftables are those of all its interfaces. Rules for other addresses stay: they are of another interface, or
    of another runtime's container of the same ID. ``is_recorded``: not those of portmap and firewall, which their DEL
    removes if there is a record.
    """
    masquerade, published = masquerade_chain(network, container_id), ports_chain(network, container_id)
    commands = []
    for program in sorted({program_of(address) for address in addresses}):
        nat = node.table(program, "nat")
        hosts = {_host(address) for address in addresses}
        jumps = [rule for rule in nat.leading_to(masquerade) if hosts & set(rule)]
        commands += [_deletion(program, rule) for rule in jumps]
        if masquerade in nat.chains and len(jumps) == len(nat.leading_to(masquerade)):
            commands.append(_chain_removal(program, masquerade, "", f"-j {masquerade}"))
        if not is_recorded and published in nat.chains and not _targets(nat, published) - set(addresses):
            inside = nat.chains[published]
            commands += [_deletion(program, rule) for rule in inside if "--to-destination" in rule]
            jumps = nat.leading_to(published)
            commands.append(_chain_removal(program, published, f" {published}", "--to-destination", jumps))
        if not is_recorded:
            # These have no container's name: another container may have the address by now.
            hosts -= {_host(address) for address in node.recorded_addresses}
            allowed = [
                rule for host in sorted(hosts) for rule in node.table(program, "filter").find("CNI-FORWARD", host)
            ]
            commands += [shlex.join([program, "-D", *rule[1:]]) for rule in allowed]
    mark = masquerade_mark(network, container_id, ifname)
    masqueraded = node.table("nft", MASQUERADE).find("masq_checks", mark)
    marked = [(f"{MASQUERADE} masq_checks", mark, rule) for rule in masqueraded]
    if not is_recorded and ("", container_id) not in node.attached and _ID.fullmatch(container_id):
        ports = port_rules(node.rules.get("nft", {}), container_id)
        marked += [(f"{table} {chain}", container_id, rule) for table, chain, rule in ports]
    found = [(chain, mark, _about(rule)) for chain, mark, rule in marked if _about(rule).address in addresses]
    return commands + [_nft_removal(*one) for one in dict.fromkeys(found)]


def _deletion(program: str, rule: Rule) -> str:
    return shlex.join([program, "-t", "nat", "-D", *rule[1:]])


def _chain_removal(program: str, chain: str, listed: str, used: str, jumps: Iterable[Rule] = ()) -> str:
    """Return the command that removes a chain, unless a text in the ``listed`` rules shows that it is ``used``.

    When it is typed, the next container of the ID may have the chain.
    """
    removals = [
        *(_deletion(program, rule) for rule in jumps),
        *(f"{program} -t nat {one} {chain}" for one in ("-F", "-X")),
    ]
    return f"{program} -t nat -S{listed} | grep -q -- '{used}' || {{ {' && '.join(removals)}; }}"


class _About(NamedTuple):
    """The address of the container in a rule of nftables, and the text before and after which nft prints it."""

    address: str
    text: str


def _about(rule: Rule) -> _About:
    if target := _after(rule, "to"):
        return _About(_without_port(target), f" to {target.rpartition(':')[0]}:")
    # To itself, over a port of the host: from 127.0.0.1, or from its own address.
    key = "saddr" if "masq_checks" in rule else "daddr"
    address = _after(rule, key)
    return _About(address, f" {key} {address} ")


def _targets(nat: Table, chain: str) -> set[str]:
    """Return the addresses whose ports a chain of portmap publishes."""
    return {_without_port(target) for one in nat.chains.get(chain, ()) if (target := _after(one, "--to-destination"))}


def has_other_ports(node: Reading, network: str, container_id: str, addresses: list[str]) -> bool:
    """Return whether a DEL of portmap would remove published ports of other addresses than these."""
    chain = ports_chain(network, container_id)
    published = {_about(rule).address for _, _, rule in port_rules(node.rules.get("nft", {}), container_id)}
    published = published.union(*(_targets(node.table(program, "nat"), chain) for program in ("iptables", "ip6tables")))
    return bool(published - set(addresses))


def _nft_removal(chain: str, mark: str, about: _About) -> str:
    # A handle is only looked up when the command is typed: after a flush it may be another container's.
    text, comment = (re.sub(r"[.\[\]]", r"\\\g<0>", one) for one in (about.text, f'comment "{mark}'))
    found = f"""sed -n '/{text}.*{comment}[,"]/s/.*# handle/delete rule {chain} handle/p'"""
    return f"nft -a list chain {chain} | {found} | nft -f -"


def chain_for_del(node: Reading, net: NetworkConfigList, container_id: str, address: str) -> str:
    """Return the command that makes the container's missing chain for masquerading, or "".

    After a flush of the tables the DEL of bridge and ptp fails without this chain.
    """
    program, chain = program_of(address), masquerade_chain(net.name, container_id)
    masquerades = any(one.get("type") in _GATEWAYS and one.get("ipMasq") is True for one in plugin_documents(net))
    is_missing = program in node.rules and chain not in node.table(program, "nat").chains
    return f"{program} -t nat -N {chain}" if masquerades and is_missing else ""


def _left_over(node: Reading, facts: Facts) -> Observations:
    """Find rules of containers that have neither a record nor a reservation, and whose addresses nobody has."""
    found: dict[str, dict[Owner, dict[str, None]]] = {}
    for fact, owner in joined(facts["iptables"].items(), facts["nftables"].items()):
        if owner is not None:
            found.setdefault(owner[0], {}).setdefault(owner, {})[fact.address] = None
    for container_id, owners in found.items() if not (node.record_error or node.why_unknown) else ():
        addresses: dict[str, None] = {}
        commands: dict[str, None] = {}
        for (_, network, ifname), used in owners.items():
            is_known = node.is_known(network, container_id) or (network, container_id) in node.reserved_for
            # Another runtime's container may have them.
            if not is_known and not any(one in node.holders for one in used if one not in node.recorded_addresses):
                addresses |= used
                commands |= dict.fromkeys(removal_commands(node, network, container_id, ifname, [*used]))
        if commands:
            yield NodeFinding(
                "rules", "warning", f"rules of container {container_id}",
                f"there are rules for {', '.join(sorted(addresses))}, and the container has no record",
                "a later container with that address gets its masquerade and its published ports",
                commands=tuple(commands),
            )  # fmt: skip
