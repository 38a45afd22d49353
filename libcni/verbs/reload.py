"""Reload: detach and attach a container again in place, with the recorded configuration and the same addresses.

Whoever flushes the tables of iptables takes the rules of every container with them, for example a firewall's reload.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from libcni import _rules
from libcni._rules import Rule, Table
from libcni.config.host_local import is_in_ranges
from libcni.config.network import NetworkConfigList, plugin_documents
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import CNIError, CNIErrorGroup, PluginError, RecordError
from libcni.options import DelPolicy
from libcni.protocol.result import Result
from libcni.store.attachments import Attachment, network_to_use, recorded_conf, recorded_result
from libcni.store.place import compare
from libcni.store.record import CORRUPT, DETACHING, LEGACY, READY, Record
from libcni.verbs.add import add
from libcni.verbs.claims import place_of
from libcni.verbs.delete import check_unchanged, detach
from libcni.verbs.node import Node
from libcni.verbs.ownership import not_attached

logger: logging.Logger = logging.getLogger("libcni")

_AGAIN = "correct the cause, then reload it again; its record still holds its configuration and addresses"


async def reload(node: Node, attachment: Attachment) -> Result:
    """Detach and attach a container again. Its record keeps its owner.

    If the addresses cannot be had again, the container gets others: that is better than none. If the ADD fails, the
    record stays as that of an unfinished DEL, so that a further reload can mend the attachment.
    """
    rt = RuntimeConf(attachment.container_id, None, attachment.ifname)
    await node.lock([attachment.network], attachment.container_id)
    identity = attachment.record.identity
    record = node.records.find(identity)
    if record is None or record.state == LEGACY:
        raise not_attached(identity, "there is no record of it")
    check_unchanged(record, attachment.record)
    if record.state not in {READY, DETACHING} or record.result is None:
        raise not_attached(identity, f"its record is {record.state}", record.state)
    now = node.namespace(record.netns)
    if now.netns is None or compare(place_of(record), now) != "unknown":
        raise not_attached(identity, f"its namespace {record.netns} has gone", "gone")
    # ADD detaches all attachments of the interface, and only this one can be attached again.
    found = node.records.of_interface(rt.container_id, rt.ifname)
    others = [one for one in found if one.identity != record.identity and one.state != CORRUPT]
    if others:
        problem = f"the record {others[0].path} is of the same interface: a plugin may have attached it"
        raise RecordError(problem, path=others[0].path, hint="reload the outer network's attachment with its runtime")
    net = network_to_use(record, None, use_given=False)
    given, result = recorded_conf(record), recorded_result(record)
    addresses = [ip.address.partition("/")[0] for ip in result.ips]
    node.settings = replace(node.settings, owner=record.owner)
    # Now, because nothing may be detached that cannot be attached again.
    node.find_all(net)
    _find_ipam(node, net)
    kept: _Kept = []
    try:
        await node.on_disk(partial(_make_removable, node, record, net, addresses, kept))
        await _detach_without_interface(node, record, given)
        return await add(node, net, _same_again(net, given, result), on_existing="replace")
    except PluginError as error:
        if node.is_interrupted or node.records.find(record.identity) is not None:
            error.suggest(_AGAIN)
            raise  # the DEL failed, so the container may still have its interface; or the roll-back failed
        logger.warning("%s: attaching it with any address, because the ADD with its own failed: %s", record.path, error)
        try:
            return await add(node, net, given)
        except CNIError as second:
            second.add_note(f"the ADD with its own addresses failed before that: {error}")
            await _keep(node, record, second)
            raise
    except CNIError as error:
        await _keep(node, record, error)
        raise
    finally:
        await node.on_disk(partial(_put_back, node, kept, addresses))


def _find_ipam(node: Node, net: NetworkConfigList) -> None:
    for ipam_type in filter(None, (plugin.ipam_type for plugin in net.plugins)):
        node.find(ipam_type)


async def _detach_without_interface(node: Node, record: Record, given: RuntimeConf) -> None:
    """If the interface no longer exists, release what can be released: DEL of host-device and sbr fails without it."""
    if node.look(record.netns, record.ifname).ifindex != 0:
        return
    try:
        await detach(node, record, None, replace(given, netns=None), DelPolicy(keep_going=True))
    except CNIErrorGroup as error:
        if node.is_interrupted:
            raise
        logger.warning("%s: DEL without the interface: %s", record.path, "; ".join(map(str, error.exceptions)))
        node.records.forget(record)


async def _keep(node: Node, record: Record, error: CNIError) -> None:
    """Write the record of a detached container again, so that it can be reloaded when the cause is corrected."""
    if node.records.find(record.identity) is not None:
        return
    try:
        await node.complete(record.with_fields(state=DETACHING))
    except RecordError as problem:
        error.add_note(f"the container is detached, and its record could not be kept: {problem}")
    else:
        error.suggest(_AGAIN)


def _same_again(net: NetworkConfigList, given: RuntimeConf, result: Result) -> RuntimeConf:
    """Return the parameters that ask for the same addresses: the convention ``args.cni``, which host-local reads.

    ``static`` has its addresses in its configuration or in the recorded arguments. With ``args.cni.ips`` it would
    forget the gateway.
    """
    asked: dict[str, Any] = {}
    if ips := [one for ip in result.ips if is_in_ranges(net, one := ip.address.partition("/")[0])]:
        asked["ips"] = ips
    macs = [one.mac for one in result.interfaces if one.sandbox and one.name == given.ifname and one.mac]
    if macs:
        asked["mac"] = macs[0]  # neighbours have this address in their ARP caches
    args = dict(given.network_args or {})
    cni = args.get("cni")
    args["cni"] = {**(cni if isinstance(cni, Mapping) else {}), **asked}
    return replace(given, network_args=args)


_Kept = list[tuple[str, str, str, Rule]]
"""Rules of other interfaces that a DEL may remove, each with its program, table and chain."""


def _make_removable(node: Node, record: Record, net: NetworkConfigList, addresses: list[str], kept: _Kept) -> None:
    """Make the chains without which bridge and ptp cannot detach, and add to ``kept`` what the DEL must not remove.

    Their DEL fails if the container's masquerade chain of iptables does not exist, even if they use nftables, or if a
    rule of another interface of the container leads to it.
    """
    types = {one.get("type") for one in plugin_documents(net)}
    if not types & {"bridge", "ptp", "portmap"}:
        return
    masquerades = any(one.get("ipMasq") for one in plugin_documents(net))
    env = node.settings.environment()
    networks = [one.network for one in node.records.records(record.container_id)]
    chain = _rules.masquerade_chain(record.network, record.container_id)
    for program in (*sorted({_rules.program_of(address) for address in addresses}), "nft"):
        try:
            tables = _rules.saved_rules(program, env)
            if program != "nft":
                table = tables.get("nat", Table())
                if masquerades and chain not in table.chains:
                    _rules.change(program, ("-N", chain), env)
                if networks.count(record.network) > 1:
                    _of_iptables(program, table, record, env, masquerades, kept)
            else:  # portmap's rules name neither the network nor the runtime, which may be another one with this ID
                kept += [("nft", *one) for one in _rules.port_rules(tables, record.container_id)]
        except FileNotFoundError:  # then the plugins have no rules there
            continue
        except OSError as error:
            logger.warning("the rules of %s are unknown: %s", program, error)


def _of_iptables(  # noqa: PLR0913, PLR0917 - what is there, and what is known of the container
    program: str, table: Table, record: Record, env: Mapping[str, str], masquerades: bool, kept: _Kept
) -> None:
    chain = _rules.masquerade_chain(record.network, record.container_id)
    for one in (chain, _rules.ports_chain(record.network, record.container_id)):
        for rule in (*table.leading_to(one), *table.chains.get(one, ())):
            kept.append((program, "nat", rule[1], rule))  # first: an interrupt may come while it is removed
            if masquerades and rule[1] == "POSTROUTING" and one == chain:
                _rules.change(program, ("-D", *rule[1:]), env)


def _put_back(node: Node, kept: _Kept, addresses: list[str]) -> None:
    """Add the rules again that are missing; those of the reloaded interface are its plugins' own."""
    env = node.settings.environment()
    for program, name, chain, rule in kept:
        try:
            table = _rules.saved_rules(program, env).get(name, Table())
            if rule in table.chains.get(chain, ()) or any(_names(rule, address) for address in addresses):
                continue
            if program != "nft" and chain not in table.chains:
                _rules.change(program, ("-N", chain), env)
            _rules.change(program, rule, env)
        except OSError as error:
            logger.warning(
                "a rule of another interface could not be restored: %s %s: %s", program, " ".join(rule), error
            )


def _names(rule: Rule, address: str) -> bool:
    return any(one in {address, f"[{address}]"} for word in rule for one in _parts(word))


def _parts(word: str) -> Iterator[str]:
    yield word.partition("/")[0]
    yield word.rpartition(":")[0]
