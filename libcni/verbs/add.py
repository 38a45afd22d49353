"""ADD: make room, write down what is about to happen, run the chain, write down the result, or undo it all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from libcni.config.identifiers import check_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.config.versions import supports
from libcni.errors import AttachmentExistsError, CNIError, ConfigError
from libcni.protocol.result import Result
from libcni.store.attachments import pending_record
from libcni.store.locks import LockRequest
from libcni.store.record import READY, Record
from libcni.verbs.chain import Chain, RetryPolicy
from libcni.verbs.delete import DelPolicy, detach_chain, detach_record, errors_in, is_same_namespace
from libcni.verbs.query import negotiate_flow
from libcni.verbs.steps import Begin, Complete, Find, Flow, Forget, Lock, Siblings, StartCleanup

__all__ = ["OnExisting", "add_flow"]

logger: logging.Logger = logging.getLogger("libcni")

_WAY_OUT = "DEL with DelPolicy(use_given=True) detaches with the configuration and arguments that it is given"

OnExisting = Literal["refuse", "replace", "allow"]


def add_flow(  # noqa: PLR0913 - the options of the verb
    net: NetworkConfigList,
    rt: RuntimeConf,
    path: Sequence[str],
    *,
    rollback: bool = True,
    on_existing: OnExisting = "refuse",
    strict: bool = False,
    negotiate_version: bool = False,
    retry: RetryPolicy | None = None,
) -> Flow[Result]:
    """Attach a container to a network (spec 1.1.0, section 3, Adding an attachment).

    Every executable is found and the record is written before the first plugin runs. The record is completed after
    the last one; a failure in between is rolled back.
    """
    check_network_name(net.name)
    rt.check()
    if on_existing not in get_args(OnExisting):
        raise ValueError(f"on_existing must be one of {', '.join(get_args(OnExisting))}, not {on_existing!r}")
    if not net.plugins:
        raise ConfigError(f'network "{net.name}" has no plugins', file=net.file, location="plugins")
    unused = _unused_capabilities(net, rt, strict=strict)
    if negotiate_version:
        net = yield from negotiate_flow(net, path)
    executables = yield Find(tuple(plugin.type for plugin in net.plugins))
    replaced = yield from _make_room(net.name, rt, path, on_existing)
    chain = Chain(net, rt, executables, path, retry)
    record: Record = yield Begin(replace(pending_record(net, rt), path=replaced))
    result: Result | None = None
    try:
        result = yield from chain.add(strict=strict)
        yield Complete(replace(record, state=READY, result=result.text))
    except CNIError as error:
        if rollback:
            yield from _roll_back(chain, record, result, error)
        raise
    return replace(result, unused_capabilities=unused)


def _unused_capabilities(net: NetworkConfigList, rt: RuntimeConf, *, strict: bool) -> tuple[str, ...]:
    unused = net.unused_capabilities(rt.capability_args or {})
    if unused:
        problem = f'network "{net.name}": no plugin takes the capability arguments {", ".join(unused)}'
        if strict:
            raise ConfigError(problem, file=net.file, hint="declare them in the plugin's capabilities")
        logger.warning("%s", problem)
    return unused


def _roll_back(chain: Chain, record: Record, result: Result | None, error: CNIError) -> Flow[None]:
    """Run DEL through the whole chain, in reverse order and over errors; add these to ``error``."""
    yield StartCleanup()
    takes_result = supports(chain.net.cni_version, "prevResult on DEL")
    prev_result = result.text if result is not None and takes_result else None
    reports = yield from detach_chain(chain, prev_result, DelPolicy(keep_going=True))
    errors = errors_in(reports)
    if not errors:
        try:
            yield Forget(record)
        except CNIError as forgetting:
            errors = [forgetting]
    error.rollback_errors = tuple(errors)
    for problem in errors:
        error.add_note(f"when it was rolled back: {problem}")


def _make_room(network: str, rt: RuntimeConf, path: Sequence[str], on_existing: OnExisting) -> Flow[str]:
    """Take the locks, and see to what is recorded of the same (container, interface), on whatever network.

    What has to be detached may belong to other networks. Locks are taken network first, so these are added and all
    is taken anew, until nothing unexpected is found. Return the path of a record that is to be replaced, or "".
    """
    networks = {network}
    while True:
        yield Lock(LockRequest(tuple(sorted(networks)), rt.container_id))
        found: list[Record] = yield Siblings(rt.container_id, rt.ifname)
        kept, stale = yield from _sort_out(found, on_existing)
        needed = networks | {record.network for record in stale}
        if needed == networks:
            break
        networks = needed
    for record in stale:
        logger.warning("%s: detached before ADD: it is %s", record.path, record.state)
        try:
            yield from detach_record(record, path)
        except CNIError as error:
            error.add_note(f"ADD was detaching {record.path}, which is {record.state}, first; {_WAY_OUT}")
            raise
    return next((record.path for record in kept if record.network == network), "")


def _sort_out(found: Sequence[Record], on_existing: OnExisting) -> Flow[tuple[list[Record], list[Record]]]:
    """Return the records that stay beside this ADD, and those to detach; raise AttachmentExistsError for a live one."""
    kept: list[Record] = []
    stale: list[Record] = []
    for record in found:
        is_live = yield from _is_live(record)
        if is_live and on_existing == "refuse":
            raise _exists(record)
        (kept if is_live and on_existing == "allow" else stale).append(record)
    return kept, stale


def _is_live(record: Record) -> Flow[bool]:
    """Return whether a record is of this boot, complete, and its namespace is the one that it was."""
    return record.state == READY and (yield from is_same_namespace(record))


def _exists(record: Record) -> AttachmentExistsError:
    return AttachmentExistsError(
        f"container {record.container_id} is already attached to network {record.network} with interface "
        f"{record.ifname} ({record.path})",
        container_id=record.container_id,
        ifname=record.ifname,
        network=record.network,
    )
