"""Change records without running a plugin: forget an attachment, or take it over from another owner."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from libcni.errors import RecordError
from libcni.store.attachments import Attachment, attachment_of, recorded_network
from libcni.store.model import Unreadable
from libcni.verbs.delete import check_unchanged, lock_if_possible
from libcni.verbs.node import Node

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
    """Remove an attachment's record without running a plugin. Everything that its plugins made stays.

    Raises:
        RecordError: the record is of another ADD than the listed one, or it cannot be removed.
    """
    if attachment.container_id:
        await lock_if_possible(node, [attachment.network], attachment.container_id)
    record = node.records.read(attachment.path.rpartition("/")[2])
    if record is not None:
        # While this waited for the lock, an ADD may have ended or begun: the file may be of a live attachment.
        check_unchanged(record, attachment.record)
    net = recorded_network(attachment.record)
    plugins = tuple(plugin.type for plugin in net.plugins) if net is not None else ()
    node.records.forget(attachment.record)
    # The caller asked for it, and gets the plugins in the report.
    logger.info(
        "%s: the record was removed; effects of its plugins may be left: %s", attachment.path, ", ".join(plugins)
    )
    return ForgetReport(attachment.path, plugins)


async def take_over(node: Node, attachment: Attachment) -> Attachment:
    """Make an attachment this client's own, so that its GC and repair manage it.

    Raises:
        RecordError: the record no longer exists, cannot be read, or cannot be written.
    """
    await node.lock([attachment.network], attachment.container_id)
    record = node.records.find(attachment.record.identity)
    if record is None or isinstance(record, Unreadable):
        raise RecordError(f"{attachment.path}: there is no record that can be taken over", path=attachment.path)
    taken = record.with_fields(owner=node.settings.owner)
    node.records.rewrite(taken, "taken over")
    return attachment_of(taken, node.records)
