"""Find corrupt records, records that were set aside, unfinished verbs, and temporary files."""

from __future__ import annotations

import os
import re
from functools import partial

from libcni.diagnosis.locks import plugin_processes
from libcni.diagnosis.node_view import NodeView, detach_command, name_of
from libcni.diagnosis.report import Checked, NodeFinding, NotChecked, Observations, counted, quoted
from libcni.errors import RecordError
from libcni.store.attachments import Attachment, is_valid_pair
from libcni.store.locks import LockRequest, is_locked
from libcni.store.record import CORRUPT, DETACHING, PENDING
from libcni.store.repair import repair_records

_warning = partial(NodeFinding, "records", "warning")

_HALF_DONE = {PENDING: "ADD", DETACHING: "DEL"}
_ASIDE = re.compile(r"(.+)\.\d{10,}")


def check_records(node: NodeView) -> Observations:
    """Find records that cannot be read, that were set aside, or whose verb did not end."""
    if node.record_error is not None:
        yield NotChecked("records", node.record_error.path or node.cni.cache_dir, str(node.record_error))
        return
    directory = node.cni.cache_dir
    # A misspelt directory must not look like a node without containers.
    missing = "" if os.path.lexists(directory) else ", a directory that does not exist"
    yield Checked("records", f"{counted(len(node.attachments), 'record')} in {directory}{missing}")
    for one in node.attachments:
        if one.is_denied:
            # The record may be in order. The commands for a corrupt one would detach a container that works.
            yield NotChecked("records", one.path, f"{one.problem}; run it as root")
        elif one.state == CORRUPT:
            yield _corrupt(node, one)
        elif not one.network:
            yield _warning(
                one.path, "an old record of Go libcni that does not name its attachment", "no sweep can detach it",
                "libcni del NETWORK -c ID, with the network and container of its file name",
            )  # fmt: skip
        elif one.state in _HALF_DONE:
            yield _half_done(node, one)
    yield from _set_aside(node)
    yield from _temporary(node)


def _corrupt(node: NodeView, one: Attachment) -> NodeFinding:
    name = os.path.basename(one.path)
    identity = _identity(node, name)
    meaning = "the attachment cannot be detached from its record"
    remedy = "set the record aside:"
    commands: tuple[str, ...] = ("libcni repair --yes",)
    if identity is not None and node.configured(identity[0]) is not None:
        network, container_id, ifname = identity
        meaning += f"; by its file name it is container {container_id}, {network}, {ifname}"
        remedy = "detach it with the network's file of today; the record is set aside then:"
        commands = (detach_command(container_id, ifname, network),)
    return NodeFinding("records", "error", one.path, one.problem, meaning, remedy, commands)


def _identity(node: NodeView, name: str) -> tuple[str, str, str] | None:
    """Return (network, container ID, interface) of a record's file name, as far as the known networks tell."""
    networks = {net.name for net in node.networks} | {one.network for one in node.attachments if one.network}
    # Names may contain hyphens, so the longest known network that fits is taken: "a-b" before "a".
    for network in sorted(networks, key=len, reverse=True):
        container_id, separator, ifname = name.removeprefix(f"{network}-").rpartition("-")
        if name.startswith(f"{network}-") and separator and "~" not in name and is_valid_pair(container_id, ifname):
            return network, container_id, ifname
    return None


def _half_done(node: NodeView, one: Attachment) -> NodeFinding:
    verb = _HALF_DONE[one.state]
    processes = plugin_processes(node.cni, one)
    running = ", ".join(f"{found.command} (PID {found.pid}, {found.verb})" for found in processes)
    # A pending record alone does not tell an ADD that runs from one that was killed. The kernel releases the lock of
    # a killed process, so the lock tells.
    try:
        is_running = is_locked(node.cni.cache_dir, LockRequest((), one.container_id))
    except RecordError:
        is_running = False
    if is_running:
        seen = f"its {verb} runs now" + (f": {running}" if running else "")
        return NodeFinding("records", "note", name_of(one), seen, "", "wait for its end")
    meaning = "it is attached in part" if verb == "ADD" else "it is detached in part"
    detach = detach_command(one.container_id, one.ifname)
    if one.record.is_shared and verb == "ADD" and not processes:
        seen = "its ADD found the interface there, and did not succeed"
        return _warning(name_of(one), seen, "the interface is another program's", commands=(detach,))
    if not processes:
        # The record does not say which of the two it was.
        failed = "its roll-back failed" if verb == "ADD" else "a plugin failed in it"
        return _warning(name_of(one), f"its {verb} was interrupted, or {failed}", meaning, commands=(detach,))
    # The environment of the processes names this attachment and this lock file, so no other runtime's plugin is named.
    kill = "kill " + " ".join(str(found.pid) for found in processes)
    return _warning(
        name_of(one), f"its {verb} was interrupted, and a plugin still runs: {running}",
        f"{meaning}, and the plugin may still change it", "wait for the plugin, or end it; then detach:",
        (kill, detach),
    )  # fmt: skip


def _set_aside(node: NodeView) -> Observations:
    directory = os.path.join(node.cni.cache_dir, "corrupt")
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        yield NotChecked("records", directory, f"it cannot be listed: {error.strerror}")
        return
    for name in names:
        match = _ASIDE.fullmatch(name)
        identity = _identity(node, match[1]) if match else None
        path = os.path.join(directory, name)
        remedy, commands = (
            "remove the file when you have read it:",
            [f"{'rm -r' if os.path.isdir(path) and not os.path.islink(path) else 'rm'} {quoted(path)}"],
        )
        meaning = "its attachment is unknown"
        if identity is not None:
            network, container_id, ifname = identity
            meaning = f"by its file name it was container {container_id}, {network}, {ifname}"
            is_attached = any((one.network, one.container_id, one.ifname) == identity for one in node.attachments)
            if node.configured(network) is not None and not is_attached:
                remedy = "detach it, if that was not done; then remove the file:"
                commands = [detach_command(container_id, ifname, network), *commands]
        yield _warning(path, "a corrupt record that was set aside", meaning, remedy, tuple(commands))


def _temporary(node: NodeView) -> Observations:
    try:
        report = repair_records(node.cni.cache_dir, dry_run=True)
    except RecordError as error:
        yield NotChecked("records", error.path, str(error))
        return
    if report.temporary:
        yield _warning(
            node.cni.cache_dir, f"{counted(len(report.temporary), 'temporary file')} of killed programs",
            "they use space, nothing else", commands=("libcni repair --yes",),
        )  # fmt: skip
