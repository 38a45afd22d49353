"""Find attachments whose network namespace has gone, and those from before the last reboot."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass

from libcni.client import CNIConfig
from libcni.config.network import NetworkConfigList
from libcni.diagnosis.age import attachment_age
from libcni.diagnosis.node_view import NodeView, addresses_of, detach_command, name_of, plugin_documents
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.store.attachments import Attachment, namespace_has_gone, recorded_network
from libcni.store.namespace import EnteredNamespace, is_no_namespace
from libcni.store.record import CORRUPT, PENDING, STALE_BOOT, namespaces_of_processes, sees_same_processes

__all__ = ["StaleAttachment", "find_stale_attachments"]

PENDING_AFTER = 600.0
"""Seconds after which an unfinished ADD is treated as abandoned: far more than the timeout of any verb."""

_CHAIN_CHARACTERS = 28


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
    and those whose ADD began long ago and has not ended. Only attachments of the client's owner are returned. A
    namespace has not gone as long as a process lives in it, wherever its path leads. A program in another PID namespace
    than that of the ADD cannot see such a process, so it gets no attachment whose namespace has gone.

    Args:
        cni: the client whose records are read.
        pending_after: seconds after which an unfinished ADD is treated as abandoned.

    Raises:
        RecordError: the records cannot be listed.
    """
    own = [attachment for attachment in cni.get_cached_attachments() if attachment.owner == cni.owner]
    found = []
    inhabited = _Inhabited()
    for attachment in own:
        reason = _why_gone(attachment)
        if reason and (not _can_tell(attachment) or inhabited.process_in(attachment)):
            continue
        if not reason and attachment.state == PENDING:
            age = attachment_age(attachment)
            reason = "its ADD has not ended" if age is None or age > pending_after else ""
        if reason and attachment.network:
            found.append(StaleAttachment(attachment, reason, tuple(masquerade_commands(attachment))))
    return tuple(found)


def _why_gone(attachment: Attachment) -> str:
    if attachment.state == STALE_BOOT:
        return "it was attached before the last reboot"
    if not namespace_has_gone(attachment.record):
        return ""
    how = "was replaced by another one" if os.path.exists(attachment.netns) else "has gone"
    return f"its namespace {attachment.netns} {how}"


def _can_tell(attachment: Attachment) -> bool:
    """Return whether this program would see a process in the namespace of an attachment."""
    return attachment.state == STALE_BOOT or sees_same_processes(attachment.record)


class _Inhabited:
    """The network namespaces of all processes; they are read when they are first asked for."""

    def __init__(self) -> None:
        self._processes: dict[tuple[int, int], str] | None = None

    def process_in(self, attachment: Attachment) -> str:
        """Return the number of a process in the namespace of an attachment of this boot, or "" if there is none.

        A path can lose its namespace while the container runs: it was unmounted, it was of a process that has ended, or
        this program has another mount namespace. An address that is freed then goes to a second container.
        """
        record = attachment.record
        if record.netns_id is None or attachment.state == STALE_BOOT:
            return ""
        if self._processes is None:
            self._processes = namespaces_of_processes()
        process = self._processes.get(record.netns_id, "")
        # The kernel uses the number of a namespace again, but never its cookie.
        if process and record.netns_cookie:
            entered = EnteredNamespace.enter(f"/proc/{process}/ns/net")
            if entered is not None:
                with closing(entered):
                    seen = entered.look_up(attachment.ifname)
                if seen is not None and seen.cookie not in {0, record.netns_cookie}:
                    return ""
        return process


