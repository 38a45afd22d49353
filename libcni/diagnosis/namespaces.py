"""Find attachments whose network namespace no longer exists, and those from before the last reboot."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from libcni.diagnosis.mends import Mend, id_of, mend_of
from libcni.diagnosis.node_state import NodeState
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, finding_about, name_of
from libcni.diagnosis.rules_left import rules_to_remove
from libcni.errors import counted, some
from libcni.kernel.life import Answer
from libcni.kernel.namespace import NamespaceId, is_empty_file, namespace_identity
from libcni.store.attachments import Attachment
from libcni.store.life_of_record import age_of
from libcni.store.model import CORRUPT, LIVING, STALE_BOOT, Ours

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


def check_namespaces(node: NodeState) -> Observations:
    """Find attachments from before the last reboot, those whose namespace has ended, and those whose path was lost."""
    known = [attachment for attachment in node.attachments if attachment.state != CORRUPT and attachment.network]
    yield from filter(None, (_of(node, attachment) for attachment in known))
    yield from _replaced(node)
    if hidden := node.life.walk.blind or node.life.walk.outside:
        yield NotChecked("namespaces", "processes, mounts and descriptors that hold namespaces", hidden)
    # Users can make as many as they like: name one.
    if users := [space for space in node.spaces.values() if space.network is None and not space.is_trusted]:
        yield NotChecked("namespaces", f"a user's namespace, {users[-1].path}", users[-1].problem)
    if known:
        yield Checked("namespaces", f"namespaces of {counted(len(known), 'attachment')}")


def _of(node: NodeState, attachment: Attachment) -> NodeFinding | NotChecked | None:
    answer, netns = node.life_of(attachment), attachment.netns
    if answer.is_dead:
        return _dead(node, attachment, _why_gone(attachment))
    if answer.is_alive and answer.sign != "path":
        return _lost_path(node, attachment, answer)
    if _is_empty_pod(node, attachment) and attachment.path not in node.replaced:
        seen = f"nothing runs in {netns}: the pod's sandbox was killed, or its start failed"
        remedy = "if the runtime does not remove the sandbox by itself: crictl stopp, then crictl rmp"
        return finding_about(
            "namespaces", "note", attachment, "empty-pod", seen, "the container's addresses stay reserved", remedy
        )
    reason = ""
    if netns and not netns.startswith("/"):
        reason = f"{netns} is not a path"
    elif attachment.made_by_go and not netns:
        reason = "the record by Go libcni does not name the namespace"
    elif not answer.is_alive and netns:
        reason = f"{_why_gone(attachment)}, and {answer.reason}"
    elif netns and isinstance(attachment.record, Ours) and attachment.record.netns_id is None:
        reason = f"{netns} did not exist when the container was attached"
    return NotChecked("namespaces", name_of(attachment), reason) if reason else None


def _replaced(node: NodeState) -> Observations:
    """Find sandboxes without a process whose pods have another sandbox now, as a half-done reset leaves them."""
    old = [attachment for attachment in node.attachments if attachment.path in node.replaced]
    if old:
        yield NodeFinding(
            "namespaces", "warning", "empty-pod",
            name_of(old[0]) if len(old) == 1 else counted(len(old), "attachment"),
            some([f"{id_of(one)}: nothing runs in {one.netns}, and {_runs_as(node, one)}" for one in old], "; "),
            "the addresses stay reserved, and rules for published ports may lead the pods' clients there",
            remove_replaced(old), (), tuple(map(id_of, old)),
        )  # fmt: skip


def _runs_as(node: NodeState, attachment: Attachment) -> str:
    return f"the pod {attachment.pod} runs as {node.replaced[attachment.path].container_id}"


def replaced_by(node: NodeState, attachment: Attachment) -> str:
    """Return text about the newer sandbox of an attachment's pod; "" if the pod has none."""
    is_replaced = attachment.path in node.replaced
    return f", in which nothing runs: {_runs_as(node, attachment)}" if is_replaced else ""


