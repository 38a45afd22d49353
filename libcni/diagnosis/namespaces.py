"""Find attachments whose network namespace no longer exists, and those from before the last reboot."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial

from libcni.diagnosis.node_state import NAMED, NodeState, Space, finding_about, mend_of, name_of, sees_processes
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted
from libcni.diagnosis.rules import rules_to_remove
from libcni.store.attachments import Attachment, namespace_has_gone
from libcni.store.boot import sees_same_processes
from libcni.store.entered_namespace import is_no_namespace
from libcni.store.model import CORRUPT, STALE_BOOT, Ours, Place, same_namespace
from libcni.store.recorded_interfaces import place_of

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


def _why_gone(one: Attachment) -> str:
    if one.state == STALE_BOOT:
        return "it was attached before the last reboot"
    if one.state != "gone" and not namespace_has_gone(one.record):
        return ""
    how = "was replaced by another one" if os.path.exists(one.netns) else "has gone"
    return f"its namespace {one.netns} {how}"


def _why_unknown(node: NodeState, one: Attachment) -> str:
    """Return why this program might not see a process in the namespace of an attachment; "" if it would see it."""
    if one.state == STALE_BOOT:
        return ""
    if not sees_same_processes(one.record):
        return "its processes are in another PID namespace: run this in that of the ADD"
    # Go records no PID namespace. A directory that this program sees tells enough, but not one of mounts.
    directory = os.path.realpath(os.path.dirname(one.netns))
    return node.blind if one.made_by_go and (directory == NAMED or not os.path.isdir(directory)) else ""


def _space_by_now(node: NodeState, one: Attachment) -> Space | None:
    """Return the namespace of an attachment of this boot if its path no longer leads to it; None if it has ended.

    A path can lose its namespace while the container runs: it was unmounted, its process has ended, somebody has
    edited the record, or this program has another mount namespace. If the address were freed then, a second container
    would get it.
    """
    identity = one.record.netns_id
    space = node.spaces.get(identity) if identity is not None and one.state != STALE_BOOT else None
    if space is None:
        return None
    # Use the cookie that was read with the processes. If a process has ended since, its PID may lead to another
    # container now, whose namespace may have the same inode number.
    cookie = space.network.cookie if space.network is not None else 0
    if not same_namespace(place_of(one.record), Place(identity, cookie)):
        return None
    # Before Linux 5.14, without cookies, the number behind another path is that of a later namespace.
    return space if space.process or (cookie and one.record.netns_cookie) else None


def check_namespaces(node: NodeState) -> Observations:
    """Find attachments from before the last reboot, and those whose namespace was removed or replaced."""
    known = [one for one in node.attachments if one.state != CORRUPT and one.network]
    for one in known:
        reason = _why_gone(one)
        if reason and (unknown := _why_unknown(node, one)):
            yield NotChecked("namespaces", name_of(one), f"{reason}, and {unknown}")
        elif reason and (space := _space_by_now(node, one)) is not None:
            yield _lost_path(one, space)
        elif reason:
            yield _dead(node, one, reason)
        elif one.netns and not one.netns.startswith("/"):
            yield NotChecked("namespaces", name_of(one), f"{one.netns} is no path")
        elif one.made_by_go and not one.netns:
            yield NotChecked("namespaces", name_of(one), "its record, of Go libcni, does not name the namespace")
        elif one.netns and isinstance(one.record, Ours) and one.record.netns_id is None:
            yield NotChecked("namespaces", name_of(one), f"{one.netns} did not exist at its ADD")
    if not sees_processes():
        reason = "this program does not see the processes that live there (hostPID: true)"
        yield NotChecked("namespaces", f"namespaces outside {NAMED}", reason)
    if known:
        yield Checked("namespaces", f"namespaces of {counted(len(known), 'attachment')}")


def _dead(node: NodeState, one: Attachment, reason: str) -> NodeFinding:
    about = partial(finding_about, one, "namespaces", "warning", "dead")
    for address in node.addresses_of(one):
        for space, link in node.holders.get(address, ()):
            if not [other for other in node.recorded_at(one.network, address, space.path) if other is not one]:
                seen = f"{reason}, and its address {address} is on {link.name} in {space.path}"
                remedy = "find out whose interface has the address: a DEL would free it"
                return about(
                    seen, "a container may use the address", remedy, (mend_of("detach", one, interrupts=True),)
                )
    # The record of an ADD that was killed may not have the address yet that its plugin had got and made rules for.
    reserved = node.reserved_for(one.network, one.container_id)
    addresses = node.addresses_of(one) or [other.address for other in reserved if other.ifname in {"", one.ifname}]
    # No rule survives a reboot.
    rules = rules_to_remove(node, one.network, one.container_id, one.ifname, addresses)
    if one.state == STALE_BOOT:
        rules = ()
    return about(reason, "its addresses are still reserved", "", (*rules, mend_of("detach", one)))


def _lost_path(one: Attachment, space: Space) -> NodeFinding:
    """Return the finding for a namespace that has lost its path, but has a process or another path."""
    by_now = f"process {space.process} lives in that" if space.process else f"that is {space.path} now"
    seen = f"{one.netns} does not lead to its namespace any more, and {by_now}"
    about = partial(finding_about, one, "namespaces", "warning", "lost-path", seen)
    meaning = "to other programs its container seems to have ended; a DEL would free addresses in use"
    if not space.process:
        return about(meaning, f"find out whether a container uses {space.path}; call repair when it has gone")
    if not is_no_namespace(one.netns):
        # After a mount over another container's namespace, that container's tear-down would remove this container's.
        return about(meaning, "another container has the path: call repair when the process has ended")
    if not _sees_mounts_of_the_node():
        # The path may be in order in the runtime's mount namespace, and a mount from here could break it.
        return about(meaning, "call repair in the mount namespace of process 1, which may have the path")
    return about(meaning, "", (replace(mend_of("restore-path", one), target=one.netns),))


def _sees_mounts_of_the_node() -> bool:
    """Return whether this program is in the mount namespace of process 1, like runtimes; False if that is unknown."""
    with suppress(OSError):
        own, first = os.stat("/proc/self/ns/mnt"), os.stat("/proc/1/ns/mnt")
        return (own.st_dev, own.st_ino) == (first.st_dev, first.st_ino)
    return False