def check_namespaces(node: NodeView) -> Observations:
    """Find attachments from before the last reboot, and those whose namespace has gone or was replaced."""
    count = 0
    inhabited = _Inhabited()
    for one in node.attachments:
        if one.state == CORRUPT or not one.network:
            continue
        reason = _why_gone(one)
        if reason and not _can_tell(one):
            unknown = f"{reason}, and its processes are in another PID namespace: run this in that of the ADD"
            yield NotChecked("namespaces", name_of(one), unknown)
        elif reason and (process := inhabited.process_in(one)):
            yield _lost_path(one, process)
        elif reason:
            meaning, commands = "its addresses and rules are still held", masquerade_commands(one)
            if commands:
                meaning += ". Without the namespace the plugin cannot remove its masquerade rules; "
                meaning += "the second command does"
            commands = [detach_command(one.container_id, one.ifname), *commands]
            yield NodeFinding("namespaces", "warning", name_of(one), reason, meaning, commands=tuple(commands))
        elif one.netns and not one.netns.startswith("/"):
            yield NotChecked("namespaces", name_of(one), f"{one.netns} is no path")
        elif one.netns and one.record.version and one.record.netns_id is None:
            yield NotChecked("namespaces", name_of(one), f"{one.netns} did not exist at its ADD")
        count += 1
    if count:
        yield Checked("namespaces", f"namespaces of {counted(count, 'attachment')}")


def _lost_path(one: Attachment, process: str) -> NodeFinding:
    """Return the finding for a namespace that has lost its path, and in which a process lives."""
    seen = f"{one.netns} does not lead to its namespace any more, and process {process} lives in that"
    meaning = "to other programs its container seems to have ended; a DEL would free addresses in use"
    if not is_no_namespace(one.netns):
        # A mount over another container's namespace would let the tear-down of that container remove this one's.
        remedy = "another container has the path: call repair when the process has ended"
        return NodeFinding("namespaces", "warning", name_of(one), seen, meaning, remedy)
    path, link = quoted(one.netns), f"/proc/{process}/ns/net"
    inode = one.record.netns_id[1] if one.record.netns_id is not None else 0
    # Another process may have the number when the command is typed, for example one of the host.
    command = f'[ "$(readlink {link})" = "net:[{inode}]" ] && touch {path} && mount --bind {link} {path}'
    meaning += ". The command restores the path"
    return NodeFinding("namespaces", "warning", name_of(one), seen, meaning, commands=(command,))


def masquerade_commands(one: Attachment) -> list[str]:
    """Return commands that remove the masquerade rules of Go's plugins, which DEL without the interface leaves."""
    # No rule survives a reboot, and a pending attachment may have none yet.
    net = recorded_network(one.record) if one.state not in {STALE_BOOT, PENDING} else None
    return masquerade_commands_of(net, one.container_id, addresses_of(one))


def masquerade_commands_of(net: NetworkConfigList | None, container_id: str, addresses: Iterable[str]) -> list[str]:
    """Return the commands for addresses of a container on a network."""
    types = {document.get("type") for document in plugin_documents(net) if document.get("ipMasq")}
    if net is None or not types & {"bridge", "ptp"}:
        return []
    rules: dict[str, list[str]] = {}
    for address in addresses:
        # All interfaces of a container on a network have one chain, and the rules of the other interfaces must stay.
        rule = f"-s {address}/{128 if ':' in address else 32} "
        rules.setdefault(_program(address), []).append(f" -e {quoted(rule)}")
    return [
        _chain_command(program, "POSTROUTING", "CNI-", f"{net.name}{container_id}", f"| grep -F{''.join(its)} ")
        for program, its in rules.items()
    ]


def port_commands(net: NetworkConfigList, container_id: str, address: str) -> list[str]:
    """Return commands that remove all published ports of a container, which DEL without a record leaves."""
    if all(document.get("type") != "portmap" for document in plugin_documents(net)):
        return []
    return [_chain_command(_program(address), "CNI-HOSTPORT-DNAT", "CNI-DN-", f"{net.name}{container_id}")]


def _program(address: str) -> str:
    return "ip6tables" if ":" in address else "iptables"


def _chain_command(program: str, parent: str, prefix: str, name: str, select: str = "") -> str:
    """Return the command that removes the rules that lead to a chain, and the chain if none is left."""
    chain = f"{prefix}{hashlib.sha512(name.encode()).hexdigest()}"[:_CHAIN_CHARACTERS]
    nat = f"{program} -t nat"
    return (
        f"if {nat} -S {chain} > /dev/null; then {nat} -S {parent} | grep {chain} {select}| sed 's/^-A/{nat} -D/' | sh; "
        f"{nat} -S {parent} | grep -q {chain} || {{ {nat} -F {chain} && {nat} -X {chain}; }}; fi"
    )
