"""Forget an attachment: remove its record without running a plugin."""

from __future__ import annotations

import logging

from libcni._dataclass import dataclass
from libcni.store.attachments import Attachment, recorded_network
from libcni.verbs.delete import check_unchanged, lock_if_possible
from libcni.verbs.verb_run import VerbRun

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


async def forget(run: VerbRun, attachment: Attachment) -> ForgetReport:
    """Remove an attachment's record without running a plugin. The resources that its plugins created stay.

    Raises:
        RecordError: the record belongs to another ADD than the listed one, or it cannot be removed.
    """
    if attachment.container_id:
        await lock_if_possible(run, [attachment.network], attachment.container_id)
    record = run.records.read(attachment.path.rpartition("/")[2])
    if record is not None:
        # While this waited for the lock, an ADD may have ended or begun, and the file may now name a live attachment.
        check_unchanged(record, attachment.record)
    net = recorded_network(attachment.record)
    plugins = tuple(plugin.type for plugin in net.plugins) if net is not None else ()
    run.records.forget(attachment.record)
    # The caller asked for it, and receives the plugins in the report.
    text = "%s: the record was removed; interfaces, addresses or rules of these plugins may remain: %s"
    logger.info(text, attachment.path, ", ".join(plugins))
    return ForgetReport(attachment.path, plugins)