def remove_replaced(old: Sequence[Attachment]) -> str:
    """Return the shell commands that remove the old sandboxes of pods that have a newer sandbox."""
    names = shlex.join(dict.fromkeys(attachment.container_id for attachment in old))
    verb = f"libcni del {names}" if names.count(" ") == 0 else f"for id in {names}; do libcni del $id; done"
    # A runtime that knows a sandbox sends the DEL itself.
    return f"if crictl pods lists {names}: crictl stopp {names}; then crictl rmp {names}; if not: {verb}"


def _is_empty_pod(node: NodeState, attachment: Attachment) -> bool:
    """Return whether a pod has no process, not even its sandbox's, which a runtime starts after the ADD."""
    space, age = node.space_of(attachment), age_of(attachment.record)
    is_old = age is not None and age > node.pending_after
    return (
        is_old and bool(attachment.pod) and attachment.ifname != "lo" and attachment.state in LIVING
        and space is not None and not space.process and not node.life.why_blind(attachment.record.pid_namespace)
    )  # fmt: skip


def _why_gone(attachment: Attachment) -> str:
    if attachment.state == STALE_BOOT:
        return "the attachment is from before the last reboot"
    how = "was replaced by another one" if os.path.exists(attachment.netns) else "has gone"
    how = "was unmounted, and the empty file of its name is left" if is_empty_file(attachment.netns) else how
    return f"the namespace {attachment.netns} {how}"


def _dead(node: NodeState, attachment: Attachment, reason: str) -> NodeFinding:
    about = partial(finding_about, "namespaces", "warning", attachment, "dead")
    # A killed ADD may have reserved an address and created rules for it before it could record the address.
    reserved = node.reserved_for(attachment.network, attachment.container_id)
    addresses = node.addresses_of(attachment) or [
        other.address for other in reserved if other.ifname in {"", attachment.ifname}
    ]
    for address in addresses:
        for space, link, recorded in node.holders.get(address, ()):
            if not any(other.network == attachment.network for other in recorded):
                seen = f"{reason}, but the address {address} is on {link.name} in {space.path}"
                remedy = "find out whose interface has the address: a DEL would free the address"
                return about(
                    seen, "a container may use the address", remedy, (mend_of("detach", attachment, interrupts=True),)
                )
    rules = rules_to_remove(node, attachment.network, attachment.container_id, attachment.ifname, addresses)
    meaning = "the container's addresses are still reserved" if addresses else "only the record is left"
    return about(reason, meaning, "", (*rules, mend_of("detach", attachment)))


def _lost_path(node: NodeState, attachment: Attachment, answer: Answer) -> NodeFinding | NotChecked:
    """Return the finding for a container that lives, although its path no longer leads to its namespace."""
    held = node.life.walk.held.get(answer.netns[1]) if answer.netns is not None else None
    names = {attachment.netns}
    with suppress(OSError):  # of a link in another user's /proc/PID/ns
        names.add(os.path.realpath(attachment.netns))
    if held is not None and not held.mounts.isdisjoint(names):
        # For example of a service with PrivateMounts: its path is in order for the service.
        reason = f"{attachment.netns} is mounted in the mount namespace of another program only"
        return NotChecked("namespaces", name_of(attachment), reason)
    seen = f"{attachment.netns} no longer leads to the namespace, but the namespace lives: {answer.reason}"
    about = partial(finding_about, "namespaces", "error", attachment, "lost-path", seen)
    meaning = "to other programs the container seems to have ended; a DEL would free addresses in use"
    if _can_mount(attachment.netns, answer.netns):
        mend = Mend("mount", attachment.netns, (), (id_of(attachment),), (), attachment.network, attachment.path)
        return about(meaning, mends=(mend,))
    return about(meaning, "restart the container, or call repair again when it has ended")


def _can_mount(path: str, netns: NamespaceId | None) -> bool:
    """Return whether a namespace can be mounted at its path: nothing is there, or only an empty file."""
    if netns is None or not path.startswith("/") or path.startswith("/proc/"):
        return False
    present = namespace_identity(path)
    return present is None or (present[0] != netns[0] and is_empty_file(path))
