"""Change records without running a plugin: forget an attachment, or take it over from another owner."""

from __future__ import annotations

import logging

from libcni._dataclass import dataclass
from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachments_of, recorded_network
from libcni.verbs.delete import check_unchanged, lock_if_possible
from libcni.verbs.node import Node
from libcni.verbs.target import Recorded, find_target

__all__ = ["ForgetReport"]

logger: logging.Logger = logging.getLogger("libcni")


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """A record that was removed without running a plugin.

    Attributes:
        path: the file that was removed.
        plugins: the types of the plugins whose effects may still exist; () if the record did not name them.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> cni.forget_attachment(cni.get_cached_attachments()[0]).plugins
        ('bridge',)
    """

    path: str
    plugins: tuple[str, ...] = ()


async def forget(node: Node, attachment: Attachment) -> ForgetReport:
    """Remove an attachment's record without running a plugin. The resources that its plugins created stay.

    Raises:
        RecordError: the record belongs to another ADD than the listed one, or it cannot be removed.
    """
    if attachment.container_id:
        await lock_if_possible(node, [attachment.network], attachment.container_id)
    record = node.records.read(attachment.path.rpartition("/")[2])
    if record is not None:
        # While this waited for the lock, an ADD may have ended or begun, and the file may now name a live attachment.
        check_unchanged(record, attachment.record)
    net = recorded_network(attachment.record)
    plugins = tuple(plugin.type for plugin in net.plugins) if net is not None else ()
    node.records.forget(attachment.record)
    # The caller asked for it, and receives the plugins in the report.
    logger.info(
        "%s: the record was removed; effects of its plugins may be left: %s", attachment.path, ", ".join(plugins)
    )
    return ForgetReport(attachment.path, plugins)


async def take_over(node: Node, attachment: Attachment) -> Attachment:
    """Make this client the owner of an attachment, so that its GC and repair manage the attachment.

    Raises:
        RecordError: the record no longer exists, cannot be read, or cannot be written.
    """
    await node.lock([attachment.network], attachment.container_id)
    target = find_target(node, attachment.record.identity)
    if not isinstance(target, Recorded):
        problem = f"{attachment.path}: the record no longer exists, or cannot be read: it cannot be taken over"
        raise RecordError(problem, path=attachment.path, hint="list the attachments again")
    taken = target.record.with_fields(owner=node.settings.owner)
    node.records.rewrite(taken, "taken over")
    return attachments_of([taken], node.records)[0]
