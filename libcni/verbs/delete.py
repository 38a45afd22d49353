"""DEL: run the recorded chain in reverse order, and remove the record last."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from libcni._dataclass import replace
from libcni.config.identifiers import validate_network_name
from libcni.config.network import NetworkConfigList
from libcni.config.runtime_conf import RuntimeConf
from libcni.errors import Hint, InterfaceExistsError, NetworkNotFoundError, RecordError
from libcni.options import DelPolicy, check_type
from libcni.store.model import STATES, Identity, Record, Unreadable, unreadable
from libcni.store.place import NOT_OURS, Known, Place
from libcni.verbs.claim import Claim
from libcni.verbs.del_report import DelReport
from libcni.verbs.detach_chain import try_each_configuration
from libcni.verbs.path_to_use import check_own_netns, checked_conf, path_to_use
from libcni.verbs.target import Damaged, Recorded, Target, Unrecorded, find_target
from libcni.verbs.verb_run import VerbRun

logger: logging.Logger = logging.getLogger("libcni")


async def delete(  # noqa: PLR0913 - the attachment, and the options of the verb
    run: VerbRun,
    network: str,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    policy: DelPolicy | None = None,
    *,
    listed: Record | None = None,
) -> DelReport:
    """Detach a container from a network (spec 1.1.0, section 3, Deleting an attachment).

    Args:
        run: runs the plugins.
        network: the network's name.
        net: its configuration; None: load it from ``conf_dir`` if the record does not hold it.
        rt: the attachment. Values that are None are taken from the record.
        policy: see DelPolicy.
        listed: the record as the caller has listed it. DEL is refused if the file belongs to another ADD now.

    Raises:
        InterfaceExistsError: with ``policy.refuse_unrecorded``; nothing was run.
        RecordError: the record may belong to another ADD than the one to undo; nothing was run.
    """
    validate_network_name(network)
    rt = checked_conf(rt)
    policy = policy or DelPolicy()
    check_type("policy", policy, DelPolicy)
    await lock_if_possible(run, [network], rt.container_id)
    target = _find_target(run, (network, rt.container_id, rt.ifname))
    if net is None and listed is not None and isinstance(target, Unrecorded):
        return DelReport((), record=target.found)  # another program has detached it since it was listed
    if net is None and (policy.use_given or (listed is None and not isinstance(target, Recorded))):
        net = run.configured(network)
    match target:
        case Recorded(record):
            if listed is not None:
                check_unchanged(record, listed)
            report = await detach(run, record, net, rt, policy)
        case Damaged(file):
            report = await _detach_damaged(run, file, network, net, rt, policy)
        case Unrecorded():
            report = await _detach_unrecorded(run, network, net, rt, policy, Place(interface=NOT_OURS))
    return replace(report, record=target.found)


def _find_target(run: VerbRun, identity: Identity) -> Target:
    """Return what is recorded of an attachment. An error of the disk must not stop a DEL."""
    try:
        target = find_target(run, identity)
    except RecordError as error:
        target = Damaged(unreadable("", str(error)))
    if isinstance(target, Damaged):
        path = f"{target.file.path}: " if target.file.path else ""
        logger.warning("DEL goes on without a record: %s%s", path, target.file.problem)
    return target


async def _detach_damaged(  # noqa: PLR0913, PLR0917 - the attachment, and the options of DEL
    run: VerbRun, file: Unreadable, network: str, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy
) -> DelReport:
    """Run DEL for an attachment whose record cannot be read, and move the file aside."""
    if rt.netns is None:
        raise RecordError(
            f"{file.path or file.problem}: the record cannot be read, so the namespace of the attachment is not known",
            path=file.path,
            missing="namespace",
            hint='give the namespace\'s path, or "" if the namespace no longer exists',
        )
    report = await _detach_unrecorded(run, network, net, rt, policy, Place())
    _remove_record(run, file)
    return report


async def _detach_unrecorded(  # noqa: PLR0913, PLR0917 - the attachment, and the options of DEL
    run: VerbRun, network: str, net: NetworkConfigList | None, rt: RuntimeConf, policy: DelPolicy, place: Place
) -> DelReport:
    """Run DEL for an attachment without a usable record, with the caller's configuration.

    ``place``: without a record, no interface belongs to the attachment; with a damaged record, any interface may.
    """
    if net is None:
        problem = f'network "{network}" has no configuration, and container {rt.container_id} has no record of it'
        hint = Hint("see the configured networks", "networks")
        raise NetworkNotFoundError(f"{problem} for interface {rt.ifname}", network=network, hint=hint)
    if policy.refuse_unrecorded and not policy.use_given:
        _check_no_interface(run, network, rt)
    if policy.use_given and rt.netns:
        claim = Claim.to_any(run, None, rt.netns, rt.ifname)
    else:
        claim = Claim.unrecorded(run, place, rt.netns or "", rt.ifname)
    return await try_each_configuration(claim, net, rt, policy)


def _check_no_interface(run: VerbRun, network: str, rt: RuntimeConf) -> None:
    """Raise InterfaceExistsError if the namespace has the interface of an attachment without a usable record."""
    if rt.netns and isinstance(run.sight.look(rt.netns, rt.ifname).interface, Known):
        raise InterfaceExistsError(
            f"container {rt.container_id}: {rt.netns} has an interface {rt.ifname}, and no usable record names its "
            "owner; a DEL would free the interface's address, which may be in use",
            container_id=rt.container_id,
            ifname=rt.ifname,
            network=network,
            netns=rt.netns,
            hint=Hint("use {argument} if the interface shall be removed, whoever created it", argument="use_given"),
        )


async def lock_if_possible(run: VerbRun, networks: Sequence[str], container_id: str) -> None:
    """Acquire locks. If the lock file cannot be used, log a warning and go on: that must stop no DEL or CHECK."""
    try:
        await run.lock(networks, container_id)
    except RecordError as error:
        logger.warning("container %s: the verb goes on without locks: %s", container_id, error)


def is_unchanged(record: Record, listed: Record) -> bool:
    """Return whether a record belongs to the same ADD as the listed one, and that ADD has not ended since."""
    # With the owner: a sweep must not detach an attachment that another program has taken over meanwhile.
    names = ("identity", "owner", "created", "netns", "netns_id", "has_ended")
    return type(record) is type(listed) and all(getattr(record, name) == getattr(listed, name) for name in names)


def check_unchanged(record: Record, listed: Record) -> None:
    """Raise RecordError if a record was rewritten after the listing; see ``is_unchanged``."""
    if not is_unchanged(record, listed):
        text = f"{record.path}: the record was rewritten after the attachment was listed"
        raise RecordError(text, path=record.path, hint="list the attachments again, and repeat the call")


async def detach(  # noqa: PLR0913 - the attachment, and the options of DEL
    run: VerbRun,
    record: Record,
    net: NetworkConfigList | None,
    rt: RuntimeConf,
    policy: DelPolicy,
    *,
    keep_record: bool = False,
) -> DelReport:
    """Run DEL for a recorded attachment and remove its record. The caller holds the locks.

    The recorded configuration is used. If the ADD did not succeed and its plugins refuse DEL with that configuration,
    a second try uses the caller's configuration and arguments, with an empty CNI_NETNS if the path leads to no
    namespace. So an operator who corrects a mistake in a file or in an argument can detach and attach again.

    Args:
        run: runs the plugins.
        record: the attachment's record.
        net: the current configuration, or None; used if the record is incomplete.
        rt: the attachment. Values that are None are taken from the record.
        policy: see DelPolicy.
        keep_record: do not remove the record, because the caller replaces it.

    Raises:
        NamespaceMismatchError: ``rt`` names another namespace than the recorded one, and both exist; nothing was run.
        RecordError: there is no usable configuration.
        PluginError: a plugin failed.
        CNIErrorGroup: with ``policy.keep_going``: plugins failed.
    """
    if STATES[record.state].delete == "nothing" and not policy.use_given:
        # No plugin has run. A DEL would free the addresses that this container ID has by other records.
        report = DelReport(())
    else:
        claim = _claim(run, record, rt, policy)
        report = await try_each_configuration(claim, net, rt, policy)
        record = claim.record or record  # with the event that the DEL has begun
    if not keep_record:
        # The record goes last: after a kill in between, a further DEL finds it and repeats the calls, which is allowed.
        # A process of a killed ADD that outlived the wait may be a daemon, and would keep the record for ever.
        _remove_record(run, record)
    return report


def _claim(run: VerbRun, record: Record, rt: RuntimeConf, policy: DelPolicy) -> Claim:
    """Return the namespace of a DEL, with the check of it before each plugin."""
    if STATES[record.state].delete == "empty" and not policy.use_given:
        # A namespace at the path was created after the reboot.
        return Claim.of(run, record, "")
    path = path_to_use(run, record, rt.netns, use_given=policy.use_given)
    if policy.use_given and rt.netns:
        return Claim.to_any(run, record, path, rt.ifname)
    if record.is_own_netns:
        check_own_netns(run, record, path)
    return Claim.of(run, record, path)


def _remove_record(run: VerbRun, record: Record) -> None:
    """Remove the record of a detached attachment, or move an unreadable record to the directory ``corrupt``.

    If that fails, only log a warning: the DEL has succeeded.
    """
    try:
        if not isinstance(record, Unreadable):
            run.records.forget(record)
        elif record.path and (moved := run.records.set_aside(record)):
            logger.warning("%s: the record was moved to %s", record.path, moved)
    except RecordError as error:
        logger.warning("the container is detached, but the record cannot be removed: %s", error)
