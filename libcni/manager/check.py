"""Check all attachments of a container; go on after errors."""

from __future__ import annotations

from libcni.errors import CNIError, CNIErrorGroup, NotAttachedError, PluginError, VersionError
from libcni.manager.networks import NetworkSet
from libcni.manager.operation import ManagerOperation
from libcni.manager.report import Item, Report
from libcni.store.attachments import Attachment, in_order, may_belong_to, unnamed_error
from libcni.verbs.check import check as check_attachment
from libcni.verbs.client_base import attachment_conf, attachment_operation


async def check(operation: ManagerOperation, container_id: str, networks: NetworkSet) -> Report:
    """Check every attachment of a container; raise all errors but known faults as one CNIErrorGroup with the report.

    Raises NotAttachedError if the container has no record.
    """
    await operation.lock_if_possible(container_id)
    await operation.run.take_turn()
    # The store also returns torn records, because any of them may be this container's. Only those whose file name fits
    # count here: a foreign torn record must not fail this check.
    recorded = [
        attachment
        for attachment in await operation.attachments(container_id)
        if attachment.network or may_belong_to(attachment.path, container_id)
    ]
    if not recorded:
        raise NotAttachedError(f"container {container_id}: no attachment is recorded", container_id=container_id)
    items = [await _check(operation, attachment, networks) for attachment in in_order(recorded)]
    report = Report(tuple(items))
    errors = [item.error for item in items if item.error is not None and item.outcome != "known-fault"]
    CNIErrorGroup.raise_any(f"check of container {container_id}: {{}} failed", errors, report)
    return report


async def _check(operation: ManagerOperation, attachment: Attachment, networks: NetworkSet) -> Item:
    if not attachment.network:
        return Item("unreadable", path=attachment.path, error=unnamed_error(attachment))
    identity = (attachment.network, attachment.container_id, attachment.ifname)
    # CHECK uses the recorded configuration. The network in force is for records of Go, which lack the drop-in plugins.
    net = networks.find(attachment.network)
    run = operation.part(attachment_operation("CHECK", attachment), operation.timeout)
    try:
        report = await run.complete(check_attachment, attachment.network, net, attachment_conf(attachment))
    except VersionError:
        return Item("unsupported", *identity)
    except CNIError as error:
        # If the caller attached these containers again, it would do so after each CHECK.
        has_known_fault = isinstance(error, PluginError) and error.known_fault
        return Item("known-fault" if has_known_fault else "failed", *identity, error=error)
    return Item("ok" if report.plugins else "unsupported", *identity)
