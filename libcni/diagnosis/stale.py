"""Find attachments whose network namespace no longer exists, and those from before the last reboot."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from libcni._netlink import read_network
from libcni.client import CNIConfig
from libcni.diagnosis.reading import Reading, addresses_of, detach_command, finding_about, name_of
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.diagnosis.rules import removal_commands
from libcni.store.attachments import Attachment, namespace_has_gone
from libcni.store.place import is_no_namespace
from libcni.store.record import CORRUPT, PENDING, STALE_BOOT, namespaces_of_processes, sees_same_processes

__all__ = ["StaleAttachment", "attachment_age", "find_stale_attachments"]

PENDING_AFTER = 600.0
"""Seconds after which an unfinished ADD is treated as abandoned: far more than the timeout of any verb."""


@dataclass(frozen=True, slots=True)
class StaleAttachment:
    """A recorded attachment whose container does not exist any more.

    Attributes:
        attachment: the recorded attachment.
        reason: the evidence, such as ``its namespace /run/netns/c1 has gone``.

    Examples:
        >>> result = cni.add_network_list(net, rt)
        >>> for stale in find_stale_attachments(cni):
        ...     print(stale.attachment.container_id, stale.reason)
    """

    attachment: Attachment
    reason: str


def attachment_age(attachment: Attachment) -> float | None:
    """Return the age of an attachment in seconds, or None if its record has no time.

    Within one boot the age is measured with the boot clock, which nobody can set. If the record has only a wall-clock
    time, an age below zero is shown as zero.
    """
    record = attachment.record
    if record.uptime is not None and attachment.state != STALE_BOOT:
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - record.uptime)
    return None if record.created is None else max(0.0, time.time() - record.created)


def find_stale_attachments(
    cni: CNIConfig, *, pending_after: float = PENDING_AFTER, include_go: bool = False
) -> tuple[StaleAttachment, ...]:
    """Return the recorded attachments whose container cannot exist any more.

    These are attachments from before the last reboot, those whose namespace no longer exists or was replaced by another
    one, and those whose ADD began long ago and has not ended. Only attachments of the client's owner are returned.

    A namespace exists as long as a process lives in it, wherever its path leads. A program in another PID namespace
    than that of the ADD cannot see such a process, so no attachment is returned to it because of a removed namespace.

    Args:
        cni: the client whose records are read.
        pending_after: seconds after which an unfinished ADD is treated as abandoned.
        include_go: for a client without an owner: return records of Go libcni, too, which name no owner.

    Raises:
        RecordError: the records cannot be listed.
    """
    processes: dict[tuple[int, int], str] | None = None
    found = []
    for one in cni.get_cached_attachments():
        if one.owner != cni.owner or not one.network or (one.made_by_go and not include_go):
            continue
        reason = _why_gone(one)
        if reason and processes is None:
            processes = namespaces_of_processes()
        if reason and (not _can_tell(one) or _process_in(one, processes or {})):
            continue
        if not reason and one.state == PENDING:
            age = attachment_age(one)
            reason = "its ADD has not ended" if age is None or age > pending_after else ""
        if reason:
            found.append(StaleAttachment(one, reason))
    return tuple(found)


def _why_gone(one: Attachment) -> str:
    if one.state == STALE_BOOT:
        return "it was attached before the last reboot"
    if not namespace_has_gone(one.record):
        return ""
    how = "was replaced by another one" if os.path.exists(one.netns) else "has gone"
    return f"its namespace {one.netns} {how}"


def _can_tell(one: Attachment) -> bool:
    """Return whether this program would see a process in the namespace of an attachment."""
    return one.state == STALE_BOOT or sees_same_processes(one.record)


def _process_in(one: Attachment, processes: dict[tuple[int, int], str]) -> str:
    """Return the number of a process in the namespace of an attachment of this boot, or "" if there is none.

    A path can lose its namespace while the container runs: it was unmounted, it was of a process that has ended, or
    this program has another mount namespace. An address that is freed then goes to a second container.
    """
    record = one.record
    if record.netns_id is None or one.state == STALE_BOOT:
        return ""
    process = processes.get(record.netns_id, "")
    if process and record.netns_cookie:
        # The kernel uses the number of a namespace again, but never its cookie.
        with suppress(OSError):
            if read_network(f"/proc/{process}/ns/net").cookie not in {0, record.netns_cookie}:
                return ""
    return process


def check_namespaces(node: Reading) -> Observations:
    """Find attachments from before the last reboot, and those whose namespace was removed or replaced."""
    known = [one for one in node.attachments if one.state != CORRUPT and one.network]
    processes = {identity: space.process for identity, space in node.spaces.items() if space.process}
    for one in known:
        reason = _why_gone(one)
        if reason and not _can_tell(one):
            unknown = f"{reason}, and its processes are in another PID namespace: run this in that of the ADD"
            yield NotChecked("namespaces", name_of(one), unknown)
        elif reason and (process := _process_in(one, processes)):
            yield _lost_path(one, process)
        elif reason:
            yield _gone(node, one, reason)
        elif one.netns and not one.netns.startswith("/"):
            yield NotChecked("namespaces", name_of(one), f"{one.netns} is no path")
        elif one.netns and one.record.version and one.record.netns_id is None:
            yield NotChecked("namespaces", name_of(one), f"{one.netns} did not exist at its ADD")
    if known:
        yield Checked("namespaces", f"namespaces of {counted(len(known), 'attachment')}")


def _gone(node: Reading, one: Attachment, reason: str) -> NodeFinding:
    detach = detach_command(one.container_id, one.ifname)
    about = partial(finding_about, one, "namespaces", "warning", reason)
    for address in addresses_of(one):
        for space, link in node.holders.get(address, ()):
            if not [other for other in node.recorded_at(one.network, address, space.path) if other is not one]:
                meaning = f"its address {address} is on {link.name} in {space.path}: a container may use it"
                return about(meaning, "find out whose it is. Nobody's? Then:", disrupts=(detach,))
    meaning, rules = "its addresses are still reserved", []
    # No rule survives a reboot, and a pending attachment may have none yet.
    if one.state not in {STALE_BOOT, PENDING}:
        rules = removal_commands(node, one.network, one.container_id, one.ifname, addresses_of(one), is_recorded=True)
    if rules:
        meaning += ". Without the namespace the plugin cannot remove its masquerade rules"
    return about(meaning, commands=(detach, *rules))


def _lost_path(one: Attachment, process: str) -> NodeFinding:
    """Return the finding for a namespace that has lost its path, and in which a process lives."""
    seen = f"{one.netns} does not lead to its namespace any more, and process {process} lives in that"
    meaning = "to other programs its container seems to have ended; a DEL would free addresses in use"
    about = partial(finding_about, one, "namespaces", "warning", seen)
    if not is_no_namespace(one.netns):
        # A mount over another container's namespace would let the tear-down of that container remove this one's.
        return about(meaning, "another container has the path: call repair when the process has ended")
    path, link = quoted(one.netns), f"/proc/{process}/ns/net"
    inode = one.record.netns_id[1] if one.record.netns_id is not None else 0
    # Another process may have the number when the command is typed, for example one of the host.
    command = f'[ "$(readlink {link})" = "net:[{inode}]" ] && touch {path} && mount --bind {link} {path}'
    return about(f"{meaning}. The command restores the path", commands=(command,))
