"""Find attachments whose network namespace no longer exists, and those from before the last reboot."""

from __future__ import annotations

import os
import time
from functools import partial

from libcni._wording import counted
from libcni.diagnosis.node_state import NAMED, NodeState, Space, finding_about, mend_of, name_of, sees_processes
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations
from libcni.diagnosis.rules import rules_to_remove
from libcni.store.attachments import Attachment, namespace_has_gone
from libcni.store.boot import sees_same_processes
from libcni.store.model import CORRUPT, STALE_BOOT, Ours, Place, same_namespace
from libcni.store.recorded_place import place_of

__all__ = ["attachment_age"]


def attachment_age(attachment: Attachment) -> float | None:
    """Return the age of an attachment in seconds, or None if its record has no time.

    Within one boot the age is measured with the boot clock, which cannot be set. If the record has only a wall-clock
    time, an age below zero is shown as zero.
    """
    record = attachment.record
    if record.uptime is not None and attachment.state != STALE_BOOT:
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - record.uptime)
    return None if record.created is None else max(0.0, time.time() - record.created)


def _why_gone(attachment: Attachment) -> str:
    if attachment.state == STALE_BOOT:
        return "it was attached before the last reboot"
    if attachment.state != "gone" and not namespace_has_gone(attachment.record):
        return ""
    how = "was replaced by another one" if os.path.exists(attachment.netns) else "has gone"
    return f"its namespace {attachment.netns} {how}"


def _why_unknown(node: NodeState, attachment: Attachment) -> str:
    """Return why this program might not see a process in the namespace of an attachment; "" if it would see it."""
    if attachment.state == STALE_BOOT:
        return ""
    if not sees_same_processes(attachment.record):
        return "its processes are in another PID namespace: run this program in the PID namespace of the ADD"
    # Go libcni records no PID namespace. A file that is missing in a visible directory has gone; in /run/netns the
    # mount alone may be hidden from this program.
    directory = os.path.realpath(os.path.dirname(attachment.netns))
    return node.blind if attachment.made_by_go and (directory == NAMED or not os.path.isdir(directory)) else ""


def _space_without_path(node: NodeState, attachment: Attachment) -> Space | None:
    """Return an attachment's namespace if it still exists, and its path no longer leads to it; else None.

    A path can lose its namespace while the container runs: it was unmounted, its process has ended, somebody has
    edited the record, or this program has another mount namespace. If the address were freed then, a second container
    would get it.
    """
    identity = attachment.record.netns_id
    space = node.spaces.get(identity) if identity is not None and attachment.state != STALE_BOOT else None
    if space is None:
        return None
    # Use the cookie that was read with the processes. If a process has ended since, its PID may lead to another
    # container now, whose namespace may have the same inode number.
    cookie = space.network.cookie if space.network is not None else 0
    if not same_namespace(place_of(attachment.record), Place(identity, cookie)):
        return None
    # Before Linux 5.14 there are no cookies: the same inode number at another path may be a later namespace.
    return space if space.process or (cookie and attachment.record.netns_cookie) else None


def check_namespaces(node: NodeState) -> Observations:
    """Find attachments from before the last reboot, and those whose namespace was removed or replaced."""
    known = [attachment for attachment in node.attachments if attachment.state != CORRUPT and attachment.network]
    for attachment in known:
        reason = _why_gone(attachment)
        if reason and (unknown := _why_unknown(node, attachment)):
            yield NotChecked("namespaces", name_of(attachment), f"{reason}, and {unknown}")
        elif reason and (space := _space_without_path(node, attachment)) is not None:
            yield _lost_path(attachment, space)
        elif reason:
            yield _dead(node, attachment, reason)
        elif attachment.netns and not attachment.netns.startswith("/"):
            yield NotChecked("namespaces", name_of(attachment), f"{attachment.netns} is not a path")
        elif attachment.made_by_go and not attachment.netns:
            yield NotChecked("namespaces", name_of(attachment), "its record by Go libcni does not name the namespace")
        elif attachment.netns and isinstance(attachment.record, Ours) and attachment.record.netns_id is None:
            yield NotChecked("namespaces", name_of(attachment), f"{attachment.netns} did not exist at its ADD")
    if not sees_processes():
        reason = "this program does not see the processes that live there (hostPID: true)"
        yield NotChecked("namespaces", f"namespaces outside {NAMED}", reason)
    if known:
        yield Checked("namespaces", f"namespaces of {counted(len(known), 'attachment')}")


def _dead(node: NodeState, attachment: Attachment, reason: str) -> NodeFinding:
    about = partial(finding_about, "namespaces", "warning", attachment, "dead")
    for address in node.addresses_of(attachment):
        for space, link, recorded in node.holders.get(address, ()):
            if not any(other.network == attachment.network for other in recorded):
                seen = f"{reason}, and its address {address} is on {link.name} in {space.path}"
                remedy = "find out whose interface has the address: a DEL would free it"
                return about(
                    seen, "a container may use the address", remedy, (mend_of("detach", attachment, interrupts=True),)
                )
    # A killed ADD may have reserved an address and created rules for it before it could record the address.
    reserved = node.reserved_for(attachment.network, attachment.container_id)
    addresses = node.addresses_of(attachment) or [
        other.address for other in reserved if other.ifname in {"", attachment.ifname}
    ]
    rules = rules_to_remove(node, attachment.network, attachment.container_id, attachment.ifname, addresses)
    return about(reason, "its addresses are still reserved", "", (*rules, mend_of("detach", attachment)))


def _lost_path(attachment: Attachment, space: Space) -> NodeFinding:
    """Return the finding for a namespace that has lost its path, but has a process or another path."""
    present = f"process {space.process} still lives there" if space.process else f"the namespace is at {space.path} now"
    seen = f"{attachment.netns} no longer leads to its namespace, but {present}"
    about = partial(finding_about, "namespaces", "warning", attachment, "lost-path", seen)
    meaning = "to other programs its container seems to have ended; a DEL would free addresses in use"
    if space.process:
        return about(meaning, f"restart the container, or call repair again when process {space.process} has ended")
    return about(
        meaning, f"find out whether a container uses {space.path}; call repair again when the namespace has gone"
    )
