"""Find attachments whose network namespace has gone, and those from before the last reboot."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from libcni.client import CNIConfig
from libcni.diagnosis.age import attachment_age
from libcni.diagnosis.node_view import NodeView, addresses_of, detach, name_of, plugin_documents
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted
from libcni.store.attachments import Attachment, namespace_has_gone, recorded_network
from libcni.store.record import CORRUPT, PENDING, STALE_BOOT

__all__ = ["PENDING_AFTER", "StaleAttachment", "check_namespaces", "find_stale_attachments"]

PENDING_AFTER = 600.0
"""Seconds after which an unfinished ADD counts as dead: far more than the timeout of any verb."""

_CHAIN_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class StaleAttachment:
    """A recorded attachment whose container does not exist any more.

    Attributes:
        attachment: the recorded attachment.
        reason: the evidence, such as ``its namespace /run/netns/c1 has gone``.
        commands: the shell commands that remove what DEL cannot remove without the namespace.
    """

    attachment: Attachment
    reason: str
    commands: tuple[str, ...] = ()


def find_stale_attachments(cni: CNIConfig, *, pending_after: float = PENDING_AFTER) -> tuple[StaleAttachment, ...]:
    """Return the recorded attachments whose container cannot exist any more.

    These are attachments from before the last reboot, those whose namespace has gone or was replaced by another one,
    and those whose ADD began long ago and has not ended. Only attachments of the client's owner are returned.

    Args:
        cni: the client whose records are read.
        pending_after: seconds after which an unfinished ADD counts as dead.

    Raises:
        RecordError: the records cannot be listed.
    """
    own = [attachment for attachment in cni.get_cached_attachments() if attachment.owner == cni.owner]
    found = []
    for attachment in own:
        reason = _why_gone(attachment)
        if not reason and attachment.state == PENDING:
            age = attachment_age(attachment)
            reason = "its ADD has not ended" if age is None or age > pending_after else ""
        if reason and attachment.network:
            found.append(StaleAttachment(attachment, reason, tuple(_masquerade_commands(attachment))))
    return tuple(found)


def _why_gone(attachment: Attachment) -> str:
    if attachment.state == STALE_BOOT:
        return "it was attached before the last reboot"
    if not namespace_has_gone(attachment.record):
        return ""
    how = "was replaced by another one" if os.path.exists(attachment.netns) else "has gone"
    return f"its namespace {attachment.netns} {how}"


def check_namespaces(node: NodeView) -> Observations:
    """Find attachments from before the last reboot, and those whose namespace has gone or was replaced."""
    count = 0
    for one in node.attachments:
        if one.state == CORRUPT or not one.network:
            continue
        reason = _why_gone(one)
        if reason:
            meaning, commands = "its addresses and rules are still held", _masquerade_commands(one)
            if commands:
                meaning += ". Without the namespace the plugin cannot remove its masquerade rules; "
                meaning += "the second command does"
            yield NodeFinding(
                "namespaces", "warning", name_of(one), reason, meaning, commands=(*detach(one), *commands)
            )
        elif one.netns and not one.netns.startswith("/"):
            yield NotChecked("namespaces", name_of(one), f"{one.netns} is no path")
        elif one.netns and one.record.version and one.record.netns_id is None:
            yield NotChecked("namespaces", name_of(one), f"{one.netns} did not exist at its ADD")
        count += 1
    if count:
        yield Checked("namespaces", f"namespaces of {counted(count, 'attachment')}")


def _masquerade_commands(one: Attachment) -> list[str]:
    """Return the commands that remove what DEL without a namespace leaves: the masquerade chain of Go's plugins."""
    # No rule survives a reboot, and a pending attachment may have none yet.
    documents = plugin_documents(recorded_network(one.record)) if one.state not in {STALE_BOOT, PENDING} else []
    if not any(document.get("type") in {"bridge", "ptp"} and document.get("ipMasq") for document in documents):
        return []
    digest = hashlib.sha512(f"{one.network}{one.container_id}".encode()).hexdigest()
    chain = f"CNI-{digest[:_CHAIN_CHARACTERS]}"
    programs = dict.fromkeys("ip6tables" if ":" in address else "iptables" for address in addresses_of(one))
    return [
        f"{program} -t nat -S POSTROUTING | grep {chain} | sed 's/^-A/{program} -t nat -D/' | sh; "
        f"{program} -t nat -F {chain}; {program} -t nat -X {chain}"
        for program in programs
    ]
